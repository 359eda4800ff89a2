//! Bulk replays: start, list, show, pause, resume, cancel and delete.

use super::groups::{Start, start};
use crate::answers::json_of;
use crate::auth::{AccessRequest, Action, Caller};
use crate::body::json_body;
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
use futures::{StreamExt, TryStreamExt};
use prombus_core::{Partition, TopicName};
use prombus_engine::Hub;
use prombus_engine::query::From;
use prombus_engine::replays::{Command, Counts, Definition, Mapping, ReplayState, ReplayStatus, Source};
use prombus_wire::{
    BulkReplayAnswer, BulkReplayError, BulkReplayMap, BulkReplayRequest, BulkReplaySource, BulkReplayState,
    parse_object,
};

/// What a dry run holds of events that it looks at.
const DRY_RUN_BYTES: usize = 4 << 20;

fn definition(request: BulkReplayRequest) -> Result<(String, Definition, bool), ApiError> {
    let BulkReplayRequest { name, source, filter, map, target, rate_per_s, dry_run } = request;
    let BulkReplaySource { topic, from, ts, after_id, offset, partition, to_ts } = source;
    let from = Some(from.unwrap_or_else(|| "earliest".to_owned()));
    let from = start(&Start { from, ts, after_id, offset, with_offset: true })?;
    let BulkReplayMap { payload, key } = map.unwrap_or_default();
    let partition = partition.map(Partition);
    let definition = Definition {
        source: Source { topic: TopicName::parse(&topic)?, from, partition, to_ts },
        filter,
        map: Mapping { payload, key },
        target: TopicName::parse(&target)?,
        rate_per_s,
    };
    Ok((name, definition, dry_run.unwrap_or(false)))
}

/// The definition as it was asked for.
fn asked(name: String, definition: &Definition) -> BulkReplayRequest {
    let Definition { source, filter, map, target, rate_per_s } = definition.clone();
    let place = |from: &str| BulkReplaySource { from: Some(from.to_owned()), ..BulkReplaySource::default() };
    let place = match source.from {
        From::Earliest => place("earliest"),
        From::Latest => place("latest"),
        From::Ts(ts) => BulkReplaySource { ts: Some(ts), ..place("ts") },
        From::AfterId(id) => BulkReplaySource { after_id: Some(id.to_string()), ..place("afterId") },
        From::Offset(offset) => BulkReplaySource { offset: Some(offset.0), ..place("offset") },
    };
    let (partition, to_ts) = (source.partition.map(|partition| partition.0), source.to_ts);
    let is_mapped = map != Mapping::default();
    let Mapping { payload, key } = map;
    BulkReplayRequest {
        name,
        source: BulkReplaySource { topic: source.topic.to_string(), partition, to_ts, ..place },
        filter,
        map: is_mapped.then_some(BulkReplayMap { payload, key }),
        target: target.to_string(),
        rate_per_s,
        dry_run: None,
    }
}

fn state_of(state: ReplayState) -> BulkReplayState {
    match state {
        ReplayState::Running => BulkReplayState::Running,
        ReplayState::Paused => BulkReplayState::Paused,
        ReplayState::Done => BulkReplayState::Done,
        ReplayState::Cancelled => BulkReplayState::Cancelled,
        ReplayState::Failed => BulkReplayState::Failed,
    }
}

/// A replay as a caller may see it: why an event was not copied may quote it.
fn shown_to(caller: &Caller, status: ReplayStatus) -> BulkReplayAnswer {
    let topic = status.definition.source.topic.clone();
    let may_read = caller.may(AccessRequest::on(Action::Read, topic.as_str()));
    let hidden = || format!("shown to those who have `read` on {topic}");
    let Counts { read, copied, errors, lost } = status.counts;
    let last_errors = status.last_errors.into_iter().map(|error| BulkReplayError {
        id: error.id.to_string(),
        partition: error.partition.0,
        offset: error.offset.0,
        error: if may_read { error.error } else { hidden() },
    });
    BulkReplayAnswer {
        request: asked(status.name, &status.definition),
        state: state_of(status.state),
        reason: status.reason.map(|reason| if may_read { reason } else { hidden() }),
        read,
        copied,
        errors,
        last_errors: last_errors.collect(),
        lost,
        left: status.left,
        left_ms: status.left_ms.filter(|_| status.ended_ms.is_none()),
        began_ts: status.began_ms,
        ended_ts: status.ended_ms,
    }
}

fn admin(status: &ReplayStatus) -> AccessRequest<'_> {
    AccessRequest::on(Action::Admin, status.definition.source.topic.as_str())
}

/// A replay copies the contents of its topic to where others may read them, on behalf of the caller, who must therefore be
/// allowed to read the source and to publish to the target.
fn check(caller: &Caller, definition: &Definition) -> Result<(), ApiError> {
    let (source, target) = (definition.source.topic.as_str(), definition.target.as_str());
    caller.check(AccessRequest::on(Action::Admin, source))?;
    caller.check(AccessRequest::on(Action::Read, source))?;
    caller.check(AccessRequest::on(Action::Publish, target))
}

/// `POST /v1/replays`.
pub(crate) async fn begin(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    _: NoParams,
    request: Request,
) -> Result<Response, ApiError> {
    let body = json_body(&app, request).await?;
    let (name, definition, is_dry) = definition(parse_object(&body)?)?;
    check(&caller, &definition)?;
    let replays = app.hub()?.replays();
    if !is_dry {
        let status = replays.begin(&name, definition).await?;
        return Ok(json_of(StatusCode::CREATED, &shown_to(&caller, status)));
    }
    let in_turn = app.memory.dry_run(DRY_RUN_BYTES).await?;
    let status = caller.while_valid(replays.rehearse(&name, definition)).await?;
    drop(in_turn);
    let mut answer = shown_to(&caller, status);
    answer.request.dry_run = Some(true);
    Ok(json_of(StatusCode::OK, &answer))
}

/// `GET /v1/replays`.
pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    _: NoParams,
) -> Result<Response, ApiError> {
    let (hub, asking) = (app.hub()?.clone(), caller.clone());
    let pages = futures::stream::try_unfold(None, move |after: Option<String>| {
        let hub: Hub = hub.clone();
        async move {
            let page = hub.replays().page(after).await.map_err(ApiError::from)?;
            let last = page.last().map(|status| status.name.clone());
            Ok::<_, ApiError>(last.map(|last| (page, Some(last))))
        }
    });
    let shown = pages
        .map_ok(|page| futures::stream::iter(page.into_iter().map(Ok::<_, ApiError>)))
        .try_flatten()
        .try_filter_map(move |status| {
            let visible = asking.may(admin(&status)).then(|| shown_to(&asking, status));
            async move { Ok(visible.map(|answer| serde_json::to_vec(&answer)).transpose()?) }
        });
    pieces::answer(Array::new("replays", shown.boxed()), JSON, (&app, caller)).await
}

/// The replay in the path, of which the caller administers the source.
async fn known(app: &App, caller: &Caller, names: &PathNames) -> Result<ReplayStatus, ApiError> {
    let status = app.hub()?.replays().get(names.get("name")).await?;
    caller.check(admin(&status))?;
    Ok(status)
}

/// `GET /v1/replays/{name}`.
pub(crate) async fn show(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    let status = known(&app, &caller, &names).await?;
    Ok(json_of(StatusCode::OK, &shown_to(&caller, status)))
}

async fn command(app: App, caller: Caller, names: PathNames, command: Command) -> Result<Response, ApiError> {
    let known = known(&app, &caller, &names).await?;
    if command == Command::Resume {
        check(&caller, &known.definition)?;
    }
    let status = app.hub()?.replays().command(&known.name, command).await?;
    Ok(json_of(StatusCode::OK, &shown_to(&caller, status)))
}

/// `POST /v1/replays/{name}/pause`.
pub(crate) async fn pause(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    command(app, caller, names, Command::Pause).await
}

/// `POST /v1/replays/{name}/resume`.
pub(crate) async fn resume(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    command(app, caller, names, Command::Resume).await
}

/// `POST /v1/replays/{name}/cancel`.
pub(crate) async fn cancel(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    command(app, caller, names, Command::Cancel).await
}

/// `DELETE /v1/replays/{name}`.
pub(crate) async fn delete(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    let known = known(&app, &caller, &names).await?;
    app.hub()?.replays().delete(&known.name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
