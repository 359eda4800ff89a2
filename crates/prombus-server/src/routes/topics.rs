//! Topics: list, show, make, change, clean, trim, delete.

use crate::answers::json_of;
use crate::auth::{AccessRequest, Action, Caller};
use crate::body::{json_body, parse_optional};
use crate::error::ApiError;
use crate::gateway::App;
use crate::media::JSON;
use crate::params::NoParams;
use crate::path::PathNames;
use crate::pieces::{self, Array};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use prombus_core::{Bounds, Kept, Offset, Partition, ReadError, TopicName, TopicPatch, TopicState};
use prombus_engine::{Hub, Resume};
use prombus_wire::{
    CleanAnswer, CleanRequest, ErrorCode, PartitionBounds, SnapshotAnswer, TopicAnswer, TrimRequest,
    parse_object,
};
use serde_json::{Map, Value};

/// A topic as it is answered.
async fn shown(hub: &Hub, state: &TopicState) -> Result<TopicAnswer, ApiError> {
    // Nobody has read anything of it yet.
    let not_found = |error| match error {
        ReadError::TopicGone(topic) => ReadError::TopicNotFound(topic),
        error => error,
    };
    let kept = hub.kept(state).await.map_err(not_found)?;
    let mut config = match serde_json::to_value(&state.config) {
        Ok(Value::Object(config)) => config,
        _ => Map::new(),
    };
    let status = hub.snapshots(state, &kept).await.map_err(not_found)?;
    if let (Some(setting), Some(status)) = (&state.config.snapshot, status) {
        let snapshot = SnapshotAnswer {
            topic: setting.topic.to_string(),
            every_ms: setting.every_ms,
            pass: status.pass,
            through: status.through.iter().map(|next| next.0).collect(),
            since: status.since,
            resume: Resume::at(state, status.through.iter().copied()).encode(),
        };
        config.insert("snapshot".to_owned(), serde_json::to_value(snapshot).unwrap_or_default());
    }
    Ok(TopicAnswer {
        topic: state.name.to_string(),
        events: kept.iter().map(|kept| kept.bounds.next.0.saturating_sub(kept.bounds.first.0)).sum(),
        bounds: shown_bounds(&kept),
        config,
    })
}

/// Snapshots copy the contents of a topic to where others may read them, and so does `dual_write`. Where the latter copies
/// them to is known later: see [`put`].
fn check_rights_of_copies(caller: &Caller, topic: &TopicName, patch: &TopicPatch) -> Result<(), ApiError> {
    if let Some(Some(snapshot)) = &patch.snapshot {
        caller.check_copies(topic, &snapshot.topic)?;
    }
    match patch.dual_write {
        Some(true) => caller.check(AccessRequest::on(Action::Read, topic.as_str())),
        _ => Ok(()),
    }
}

/// What is kept of the partitions of a topic, as users see it.
fn shown_bounds(kept: &[Kept]) -> Vec<PartitionBounds> {
    (0..).zip(kept).map(|(partition, kept)| shown_partition(partition, kept)).collect()
}

fn shown_partition(partition: u32, kept: &Kept) -> PartitionBounds {
    let (Bounds { first, next }, horizon_ts) = (kept.bounds, kept.horizon_ts);
    PartitionBounds { partition, first: first.0, next: next.0, horizon_ts }
}

/// `GET /v1/topics`.
pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    _: NoParams,
) -> Result<Response, ApiError> {
    let hub = app.hub()?.clone();
    let mut states = hub.topics().await?;
    states.retain(|state| caller.may_see(&state.name));
    // Each has the bounds of all its partitions: together that may be far more than is worth holding.
    let shown = futures::stream::iter(states).filter_map(move |state| {
        let hub = hub.clone();
        async move {
            match shown(&hub, &state).await {
                // It has text keys only, so writing it cannot fail.
                Ok(shown) => Some(Ok(serde_json::to_vec(&shown).unwrap_or_default())),
                // One that was deleted since the list was made is no longer part of it.
                Err(error) if error.code() == ErrorCode::NotFound => None,
                Err(error) => Some(Err(error)),
            }
        }
    });
    pieces::answer(Array::new("topics", shown.boxed()), JSON, (&app, caller)).await
}

pub(crate) async fn show(
    State(app): State<App>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    let (hub, topic) = (app.hub()?, names.topic()?);
    let state = hub.topic(&topic).await?;
    let state = state.ok_or_else(|| ApiError::not_found(format!("topic {topic} does not exist")))?;
    Ok(json_of(StatusCode::OK, &shown(hub, &state).await?))
}

pub(crate) async fn put(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    request: Request,
) -> Result<Response, ApiError> {
    let body = json_body(&app, request).await?;
    let (hub, topic) = (app.hub()?, names.topic()?);
    let patch: TopicPatch = parse_optional(&body)?;
    check_rights_of_copies(&caller, &topic, &patch)?;
    let may_copy = |copies: &TopicName| caller.check_copies(&topic, copies);
    let (state, made) = hub.put_topic_if(&topic, patch, may_copy).await?;
    let status = if made { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json_of(status, &shown(hub, &state).await?))
}

/// `POST /v1/topics/{topic}/clean`.
pub(crate) async fn clean(
    State(app): State<App>,
    names: PathNames,
    request: Request,
) -> Result<Response, ApiError> {
    let body = json_body(&app, request).await?;
    let (hub, topic) = (app.hub()?, names.topic()?);
    let CleanRequest {} = parse_optional(&body)?;
    let cleaned = hub.cleaning().clean(&topic).await?;
    let answer = CleanAnswer {
        reclaimed_events: cleaned.events,
        reclaimed_bytes: cleaned.bytes,
        partitions: shown_bounds(&cleaned.kept),
    };
    Ok(json_of(StatusCode::OK, &answer))
}

/// `POST /v1/topics/{topic}/trim`.
pub(crate) async fn trim(
    State(app): State<App>,
    names: PathNames,
    request: Request,
) -> Result<Response, ApiError> {
    let body = json_body(&app, request).await?;
    let (hub, topic) = (app.hub()?, names.topic()?);
    let TrimRequest { partition, before } = parse_object(&body)?;
    let kept = hub.cleaning().trim(&topic, Partition(partition), Offset(before)).await?;
    Ok(json_of(StatusCode::OK, &shown_partition(partition, &kept)))
}

pub(crate) async fn delete(
    State(app): State<App>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    let topic = names.topic()?;
    app.hub()?.delete_topic(&topic).await?;
    app.metrics.forget_topic(&topic);
    Ok(StatusCode::NO_CONTENT.into_response())
}
