//! Tests of projections without a hub: given these events, when this one comes, then these documents are there.

use futures::FutureExt;
use prombus_core::document::apply;
use prombus_core::{Event, Json, Offset, Partition, SystemClock, TopicName, WriteOp};
use prombus_engine::projections::{Definition, Plan, Project, Trial};
use prombus_store_memory::MemoryStore;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

/// A projection on trial.
///
/// ```
/// use prombus_testkit::Given;
/// use serde_json::json;
///
/// Given::projection(json!({
///     "topic": "process.state",
///     "write": [{"collection": "host_stats", "key": "event.payload.host", "inc": {"seen": "1"}}],
/// }))
/// .event("p1", json!({"host": "web1"}))
/// .event("p2", json!({"host": "web1"}))
/// .then("host_stats", "web1", json!({"seen": 2}))
/// .when_fails("p3", json!({"no": "host"}));
/// ```
pub struct Given {
    projection: Projection,
    topic: TopicName,
    /// The collections that it writes.
    collections: BTreeSet<String>,
    events: u64,
}

/// What is on trial.
enum Projection {
    /// A definition, and what it has written.
    Plan { plan: Plan, documents: Bodies },
    /// A projection in Rust.
    Code(Box<Trial>),
}

impl Given {
    /// A projection by its definition, and nothing has happened yet. Panics where it makes no sense.
    #[track_caller]
    #[allow(clippy::panic, reason = "a test that cannot go on should say why")]
    pub fn projection(definition: Value) -> Self {
        let definition: Definition = match serde_json::from_value(definition) {
            Ok(definition) => definition,
            Err(error) => panic!("invalid projection definition: {error}"),
        };
        let plan = match Plan::compile("given", &definition) {
            Ok(plan) => plan,
            Err(error) => panic!("invalid projection: {error}"),
        };
        let projection = Projection::Plan { plan, documents: BTreeMap::new() };
        let collections = definition.collections().map(str::to_owned).collect();
        Self { projection, topic: definition.topic, collections, events: 0 }
    }

    /// A projection in Rust of a topic into these collections, and nothing has happened yet. Panics where the topic's
    /// name is none.
    ///
    /// ```
    /// use prombus_testkit::Given;
    /// use serde_json::json;
    ///
    /// prombus_engine::projection! {
    ///     /// Adds up what each customer owes.
    ///     pub struct Debts;
    ///     async fn apply(event, tx) {
    ///         let order: serde_json::Value = event.payload.parse()?;
    ///         let Some(cents) = order["cents"].as_u64() else { return Err("an order without a price".into()) };
    ///         tx.inc("debts", event.key.as_deref().unwrap_or_default(), "cents", cents).await
    ///     }
    /// }
    ///
    /// Given::code("orders", &["debts"], Debts)
    ///     .event("c-7", json!({"cents": 1990}))
    ///     .event("c-7", json!({"cents": 10}))
    ///     .then("debts", "c-7", json!({"cents": 2000}))
    ///     .when_fails("c-7", json!({"cents": "many"}));
    /// ```
    #[track_caller]
    #[allow(clippy::panic, reason = "a test that cannot go on should say why")]
    pub fn code(topic: &str, collections: &[&str], project: impl Project) -> Self {
        let topic = match TopicName::parse(topic) {
            Ok(topic) => topic,
            Err(error) => panic!("{error}"),
        };
        let nothing = Arc::new(MemoryStore::new(Arc::new(SystemClock), 0));
        let projection = Projection::Code(Box::new(Trial::new(project, collections, nothing)));
        let collections = collections.iter().map(|name| (*name).to_owned()).collect();
        Self { projection, topic, collections, events: 0 }
    }

    fn apply(&mut self, key: &str, payload: &Value) -> Result<(), String> {
        let event = Event {
            id: Uuid::from_u128(u128::from(self.events) + 1),
            ts: self.events,
            recorded_ts: self.events,
            topic: self.topic.clone(),
            key: Some(key.into()),
            partition: Partition(0),
            offset: Offset(self.events),
            sid: None,
            headers: None,
            payload: Json::from_value(payload),
            caused_by: None,
            tags: None,
        };
        self.events += 1;
        match &mut self.projection {
            Projection::Plan { plan, documents } => {
                *documents = after(plan, documents.clone(), &event)?;
                Ok(())
            }
            // It depends on nothing but the event and what it reads, all of which is here.
            Projection::Code(trial) => match trial.apply(&event).now_or_never() {
                Some(applied) => applied.map_err(|failure| failure.to_string()),
                None => Err("it waits for something else than its documents".to_owned()),
            },
        }
    }

    /// A document, if there is one. Panics where the projection does not write the collection: its name is mistyped, and
    /// a test that expects nothing there would not notice.
    #[track_caller]
    fn document(&self, collection: &str, key: &str) -> Option<&Json> {
        let is_written = self.collections.contains(collection);
        let all = self.collections.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        assert!(is_written, "this projection does not write a collection {collection:?}; it writes {all}");
        match &self.projection {
            Projection::Plan { documents, .. } => documents.get(&(collection.to_owned(), key.to_owned())),
            Projection::Code(trial) => trial.document(collection, key),
        }
    }

    /// The keys of a collection, for messages.
    fn keys(&self, collection: &str) -> String {
        let keys: Vec<&str> = match &self.projection {
            Projection::Plan { documents, .. } => {
                let here = documents.keys().filter(|(of, _)| of == collection);
                here.map(|(_, key)| key.as_str()).collect()
            }
            Projection::Code(trial) => trial.keys(collection).into_iter().collect(),
        };
        if keys.is_empty() { "none".to_owned() } else { keys.join(", ") }
    }

    /// An event comes, with its key and payload. Panics where it fails.
    #[track_caller]
    #[must_use]
    #[allow(clippy::panic, reason = "a test that cannot go on should say why")]
    pub fn event(mut self, key: &str, payload: Value) -> Self {
        if let Err(reason) = self.apply(key, &payload) {
            panic!("the event {payload} goes to the dead letters: {reason}");
        }
        self
    }

    /// An event comes that goes to the dead letters. Panics where it does not.
    #[track_caller]
    #[allow(clippy::must_use_candidate, reason = "it is the last word of many tests")]
    pub fn when_fails(mut self, key: &str, payload: Value) -> Self {
        assert!(self.apply(key, &payload).is_err(), "the event {payload} does not fail");
        self
    }

    /// A document has these fields now, and no others. Panics also where the projection does not write the collection.
    #[track_caller]
    #[allow(clippy::must_use_candidate, reason = "it is the last word of many tests")]
    #[allow(clippy::panic, reason = "a test that cannot go on should say why")]
    pub fn then(self, collection: &str, key: &str, document: Value) -> Self {
        match self.document(collection, key).and_then(|body| body.to_value().ok()) {
            Some(found) => assert!(found == document, "{collection}/{key} is {found}, not {document}"),
            None => panic!("{collection} has no document {key:?}; it has {}", self.keys(collection)),
        }
        self
    }

    /// There is no such document. Panics also where the projection does not write the collection.
    #[track_caller]
    #[allow(clippy::must_use_candidate, reason = "it is the last word of many tests")]
    #[allow(clippy::panic, reason = "a test that cannot go on should say why")]
    pub fn then_none(self, collection: &str, key: &str) -> Self {
        if let Some(found) = self.document(collection, key) {
            panic!("{collection}/{key} is {found:?}");
        }
        self
    }
}

type Bodies = BTreeMap<(String, String), Json>;

/// The documents after an event.
fn after(plan: &Plan, mut documents: Bodies, event: &Event) -> Result<Bodies, String> {
    for write in plan.apply(event)? {
        let place = (write.collection.to_string(), write.key);
        let before = documents.get(&place);
        match apply(before, &write.op).map_err(|error| error.to_string())? {
            Some(body) => documents.insert(place, body),
            None => documents.remove(&place),
        };
        debug_assert!(!matches!(write.op, WriteOp::Receipt(_)), "only commits write receipts");
    }
    Ok(documents)
}
