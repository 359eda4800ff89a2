//! The state of the hub, and requests that match no route.

use super::{groups, projections};
use crate::answers::json_of;
use crate::auth::{Action, Ask, Caller};
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
use prombus_core::{Bounds, HubId, LiveHub, ReadError, TopicName, TopicState};
use prombus_engine::groups::Group;
use prombus_engine::homes::Place;
use prombus_engine::{Hub, SnapshotStatus};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// So many partitions of groups are shown one by one in an answer, which is more than any one group can have. Groups for
/// which no room is left are shown in totals.
const MAX_ROWS: usize = 4_096;

/// So many partitions have metrics of their own, of topics that let events go.
const MAX_KEPT_SAMPLES: usize = 4_096;

/// So many topics with schemas have metrics of their own before anything violates them.
const MAX_SCHEMA_SAMPLES: usize = 4_096;

/// So many topics with snapshots have metrics of their own.
const MAX_SNAPSHOT_SAMPLES: usize = 4_096;

/// Whether the process is alive.
pub(crate) async fn healthz() -> Response {
    json_of(StatusCode::OK, &json!({"status": "ok"}))
}

/// Whether publishes are accepted.
pub(crate) async fn readyz(State(app): State<App>) -> Result<Response, ApiError> {
    match app.hub()?.status().failed {
        None => Ok(json_of(StatusCode::OK, &json!({"status": "ready"}))),
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
    let turn = app.memory.report().await?;
    let is_shown = |state: &&TopicState| {
        let name = state.name.as_str();
        let ask = Ask { action: Action::Admin, topic: name, group: None };
        topic.as_ref().is_none_or(|topic| topic == name) && caller.may(ask)
    };
    let (mut topics, mut groups, mut rows) = (Vec::new(), Vec::new(), MAX_ROWS);
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
        let mut shown = json!({"topic": topic.name.as_str(), "partitions": partitions, "events": events});
        if let (Some(config), Ok(Some((status, lag)))) =
            (&topic.config.snapshot, snapshots_of(hub, topic).await)
        {
            let SnapshotStatus { pass, since, .. } = status;
            shown["snapshot"] =
                json!({"topic": config.topic.as_str(), "pass": pass, "since": since, "lag": lag});
        }
        let home = match &place {
            Place::Here => hub.id(),
            Place::At(other) => &other.id,
        };
        if app.cluster.is_some() {
            shown["home"] = home.to_string().into();
        }
        topics.push(shown);
        if place != Place::Here {
            continue;
        }
        for found in hub.groups().list(topic).await {
            let name = found.name().as_str();
            // Who administers a topic sees its groups, but for those that are kept from him.
            let ask = Ask { action: Action::Subscribe, topic: topic.name.as_str(), group: Some(name) };
            if group.as_ref().is_none_or(|group| group == name) && !caller.is_denied(ask) {
                groups.extend(group_in(&found, &bounds, &mut rows).await);
            }
        }
    }
    let status = hub.status();
    let store = json!({
        "kind": status.kind,
        "failed": status.failed,
        "disk_full": status.is_full,
        "cleaning_stuck": status.extra("reclaiming_stuck") > 0,
        "disk_bytes": status.extra("disk_bytes"),
        "disk_free_bytes": status.extra("disk_free_bytes"),
    });
    let projections = projections::visible_to(&caller, &app, is_forwarded).await?;
    let mut answer = json!({"topics": topics, "groups": groups, "projections": projections, "store": store});
    if let Some(cluster) = app.cluster.as_deref().filter(|_| !is_forwarded) {
        let target = query.as_deref().map_or("/ops".to_owned(), |query| format!("/ops?{query}"));
        let parts = gather::<Value>(cluster, hub, (&target, &caller)).await;
        answer["hubs"] = hubs(hub, &all, (&caller, &parts));
        let told = parts.into_iter().filter_map(|part| part.part);
        let mut groups: Vec<Value> =
            told.filter_map(|mut part| part["groups"].as_array_mut().map(std::mem::take)).flatten().collect();
        if let Some(own) = answer["groups"].as_array_mut() {
            own.append(&mut groups);
            let place = |group: &Value| {
                [&group["topic"], &group["group"]].map(|name| name.as_str().map(str::to_owned))
            };
            own.sort_by_cached_key(place);
        }
    }
    let answer = json_of(StatusCode::OK, &answer);
    let bytes = answer.body().size_hint().exact().unwrap_or_default();
    // While nobody else makes one, so that those who wait for their turn hold nothing. From here on it is counted by itself.
    let room = app.memory.room_for(bytes as usize).ok_or_else(|| app.memory.refusal())?;
    drop((room, turn));
    Ok(answer)
}

/// The hubs that take part, each with how many topics are at home on it that the caller may see.
fn hubs(hub: &Hub, topics: &[TopicState], (caller, parts): (&Caller, &[Part<Value>])) -> Value {
    let may_see = |topic: &&TopicState| {
        caller.may(Ask { action: Action::Admin, topic: topic.name.as_str(), group: None })
    };
    let mut counts: BTreeMap<HubId, u64> = BTreeMap::new();
    for topic in topics.iter().filter(may_see) {
        let home = match hub.place(&topic.name) {
            Place::Here => hub.id().clone(),
            Place::At(other) => other.id,
        };
        *counts.entry(home).or_default() += 1;
    }
    let shown = |one: &LiveHub| {
        let is_silent = parts.iter().any(|part| part.hub == one.id && part.part.is_none());
        let mut shown = json!({
            "id": one.id.to_string(),
            "url": &*one.about.url,
            "version": &*one.about.version,
            "since": one.since_ms,
            "topics": counts.get(&one.id).copied().unwrap_or_default(),
        });
        if is_silent {
            shown["unreachable"] = true.into();
        }
        shown
    };
    hub.hubs().borrow().iter().map(shown).collect()
}

/// A group in the answer: with its partitions while `rows` of them are left, in totals after that.
async fn group_in(group: &Arc<Group>, bounds: &[Bounds], rows: &mut usize) -> Option<Value> {
    tokio::task::yield_now().await;
    let whole = bounds.len() <= *rows;
    let status = if whole { groups::status_of(group).await? } else { group.outline(bounds) };
    let lag: u64 = status.partitions.iter().map(|partition| partition.lag).sum();
    if whole {
        *rows -= bounds.len();
        let mut shown = json!(groups::shown(group, &status));
        shown["lag"] = lag.into();
        return Some(shown);
    }
    let members = status.members.iter().map(|member| {
        let name = Some(&*member.name).filter(|name| !name.is_empty());
        json!({"member": name, "in_flight": member.in_flight, "owns": member.partitions.len()})
    });
    Some(json!({
        "topic": group.topic().name.as_str(),
        "group": group.name().as_str(),
        "options": &*status.options,
        "members": members.collect::<Vec<_>>(),
        "lag": lag,
        "in_flight": status.partitions.iter().map(|partition| partition.in_flight).sum::<u64>(),
        "filter_errors": status.filter_errors,
        "bad_filter": status.bad_filter.as_ref().map(ToString::to_string),
        "truncated": true,
    }))
}

/// The figures of every group, one group after the other. One that cannot be read now is missing from this scrape, and
/// the others are there.
async fn samples(hub: &Hub) -> Vec<GroupSample> {
    let mut samples = Vec::new();
    let topics = hub.topics().await.unwrap_or_default();
    for topic in topics.into_iter().filter(|topic| hub.place(&topic.name) == Place::Here) {
        tokio::task::yield_now().await;
        let groups = hub.groups().list(&topic).await;
        if groups.is_empty() {
            continue;
        }
        let Ok(bounds) = hub.bounds(&topic).await else { continue };
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

/// What is kept of topics that let events go, as many of them as there is room for.
async fn kept_samples(hub: &Hub) -> Vec<KeptSample> {
    let mut samples = Vec::new();
    let topics = hub.topics().await.unwrap_or_default();
    for topic in topics.into_iter().filter(|topic| topic.config.lets_events_go()) {
        tokio::task::yield_now().await;
        if samples.len() + topic.config.partitions as usize > MAX_KEPT_SAMPLES {
            continue;
        }
        let Ok(kept) = hub.kept(&topic).await else { continue };
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
async fn snapshot_samples(hub: &Hub) -> Vec<SnapshotSample> {
    let mut samples = Vec::new();
    let topics = hub.topics().await.unwrap_or_default();
    let topics = topics.into_iter().filter(|topic| topic.config.snapshot.is_some());
    for topic in topics.take(MAX_SNAPSHOT_SAMPLES) {
        tokio::task::yield_now().await;
        if let Ok(Some((_, lag))) = snapshots_of(hub, &topic).await {
            samples.push(SnapshotSample { topic: topic.name, lag });
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
        let mut projections = hub.projections().list().await.unwrap_or_default();
        // Those that run on other hubs are told by these.
        projections.retain(|status| hub.place(&status.definition.topic) == Place::Here);
        text.push_str(&crate::metrics::readers_text(&samples(hub).await, hub.groups().times(), &projections));
        let durations = hub.cleaning().durations();
        text.push_str(&crate::metrics::cleaning_text(&kept_samples(hub).await, durations));
        text.push_str(&crate::metrics::schemas_text(&violations(hub).await));
        let durations = hub.cleaning().snapshot_durations();
        text.push_str(&crate::metrics::snapshots_text(&snapshot_samples(hub).await, durations));
    }
    text
}

/// How many events violated the schema of each topic that has one.
async fn violations(hub: &Hub) -> BTreeMap<TopicName, u64> {
    let topics = hub.schemas().list().await.unwrap_or_default();
    let names = topics.into_iter().map(|(topic, _)| topic).take(MAX_SCHEMA_SAMPLES);
    let mut counts: BTreeMap<TopicName, u64> = names.map(|topic| (topic, 0)).collect();
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
