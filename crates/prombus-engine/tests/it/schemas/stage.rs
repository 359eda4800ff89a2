//! Short ways to use schemas that fail loudly.

pub use crate::projections::stage::*;
use prombus_core::*;
use prombus_engine::BusError;
use prombus_engine::query::{From, Query};
use prombus_engine::schemas::{Demand, NewSchema, Policy, Registered, Rule, SchemaViolation, SchemasError};
use serde_json::{Value, json};

/// A schema of objects in which `n` is of this type.
pub fn typed(kind: &str) -> Value {
    json!({"type": "object", "properties": {"n": {"type": kind}}, "required": ["n"]})
}

pub fn new_schema(version: Option<u32>, compat: &str, schema: &Value) -> NewSchema {
    let demand: Demand = compat.parse().expect("a word that is known");
    let rule = Rule { demand, policy: Policy::Lenient };
    NewSchema { version, rule, compare_from: 0, text: Json::from_value(schema) }
}

impl Stage {
    pub async fn try_register(
        &self,
        topic: &TopicName,
        version: Option<u32>,
        compat: &str,
        schema: &Value,
    ) -> Result<Registered, SchemasError> {
        self.hub.schemas().register(topic, &new_schema(version, compat, schema)).await
    }

    /// Registers the next version, whatever was before it.
    pub async fn registered(&self, topic: &TopicName, schema: &Value) -> u32 {
        let registered = self.try_register(topic, None, "none", schema).await.expect("it can be registered");
        assert!(registered.made);
        registered.version
    }

    /// Sets what schemas do to a topic.
    pub async fn set_mode(&self, topic: &TopicName, mode: SchemaMode) {
        let patch = TopicPatch { schema: Some(mode), ..TopicPatch::default() };
        self.hub.put_topic(topic, patch).await.expect("a topic can be changed");
    }

    pub async fn try_publish(&self, events: Vec<Append>) -> Result<Receipt, BusError> {
        self.hub.publish(events).await
    }

    /// The violation that an event is refused for.
    pub async fn violation_of(&self, events: Vec<Append>) -> SchemaViolation {
        match self.try_publish(events).await {
            Err(BusError::SchemaViolation(violation)) => *violation,
            other => panic!("it must be refused for its schema, but: {other:?}"),
        }
    }

    /// The payloads of a topic, each with the version that it is stamped with.
    pub async fn stamps(&self, topic: &TopicName) -> Vec<(Value, Option<u32>)> {
        let query = Query::of_all(From::Earliest);
        let mut reader = self.hub.read(topic, query).await.expect("a topic").up_to_now();
        let mut stamps = Vec::new();
        loop {
            let page = reader.next_page(1_000).await.expect("events can be read");
            let shown = |event: Event| (event.payload.to_value().expect("JSON"), version_of(&event));
            stamps.extend(page.events.into_iter().map(shown));
            if page.next.is_none() {
                return stamps;
            }
        }
    }

    /// How many events a topic has ever had.
    pub async fn count(&self, topic: &TopicName) -> u64 {
        let state = self.hub.topic(topic).await.expect("readable").expect("a topic");
        let bounds = self.hub.bounds(&state).await.expect("readable");
        bounds.iter().map(|bounds| bounds.next.0).sum()
    }
}

/// The version that an event is stamped with.
pub fn version_of(event: &Event) -> Option<u32> {
    let headers = event.headers.as_ref()?.to_value().expect("JSON");
    Some(headers.get("x-schema-version")?.as_str()?.parse().expect("a version"))
}

/// An event that names a version.
pub fn naming(topic: &TopicName, version: &str, payload: &Value) -> Append {
    let mut append = append(topic, None, payload);
    append.event.headers =
        Some(Box::new(Json::from_value(&json!({"x-schema-version": version, "x-a": "b"}))));
    append
}
