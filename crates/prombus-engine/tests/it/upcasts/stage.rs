//! Short ways to use upcasters that fail loudly.

pub use crate::projections::stage::*;
use prombus_core::*;
use prombus_engine::query::{From, Query, QueryError};
use prombus_engine::schemas::upcast::Upcaster;
use prombus_engine::schemas::{Demand, NewSchema, Policy, Rule, SchemasError};
use serde_json::{Value, json};

/// Objects that must have these numbers.
pub fn numbers_of(names: &[&str]) -> Value {
    let properties: serde_json::Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), json!({"type": "number"}))).collect();
    json!({"type": "object", "properties": properties, "required": names})
}

/// What reads all of a topic, raised.
pub fn normalized() -> Query {
    Query { normalize: true, ..Query::of_all(From::Earliest) }
}

/// A payload and the version that its event is stamped with.
pub fn shown(event: &Event) -> (Value, Option<String>) {
    let headers = event.headers.as_ref().map(|headers| headers.to_value().expect("JSON"));
    let version = headers.and_then(|headers| Some(headers["x-schema-version"].as_str()?.to_owned()));
    (event.payload.to_value().expect("JSON"), version)
}

/// The same as it is expected.
pub fn stamped(payload: Value, version: u32) -> (Value, Option<String>) {
    (payload, Some(version.to_string()))
}

impl Stage {
    /// Registers the next version, whatever was before it.
    pub async fn version(&self, topic: &TopicName, schema: &Value) -> u32 {
        let demand: Demand = "none".parse().expect("a word that is known");
        let rule = Rule { demand, policy: Policy::Lenient };
        let new = NewSchema { version: None, rule, compare_from: 0, text: Json::from_value(schema) };
        self.hub.schemas().register(topic, &new).await.expect("it can be registered").version
    }

    pub async fn try_upcast(&self, topic: &TopicName, from: u32, ops: Value) -> Result<bool, SchemasError> {
        let upcaster: Upcaster = serde_json::from_value(json!({ "ops": ops })).expect("operations");
        self.hub.schemas().put_upcaster(topic, from, &upcaster).await
    }

    pub async fn upcast(&self, topic: &TopicName, from: u32, ops: Value) {
        self.try_upcast(topic, from, ops).await.expect("an upcaster can be stored");
    }

    /// A topic of three versions, with an event of each: `{"a": 1}`, `{"b": 2}` and `{"b": 3, "c": 0}`, and what raises them.
    pub async fn three_versions(&self, name: &str) -> TopicName {
        let topic = self.topic(name, 1).await;
        for (n, fields) in [&["a"][..], &["b"], &["b", "c"]].into_iter().enumerate() {
            self.version(&topic, &numbers_of(fields)).await;
            let payload = match n {
                0 => json!({"a": 1}),
                1 => json!({"b": 2}),
                _ => json!({"b": 3, "c": 0}),
            };
            self.publish(&topic, [("k", payload)]).await;
        }
        self.upcast(&topic, 1, json!([{"rename": ["a", "b"]}])).await;
        self.upcast(&topic, 2, json!([{"set": {"c": "payload.b * 10"}}])).await;
        topic
    }

    /// Registers the fourth version of a topic of three, and publishes an event of it.
    pub async fn fourth_version(&self, topic: &TopicName, payload: Value) {
        self.upcast(topic, 3, json!([{"rename": ["b", "d"]}])).await;
        self.version(topic, &numbers_of(&["d"])).await;
        self.publish(topic, [("k4", payload)]).await;
    }

    /// All of a topic, raised; or why that cannot be read.
    pub async fn raised(&self, topic: &TopicName) -> Result<Vec<(Value, Option<String>)>, QueryError> {
        let mut reader = self.hub.read(topic, normalized()).await?.up_to_now();
        let mut all = Vec::new();
        loop {
            let page = reader.next_page(2).await?;
            all.extend(page.events.iter().map(shown));
            if page.next.is_none() {
                return Ok(all);
            }
        }
    }

    /// Has events of a topic copied to the topics of their versions, or not.
    pub async fn dual_write(&self, topic: &TopicName, dual_write: bool) {
        let patch = TopicPatch { dual_write: Some(dual_write), ..TopicPatch::default() };
        self.hub.put_topic(topic, patch).await.expect("a topic can be changed");
    }
}

/// What the events of the three versions come to.
pub fn three_raised() -> Vec<(Value, Option<String>)> {
    let all = [json!({"b": 1, "c": 10}), json!({"b": 2, "c": 20}), json!({"b": 3, "c": 0})];
    all.into_iter().map(|payload| stamped(payload, 3)).collect()
}
