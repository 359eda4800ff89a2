//! The publish load of one connection.

use super::http::{HttpError, More};
use super::template::{Destination, Shape, Template};
use super::{Shared, topic_name};
use std::time::Instant;

/// Publishes batch after batch until all events were given out.
pub async fn connection(shared: &Shared<'_>) -> Result<(), HttpError> {
    let args = shared.args;
    let topics: Vec<String> = (0..args.topics).map(|topic| topic_name(&args.prefix, topic)).collect();
    let shape = Shape {
        payload_bytes: args.size as usize,
        own_ids: args.own_ids,
        keys: args.keys,
        fields: args.fields,
    };
    let destination =
        Destination { base_path: &shared.target.base_path, topic: &topics[0], head: &shared.target.head };
    let mut template = Template::new(args.batch as usize, &shape, &destination);
    let mut connection = shared.target.connect().await?;
    while let Some((first, count)) = shared.next_batch() {
        if count != template.events() {
            template = Template::new(count, &shape, &destination);
        }
        let bytes = template.body_bytes() as u64;
        let topic = &topics[(first / u64::from(args.batch)) as usize % topics.len()];
        let request = template.fill(topic, first);
        let started = Instant::now();
        connection.call(request, |_| More::Yes).await?;
        shared.finished(started, bytes);
        shared.progress.inc(count as u64);
    }
    Ok(())
}

impl Shared<'_> {
    /// The first number and the length of a batch that nobody else publishes.
    fn next_batch(&self) -> Option<(u64, usize)> {
        let first = self.events.get();
        let count = (self.args.events - first).min(u64::from(self.args.batch));
        self.events.set(first + count);
        (count > 0).then_some((first, count as usize))
    }
}
