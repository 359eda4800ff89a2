//! What can be set on a topic: in the body of `PUT /v1/topics/{topic}`, in the configuration, in typed topics of the
//! client and by flags of the command line.
//!
//! All options are listed once, in [`topic_options`](crate::topic_options). A new option is one entry there, and its use.

use serde::{Deserialize, Deserializer, Serialize};

/// The most partitions that a topic may have.
pub const MAX_PARTITIONS: u32 = 1024;
/// How long a day is.
const DAY_MS: u64 = 86_400_000;

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

/// Where and how often changed keys are published as snapshots. `N` is how a topic is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotConfig<N> {
    /// The topic that snapshots go to.
    pub topic: N,
    /// How long to wait between two passes.
    pub every_ms: u64,
}

/// Hands all options of a topic to another macro: for each its help, name, type and default, and what stands for a value
/// of it on the command line. `N` is how a topic is named.
#[macro_export]
macro_rules! topic_options {
    ($with:ident) => {
        $with! {
            /// Number of partitions; can only be increased
            partitions: u32 = 1, "N";
            /// How long to retain events, by when they were recorded; 0 for no limit
            retention_ms: u64 = 0, "MS";
            /// Bytes to retain, over all partitions; the oldest events go first; 0 for no limit
            retention_bytes: u64 = 0, "BYTES";
            /// Whether to keep only the latest event of each key
            compaction: bool = false, "true|false";
            /// Minimum time to keep an event that a later one of its key has superseded
            min_compaction_lag_ms: u64 = 0, "MS";
            /// How long to keep a tombstone: an event with the payload null, which deletes its key
            tombstone_retention_ms: u64 = 86_400_000, "MS";
            /// How long producers' ids are remembered for deduplication
            dedupe_window_ms: u64 = 86_400_000, "MS";
            /// Topic to publish the latest event of each changed key to; created if it does not exist
            snapshot: Option<$crate::SnapshotConfig<N>> = None, "TOPIC";
            /// When a publish is acknowledged: once flushed (sync) or once written (interval)
            durability: $crate::Durability = $crate::Durability::Sync, "sync|interval";
            /// What the topic's schema does to a publish that violates it
            schema: $crate::SchemaMode = $crate::SchemaMode::Enforce, "enforce|warn|off";
            /// Whether events are also copied to the topic of their schema version (TOPIC.vN)
            dual_write: bool = false, "true|false";
        }
    };
}

macro_rules! define {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $default:expr, $value:literal;)*) => {
        /// Everything that can be set on a topic.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(try_from = "GivenSettings<N>")]
        pub struct TopicConfig<N> { $($(#[$doc])* pub $field: $type,)* }

        impl<N> Default for TopicConfig<N> {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        /// A change of some settings; what is absent stays as it is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(try_from = "GivenSettings<N>")]
        pub struct TopicPatch<N> {
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $field: Option<$type>,)*
        }

        /// Settings as they are written: retention may be given in days too. So it is stored by builds that knew no
        /// other way.
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields, bound(deserialize = "N: Deserialize<'de>"))]
        struct GivenSettings<N> {
            $(#[serde(default = "absent", deserialize_with = "given")] $field: Option<$type>,)*
            #[serde(default = "absent")]
            retention_days: Option<u32>,
        }

        impl<N> TryFrom<GivenSettings<N>> for TopicPatch<N> {
            type Error = &'static str;

            fn try_from(given: GivenSettings<N>) -> Result<Self, Self::Error> {
                let days = given.retention_days.map(days_in_ms);
                if days.is_some() && given.retention_ms.is_some() {
                    return Err("retention_ms and retention_days are the same setting; give only one of them");
                }
                let patch = Self { $($field: given.$field,)* };
                Ok(Self { retention_ms: patch.retention_ms.or(days), ..patch })
            }
        }

        impl<N> TopicPatch<N> {
            /// Changes nothing.
            pub const EMPTY: Self = Self { $($field: None,)* };

            /// `config` with this change made to it.
            #[must_use]
            pub fn apply(self, config: TopicConfig<N>) -> TopicConfig<N> {
                TopicConfig { $($field: self.$field.unwrap_or(config.$field),)* }
            }
        }
    };
}

topic_options!(define);

fn absent<T>() -> Option<T> {
    None
}

/// What an option is set to by `null`.
trait Nullable: Sized {
    const NULL: Option<Self>;
}

macro_rules! not_set_by_null {
    ($($type:ty)*) => {
        $(impl Nullable for $type {
            const NULL: Option<Self> = None;
        })*
    };
}

not_set_by_null!(u32 u64 bool Durability SchemaMode);

/// It is taken back.
impl<N> Nullable for Option<SnapshotConfig<N>> {
    const NULL: Option<Self> = Some(None);
}

fn given<'de, T: Nullable + Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Ok(Option::deserialize(from)?.or(T::NULL))
}

/// Days as `retention_ms` has them.
pub const fn days_in_ms(days: u32) -> u64 {
    days as u64 * DAY_MS
}

impl<N> TryFrom<GivenSettings<N>> for TopicConfig<N> {
    type Error = &'static str;

    fn try_from(given: GivenSettings<N>) -> Result<Self, Self::Error> {
        Ok(TopicPatch::try_from(given)?.apply(Self::default()))
    }
}

impl<N> Default for TopicPatch<N> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<N> TopicConfig<N> {
    /// Whether events go by themselves, sooner or later.
    pub fn lets_events_go(&self) -> bool {
        self.retention_ms > 0 || self.retention_bytes > 0 || self.compaction
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    type Config = TopicConfig<String>;
    type Patch = TopicPatch<String>;

    #[test]
    fn a_patch_changes_only_what_it_names() {
        let patch: Patch = serde_json::from_str(r#"{"partitions":8,"durability":"interval"}"#).unwrap();
        let config = patch.apply(Config { compaction: true, ..Config::default() });
        assert_eq!(
            config,
            Config { partitions: 8, durability: Durability::Interval, compaction: true, ..Config::default() }
        );
        assert!(serde_json::from_str::<Patch>(r#"{"partition":8}"#).is_err());
    }

    #[test]
    fn null_takes_snapshots_back_and_sets_nothing_else() {
        let patch: Patch = serde_json::from_str(r#"{"snapshot":null,"partitions":null}"#).unwrap();
        assert_eq!(patch, Patch { snapshot: Some(None), ..Patch::EMPTY });
        assert_eq!(serde_json::from_str::<Patch>("{}").unwrap(), Patch::EMPTY);
        let set: Patch = serde_json::from_str(r#"{"snapshot":{"topic":"s","every_ms":5}}"#).unwrap();
        let config = set.apply(Config::default());
        assert_eq!(config.snapshot, Some(SnapshotConfig { topic: "s".into(), every_ms: 5 }));
        assert_eq!(patch.apply(config), Config::default());
    }

    #[test]
    fn retention_may_be_given_in_days_but_not_twice() {
        let three_days = Config { retention_ms: 259_200_000, ..Config::default() };
        assert_eq!(serde_json::from_str::<Config>(r#"{"retention_days":3}"#).unwrap(), three_days);
        let patch: Patch = serde_json::from_str(r#"{"retention_days":3}"#).unwrap();
        assert_eq!(patch.apply(Config { retention_ms: 5, ..Config::default() }), three_days);
        let shown = serde_json::to_string(&three_days).unwrap();
        assert!(!shown.contains("days"), "{shown}");
        assert_eq!(serde_json::from_str::<Config>(&shown).unwrap(), three_days);
        let both = serde_json::from_str::<Patch>(r#"{"retention_days":3,"retention_ms":0}"#).unwrap_err();
        assert!(both.to_string().contains("retention_ms and retention_days"), "{both}");
    }
}
