//! States at a time: of one key, of every key, and of a document.

use super::collections;
use crate::answers;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::gateway::{App, Shared};
use crate::media::{JSON, NDJSON};
use crate::memory::{Memory, Reservation};
use crate::params::Params;
use crate::path::PathNames;
use crate::pieces::{self, Pieces};
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use prombus_core::document::MAX_BODY_BYTES;
use prombus_core::json::write_string;
use prombus_core::{Document, Event, Json, collection};
use prombus_engine::projections::ProjectionError;
use prombus_engine::time_travel::{AllKeys, Base, KEYS_BYTES, MAX_STATE_BYTES};
use prombus_engine::{Reduce, StateAt, TimeTravelError};

/// What a history takes while it is read: a page of it, and an event.
const HISTORY_BYTES: usize = 2 << 20;
/// Approximate size of a state without its text.
const STATE_BYTES: usize = 160;

/// `GET /v1/topics/{topic}/state/{key}`.
pub(crate) async fn of_key(
    State(app): State<App>,
    names: PathNames,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let mut params = Params::parse(query.as_deref())?;
    let (at, reduce) = (params.time("at")?, reduce(&mut params)?);
    params.done("at, reduce")?;
    let (topic, key) = (names.topic()?, names.get("key"));
    let travel = app.hub()?.time_travel();
    let at = at.unwrap_or_else(|| travel.now());
    let most = match reduce {
        Reduce::Replace => HISTORY_BYTES,
        Reduce::Merge => HISTORY_BYTES + MAX_STATE_BYTES,
    };
    let room = app.memory.reserve(most).await?;
    let Some(state) = travel.state_at(&topic, key, (at, reduce)).await? else {
        let message = format!("topic {topic} had no state of key {key:?} at {at}");
        return Err(ApiError::not_found(message));
    };
    let mut out = Vec::with_capacity(state.state.len() + key.len() + STATE_BYTES);
    write_state(&mut out, key, &state);
    Ok(([(header::CONTENT_TYPE, JSON)], axum::body::Body::from(room.hold(out))).into_response())
}

fn reduce(params: &mut Params) -> Result<Reduce, ApiError> {
    match params.one("reduce")?.as_deref() {
        None | Some("replace") => Ok(Reduce::Replace),
        Some("merge") => Ok(Reduce::Merge),
        Some(other) => Err(ApiError::bad_request(format!("reduce must be replace or merge, not {other:?}"))),
    }
}

fn write_state(out: &mut Vec<u8>, key: &str, state: &StateAt<Json>) {
    begin_state(out, key, &state.state, (state.last.ts, state.last.offset.0));
    out.extend_from_slice(b",\"applied\":");
    out.extend_from_slice(itoa::Buffer::new().format(state.applied).as_bytes());
    out.extend_from_slice(b",\"base\":");
    match &state.base {
        None => out.extend_from_slice(b"null"),
        Some(Base { event, max_ts }) => {
            let (ts, partition, offset) = (event.ts, event.partition, event.offset);
            let base =
                format!("{{\"ts\":{ts},\"partition\":{partition},\"offset\":{offset},\"max_ts\":{max_ts}}}");
            out.extend_from_slice(base.as_bytes());
        }
    }
    out.push(b'}');
    out.extend_from_slice(answers::JSON_END);
}

/// What a state of one key and one of many have in common.
fn begin_state(out: &mut Vec<u8>, key: &str, state: &Json, (ts, offset): (u64, u64)) {
    let mut number = itoa::Buffer::new();
    out.extend_from_slice(b"{\"key\":");
    write_string(out, key);
    out.extend_from_slice(b",\"state\":");
    out.extend_from_slice(state.as_bytes());
    out.extend_from_slice(b",\"ts\":");
    out.extend_from_slice(number.format(ts).as_bytes());
    out.extend_from_slice(b",\"offset\":");
    out.extend_from_slice(number.format(offset).as_bytes());
}

/// `GET /v1/topics/{topic}/state`.
pub(crate) async fn of_all(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let mut params = Params::parse(query.as_deref())?;
    let at = params.time("at")?;
    params.done("at")?;
    let travel = app.hub()?.time_travel();
    let at = at.unwrap_or_else(|| travel.now());
    let turn = app.memory.key_round().await?;
    let mut room = app.memory.reserve(KEYS_BYTES).await?;
    let mut keys = travel.all_at(&names.topic()?, at).await?;
    // What is refused must be known before the answer begins.
    keys.begin().await?;
    room.resize(keys.bytes());
    drop(turn);
    let states = AllStates { keys, memory: app.memory.clone(), room };
    pieces::answer(states, NDJSON, (&app, caller)).await
}

/// The states of all keys, which together may be too large to buffer.
struct AllStates {
    keys: AllKeys,
    memory: Memory,
    /// What the places of keys take: much while they are looked for, and little while the client reads.
    room: Reservation,
}

impl AllStates {
    /// Looks for the next keys. Few do so at a time, so the room for it is taken in the end even if others hold it: what they
    /// hold may wait for this.
    async fn next_round(&mut self) -> Result<(), ApiError> {
        let _turn = self.memory.next_key_round().await;
        let room = self.memory.reserve(KEYS_BYTES).await;
        let _room = room.unwrap_or_else(|_| self.memory.charge(KEYS_BYTES));
        self.keys.next_round().await?;
        self.room.resize(self.keys.bytes());
        Ok(())
    }
}

impl Pieces for AllStates {
    async fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        while self.keys.is_round_over() {
            self.next_round().await?;
        }
        let Some(events) = self.keys.next_page().await? else { return Ok(false) };
        events.iter().for_each(|event| write_line(out, event));
        Ok(true)
    }
}

fn write_line(out: &mut Vec<u8>, event: &Event) {
    let key = event.key.as_deref().unwrap_or_default();
    begin_state(out, key, &event.payload, (event.ts, event.offset.0));
    out.extend_from_slice(b"}\n");
}

/// The document of a collection at a time.
pub(crate) async fn document_at(
    app: &Shared,
    name: &str,
    (key, at): (&str, u64),
) -> Result<Option<Document>, ApiError> {
    let hub = app.hub()?;
    let _room = app.memory.reserve(HISTORY_BYTES + MAX_BODY_BYTES).await?;
    match hub.time_travel().document_at(name, (key, at)).await {
        // Where there is no such collection, that is what is wrong.
        Err(TimeTravelError::Projection(ProjectionError::Bad(_)))
            if hub.collections().get(name).await?.is_none() =>
        {
            collection::check_name(name)?;
            Err(collections::missing(name))
        }
        answer => Ok(answer?),
    }
}
