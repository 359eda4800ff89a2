//! Short ways to use replays that fail loudly.

pub use crate::support::stage::*;
use prombus_core::*;
use prombus_engine::query::From;
use prombus_engine::replays::{Definition, Mapping, ReplayState, ReplayStatus, Source};
use serde_json::Value;

/// A replay of all of one topic into another one.
pub fn all(source: &str, target: &str) -> Definition {
    Definition {
        source: Source { topic: topic_name(source), from: From::Earliest, partition: None, to_ts: None },
        filter: None,
        map: Mapping::default(),
        target: topic_name(target),
        rate_per_s: None,
    }
}

/// The same with expressions.
pub fn mapped(filter: Option<&str>, payload: Option<&str>, key: Option<&str>) -> Definition {
    let text = |source: Option<&str>| source.map(str::to_owned);
    Definition {
        filter: text(filter),
        map: Mapping { payload: text(payload), key: text(key) },
        ..all("from", "to")
    }
}

impl Stage {
    pub async fn publish_numbered(&self, topic: &TopicName, numbers: std::ops::Range<u64>) {
        let event = |n: u64| {
            let mut event = NewEvent::new(Json::from_stored(format!("{{\"n\":{n}}}").into()));
            event.key = Some(format!("k{}", n % 7).into());
            Append::new(topic.clone(), event)
        };
        for some in numbers.collect::<Vec<_>>().chunks(1_000) {
            self.hub
                .publish(some.iter().copied().map(event).collect())
                .await
                .expect("events can be published");
        }
    }

    pub async fn begin(&self, name: &str, definition: Definition) -> ReplayStatus {
        self.hub.replays().begin(name, definition).await.expect("a replay can be begun")
    }

    pub async fn replay(&self, name: &str) -> ReplayStatus {
        self.hub.replays().get(name).await.expect("a replay has a status")
    }

    /// The replay once it is as it must become.
    pub async fn until_replay(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&ReplayStatus) -> bool,
    ) -> ReplayStatus {
        let looked = async {
            loop {
                let status = self.replay(name).await;
                if holds(&status) {
                    return status;
                }
                tokio::task::yield_now().await;
            }
        };
        match tokio::time::timeout(LONG, looked).await {
            Ok(status) => status,
            Err(_) => panic!("{what}, but: {:#?}", self.replay(name).await),
        }
    }

    pub async fn done(&self, name: &str) -> ReplayStatus {
        self.until_replay(name, "the replay is done", |status| status.state == ReplayState::Done).await
    }

    /// The payloads of a topic, by partition and offset.
    pub async fn payloads(&self, topic: &TopicName) -> Vec<Value> {
        self.events(topic).await.iter().map(|event| event.payload.to_value().expect("JSON")).collect()
    }
}
