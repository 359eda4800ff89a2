//! Consumer groups: create, show, change, reset and delete them; pull, ack and skip.

use super::events::kind_of;
use crate::answers::{self, json_of};
use crate::auth::{AccessRequest, Action, Caller};
use crate::body::{json_body, parse_optional};
use crate::commit::MAX_SETTLED;
use crate::error::{ApiError, not_a_lease};
use crate::gateway::App;
use crate::media::JSON;
use crate::params::{NoParams, parse_id};
use crate::path::PathNames;
use crate::pieces::{self, Array};
use crate::pulls::{self, RoomWait};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use prombus_core::{Offset, Partition, json};
use prombus_engine::From;
use prombus_engine::groups::{
    Delivery, Group, GroupCall, GroupError, GroupName, GroupOptions, GroupStatus, OptionsChange,
    OptionsPatch, PartitionStatus, Preview, PreviewPartition, Pull, Settle, SettleCall, SettleResult,
};
use prombus_wire::{
    AckRequest, CursorAnswer, CursorPosition, CursorRequest, DryRun, ErrorCode, GroupAnswer,
    GroupChangeRequest, GroupOptionsRequest, GroupPartition, MemberAnswer, PullRequest, SkipRequest, Skipped,
    Waiting, parse_object,
};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// How many events a pull gets by default.
const DEFAULT_BATCH: usize = 100;
/// How many leases a member may hold by default.
const DEFAULT_IN_FLIGHT: usize = 1_000;
/// What a dry run of a reset takes: the events that are read at once, and the last one before the cursor.
const PREVIEW_BYTES: usize = 2 << 20;
/// Maximum length of a nack's reason.
const MAX_REASON_BYTES: usize = 4 << 10;
/// Approximate size of the result for one lease.
const RESULT_BYTES: usize = 64;
/// What to do about a lease that could not be settled because the disk is full, while others could.
const NO_ROOM: &str =
    "the disk is full: free some space and repeat this; until it expires, the lease is valid";

impl PathNames {
    fn group(&self) -> Result<GroupName, ApiError> {
        Ok(GroupName::parse(self.get("group"))?)
    }
}

/// The group in the path, which must exist.
async fn existing(app: &App, names: &PathNames) -> Result<Arc<Group>, ApiError> {
    Ok(app.hub()?.groups().find(&names.topic()?, &names.group()?).await?)
}

/// `POST /v1/topics/{topic}/groups/{group}/pull`.
pub(crate) async fn pull(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    request: Request,
) -> Result<Response, ApiError> {
    let (topic, name) = (names.topic()?, names.group()?);
    let body = json_body(&app, request).await?;
    let request: PullRequest = parse_optional(&body)?;
    let pull = Pull {
        max: request.max.or(request.batch_size).unwrap_or(DEFAULT_BATCH),
        wait: Duration::from_millis(request.wait_ms.unwrap_or(0)),
        max_in_flight: request.max_in_flight.unwrap_or(DEFAULT_IN_FLIGHT),
        member: request.member.clone(),
    };
    pull.check()?;
    let call = group_call(request)?;
    let (group, _) = app.hub()?.group(&topic, &name, &call).await?;
    let present = group.enter_call(&pull)?;
    let pulled = caller.while_valid(pulls::pull(&app.memory, &present, (&pull, RoomWait::Call))).await?;
    // The answer is counted by itself from here on.
    Ok(delivered(&pulled.deliveries, group.options().max_attempts))
}

fn delivered(deliveries: &[Delivery], max_attempts: u32) -> Response {
    let mut out = vec![b'{'];
    answers::deliveries(deliveries, max_attempts, &mut out);
    out.push(b'}');
    answers::json(StatusCode::OK, out)
}

/// `POST /v1/topics/{topic}/groups/{group}/ack`.
pub(crate) async fn ack(
    State(app): State<App>,
    names: PathNames,
    request: Request,
) -> Result<Response, ApiError> {
    let body = json_body(&app, request).await?;
    let request: AckRequest<'_> = parse_optional(&body)?;
    let named = request.ack.len() + request.nack.len() + request.extend.len();
    if named > MAX_SETTLED {
        return Err(ApiError::too_many("ack, nack and extend together", MAX_SETTLED));
    }
    let group = existing(&app, &names).await?;
    let ms = |ms: Option<u64>| ms.map(Duration::from_millis);
    let acks = request.ack.iter().map(|lease| (lease, lease.parse().ok().map(Settle::Ack)));
    let nacks = request.nack.iter().map(|nack| {
        let reason = nack.reason.as_deref().map(short_reason).map(Arc::from);
        let settle = |lease| Settle::Nack { lease, reason, delay: ms(nack.delay_ms) };
        (&nack.lease, nack.lease.parse().ok().map(settle))
    });
    let extends = request.extend.iter().map(|extend| {
        let settle = |lease| Settle::Extend { lease, by: ms(extend.extend_ms) };
        (&extend.lease, extend.lease.parse().ok().map(settle))
    });
    let (leases, settles): (Vec<_>, Vec<_>) = acks.chain(nacks).chain(extends).unzip();
    let results = group.settle(SettleCall { settles }).await?;
    let mut out = Vec::with_capacity(32 + RESULT_BYTES * results.len());
    out.extend_from_slice(b"{\"results\":[");
    for (index, (lease, result)) in leases.iter().zip(results).enumerate() {
        out.extend_from_slice(if index > 0 { b",{\"lease\":" } else { b"{\"lease\":" });
        json::write_string(&mut out, lease);
        let (error, message) = match result {
            SettleResult::Done => {
                out.extend_from_slice(b",\"ok\":true}");
                continue;
            }
            SettleResult::Expired => (ErrorCode::LeaseExpired, not_a_lease(lease)),
            SettleResult::NoRoom => (ErrorCode::DiskFull, Some(NO_ROOM)),
        };
        out.extend_from_slice(b",\"ok\":false,\"error\":");
        json::write_string(&mut out, error.as_str());
        if let Some(message) = message {
            out.extend_from_slice(b",\"message\":");
            json::write_string(&mut out, message);
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
    Ok(answers::json(StatusCode::OK, out))
}

/// `PUT /v1/topics/{topic}/groups/{group}`.
pub(crate) async fn put(
    State(app): State<App>,
    names: PathNames,
    request: Request,
) -> Result<Response, ApiError> {
    let (topic, name) = (names.topic()?, names.group()?);
    let body = json_body(&app, request).await?;
    let call = group_call(parse_optional::<GroupOptionsRequest>(&body)?)?;
    let (group, made) = app.hub()?.group(&topic, &name, &call).await?;
    let status = if made { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json_of(status, &shown(&group, &group.status().await?)))
}

/// `PATCH /v1/topics/{topic}/groups/{group}`.
pub(crate) async fn alter(
    State(app): State<App>,
    names: PathNames,
    request: Request,
) -> Result<Response, ApiError> {
    let body = json_body(&app, request).await?;
    let request: GroupChangeRequest = parse_optional(&body)?;
    let group = existing(&app, &names).await?;
    group.alter(change(request)).await?;
    Ok(json_of(StatusCode::OK, &shown(&group, &group.status().await?)))
}

/// As much of a reason as is kept with a dead letter.
pub(crate) fn short_reason(reason: &str) -> String {
    let end = (0..=reason.len().min(MAX_REASON_BYTES)).rev().find(|end| reason.is_char_boundary(*end));
    reason[..end.unwrap_or(0)].to_owned()
}

/// The status of a group; `None` if it was deleted in the meantime, with the reason in the log.
pub(crate) async fn status_of(group: &Arc<Group>) -> Option<GroupStatus> {
    let left_out = |error: &GroupError| {
        tracing::debug!(topic = %group.topic().name, group = %group.name(), %error, "left out of a list: the group cannot be read");
    };
    group.status().await.inspect_err(left_out).ok()
}

/// `GET /v1/topics/{topic}/groups`.
pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    let (hub, topic) = (app.hub()?, names.topic()?);
    let state = hub.topic(&topic).await?;
    let state = state.ok_or_else(|| ApiError::not_found(format!("topic {topic} does not exist")))?;
    let mut groups = hub.groups().list(&state).await;
    groups.retain(|group| {
        let (topic, group) = (topic.as_str(), Some(group.name().as_str()));
        caller.may(AccessRequest { action: Action::Subscribe, topic, group })
    });
    // Each has all its partitions, which together may be too large to buffer.
    let shown = futures::stream::iter(groups).filter_map(async |group| {
        let status = status_of(&group).await?;
        // It has text keys only, so writing it cannot fail.
        Some(Ok(serde_json::to_vec(&shown(&group, &status)).unwrap_or_default()))
    });
    pieces::answer(Array::new("groups", shown.boxed()), JSON, (&app, caller)).await
}

/// `GET /v1/topics/{topic}/groups/{group}`.
pub(crate) async fn show(
    State(app): State<App>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    let group = existing(&app, &names).await?;
    Ok(json_of(StatusCode::OK, &shown(&group, &group.status().await?)))
}

/// `DELETE /v1/topics/{topic}/groups/{group}`.
pub(crate) async fn delete(
    State(app): State<App>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    app.hub()?.groups().delete(&names.topic()?, &names.group()?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `GET /v1/topics/{topic}/groups/{group}/cursor`.
pub(crate) async fn cursor(
    State(app): State<App>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    cursor_of(&existing(&app, &names).await?).await
}

/// `PUT /v1/topics/{topic}/groups/{group}/cursor`, and `POST` to the same.
pub(crate) async fn set_cursor(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    request: Request,
) -> Result<Response, ApiError> {
    let body = json_body(&app, request).await?;
    let CursorRequest { from, ts, after_id, offset, partition, dry_run } = parse_object(&body)?;
    let from = start(&Start { from: Some(from), ts, after_id, offset, with_offset: true })?;
    let group = existing(&app, &names).await?;
    let partition = partition.map(Partition);
    if dry_run.unwrap_or(false) {
        let in_turn = app.memory.dry_run(PREVIEW_BYTES).await?;
        let preview = caller.while_valid(group.preview_cursor(from, partition)).await?;
        drop(in_turn);
        return Ok(json_of(StatusCode::OK, &previewed(&group, &preview)));
    }
    group.set_cursor(from, partition).await?;
    cursor_of(&group).await
}

/// The answer to a dry run of a reset.
fn previewed(group: &Group, preview: &Preview) -> CursorAnswer {
    let position = |partition: &PreviewPartition| CursorPosition {
        partition: partition.partition.0,
        next: partition.next,
        last_id: partition.last.map(|(id, _)| id.to_string()),
        last_ts: partition.last.map(|(_, ts)| ts),
        events: Some(partition.events),
    };
    let events = preview.partitions.iter().map(|partition| partition.events).sum();
    CursorAnswer {
        topic: group.topic().name.to_string(),
        group: group.name().to_string(),
        partitions: preview.partitions.iter().map(position).collect(),
        dry_run: Some(DryRun { dry_run: true, events, exact: preview.exact }),
    }
}

/// `POST /v1/topics/{topic}/groups/{group}/skip`.
pub(crate) async fn skip(
    State(app): State<App>,
    names: PathNames,
    request: Request,
) -> Result<Response, ApiError> {
    let body = json_body(&app, request).await?;
    let SkipRequest { partition, offset } = parse_object(&body)?;
    let group = existing(&app, &names).await?;
    let skipped = group.skip(Partition(partition), offset).await?;
    Ok(json_of(StatusCode::OK, &Skipped { skipped }))
}

/// The start position in a body.
pub(super) struct Start {
    pub from: Option<String>,
    pub ts: Option<u64>,
    pub after_id: Option<String>,
    pub offset: Option<u64>,
    /// Whether an offset is allowed.
    pub with_offset: bool,
}

pub(super) fn start(start: &Start) -> Result<From, ApiError> {
    let Start { from, ts, after_id, offset, with_offset } = start;
    let kind = kind_of(from.as_deref().unwrap_or("latest"));
    for (name, given) in [("ts", ts.is_some()), ("afterId", after_id.is_some()), ("offset", offset.is_some())]
    {
        if given && name != kind {
            return Err(ApiError::bad_request(format!("{name} goes with \"from\": \"{name}\"")));
        }
    }
    match (kind, ts, after_id, offset) {
        ("earliest", ..) => Ok(From::Earliest),
        ("latest", ..) => Ok(From::Latest),
        ("ts", Some(ts), ..) => Ok(From::Ts(*ts)),
        ("afterId", _, Some(id), _) => Ok(From::AfterId(parse_id("afterId", id)?)),
        ("offset", .., Some(offset)) if *with_offset => Ok(From::Offset(Offset(*offset))),
        ("ts" | "afterId", ..) => Err(ApiError::bad_request(format!("from {kind:?} needs {kind}"))),
        ("offset", ..) if *with_offset => Err(ApiError::bad_request("from \"offset\" needs offset")),
        _ => {
            let more = if *with_offset { ", afterId or offset" } else { " or afterId" };
            Err(ApiError::bad_request(format!("from must be earliest, latest, ts{more}, not {kind:?}")))
        }
    }
}

macro_rules! to_engine {
    (
        fixed { $($(#[$_m1:meta])* $fixed:ident: $_t1:ty = $_d1:expr, $_v1:tt, $_w1:ident;)* }
        optional { $($(#[$_m2:meta])* $optional:ident: $_t2:ty, $_v2:tt, $_w2:ident;)* }
        changing { $($(#[$_m3:meta])* $name:ident: $_t3:ty = $_d3:expr, $_v3:tt, $_w3:ident;)* }
    ) => {
        /// The options that a request names.
        fn patch(request: GroupOptionsRequest) -> OptionsPatch {
            OptionsPatch {
                $($fixed: request.$fixed,)*
                $($optional: request.$optional.map(Some),)*
                $($name: request.$name,)*
            }
        }

        /// A request that names these options, and not where the group starts.
        fn request_for(options: &OptionsPatch) -> GroupOptionsRequest {
            GroupOptionsRequest {
                $($fixed: options.$fixed,)*
                // Nothing takes one back here: see `patch`.
                $($optional: options.$optional.clone().flatten(),)*
                $($name: options.$name,)*
                ..GroupOptionsRequest::default()
            }
        }

        /// The change that a request asks for.
        fn change(request: GroupChangeRequest) -> OptionsChange {
            OptionsChange { $($optional: request.$optional,)* $($name: request.$name,)* }
        }
    };
}

prombus_wire::group_options!(to_engine);

pub(crate) fn group_call(request: impl Into<GroupOptionsRequest>) -> Result<GroupCall, ApiError> {
    let mut request = request.into();
    let (from, after_id) = (request.from.take(), request.after_id.take());
    let from = start(&Start { from, ts: request.ts, after_id, offset: None, with_offset: false })?;
    Ok(GroupCall { from, options: patch(request) })
}

/// The name of a member, if it gave one.
pub(crate) fn named(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| name.to_owned())
}

/// The options of a group by name.
pub(crate) fn shown_options(options: &GroupOptions) -> Map<String, Value> {
    match serde_json::to_value(options) {
        Ok(Value::Object(options)) => options,
        _ => Map::new(),
    }
}

/// What `call` says of a group, as a request.
pub(crate) fn options_of(call: &GroupCall) -> GroupOptionsRequest {
    let GroupCall { from, options } = call;
    let (from, ts, after_id) = match from {
        From::Earliest => ("earliest", None, None),
        From::Ts(ts) => ("ts", Some(*ts), None),
        From::AfterId(id) => ("afterId", None, Some(id.to_string())),
        // A new group starts at no offset.
        From::Latest | From::Offset(_) => ("latest", None, None),
    };
    GroupOptionsRequest { from: Some(from.to_owned()), ts, after_id, ..request_for(options) }
}

/// A group as it is answered.
pub(crate) fn shown(group: &Group, status: &GroupStatus) -> GroupAnswer {
    let members = status.members.iter().map(|member| MemberAnswer {
        member: named(&member.name),
        in_flight: member.in_flight,
        partitions: member.partitions.iter().map(|partition| partition.0).collect(),
    });
    let partition = |(index, partition): (u32, &PartitionStatus)| GroupPartition {
        partition: index,
        next: partition.next,
        last_id: partition.last.map(|(id, _)| id.to_string()),
        last_ts: partition.last.map(|(_, ts)| ts),
        tail: partition.tail,
        lag: partition.lag,
        lag_ms: partition.lag_ms,
        in_flight: partition.in_flight,
        redelivered: partition.redelivered,
        lost: partition.lost,
        oldest_unacked_ms: partition.oldest_unacked_ms,
        waiting: partition.waiting.map(|(why, events)| Waiting {
            why: why.as_str().to_owned(),
            offset: partition.next,
            events,
        }),
        owner: partition.owner.as_ref().map(ToString::to_string),
        epoch: partition.epoch,
    };
    GroupAnswer {
        topic: group.topic().name.to_string(),
        group: group.name().to_string(),
        options: shown_options(&status.options),
        filter_errors: status.filter_errors,
        lost: status.partitions.iter().map(|partition| partition.lost).sum(),
        bad_filter: status.bad_filter.as_ref().map(ToString::to_string),
        error: status.error.as_ref().map(ToString::to_string),
        members: members.collect(),
        partitions: (0..).zip(&status.partitions).map(partition).collect(),
    }
}

async fn cursor_of(group: &Arc<Group>) -> Result<Response, ApiError> {
    let status = group.status().await?;
    let position = |(index, partition): (u32, &PartitionStatus)| CursorPosition {
        partition: index,
        next: partition.next,
        last_id: partition.last.map(|(id, _)| id.to_string()),
        last_ts: partition.last.map(|(_, ts)| ts),
        events: None,
    };
    let answer = CursorAnswer {
        topic: group.topic().name.to_string(),
        group: group.name().to_string(),
        partitions: (0..).zip(&status.partitions).map(position).collect(),
        dry_run: None,
    };
    Ok(json_of(StatusCode::OK, &answer))
}
