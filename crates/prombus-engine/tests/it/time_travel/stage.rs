//! Short ways to travel in time that fail loudly.

pub use crate::support::stage::*;
use prombus_core::*;
use prombus_engine::{Reduce, StateAt, TimeTravelError};
use prombus_testkit::build::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What became of a question.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// The payload, or what payloads came to.
    State(String),
    Nothing,
    /// It is gone before this.
    Gone(u64),
}

pub fn state(text: &str) -> Answer {
    Answer::State(text.into())
}

/// What became of a question, where it was answered or refused for what was given up.
pub fn told<S>(answer: Result<Option<StateAt<S>>, TimeTravelError>, show: impl Fn(S) -> String) -> Answer {
    match answer {
        Ok(Some(answer)) => Answer::State(show(answer.state)),
        Ok(None) => Answer::Nothing,
        Err(TimeTravelError::Gone { horizon_ts, .. }) => Answer::Gone(horizon_ts),
        Err(error) => panic!("a state is known or gone, but: {error}"),
    }
}

pub fn text(json: Json) -> String {
    String::from_utf8(json.as_bytes().to_vec()).expect("JSON is text")
}

/// An event of a key with a time.
pub fn keyed(topic: &TopicName, key: &str, (ts, payload): (u64, &str)) -> Append {
    let event = NewEvent { ts: Some(ts), key: Some(key.into()), ..NewEvent::new(json(payload)) };
    Append::new(topic.clone(), event)
}

impl Stage {
    /// Publishes events of a key.
    pub async fn push(&self, topic: &TopicName, key: &str, events: &[(u64, &str)]) -> Vec<Appended> {
        let events = events.iter().map(|event| keyed(topic, key, *event)).collect();
        self.hub.publish(events).await.expect("events can be published").events
    }

    pub async fn replaced(&self, topic: &TopicName, key: &str, at: u64) -> Answer {
        told(self.hub.time_travel().state_at(topic, key, (at, Reduce::Replace)).await, text)
    }

    pub async fn merged(&self, topic: &TopicName, key: &str, at: u64) -> Answer {
        told(self.hub.time_travel().state_at(topic, key, (at, Reduce::Merge)).await, text)
    }

    /// All keys with their states, as they are found with so much memory.
    pub async fn all_keys(
        &self,
        topic: &TopicName,
        at: u64,
        keys_bytes: usize,
    ) -> Result<BTreeMap<String, String>, TimeTravelError> {
        let mut all = self.hub.time_travel().all_at(topic, at).await?.within(keys_bytes);
        let mut found = BTreeMap::new();
        while let Some(page) = all.next_page().await? {
            for event in page {
                let key = event.key.clone().expect("only what has a key").to_string();
                assert!(event.ts <= at, "{event:?} is later");
                assert_eq!(found.insert(key, text(event.payload)), None, "a key is there once");
            }
        }
        Ok(found)
    }

    pub async fn change(&self, change: ConfigChange) {
        let commit = Commit { config: vec![change], ..Commit::default() };
        self.log.commit(Arc::new(commit)).await.expect("the store takes it");
    }

    /// Gives up single events of partition 0.
    pub async fn discard_of(&self, topic: &TopicName, offsets: &[u64], horizon_ts: Option<u64>) {
        let topic = self.hub.topic(topic).await.expect("a topic").expect("a topic").pinned();
        let offsets = Arc::new(offsets.iter().copied().map(Offset).collect());
        let loss = Loss { bytes: 0, horizon_ts };
        self.change(ConfigChange::Discard { topic, partition: Partition(0), offsets, loss }).await;
    }

    /// Trims a partition as a user does.
    pub async fn cleaned_up_to(&self, topic: &TopicName, (partition, before): (u32, u64)) {
        self.hub.cleaning().trim(topic, Partition(partition), Offset(before)).await.expect("a trim");
    }

    /// Gives up what is below an offset.
    pub async fn trim_of(&self, topic: &TopicName, (partition, before): (u32, u64), horizon_ts: u64) {
        let (topic, partition, before) = (topic.into(), Partition(partition), Offset(before));
        let loss = Loss { bytes: 0, horizon_ts: Some(horizon_ts) };
        self.change(ConfigChange::Trim { topic, partition, before, loss }).await;
    }
}
