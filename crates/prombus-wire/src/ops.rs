//! The state of a hub.

use crate::collection::ProjectionAnswer;
use crate::group::GroupAnswer;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The answer of `/healthz` and `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthAnswer {
    /// `ok`, or `ready`.
    pub status: String,
}

/// The answer of `/ops`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpsAnswer {
    /// The topics.
    pub topics: Vec<OpsTopic>,
    /// Their groups.
    pub groups: Vec<OpsGroup>,
    /// How many more groups there are.
    pub groups_left_out: usize,
    /// The projections.
    pub projections: Vec<ProjectionAnswer>,
    /// The store.
    pub store: OpsStore,
    /// The hubs that share the store, where they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hubs: Option<Vec<OpsHub>>,
}

/// One of several hubs that share a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpsHub {
    /// Its name.
    pub id: String,
    /// Where the others reach it.
    pub url: String,
    /// Its version.
    pub version: String,
    /// Since when it takes part.
    pub since: u64,
    /// How many topics are at home on it.
    pub topics: u64,
    /// Whether it did not answer: its groups and projections are missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreachable: bool,
}

/// A topic in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpsTopic {
    /// Its name.
    pub topic: String,
    /// How many partitions it has.
    pub partitions: u32,
    /// How many offsets the partitions hold together.
    pub events: u64,
    /// How far its snapshots are, where it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<OpsSnapshot>,
    /// The hub that it is at home on, where several share the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
}

/// How far the snapshots of a topic are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpsSnapshot {
    /// The topic that they go to.
    pub topic: String,
    /// How many passes have ended.
    pub pass: u64,
    /// When the first of these passes began.
    pub since: u64,
    /// How many events came after the last pass.
    pub lag: u64,
}

/// A group: with its partitions, or in totals where there is no room for those.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OpsGroup {
    /// In totals.
    Totals(GroupTotals),
    /// With its partitions.
    Whole {
        /// The group.
        #[serde(flatten)]
        group: GroupAnswer,
        /// How many events are not settled, in all partitions.
        lag: u64,
    },
}

impl OpsGroup {
    /// Its topic and its name.
    pub fn name(&self) -> (&str, &str) {
        match self {
            Self::Totals(GroupTotals { topic, group, .. })
            | Self::Whole { group: GroupAnswer { topic, group, .. }, .. } => (topic, group),
        }
    }
}

/// A group without its partitions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupTotals {
    /// Its topic.
    pub topic: String,
    /// Its name.
    pub group: String,
    /// Its options by name, without the filter.
    pub options: Map<String, Value>,
    /// How many consume.
    pub member_count: usize,
    /// How many events are not settled.
    pub lag: u64,
    /// How many leases are open.
    pub in_flight: u64,
    /// How many events its filter failed on, since the hub started.
    pub filter_errors: u64,
    /// Why its filter does not compile, if it does not.
    pub bad_filter: Option<String>,
    /// Always `true`: there is more to say about it.
    pub truncated: bool,
}

/// The store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpsStore {
    /// What kind of store it is.
    pub kind: String,
    /// Why it takes no commits, if it does not.
    pub failed: Option<String>,
    /// Whether publishes are refused for want of room.
    pub disk_full: bool,
    /// Whether there is not even room to give space back.
    pub cleaning_stuck: bool,
    /// The disk space that it takes.
    pub disk_bytes: u64,
    /// The disk space that is free.
    pub disk_free_bytes: u64,
}
