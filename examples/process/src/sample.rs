//! Sample processes that beat, for those who have none of their own.

use crate::HEARTBEATS;
use crate::beat::Heartbeat;
use prombus_client::{Client, ClientError, NewEvent};
use std::time::Duration;

const HOSTS: [&str; 3] = ["web1", "web2", "db1"];
const NAMES: [&str; 3] = ["api", "stt", "worker"];
/// How often each of them beats.
const EVERY: Duration = Duration::from_secs(1);

/// Has some sample processes beat once a second, until it is dropped.
pub async fn beat_forever(client: &Client) {
    let mut beats = tokio::time::interval(EVERY);
    loop {
        beats.tick().await;
        if let Err(error) = beat_all(client).await {
            tracing::warn!(%error, "the sample processes could not beat");
        }
    }
}

async fn beat_all(client: &Client) -> Result<(), ClientError> {
    let mut events = Vec::new();
    for (n, host) in HOSTS.into_iter().enumerate() {
        for (m, name) in NAMES.into_iter().enumerate() {
            let beat = Heartbeat {
                host: host.into(),
                name: name.into(),
                pid: (1_000 + 100 * n + m) as u32,
                sid: None,
                cpu_pct: f64::from(fastrand::u32(0..1_000)) / 10.0,
                mem_mb: f64::from(fastrand::u32(50..500)),
            };
            events.push(NewEvent::of(&beat)?.with_key(beat.process_id()));
        }
    }
    client.publish_batch(HEARTBEATS, &events).await?;
    Ok(())
}
