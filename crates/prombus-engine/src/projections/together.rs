//! Whether definitions make sense, each by itself and all together, before any of them is made.

use super::circle::{self, Flow};
use super::registry::check_name;
use super::{Definition, Plan, ProjectionError};
use prombus_core::{TopicConfig, TopicName};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A definition that cannot be made together with the others.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{error}")]
pub struct BadDefinition {
    /// The name of its projection.
    pub name: String,
    /// What is wrong with it.
    pub error: Box<ProjectionError>,
}

/// Checks definitions that are to be made together, beside these topics: each has to compile, no two may write the same
/// collection, and what they publish must not lead back to what they read. Nothing is known here of projections and topics
/// that are there already.
pub fn check_together<'a>(
    definitions: impl IntoIterator<Item = (&'a str, &'a Definition)>,
    topics: impl IntoIterator<Item = (&'a TopicName, &'a TopicConfig)>,
) -> Result<(), BadDefinition> {
    let mut owners: BTreeMap<Arc<str>, &str> = BTreeMap::new();
    let snapshots = topics.into_iter().filter_map(|(name, config)| Flow::of_snapshots(name, config));
    let mut flows: Vec<Flow> = snapshots.collect();
    for (name, definition) in definitions {
        let bad = |error| BadDefinition { name: name.to_owned(), error: Box::new(error) };
        check_name(name).map_err(bad)?;
        let plan = Plan::compile(name, definition).map_err(bad)?;
        for (collection, _) in &plan.collections {
            if let Some(other) = owners.insert(collection.clone(), name).filter(|other| *other != name) {
                let (collection, owner) = (collection.to_string(), format!("projection {other:?}"));
                return Err(bad(ProjectionError::NotOwner { collection, owner }));
            }
        }
        let flow = Flow::of(name, &definition.topic, &plan.collections);
        if let Some(circle) = circle::through(&flow, &flows) {
            return Err(bad(ProjectionError::Bad(circle)));
        }
        flows.push(flow);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(definitions: &[serde_json::Value]) -> Option<(String, String)> {
        let snapshot = serde_json::from_value(json!({"topic": "s.snapshot", "every_ms": 1})).unwrap();
        let topic = TopicConfig { snapshot: Some(snapshot), ..TopicConfig::default() };
        let topics = [(&TopicName::parse("s").unwrap(), &topic)];
        let definitions: Vec<(String, Definition)> = definitions
            .iter()
            .zip(["a", "b", "c"])
            .map(|(json, name)| (name.to_owned(), serde_json::from_value(json.clone()).unwrap()))
            .collect();
        let all = definitions.iter().map(|(name, definition)| (name.as_str(), definition));
        check_together(all, topics).err().map(|bad| (bad.name.clone(), bad.to_string()))
    }

    #[test]
    fn definitions_are_judged_by_themselves_and_together() {
        let plain = |topic: &str, collection: &str| json!({"topic": topic, "collection": collection, "key": "event.key"});
        let fed = |topic: &str, collection: &str, feed: &str| json!({"topic": topic, "collection": collection, "key": "event.key", "changefeed": feed});
        assert_eq!(refused(&[plain("t", "c"), plain("t", "d"), fed("t", "e", "u")]), None);
        let twice = json!({"topic": "t", "write": [
            {"collection": "c", "key": "event.key", "set": "event.payload"},
            {"collection": "c", "key": "'all'", "inc": {"n": "1"}}]});
        assert_eq!(refused(&[twice]), None, "one projection may write a collection in several ways");
        for (definitions, name, told) in [
            (
                vec![plain("t", "c"), json!({"topic": "t", "collection": "d", "key": "event."})],
                "b",
                "does not compile",
            ),
            (vec![plain("t", "c"), plain("u", "c")], "b", "collection c is written by projection \"a\""),
            (vec![fed("x", "c", "y"), fed("y", "d", "x")], "b", "without end"),
            (
                vec![fed("s.snapshot", "c", "y"), fed("y", "d", "s")],
                "b",
                "topic s, its snapshots, topic s.snapshot",
            ),
        ] {
            let (who, why) = refused(&definitions).unwrap();
            assert!(who == name && why.contains(told), "{who}: {why}");
        }
    }
}
