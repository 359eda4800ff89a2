//! What can be set on a topic: in the body of `PUT /v1/topics/{topic}`, in the configuration, in typed topics of the
//! client and by flags of the command line.
//!
//! All options are listed once, in [`topic_options`](crate::topic_options). A new option is one entry there, and its use.

use serde::{Deserialize, Serialize};

/// The most partitions that a topic may have.
pub const MAX_PARTITIONS: u32 = 1024;

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
            /// Days to retain events; 0 for no limit (stored, but not acted on yet)
            retention_days: u32 = 0, "DAYS";
            /// Bytes to retain; the oldest events go first; 0 for no limit (stored, but not acted on yet)
            retention_bytes: u64 = 0, "BYTES";
            /// Whether to keep only the latest event of each key (stored, but not acted on yet)
            compaction: bool = false, "true|false";
            /// Minimum time to keep a superseded event (stored, but not acted on yet)
            min_compaction_lag_ms: u64 = 0, "MS";
            /// How long to keep a tombstone (stored, but not acted on yet)
            tombstone_retention_ms: u64 = 86_400_000, "MS";
            /// How long producers' ids are remembered for deduplication
            dedupe_window_ms: u64 = 86_400_000, "MS";
            /// Topic to publish snapshots of changed keys to (stored, but not acted on yet)
            snapshot: Option<$crate::SnapshotConfig<N>> = None, "TOPIC";
            /// When a publish is acknowledged: once flushed (sync) or once written (interval)
            durability: $crate::Durability = $crate::Durability::Sync, "sync|interval";
            /// What the topic's schema does to a publish that violates it (stored, but not acted on yet)
            schema: $crate::SchemaMode = $crate::SchemaMode::Enforce, "enforce|warn|off";
            /// Whether publishes also go to the versioned topic (stored, but not acted on yet)
            dual_write: bool = false, "true|false";
        }
    };
}

macro_rules! define {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $default:expr, $value:literal;)*) => {
        /// Everything that can be set on a topic.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct TopicConfig<N> { $($(#[$doc])* pub $field: $type,)* }

        impl<N> Default for TopicConfig<N> {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        /// A change of some settings; what is absent stays as it is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct TopicPatch<N> {
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $field: Option<$type>,)*
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

impl<N> Default for TopicPatch<N> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<N> TopicConfig<N> {
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
}
