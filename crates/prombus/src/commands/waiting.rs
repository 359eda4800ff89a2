//! Reports what a command is waiting for if that does not exist yet: a mistyped name would otherwise go unnoticed.

use crate::say;
use prombus_client::Client;

/// Reports which of these comma-separated names and patterns match no topic yet. Nothing is reported if the caller may
/// not see the topics.
pub async fn announce(client: &Client, topics: &str) {
    let wanted = topics.split(',').filter(|wanted| !wanted.is_empty());
    let (patterns, names): (Vec<_>, Vec<_>) = wanted.partition(|wanted| wanted.contains('*'));
    for name in names {
        if matches!(client.topic(name).await, Ok(None)) {
            say!("waiting for topic {name}: it does not exist yet");
        }
    }
    if patterns.is_empty() {
        return;
    }
    let Ok(there) = client.topics().await else { return };
    for pattern in patterns {
        if !there.iter().any(|topic| prombus_server::stands_for(pattern, &topic.topic)) {
            say!("waiting for topics that match {pattern}: there are none yet");
        }
    }
}
