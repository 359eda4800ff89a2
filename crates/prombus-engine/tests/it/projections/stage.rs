//! Short ways to use projections that fail loudly.

pub use crate::support::stage::*;
use crate::support::switch::{Refusal, Which};
use prombus_core::*;
use prombus_engine::projections::{Definition, MinOffset, ProjectionError, ProjectionStatus};
use serde_json::{Value, json};

impl Stage {
    /// Publishes payloads, with a key or without.
    pub async fn publish(
        &self,
        topic: &TopicName,
        events: impl IntoIterator<Item = (&str, Value)>,
    ) -> Vec<Appended> {
        let events = events.into_iter().map(|(key, payload)| append(topic, Some(key), &payload)).collect();
        self.hub.publish(events).await.expect("events can be published").events
    }

    pub async fn put(&self, name: &str, definition: Value) -> ProjectionStatus {
        self.try_put(name, definition).await.expect("a projection can be put")
    }

    pub async fn try_put(&self, name: &str, definition: Value) -> Result<ProjectionStatus, ProjectionError> {
        let definition: Definition = serde_json::from_value(definition).expect("a definition");
        self.hub.projections().put(name, definition).await.map(|(status, _)| status)
    }

    pub async fn status(&self, name: &str) -> ProjectionStatus {
        self.hub.projections().get(name).await.expect("a projection has a status")
    }

    /// The status, once it is as it must become.
    pub async fn until(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&ProjectionStatus) -> bool,
    ) -> ProjectionStatus {
        let looked = async {
            loop {
                let status = self.status(name).await;
                if holds(&status) {
                    return status;
                }
                tokio::task::yield_now().await;
            }
        };
        match tokio::time::timeout(LONG, looked).await {
            Ok(status) => status,
            Err(_) => panic!("{what}, but: {:#?}", self.status(name).await),
        }
    }

    /// Waits until a projection has seen all that there is of its topic.
    pub async fn caught_up(&self, name: &str) -> ProjectionStatus {
        let status = self.status(name).await;
        for at in status.partitions.iter().filter(|at| at.tail.0 > 0) {
            let wanted = MinOffset { partition: Some(at.partition), offset: Offset(at.tail.0 - 1) };
            let looked = async {
                while !self
                    .hub
                    .projections()
                    .until_seen(&status.collections[0], wanted)
                    .await
                    .expect("a place")
                {}
            };
            if tokio::time::timeout(LONG, looked).await.is_err() {
                panic!("{name} does not get there: {:#?}", self.status(name).await);
            }
        }
        self.status(name).await
    }

    /// Makes the collections of a projection anew, and waits until they are there.
    pub async fn rebuilt(&self, name: &str) -> ProjectionStatus {
        self.hub.projections().rebuild(name, false).await.expect("a rebuild can be begun");
        self.until(name, "the rebuild ends", |status| status.rebuild.is_none()).await
    }

    /// What readers see of a document.
    pub async fn document(&self, collection: &str, key: &str) -> Option<Value> {
        let found = self.hub.collections().document(collection, key).await.expect("documents can be read");
        found.map(|document| document.to_json().to_value().expect("JSON"))
    }

    /// A field of a document, `null` where there is none.
    pub async fn field(&self, collection: &str, key: &str, field: &str) -> Value {
        self.document(collection, key).await.map_or(Value::Null, |document| document[field].clone())
    }

    /// All documents of a collection, as readers see them and with their tags.
    pub async fn all(&self, collection: &str) -> Vec<(String, u128)> {
        let request = ScanRequest { collection: collection.into(), after: None, limit: usize::MAX };
        let found = self.log.scan(request).await.expect("documents can be read");
        let seen = |document: Document| (format!("{:?}", document.to_json()), document.etag);
        found.into_iter().map(seen).collect()
    }

    /// Refuses some commits.
    pub fn refuse(&self, which: Which, times: usize, error: CommitError) {
        self.log.refuse(Refusal { which, after: 0, times, error, happens: false });
    }
}

pub fn append(topic: &TopicName, key: Option<&str>, payload: &Value) -> Append {
    let mut event = NewEvent::new(Json::from_value(payload));
    event.key = key.map(Into::into);
    Append::new(topic.clone(), event)
}

/// A commit that moves the cursors of something.
pub fn moves_cursors(commit: &Commit) -> bool {
    !commit.cursors.is_empty()
}

/// A transactional projection that counts events, by the field `k` of their payload.
pub fn counter(topic: &str, collection: &str) -> Value {
    json!({"topic": topic, "write": [
        {"collection": collection, "key": "event.payload.k", "inc": {"n": "1", "sum": "event.payload.v"}},
    ]})
}

/// A changelog of payloads under the keys of their events.
pub fn changelog(topic: &str, collection: &str) -> Value {
    json!({"topic": topic, "collection": collection, "key": "event.key"})
}
