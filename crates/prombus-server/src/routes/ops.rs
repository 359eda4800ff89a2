//! The state of the hub, and requests that match no route.

use super::{groups, projections};
use crate::answers::json_of;
use crate::auth::{AccessRequest, Action, Caller};
use crate::cluster::{Cluster, Forwarded, Part, gather};
use crate::error::ApiError;
use crate::gateway::App;
use crate::metrics::{GroupSample, KeptSample, SnapshotSample};
use crate::params::Params;
use axum::Extension;
use axum::body::HttpBody;
use axum::extract::{RawQuery, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use prombus_core::{Bounds, HubId, Kept, LiveHub, Offset, ReadError, TopicName, TopicState};
use prombus_engine::groups::{Group, GroupStatus};
use prombus_engine::homes::Place;
use prombus_engine::{Hub, SnapshotStatus};
use prombus_wire::{
    GroupTotals, HealthAnswer, OpsAnswer, OpsGroup, OpsHub, OpsSnapshot, OpsStore, OpsTopic, ProjectionAnswer,
};
use std::collections::{BTreeMap, BTreeSet};
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
    forwarded: Option<Extension<Forwarded>>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let is_forwarded = forwarded.is_some();
    let mut params = Params::parse(query.as_deref())?;
    let (topic, group) = (params.one("topic")?, params.one("group")?);
    params.done("topic, group")?;
    let hub = app.hub()?;
    // Another hub that asks has its own turn, and may be waited for by one that has it here.
    let turn = if is_forwarded { None } else { Some(app.memory.report().await?) };
    let is_shown = |state: &&TopicState| {
        let name = state.name.as_str();
        let access = AccessRequest::on(Action::Admin, name);
        topic.as_ref().is_none_or(|topic| topic == name) && caller.may(access)
    };
    let (mut topics, mut groups) = (Vec::new(), Groups::default());
    let all = hub.topics().await?;
    for topic in all.iter().filter(is_shown) {
        let place = hub.place(&topic.name);
        if is_forwarded && place != Place::Here {
            continue;
        }
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
        let home = app.cluster.as_ref().map(|_| id_of(hub, &place).to_string());
        topics.push(OpsTopic { topic: topic.name.to_string(), partitions, events, snapshot, home });
        if place != Place::Here {
            continue;
        }
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
    let Groups { shown: mut groups, left_out: mut groups_left_out, .. } = groups;
    let (mut told, mut shown_hubs) = (BTreeMap::new(), None);
    if let Some(cluster) = app.cluster.as_deref().filter(|_| !is_forwarded) {
        let target = query.as_deref().map_or("/ops".to_owned(), |query| format!("/ops?{query}"));
        let parts = gather::<OpsAnswer>(cluster, hub, (&target, &caller)).await;
        shown_hubs = Some(hubs(hub, &all, (&caller, &parts)));
        for mut part in parts.into_iter().filter_map(|part| part.part) {
            groups.append(&mut part.groups);
            groups_left_out += part.groups_left_out;
            told.extend(part.projections.into_iter().map(|one| (one.name.clone(), one)));
        }
        groups.sort_by(|one, other| one.name().cmp(&other.name()));
    }
    let projections = projections_in((hub, &caller), told, is_forwarded).await?;
    let answer = OpsAnswer { topics, groups, groups_left_out, projections, store, hubs: shown_hubs };
    let answer = json_of(StatusCode::OK, &answer);
    let bytes = answer.body().size_hint().exact().unwrap_or_default();
    // While nobody else makes one, so that those who wait for their turn hold nothing. From here on it is counted by itself.
    let room = app.memory.room_for(bytes as usize).ok_or_else(|| app.memory.refusal())?;
    drop((room, turn));
    Ok(answer)
}

/// The name of the hub at a place.
fn id_of<'a>(hub: &'a Hub, place: &'a Place) -> &'a HubId {
    match place {
        Place::Here => hub.id(),
        Place::At(other) => &other.id,
    }
}

/// The hubs that take part, each with how many topics are at home on it that the caller may see.
fn hubs(hub: &Hub, topics: &[TopicState], (caller, parts): (&Caller, &[Part<OpsAnswer>])) -> Vec<OpsHub> {
    let may_see = |topic: &&TopicState| {
        caller.may(AccessRequest { action: Action::Admin, topic: topic.name.as_str(), group: None })
    };
    let mut counts: BTreeMap<HubId, u64> = BTreeMap::new();
    for topic in topics.iter().filter(may_see) {
        *counts.entry(id_of(hub, &hub.place(&topic.name)).clone()).or_default() += 1;
    }
    let shown = |one: &LiveHub| OpsHub {
        id: one.id.to_string(),
        url: one.about.url.to_string(),
        version: one.about.version.to_string(),
        since: one.since_ms,
        topics: counts.get(&one.id).copied().unwrap_or_default(),
        unreachable: parts.iter().any(|part| part.hub == one.id && part.part.is_none()),
    };
    hub.hubs().borrow().iter().map(shown).collect()
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

/// The projections in the answer: those that run here, and those that other hubs have told of, by name.
async fn projections_in(
    (hub, caller): (&Hub, &Caller),
    mut told: BTreeMap<String, ProjectionAnswer>,
    is_forwarded: bool,
) -> Result<Vec<ProjectionAnswer>, ApiError> {
    let (mut shown, mut rows) = (Vec::new(), Rows::default());
    let own = hub.projections().names().into_iter();
    let names: BTreeSet<String> = own.chain(told.keys().cloned()).collect();
    for name in names {
        tokio::task::yield_now().await;
        let known = match told.remove(&name) {
            Some(known) => Some(known),
            None => projections::visible_to((caller, hub), &name, is_forwarded).await?,
        };
        let Some(mut projection) = known else { continue };
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
    for topic in topics.iter().filter(|topic| hub.place(&topic.name) == Place::Here) {
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
    let mut text = app.cluster.as_deref().map(Cluster::counts_text).unwrap_or_default();
    text.push_str(&app.metrics.text(app.options.version, store.as_ref()));
    text.push_str(&crate::metrics::connections_text(*app.sockets.borrow(), app.memory.used()));
    if let (Some(hub), Some(_)) = (hub, &app.cluster) {
        text.push_str(&crate::metrics::cluster_text(hub.claimed_topics(), hub.hubs().borrow().len()));
    }
    if let Some(hub) = hub {
        let mut projections = hub.projections().figures().await.unwrap_or_default();
        // Those that run on other hubs are told by these.
        projections.retain(|figures| hub.place(&figures.topic) == Place::Here);
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
