//! Bulk replays: copying a range of a topic into another one.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The body of `POST /v1/replays`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BulkReplayRequest {
    /// Its name, which is used once.
    pub name: String,
    /// What is read.
    pub source: BulkReplaySource,
    /// Only events that match, in CEL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// What copies have in place of what their events have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<BulkReplayMap>,
    /// The topic that the copies go to.
    pub target: String,
    /// The most copies a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<u64>,
    /// Only count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

/// A range of a topic.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BulkReplaySource {
    /// The topic.
    pub topic: String,
    /// `earliest`, `latest`, `ts`, `afterId` or `offset`; `earliest` where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Goes with `ts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ts: Option<u64>,
    /// Goes with `afterId`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_id: Option<String>,
    /// Goes with `offset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Only this partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// Only events whose `ts` is at or before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_ts: Option<u64>,
}

/// Expressions over `event`, in CEL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BulkReplayMap {
    /// The payload of the copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// The key of the copy; `null` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// What a replay does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BulkReplayState {
    /// It copies, or waits for its turn.
    Running,
    /// It goes on once it is told to.
    Paused,
    /// It has copied everything.
    Done,
    /// It was given up by a user.
    Cancelled,
    /// It could not go on.
    Failed,
}

impl fmt::Display for BulkReplayState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        })
    }
}

/// How a replay is doing, or what a dry run has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkReplayAnswer {
    /// What it is, as it was asked for; a dry run says so.
    #[serde(flatten)]
    pub request: BulkReplayRequest,
    /// What it does.
    pub state: BulkReplayState,
    /// Why it has failed, or waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How many events it has looked at.
    pub read: u64,
    /// How many it has copied, or would.
    pub copied: u64,
    /// How many it could not copy.
    pub errors: u64,
    /// The last of these.
    pub last_errors: Vec<BulkReplayError>,
    /// How many offsets were no longer kept when it came there.
    pub lost: u64,
    /// How many offsets are left.
    pub left: u64,
    /// About how long that takes, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
    /// When it began, in epoch milliseconds.
    pub began_ts: u64,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ts: Option<u64>,
}

/// An event that was not copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkReplayError {
    /// Its id.
    pub id: String,
    /// Its partition.
    pub partition: u32,
    /// Its offset.
    pub offset: u64,
    /// Why not.
    pub error: String,
}

/// All replays, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkReplays {
    /// The replays.
    pub replays: Vec<BulkReplayAnswer>,
}
