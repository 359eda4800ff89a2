//! Short ways to publish, clean and look at what is left.

pub use crate::support::stage::{LONG, Stage, topic_name};
use prombus_core::*;
use prombus_engine::Cleaned;
use std::sync::atomic::Ordering;

/// An event to publish: a key, where it has one, its ts, and whether it is a tombstone.
#[derive(Debug, Clone, Copy, Default)]
pub struct Draft<'a> {
    pub key: Option<&'a str>,
    pub ts: Option<u64>,
    pub ends: bool,
}

/// An event of a key.
pub fn of(key: &str) -> Draft<'_> {
    Draft { key: Some(key), ..Draft::default() }
}

/// One that ends it.
pub fn end_of(key: &str) -> Draft<'_> {
    Draft { ends: true, ..of(key) }
}

impl Stage {
    pub async fn topic_with(&self, name: &str, settings: TopicPatch) -> TopicName {
        let name = topic_name(name);
        self.set(&name, settings).await;
        name
    }

    pub async fn set(&self, topic: &TopicName, settings: TopicPatch) {
        self.hub.put_topic(topic, settings).await.expect("settings can be changed");
    }

    pub async fn record(&self, topic: &TopicName, drafts: &[Draft<'_>]) -> Vec<Appended> {
        let append = |draft: &Draft<'_>| {
            let payload = if draft.ends { "null" } else { r#"{"some":"payload"}"# };
            let payload = Json::parse(payload.into()).expect("JSON");
            let event = NewEvent { ts: draft.ts, key: draft.key.map(Into::into), ..NewEvent::new(payload) };
            Append::new(topic.clone(), event)
        };
        self.hub.publish(drafts.iter().map(append).collect()).await.expect("events can be published").events
    }

    /// Publishes so many events, each a millisecond after the other.
    pub async fn record_in_time(&self, topic: &TopicName, count: u64) -> u64 {
        let start = self.clock.now_ms();
        for _ in 0..count {
            self.record(topic, &[Draft::default()]).await;
            self.clock.advance(1);
        }
        start
    }

    pub async fn clean(&self, topic: &TopicName) -> Cleaned {
        self.hub.cleaning().clean(topic).await.expect("a topic can be cleaned")
    }

    /// What is left, as partition and offset.
    pub async fn left(&self, topic: &TopicName) -> Vec<(u32, u64)> {
        self.events(topic).await.iter().map(|event| (event.partition.0, event.offset.0)).collect()
    }

    /// The offsets that are left in partition 0.
    pub async fn offsets(&self, topic: &TopicName) -> Vec<u64> {
        self.left(topic).await.iter().filter(|(partition, _)| *partition == 0).map(|(_, at)| *at).collect()
    }

    pub async fn kept(&self, topic: &TopicName) -> Vec<Kept> {
        let state = self.hub.topic(topic).await.expect("topics can be read").expect("it is there");
        self.hub.kept(&state).await.expect("what is kept can be told")
    }

    /// How many events were read and looked up since this was asked last.
    pub fn looked_at(&self) -> (usize, usize) {
        (self.log.paged.swap(0, Ordering::SeqCst), self.log.looked_up.swap(0, Ordering::SeqCst))
    }
}

pub fn compacted() -> TopicPatch {
    TopicPatch { compaction: Some(true), ..TopicPatch::default() }
}
