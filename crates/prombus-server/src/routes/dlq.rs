//! Dead letters: list and replay.

use super::events;
use crate::answers::json_of;
use crate::auth::{AccessRequest, Action, Caller};
use crate::body::{json_body, parse_optional};
use crate::error::ApiError;
use crate::gateway::App;
use crate::memory::InTurn;
use crate::params::{Params, parse_id};
use crate::path::PathNames;
use axum::Extension;
use axum::extract::{RawQuery, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use prombus_core::TopicName;
use prombus_engine::Filter;
use prombus_engine::groups::{FailedBy, GroupName, LETTER_BYTES_AT_ONCE, Replay, ReplayTo};
use prombus_wire::{ReplayAnswer, ReplayRequest, SkippedLetter};

/// What letters take that are read at once, with what is parsed of them and goes back.
const REPLAY_BYTES: usize = 4 * LETTER_BYTES_AT_ONCE;

fn letters_of(topic: &TopicName) -> Result<TopicName, ApiError> {
    topic.dead_letters().ok_or_else(|| ApiError::bad_request("no topic with such a long name can exist"))
}

/// `GET /v1/dlq/{topic}`.
pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let topic = names.topic()?;
    let mut params = Params::parse(query.as_deref())?;
    let failed_by = failed_by(params.one("group")?, params.one("projection")?)?;
    let filter = params.one("filter")?;
    // Compiled separately first, so that an error has its own position.
    Filter::compile_any(filter.as_deref()).await?;
    let filter = both(failed_by.as_ref(), filter);
    events::letters_page((&app, caller), (&topic, &letters_of(&topic)?), params, filter).await
}

/// Whose letters to list, if given.
fn failed_by(group: Option<String>, projection: Option<String>) -> Result<Option<FailedBy>, ApiError> {
    match (group, projection) {
        (Some(_), Some(_)) => Err(ApiError::bad_request(
            "group and projection cannot be combined: a letter is of one or the other",
        )),
        (Some(group), None) => Ok(Some(FailedBy::Group(GroupName::parse(&group)?.to_string()))),
        (None, projection) => Ok(projection.map(FailedBy::Projection)),
    }
}

/// One filter for both conditions.
fn both(failed_by: Option<&FailedBy>, filter: Option<String>) -> Option<String> {
    let by = failed_by.map(|failed_by| {
        let (field, name) = match failed_by {
            FailedBy::Group(name) => ("group", name),
            FailedBy::Projection(name) => ("projection", name),
        };
        format!("has(event.payload.{field}) && event.payload.{field} == {}", serde_json::json!(name))
    });
    match (by, filter) {
        (Some(by), Some(filter)) => Some(format!("{by} && ({filter}\n)")),
        (by, filter) => by.or(filter),
    }
}

/// `POST /v1/dlq/{topic}/replay`.
pub(crate) async fn replay(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    request: Request,
) -> Result<Response, ApiError> {
    let topic = names.topic()?;
    let body = json_body(&app, request).await?;
    let request: ReplayRequest = parse_optional(&body)?;
    let read = AccessRequest::on(Action::Read, topic.as_str());
    if request.filter.is_some() {
        // The number of matches reveals contents.
        caller.check(read)?;
    }
    let replay = Replay { hides_events: !caller.may(read), ..parse(request).await? };
    let (hub, memory) = (app.hub()?, &app.memory);
    let in_turn = match replay.dry_run {
        true => memory.dry_run(REPLAY_BYTES).await?,
        false => InTurn { room: memory.reserve(REPLAY_BYTES).await?, turn: None },
    };
    let replayed = caller.while_valid(hub.replay(&topic, replay)).await?;
    drop(in_turn);
    let skipped = replayed.skipped.into_iter();
    let answer = ReplayAnswer {
        matched: replayed.matched,
        replayed: replayed.replayed,
        skipped: skipped.map(|(id, why)| SkippedLetter { id: id.to_string(), why }).collect(),
    };
    Ok(json_of(StatusCode::OK, &answer))
}

async fn parse(request: ReplayRequest) -> Result<Replay, ApiError> {
    let ReplayRequest { to, ids, group, projection, filter, limit, dry_run, force } = request;
    let to = match to.as_deref() {
        None | Some("group") => ReplayTo::Group,
        Some("topic") => ReplayTo::Topic,
        Some(other) => {
            return Err(ApiError::bad_request(format!("to must be group or topic, not {other:?}")));
        }
    };
    if limit == Some(0) {
        return Err(ApiError::bad_request("limit must be at least 1"));
    }
    let ids = ids.map(|ids| ids.iter().map(|id| parse_id("ids", id)).collect::<Result<_, _>>());
    Ok(Replay {
        to,
        ids: ids.transpose()?,
        failed_by: failed_by(group, projection)?,
        filter: Filter::compile_any(filter.as_deref()).await?,
        limit,
        dry_run: dry_run.unwrap_or(false),
        force: force.unwrap_or(false),
        hides_events: false,
    })
}
