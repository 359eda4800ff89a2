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
    /// The projections.
    pub projections: Vec<ProjectionAnswer>,
    /// The store.
    pub store: OpsStore,
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

/// A group without its partitions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupTotals {
    /// Its topic.
    pub topic: String,
    /// Its name.
    pub group: String,
    /// Its options by name.
    pub options: Map<String, Value>,
    /// Who consumes.
    pub members: Vec<MemberTotals>,
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

/// A member of such a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberTotals {
    /// Its name; `None` stands for all that gave none.
    pub member: Option<String>,
    /// How many leases it holds.
    pub in_flight: u64,
    /// How many partitions it owns.
    pub owns: usize,
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
