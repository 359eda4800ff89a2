//! Consumer groups: what is asked of them, and what they answer.

use crate::answer::EventRecord;
use crate::group_options;
use crate::group_options::{from_options, request};
use crate::text::Text;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

group_options! { request {
    /// The body of `POST .../pull`.
    pub struct PullRequest {
        /// Maximum number of deliveries.
        pub max: Option<usize>,
        /// How long to wait for the first.
        pub wait_ms: Option<u64>,
        /// Who asks.
        pub member: Option<String>,
        /// What `max` is where it is absent.
        pub batch_size: Option<usize>,
        /// Maximum number of open leases of this member.
        pub max_in_flight: Option<usize>,
    }
} }

group_options! { from_options { PullRequest } }

/// What a consumer must know of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryContext {
    /// Counts deliveries of this event, from 1.
    pub attempt: u32,
    /// After how many the event is a dead letter.
    #[serde(rename = "maxAttempts")]
    pub max_attempts: u32,
    /// How many milliseconds are left to settle it.
    pub ack_deadline_ms: u64,
    /// The token that settles it.
    pub lease: String,
}

/// An event that was delivered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeliveryRecord {
    /// The event.
    pub event: EventRecord,
    /// How it was delivered.
    pub ctx: DeliveryContext,
}

/// The answer to a pull.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pulled {
    /// In the order of their offsets within each partition, where none is a retry.
    pub deliveries: Vec<DeliveryRecord>,
}

/// The body of `POST .../ack`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AckRequest<'a> {
    /// Leases of events that are done.
    #[serde(default, borrow, skip_serializing_if = "Vec::is_empty")]
    pub ack: Vec<Text<'a>>,
    /// Leases of events that failed.
    #[serde(default, borrow, skip_serializing_if = "Vec::is_empty")]
    pub nack: Vec<NackRequest<'a>>,
    /// Leases that are to hold longer.
    #[serde(default, borrow, skip_serializing_if = "Vec::is_empty")]
    pub extend: Vec<ExtendRequest<'a>>,
}

/// One event that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NackRequest<'a> {
    /// Its lease.
    #[serde(borrow)]
    pub lease: Text<'a>,
    /// Why it failed.
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text<'a>>,
    /// When to try again.
    #[serde(default, rename = "delayMs", skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
}

/// One lease that is to hold longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtendRequest<'a> {
    /// The lease.
    #[serde(borrow)]
    pub lease: Text<'a>,
    /// How long it is to hold from now on; the group's `ackTimeoutMs` where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extend_ms: Option<u64>,
}

/// What came of one lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseResult {
    /// The lease.
    pub lease: String,
    /// Whether it was accepted.
    pub ok: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What to do about it, where that can be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The answer to `POST .../ack`: acks, nacks and extends in the order in which they were given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckAnswer {
    /// One for each lease.
    pub results: Vec<LeaseResult>,
}

/// A group as it is now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupAnswer {
    /// Its topic.
    pub topic: String,
    /// Its name.
    pub group: String,
    /// Its options by name.
    pub options: Map<String, Value>,
    /// How many events its filter failed on, and so did not match, since the hub started.
    #[serde(default)]
    pub filter_errors: u64,
    /// How many events retention took before the group had settled them, ever.
    #[serde(default)]
    pub lost: u64,
    /// Why its filter does not compile; nothing is delivered then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad_filter: Option<String>,
    /// Why the first event that is not settled cannot be read; the group does not go on in its partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Who consumes.
    pub members: Vec<MemberAnswer>,
    /// What each partition waits for.
    pub partitions: Vec<GroupPartition>,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAnswer {
    /// Its name; `None` stands for all that gave none.
    pub member: Option<String>,
    /// How many leases it holds.
    pub in_flight: u64,
    /// The partitions that it owns, in a partitioned group.
    pub partitions: Vec<u32>,
}

/// Where a group is in one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPartition {
    /// The partition.
    pub partition: u32,
    /// The first offset that is not settled.
    pub next: u64,
    /// The id of the last event below it, where one is kept.
    pub last_id: Option<String>,
    /// The `ts` of that event.
    pub last_ts: Option<u64>,
    /// The first offset that is not written yet.
    pub tail: u64,
    /// How many events are not settled.
    pub lag: u64,
    /// How long ago the oldest of them was taken.
    pub lag_ms: u64,
    /// How many leases are open.
    pub in_flight: u64,
    /// How many deliveries were not the first of their event, since the hub started.
    pub redelivered: u64,
    /// How many events retention took before they were settled, ever.
    #[serde(default)]
    pub lost: u64,
    /// How long ago the oldest open lease was given.
    pub oldest_unacked_ms: Option<u64>,
    /// What holds events back, if anything does.
    pub waiting: Option<Waiting>,
    /// The member that owns the partition, in a partitioned group.
    pub owner: Option<String>,
    /// Counts the owners.
    pub epoch: u64,
}

/// What holds events back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// `ack_window`, `ordering`, `retry` or `growth`.
    pub why: String,
    /// The oldest offset that is not settled: what the others wait for.
    pub offset: u64,
    /// How many events were looked at and wait for another one of their key, or for their retry.
    pub events: u64,
}

/// All groups of a topic, by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Groups {
    /// The groups.
    pub groups: Vec<GroupAnswer>,
}

/// The body of `PUT .../cursor`, and of `POST .../cursor`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CursorRequest {
    /// `earliest`, `latest`, `ts`, `afterId` or `offset`.
    pub from: String,
    /// Goes with `ts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ts: Option<u64>,
    /// Goes with `afterId`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_id: Option<String>,
    /// Goes with `offset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Only this partition; all where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// Only tell how many events the group would get again.
    #[serde(default, rename = "dry_run", skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

/// Where a group stands, or would stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CursorAnswer {
    /// Its topic.
    pub topic: String,
    /// Its name.
    pub group: String,
    /// One for each partition; in a dry run, for each that would be set.
    pub partitions: Vec<CursorPosition>,
    /// What a dry run has found; nothing was changed then.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<DryRun>,
}

/// What a reset would deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DryRun {
    /// Always `true`.
    pub dry_run: bool,
    /// How many events, in all partitions together.
    pub events: u64,
    /// Whether that is exact. With a filter only so many events are looked at, and those after them count as if they
    /// matched.
    pub exact: bool,
}

/// Where a group stands in one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CursorPosition {
    /// The partition.
    pub partition: u32,
    /// The first offset that is not settled.
    pub next: u64,
    /// The id of the last event below it, where one is kept.
    pub last_id: Option<String>,
    /// The `ts` of that event.
    pub last_ts: Option<u64>,
    /// In a dry run, how many events of the partition would be delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
}

/// The body of `POST .../skip`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkipRequest {
    /// The partition.
    pub partition: u32,
    /// The event's offset.
    pub offset: u64,
}

/// The answer to a skip.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Whether the event was settled by this; `false` where it was already.
    pub skipped: bool,
}

/// The body of `POST /v1/dlq/{topic}/replay`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayRequest {
    /// `group` or `topic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Only dead letters with these ids, or whose originals have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
    /// Only what this group failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Only what this projection failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projection: Option<String>,
    /// Only dead letters that match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The maximum number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only tell what would be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    /// Also what was replayed before, and what came back too often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
}

/// What a replay did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayAnswer {
    /// How many dead letters the request is about.
    pub matched: u64,
    /// How many of them were replayed, or would be.
    pub replayed: u64,
    /// The others.
    pub skipped: Vec<SkippedLetter>,
}

/// A dead letter that was not replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedLetter {
    /// Its id.
    pub id: String,
    /// Why not.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupOptionsRequest, parse_object};

    #[test]
    fn options_have_the_names_that_users_know() {
        let body = br#"{"max":5,"waitMs":10,"member":"a","from":"latest","ts":null,"afterId":null,"mode":"shared",
            "ordering":"key","ackTimeoutMs":30000,"maxAttempts":5,"backoffMs":100,"filter":null,"normalize":false,
            "ackWindow":100000,"batchSize":100,"maxInFlight":1000}"#;
        let pull: PullRequest = parse_object(body).unwrap();
        assert_eq!((pull.max, pull.wait_ms, pull.max_in_flight), (Some(5), Some(10), Some(1000)));
        let options = GroupOptionsRequest::from(pull);
        assert_eq!((options.ack_window, options.max_attempts), (Some(100_000), Some(5)));
        assert_eq!((options.ts, options.filter), (None, None));
        assert!(parse_object::<PullRequest>(br#"{"maxinflight":1}"#).is_err());
        assert!(parse_object::<GroupOptionsRequest>(br#"{"max":1}"#).is_err());
    }

    #[test]
    fn leases_are_borrowed_where_they_can_be() {
        let body = br#"{"ack":["a"],"nack":[{"lease":"b","reason":"x\n","delayMs":5}],"extend":[{"lease":"c","extend_ms":7}]}"#;
        let request: AckRequest<'_> = parse_object(body).unwrap();
        assert_eq!(request.nack[0].reason.as_deref(), Some("x\n"));
        assert_eq!(request.extend[0].extend_ms, Some(7));
        assert!(parse_object::<AckRequest<'_>>(br#"{"acks":[]}"#).is_err());
    }
}
