//! The state of the hub, and requests that match no route.

use super::{groups, projections};
use crate::answers::json_of;
use crate::auth::{AccessRequest, Action, Caller};
use crate::error::ApiError;
use crate::gateway::App;
use crate::metrics::{GroupSample, KeptSample, SnapshotSample};
use crate::params::Params;
use axum::Extension;
use axum::body::HttpBody;
use axum::extract::{RawQuery, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use prombus_core::{Bounds, Kept, Offset, ReadError, TopicName, TopicState};
use prombus_engine::groups::{Group, GroupStatus};
use prombus_engine::{Hub, SnapshotStatus};
use prombus_wire::{
    GroupTotals, HealthAnswer, OpsAnswer, OpsGroup, OpsSnapshot, OpsStore, OpsTopic, ProjectionAnswer,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many rows an answer has for groups, and how many for projections: their partitions and members, where a long one counts
/// as several. Those for which no room is left are shown in totals. The first one is always shown whole.
const MAX_ROWS: usize = 4_096;

/// What a row takes, about.
const ROW_BYTES: usize = 128;

/// How many groups are shown in totals; more are only counted.
const MAX_TOTALS: usize = 1_000;

/// How many partitions have metrics of their own, of topics that let events go.
const MAX_KEPT_SAMPLES: usize = 4_096;

/// How many topics with schemas have metrics of their own before anything violates them.
const MAX_SCHEMA_SAMPLES: usize = 4_096;

/// How many topics with snapshots have metrics of their own.
const MAX_SNAPSHOT_SAMPLES: usize = 4_096;

/// Whether the process is alive.
pub(crate) async fn healthz() -> Response {
    json_of(StatusCode::OK, &HealthAnswer { status: "ok".to_owned() })
}

/// Whether publishes are accepted.
pub(crate) async fn readyz(State(app): State<App>) -> Result<Response, ApiError> {
    match app.hub()?.status().failed {
        None => Ok(json_of(StatusCode::OK, &HealthAnswer { status: "ready".to_owned() })),
        Some(why) => Err(ApiError::unavailable(format!("the store accepts no commits: {why}"))),
    }
}

/// `GET /ops`: topics, groups, projections and the store in one answer.
pub(crate) async fn ops(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let mut params = Params::parse(query.as_deref())?;
    let (topic, group) = (params.one("topic")?, params.one("group")?);
    params.done("topic, group")?;
    let hub = app.hub()?;
    let turn = app.memory.report().await?;
    let is_shown = |state: &&TopicState| {
        let name = state.name.as_str();
        let access = AccessRequest::on(Action::Admin, name);
        topic.as_ref().is_none_or(|topic| topic == name) && caller.may(access)
    };
    let (mut topics, mut groups) = (Vec::new(), Groups::default());
    for topic in hub.topics().await?.iter().filter(is_shown) {
        // Each topic and each group is some work that waits for nothing; others must have their turn.
        tokio::task::yield_now().await;
        let Ok(bounds) = hub.bounds(topic).await else { continue };
        let events: u64 = bounds.iter().map(|bounds| bounds.next.0.saturating_sub(bounds.first.0)).sum();
        let partitions = topic.config.partitions;
        let snapshot = match (&topic.config.snapshot, snapshots_of(hub, topic).await) {
            (Some(config), Ok(Some((SnapshotStatus { pass, since, .. }, lag)))) => {
                Some(OpsSnapshot { topic: config.topic.to_string(), pass, since, lag })
            }
            _ => None,
        };
        topics.push(OpsTopic { topic: topic.name.to_string(), partitions, events, snapshot });
        for found in hub.groups().list(topic).await {
            let name = found.name().as_str();
            // Who administers a topic sees its groups, but for those that are kept from him.
            let access =
                AccessRequest { action: Action::Subscribe, topic: topic.name.as_str(), group: Some(name) };
            if group.as_ref().is_none_or(|group| group == name) && !caller.is_denied(access) {
                groups.add(&found, &bounds).await;
            }
        }
    }
    let status = hub.status();
    let store = OpsStore {
        kind: status.kind.to_owned(),
        disk_full: status.is_full,
        cleaning_stuck: status.extra("reclaiming_stuck") > 0,
        disk_bytes: status.extra("disk_bytes"),
        disk_free_bytes: status.extra("disk_free_bytes"),
        failed: status.failed,
    };
    let projections = projections_in(hub, &caller).await?;
    let Groups { shown: groups, left_out: groups_left_out, .. } = groups;
    let answer = json_of(StatusCode::OK, &OpsAnswer { topics, groups, groups_left_out, projections, store });
    let bytes = answer.body().size_hint().exact().unwrap_or_default();
    // While nobody else makes one, so that those who wait for their turn hold nothing. From here on it is counted by itself.
    let room = app.memory.room_for(bytes as usize).ok_or_else(|| app.memory.refusal())?;
    drop((room, turn));
    Ok(answer)
}

/// How many rows are left.
struct Rows(usize);

impl Default for Rows {
    fn default() -> Self {
        Self(MAX_ROWS)
    }
}

impl Rows {
    /// Takes so many, and what the bytes take, if there is room for all of them.
    fn take(&mut self, rows: usize, bytes: usize) -> bool {
        let rows = rows + bytes / ROW_BYTES;
        let fits = rows <= self.0 || self.0 == MAX_ROWS;
        if fits {
            self.0 = self.0.saturating_sub(rows);
        }
        fits
    }
}

/// The groups in the answer.
#[derive(Default)]
struct Groups {
    shown: Vec<OpsGroup>,
    rows: Rows,
    /// How many are shown in totals.
    totals: usize,
    left_out: usize,
}

impl Groups {
    async fn add(&mut self, group: &Arc<Group>, bounds: &[Bounds]) {
        tokio::task::yield_now().await;
        let outline = group.outline(bounds);
        let filter = outline.options.filter.as_ref().map_or(0, |filter| filter.len());
        if self.rows.take(bounds.len() + outline.members.len(), filter) {
            let Some(status) = groups::status_of(group).await else { return };
            let lag: u64 = status.partitions.iter().map(|partition| partition.lag).sum();
            self.shown.push(OpsGroup::Whole { group: groups::shown(group, &status), lag });
        } else if self.totals < MAX_TOTALS {
            self.totals += 1;
            self.shown.push(OpsGroup::Totals(totals(group, &outline)));
        } else {
            self.left_out += 1;
        }
    }
}

fn totals(group: &Group, outline: &GroupStatus) -> GroupTotals {
    let mut options = groups::shown_options(&outline.options);
    // It may be long.
    options.remove("filter");
    GroupTotals {
        topic: group.topic().name.to_string(),
        group: group.name().to_string(),
        options,
        member_count: outline.members.len(),
        lag: outline.partitions.iter().map(|partition| partition.lag).sum(),
        in_flight: outline.partitions.iter().map(|partition| partition.in_flight).sum(),
        filter_errors: outline.filter_errors,
        bad_filter: outline.bad_filter.as_ref().map(|why| clipped(&why.to_string())),
        truncated: true,
    }
}

/// What says enough of a message that may quote what is long.
fn clipped(message: &str) -> String {
    message.chars().take(ROW_BYTES).collect()
}

/// The projections in the answer.
async fn projections_in(hub: &Hub, caller: &Caller) -> Result<Vec<ProjectionAnswer>, ApiError> {
    let (mut shown, mut rows) = (Vec::new(), Rows::default());
    for name in hub.projections().names() {
        tokio::task::yield_now().await;
        let Some(mut projection) = projections::visible_to(caller, hub, &name).await? else { continue };
        let definition = projection.definition.to_string().len();
        if !rows.take(projection.partitions.len(), definition) {
            projection.definition = serde_json::Value::Null;
            projection.partitions = Vec::new();
            projection.truncated = true;
        }
        shown.push(projection);
    }
    Ok(shown)
}

/// The figures of every group, one group after the other. One that cannot be read now is missing from this scrape, and
/// the others are there.
async fn samples(hub: &Hub, topics: &[TopicState]) -> Vec<GroupSample> {
    let mut samples = Vec::new();
    for topic in topics {
        tokio::task::yield_now().await;
        let groups = hub.groups().list(topic).await;
        if groups.is_empty() {
            continue;
        }
        let Ok(bounds) = hub.bounds(topic).await else { continue };
        for group in groups {
            tokio::task::yield_now().await;
            let outline = group.outline(&bounds);
            if let Ok(lag_ms) = group.lag_ms(&outline).await {
                samples.push(GroupSample::new(&group, &outline, lag_ms));
            }
        }
    }
    samples
}

/// What is kept of topics that let events go, or have done so, as many of them as there is room for.
async fn kept_samples(hub: &Hub, topics: &[TopicState]) -> Vec<KeptSample> {
    let mut samples = Vec::new();
    for topic in topics {
        tokio::task::yield_now().await;
        if samples.len() + topic.config.partitions as usize > MAX_KEPT_SAMPLES {
            continue;
        }
        let Ok(kept) = hub.kept(topic).await else { continue };
        // Events may have been given up by hand, or by settings that the topic no longer has.
        let has_lost = |kept: &Kept| kept.bounds.first > Offset(0) || kept.horizon_ts > 0;
        if !topic.config.lets_events_go() && !kept.iter().any(has_lost) {
            continue;
        }
        samples.extend((0..).zip(kept).map(|(partition, kept)| KeptSample {
            topic: topic.name.clone(),
            partition,
            first: kept.bounds.first.0,
            horizon_ts: kept.horizon_ts,
        }));
    }
    samples
}

/// How far snapshots are behind, of as many topics as there is room for.
async fn snapshot_samples(hub: &Hub, topics: &[TopicState]) -> Vec<SnapshotSample> {
    let mut samples = Vec::new();
    let topics = topics.iter().filter(|topic| topic.config.snapshot.is_some());
    for topic in topics.take(MAX_SNAPSHOT_SAMPLES) {
        tokio::task::yield_now().await;
        if let Ok(Some((_, lag))) = snapshots_of(hub, topic).await {
            samples.push(SnapshotSample { topic: topic.name.clone(), lag });
        }
    }
    samples
}

/// How far the snapshots of a topic have come, and how many events came after that; `None` where it has none.
async fn snapshots_of(hub: &Hub, topic: &TopicState) -> Result<Option<(SnapshotStatus, u64)>, ReadError> {
    if topic.config.snapshot.is_none() {
        return Ok(None);
    }
    let kept = hub.kept(topic).await?;
    let Some(status) = hub.snapshots(topic, &kept).await? else { return Ok(None) };
    let ends = kept.iter().zip(&status.through);
    let lag = ends.map(|(kept, through)| kept.bounds.next.0.saturating_sub(through.0)).sum();
    Ok(Some((status, lag)))
}

/// The metrics.
pub(crate) async fn metrics(State(app): State<App>) -> Result<Response, ApiError> {
    let text = app.scrapes.text(|| metrics_text(&app)).await?;
    // Those who read nothing hold their text; from here on it is counted by itself.
    drop(app.memory.room_for(text.len()).ok_or_else(|| app.memory.refusal())?);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

async fn metrics_text(app: &App) -> String {
    let hub = app.hub().ok();
    let store = hub.map(Hub::status);
    let mut text = app.metrics.text(app.options.version, store.as_ref());
    text.push_str(&crate::metrics::connections_text(*app.sockets.borrow(), app.memory.used()));
    if let Some(hub) = hub {
        let projections = hub.projections().figures().await.unwrap_or_default();
        let topics = hub.topics().await.unwrap_or_default();
        text.push_str(&crate::metrics::readers_text(
            &samples(hub, &topics).await,
            hub.groups().times(),
            &projections,
        ));
        let durations = hub.cleaning().durations();
        text.push_str(&crate::metrics::cleaning_text(&kept_samples(hub, &topics).await, durations));
        text.push_str(&crate::metrics::schemas_text(&violations(hub, &topics).await));
        let durations = hub.cleaning().snapshot_durations();
        text.push_str(&crate::metrics::snapshots_text(&snapshot_samples(hub, &topics).await, durations));
    }
    text
}

/// How many events violated the schema of each topic that has one.
async fn violations(hub: &Hub, topics: &[TopicState]) -> BTreeMap<TopicName, u64> {
    let mut counts = BTreeMap::new();
    for topic in topics {
        tokio::task::yield_now().await;
        if counts.len() == MAX_SCHEMA_SAMPLES {
            break;
        }
        if hub.schemas().head(&topic.name).await.is_ok() {
            counts.insert(topic.name.clone(), 0);
        }
    }
    counts.extend(hub.schemas().violations());
    counts
}

/// The answer for unknown paths.
pub(crate) async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::not_found(format!("there is nothing at {}", uri.path()))
}

/// The answer on paths that do not know the method; which ones they know is added by the router.
pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    ApiError::method_not_allowed(format!("{} does not support {method}; see the Allow header", uri.path()))
}
