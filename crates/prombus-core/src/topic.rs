//! Topic names and what can be set on a topic.

use crate::error::ReadError;
use crate::position::{Offset, Partition, TopicNumber};
pub use prombus_wire::topic::MAX_PARTITIONS;
pub use prombus_wire::{Durability, SchemaMode};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// The longest topic name, in bytes.
pub const MAX_NAME_BYTES: usize = 200;
/// How often a topic may get more partitions: each time is remembered, by everything that reads the topic.
pub const MAX_GROWTHS: usize = 64;
/// The longest name of a topic of the hub's own; a topic's dead letters have a longer name than the topic.
const MAX_INTERNAL_NAME_BYTES: usize = 1_000;
const DEAD_LETTERS: &str = "dlq.";
const SYSTEM: &str = "system.";

/// A valid topic name: dot-separated segments of `[a-z0-9][a-z0-9_-]*`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TopicName(Arc<str>);

/// A name that no topic can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is not a topic name: use dot-separated segments of a-z, 0-9, _ and -, each starting with a letter or digit, {MAX_NAME_BYTES} bytes at most"
)]
pub struct BadTopicName {
    name: String,
}

impl TopicName {
    /// Checks `name`.
    pub fn parse(name: &str) -> Result<Self, BadTopicName> {
        let segment = |s: &str| {
            let bytes = s.as_bytes();
            let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
            bytes.first().is_some_and(alphanumeric)
                && bytes.iter().all(|b| alphanumeric(b) || *b == b'_' || *b == b'-')
        };
        let max = if is_internal(name) { MAX_INTERNAL_NAME_BYTES } else { MAX_NAME_BYTES };
        if name.len() <= max && name.split('.').all(segment) {
            Ok(Self(name.into()))
        } else {
            Err(BadTopicName { name: name.chars().take(MAX_NAME_BYTES).collect() })
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether only the hub itself may publish here.
    pub fn is_internal(&self) -> bool {
        is_internal(&self.0)
    }

    /// Where copies of events of this topic go that are of a version of its schema; `None` where their name would be too
    /// long.
    pub fn of_version(&self, version: u32) -> Option<Self> {
        Self::parse(&format!("{self}.v{version}")).ok()
    }

    /// Where the dead letters of this topic go; `None` where their name would be too long.
    pub fn dead_letters(&self) -> Option<Self> {
        Self::parse(&format!("{DEAD_LETTERS}{self}")).ok()
    }
}

fn is_internal(name: &str) -> bool {
    name.starts_with(DEAD_LETTERS) || name.starts_with(SYSTEM)
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl<'de> Deserialize<'de> for TopicName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// The topic that a read is about: whichever has the name now, or one incarnation of it and no other.
///
/// Whoever reads in several steps pins the incarnation that it began with, so that it never takes one that was made
/// under the same name since for the one that was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicRef {
    /// The name.
    pub name: TopicName,
    /// The only incarnation that will do; `None` where any will.
    pub incarnation: Option<TopicNumber>,
}

impl TopicRef {
    /// What has the name now, if it is the one asked for.
    pub fn pick<T>(&self, found: Option<T>, number: impl FnOnce(&T) -> TopicNumber) -> Result<T, ReadError> {
        let Some(wanted) = self.incarnation else {
            return found.ok_or_else(|| ReadError::TopicNotFound(self.name.clone()));
        };
        let found = found.filter(|topic| number(topic) == wanted);
        found.ok_or_else(|| ReadError::TopicGone(self.name.clone()))
    }
}

impl From<&TopicName> for TopicRef {
    fn from(name: &TopicName) -> Self {
        Self { name: name.clone(), incarnation: None }
    }
}

/// Where and how often changed keys of a topic are published as snapshots.
pub type SnapshotConfig = prombus_wire::SnapshotConfig<TopicName>;

/// Refuses a topic whose snapshots would go in circles, or to where others' go, with what to do instead.
pub fn check_snapshot<'a>(
    (name, config): (&TopicName, &TopicConfig),
    others: impl IntoIterator<Item = (&'a TopicName, &'a TopicConfig)>,
) -> Result<(), String> {
    let Some(SnapshotConfig { topic, .. }) = &config.snapshot else { return Ok(()) };
    if topic == name {
        return Err(format!("topic {name} cannot be its own snapshot topic; name another one"));
    }
    if topic.is_internal() {
        return Err(format!(
            "topic {topic} belongs to the hub itself; name a snapshot topic that does not start with dlq. or system."
        ));
    }
    for (other, its) in others.into_iter().filter(|(other, _)| *other != name) {
        let Some(its) = &its.snapshot else { continue };
        if other == topic {
            return Err(format!("topic {topic} has a snapshot topic itself, so it cannot be one"));
        }
        if its.topic == *name {
            return Err(format!("topic {name} holds the snapshots of {other}, so it cannot have any itself"));
        }
        if its.topic == *topic {
            return Err(format!("topic {topic} holds the snapshots of {other}; name another one"));
        }
    }
    Ok(())
}

/// Everything that can be set on a topic.
pub type TopicConfig = prombus_wire::TopicConfig<TopicName>;

/// A change of some settings of a topic; what is absent stays as it is.
pub type TopicPatch = prombus_wire::TopicPatch<TopicName>;

/// A topic as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicState {
    /// Its name.
    pub name: TopicName,
    /// Which incarnation of that name this is.
    pub number: TopicNumber,
    /// Counts the changes of `config`, so that a change can be conditional.
    pub revision: u64,
    /// Its settings.
    pub config: TopicConfig,
    /// For each time that it got more partitions, where the ones that it had ended at that moment.
    pub growths: Vec<Arc<[Offset]>>,
}

impl TopicState {
    /// The revision of a topic that was never changed since it was made.
    pub const FIRST_REVISION: u64 = 1;

    /// A topic that was just made.
    pub fn new(name: TopicName, number: TopicNumber, config: TopicConfig) -> Self {
        Self { name, number, revision: Self::FIRST_REVISION, config, growths: Vec::new() }
    }

    /// This incarnation and no other.
    pub fn pinned(&self) -> TopicRef {
        TopicRef { name: self.name.clone(), incarnation: Some(self.number) }
    }

    /// Where the lower partitions ended when `partition` was added. Events of a key that are in `partition` are later
    /// than those of the same key below these ends.
    pub fn before(&self, partition: Partition) -> &[Offset] {
        let added = self.growths.iter().rfind(|ends| ends.len() <= partition.0 as usize);
        added.map_or(&[], |ends| ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_has_snapshots_or_holds_those_of_one_other() {
        let name = |text: &str| TopicName::parse(text).unwrap();
        let to = |topic: &str| TopicConfig {
            snapshot: Some(SnapshotConfig { topic: name(topic), every_ms: 1 }),
            ..TopicConfig::default()
        };
        let others = [(name("a"), to("a.snapshot")), (name("a.snapshot"), TopicConfig::default())];
        let check = |topic: &str, target: &str| {
            check_snapshot((&name(topic), &to(target)), others.iter().map(|(name, config)| (name, config)))
        };
        for (topic, target) in [("a", "a.snapshot"), ("a", "b"), ("b", "b.snapshot")] {
            assert_eq!(check(topic, target), Ok(()), "{topic} to {target}");
        }
        for (topic, target) in [
            ("a", "a"),
            ("b", "a"),
            ("b", "a.snapshot"),
            ("a.snapshot", "b"),
            ("a.snapshot", "a"),
            ("a", "dlq.a"),
        ] {
            assert!(check(topic, target).is_err(), "{topic} to {target}");
        }
    }

    #[test]
    fn names() {
        for good in ["a", "process.state", "a-b_c.v2", "0.1.2", "dlq.x"] {
            assert!(TopicName::parse(good).is_ok(), "{good}");
        }
        let long = "a".repeat(MAX_NAME_BYTES + 1);
        for bad in ["", ".", "a.", ".a", "a..b", "A", "-a", "_a", "a b", "ä", "a/b", &long] {
            assert!(TopicName::parse(bad).is_err(), "{bad}");
        }
        assert!(TopicName::parse(&long[1..]).is_ok());
    }

    #[test]
    fn names_of_dead_letters_may_be_longer() {
        let longest = TopicName::parse(&"a".repeat(MAX_NAME_BYTES)).unwrap();
        let letters = longest.dead_letters().unwrap();
        assert!(letters.is_internal() && letters.as_str().starts_with("dlq.aa"));
        assert_eq!(TopicName::parse(letters.as_str()), Ok(letters));
    }

    #[test]
    fn each_partition_knows_what_came_before_it() {
        let growths = vec![[Offset(5)].into(), [Offset(7), Offset(1), Offset(0)].into()];
        let name = TopicName::parse("t").unwrap();
        let config = TopicConfig { partitions: 4, ..TopicConfig::default() };
        let topic = TopicState { name, number: TopicNumber(1), revision: 3, config, growths };
        assert!(topic.before(Partition(0)).is_empty());
        assert_eq!(topic.before(Partition(1)), [Offset(5)]);
        assert_eq!(topic.before(Partition(2)), [Offset(5)]);
        assert_eq!(topic.before(Partition(3)), [Offset(7), Offset(1), Offset(0)]);
    }
}
