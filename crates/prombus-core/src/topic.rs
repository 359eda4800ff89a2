//! Topic names and what can be set on a topic.

use crate::error::ReadError;
use crate::position::{Offset, Partition, TopicNumber};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// The longest topic name, in bytes.
pub const MAX_NAME_BYTES: usize = 200;
/// The longest name of a topic of the hub's own; a topic's dead letters have a longer name than the topic.
const MAX_INTERNAL_NAME_BYTES: usize = 1_000;
const DEAD_LETTERS: &str = "dlq.";
const SYSTEM: &str = "system.";
/// The most partitions that a topic may have.
pub const MAX_PARTITIONS: u32 = 1024;

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

/// When a commit is answered, from the weaker to the stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", try_from = "String")]
pub enum Durability {
    /// When it was written; flushed within 100 ms.
    Interval,
    /// After it was flushed to disk (or majority-committed).
    #[default]
    Sync,
}

/// What a schema does to a publish that violates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", try_from = "String")]
pub enum SchemaMode {
    /// Refuse it.
    #[default]
    Enforce,
    /// Take it and say so.
    Warn,
    /// Do not look.
    Off,
}

// Through a string, because serde_json calls a number in the place of a name a mistake of syntax.
impl TryFrom<String> for Durability {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match name.as_str() {
            "sync" => Ok(Self::Sync),
            "interval" => Ok(Self::Interval),
            _ => Err(format!("durability is sync or interval, not {name:?}")),
        }
    }
}

impl TryFrom<String> for SchemaMode {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match name.as_str() {
            "enforce" => Ok(Self::Enforce),
            "warn" => Ok(Self::Warn),
            "off" => Ok(Self::Off),
            _ => Err(format!("schema is enforce, warn or off, not {name:?}")),
        }
    }
}

/// Where and how often changed keys are published as snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotConfig {
    /// The topic that snapshots go to.
    pub topic: TopicName,
    /// How long to wait between two passes.
    pub every_ms: u64,
}

macro_rules! topic_config {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $default:expr;)*) => {
        /// Everything that can be set on a topic.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct TopicConfig { $($(#[$doc])* pub $field: $type,)* }

        impl Default for TopicConfig {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        /// A change of some settings; what is absent stays as it is.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct TopicPatch {
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $field: Option<$type>,)*
        }

        impl TopicPatch {
            /// `config` with this change made to it.
            #[must_use]
            pub fn apply(self, config: TopicConfig) -> TopicConfig {
                TopicConfig { $($field: self.$field.unwrap_or(config.$field),)* }
            }
        }
    };
}

topic_config! {
    /// How many partitions the topic has; can only grow.
    partitions: u32 = 1;
    /// Days after which events are reclaimed; 0 keeps them.
    retention_days: u32 = 0;
    /// Bytes above which the oldest events are reclaimed; 0 keeps them.
    retention_bytes: u64 = 0;
    /// Whether only the latest event of each key is kept.
    compaction: bool = false;
    /// How long a superseded event is kept at least.
    min_compaction_lag_ms: u64 = 0;
    /// How long a tombstone is kept.
    tombstone_retention_ms: u64 = 86_400_000;
    /// How long a producer's id is remembered.
    dedupe_window_ms: u64 = 86_400_000;
    /// Snapshots of changed keys, if wanted.
    snapshot: Option<SnapshotConfig> = None;
    /// When a publish is answered.
    durability: Durability = Durability::Sync;
    /// What the topic's schema does.
    schema: SchemaMode = SchemaMode::Enforce;
    /// Whether publishes also go to the versioned topic.
    dual_write: bool = false;
}

impl TopicConfig {
    /// Refuses settings that make no sense, with what to do instead.
    pub fn validate(&self) -> Result<(), String> {
        if self.partitions == 0 || self.partitions > MAX_PARTITIONS {
            return Err(format!(
                "partitions must be between 1 and {MAX_PARTITIONS}, not {}",
                self.partitions
            ));
        }
        if self.snapshot.as_ref().is_some_and(|s| s.every_ms == 0) {
            return Err("snapshot.every_ms must be at least 1".into());
        }
        Ok(())
    }
}

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
    pub growths: Vec<Vec<Offset>>,
}

impl TopicState {
    /// A topic that was just made.
    pub fn new(name: TopicName, number: TopicNumber, config: TopicConfig) -> Self {
        Self { name, number, revision: 1, config, growths: Vec::new() }
    }

    /// This incarnation and no other.
    pub fn pinned(&self) -> TopicRef {
        TopicRef { name: self.name.clone(), incarnation: Some(self.number) }
    }

    /// Where the lower partitions ended when `partition` was added. Events of a key that are in `partition` are later
    /// than those of the same key below these ends.
    pub fn before(&self, partition: Partition) -> &[Offset] {
        let added = self.growths.iter().rfind(|ends| ends.len() <= partition.0 as usize);
        added.map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let growths = vec![vec![Offset(5)], vec![Offset(7), Offset(1), Offset(0)]];
        let name = TopicName::parse("t").unwrap();
        let config = TopicConfig { partitions: 4, ..TopicConfig::default() };
        let topic = TopicState { name, number: TopicNumber(1), revision: 3, config, growths };
        assert!(topic.before(Partition(0)).is_empty());
        assert_eq!(topic.before(Partition(1)), [Offset(5)]);
        assert_eq!(topic.before(Partition(2)), [Offset(5)]);
        assert_eq!(topic.before(Partition(3)), [Offset(7), Offset(1), Offset(0)]);
    }

    #[test]
    fn a_patch_changes_only_what_it_names() {
        let patch: TopicPatch = serde_json::from_str(r#"{"partitions":8,"durability":"interval"}"#).unwrap();
        let config = patch.apply(TopicConfig { compaction: true, ..TopicConfig::default() });
        assert_eq!(
            config,
            TopicConfig {
                partitions: 8,
                durability: Durability::Interval,
                compaction: true,
                ..TopicConfig::default()
            }
        );
        assert!(serde_json::from_str::<TopicPatch>(r#"{"partition":8}"#).is_err());
    }
}
