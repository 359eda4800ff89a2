//! How the hub is doing, and requests that lead nowhere.

use super::{groups, projections};
use crate::answers::json_of;
use crate::auth::{Action, Ask, Caller};
use crate::error::ApiError;
use crate::gateway::App;
use crate::metrics::GroupSample;
use axum::Extension;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use prombus_core::TopicName;
use prombus_engine::Hub;
use prombus_engine::groups::{Group, GroupStatus};
use serde_json::{Value, json};
use std::sync::Arc;

/// Whether the process is alive.
pub(crate) async fn healthz() -> Response {
    json_of(StatusCode::OK, &json!({"status": "ok"}))
}

/// Whether publishes are taken.
pub(crate) async fn readyz(State(app): State<App>) -> Result<Response, ApiError> {
    match app.hub()?.status().failed {
        None => Ok(json_of(StatusCode::OK, &json!({"status": "ready"}))),
        Some(why) => Err(ApiError::unavailable(format!("the store takes no commits: {why}"))),
    }
}

/// Every group of every topic, with how it is doing. One that goes away meanwhile is left out.
async fn all_groups(hub: &Hub) -> Result<Vec<(Arc<Group>, GroupStatus)>, ApiError> {
    let mut all = Vec::new();
    for topic in hub.topics().await? {
        all.extend(groups::of_topic(hub, &topic).await);
    }
    Ok(all)
}

/// `GET /ops`: topics, groups, projections and the store in one answer.
pub(crate) async fn ops(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, ApiError> {
    let hub = app.hub()?;
    let shown =
        |topic: &TopicName| caller.may(Ask { action: Action::Admin, topic: topic.as_str(), group: None });
    let mut topics = Vec::new();
    for topic in hub.topics().await?.iter().filter(|topic| shown(&topic.name)) {
        let Ok(bounds) = hub.bounds(topic).await else { continue };
        let events: u64 = bounds.iter().map(|bounds| bounds.next.0.saturating_sub(bounds.first.0)).sum();
        let partitions = topic.config.partitions;
        topics.push(json!({"topic": topic.name.as_str(), "partitions": partitions, "events": events}));
    }
    let groups: Vec<Value> = all_groups(hub)
        .await?
        .iter()
        .filter(|(group, _)| shown(&group.topic().name))
        .map(|(group, status)| {
            let lag: u64 = status.lanes.iter().map(|lane| lane.lag).sum();
            let mut shown = json!(groups::shown(group, status));
            shown["lag"] = lag.into();
            shown
        })
        .collect();
    let status = hub.status();
    let store = json!({
        "kind": status.kind,
        "failed": status.failed,
        "disk_full": status.disk_full,
        "disk_bytes": status.disk_bytes,
        "disk_free_bytes": status.disk_free_bytes,
    });
    let projections = projections::visible_to(&caller, hub).await?;
    let answer = json!({"topics": topics, "groups": groups, "projections": projections, "store": store});
    Ok(json_of(StatusCode::OK, &answer))
}

/// Everything that is counted.
pub(crate) async fn metrics(State(app): State<App>) -> Response {
    let hub = app.hub().ok();
    let store = hub.map(Hub::status);
    let mut text = app.metrics.text(app.options.version, store.as_ref());
    text.push_str(&crate::metrics::sockets_text(*app.sockets.borrow()));
    if let Some(hub) = hub {
        // A group that cannot be read now is missing from this scrape, and the others are there.
        let groups = all_groups(hub).await.unwrap_or_default();
        let samples: Vec<GroupSample> =
            groups.iter().map(|(group, status)| GroupSample::new(group, status)).collect();
        let projections = hub.projections().list().await.unwrap_or_default();
        text.push_str(&crate::metrics::readers_text(&samples, hub.groups().times(), &projections));
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// The answer on paths that do not exist.
pub(crate) async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::not_found(format!("there is nothing at {}", uri.path()))
}

/// The answer on paths that do not know the method; which ones they know is added by the router.
pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    ApiError::method_not_allowed(format!("{} does not take {method}; see the allow header", uri.path()))
}
