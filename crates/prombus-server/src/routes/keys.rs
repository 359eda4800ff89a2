//! The latest event of one key, or of many; and forgetting a key.

use super::events::read_hub;
use crate::answers::{self, json_of};
use crate::auth::{AccessRequest, Action, Caller};
use crate::body::BodyReader;
use crate::cluster::forget_everywhere;
use crate::error::ApiError;
use crate::gateway::App;
use crate::media;
use crate::params::NoParams;
use crate::path::PathNames;
use crate::pieces::{self, Pieces};
use axum::Extension;
use axum::extract::{RawQuery, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use prombus_core::TopicRef;
use prombus_core::json::write_string;
use prombus_engine::Hub;
use prombus_wire::{ForgetAnswer, KeysRequest, parse_object};
use std::collections::HashSet;

/// Maximum number of keys in one request.
const MAX_KEYS: usize = 1_000;

/// `GET /v1/topics/{topic}/keys/{key}`.
pub(crate) async fn latest(
    State(app): State<App>,
    names: PathNames,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let hub = read_hub(&app, query.as_deref())?;
    let (topic, key) = (names.topic()?, names.get("key"));
    let of = TopicRef::from(&topic);
    match app.memory.make(async || Ok(hub.latest_by_key(&of, key).await?), answers::size).await? {
        Some(event) => Ok(answers::event(&event)),
        None => Err(ApiError::not_found(format!("topic {topic} has no event of key {key:?}"))),
    }
}

/// `DELETE /v1/topics/{topic}/keys/{key}`.
pub(crate) async fn forget(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    let (topic, key) = (names.topic()?, names.get("key"));
    let hub = app.hub()?;
    for copies in hub.topics_of_copies(&topic).await? {
        caller.check(AccessRequest::on(Action::Admin, copies.as_str()))?;
    }
    let events = forget_everywhere(&app, &topic, key).await?;
    Ok(json_of(StatusCode::OK, &ForgetAnswer { events }))
}

/// `POST /v1/topics/{topic}/keys`.
pub(crate) async fn latest_of_many(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let body = BodyReader::new(body, &parts, &app).whole().await?;
    let hub = read_hub(&app, parts.uri.query())?;
    let topic = names.topic()?;
    media::require_json(&parts.headers)?;
    let KeysRequest { keys } = parse_object(&body)?;
    if keys.len() > MAX_KEYS {
        return Err(ApiError::bad_request(format!(
            "{} keys are too many; request at most {MAX_KEYS} at a time",
            keys.len()
        )));
    }
    let Some(topic) = hub.topic(&topic).await? else {
        return Err(ApiError::not_found(format!("topic {topic} does not exist")));
    };
    // In an object, each name comes once.
    let mut seen = HashSet::new();
    let keys: Vec<String> = keys.into_iter().filter(|key| seen.insert(key.clone())).collect();
    let latest = Latest { hub, topic: topic.pinned(), keys: keys.into_iter(), state: Writing::Start };
    pieces::answer(latest, media::JSON, (&app, caller)).await
}

/// The events of many keys, which together may be too large to buffer.
struct Latest {
    hub: Hub,
    topic: TopicRef,
    keys: std::vec::IntoIter<String>,
    state: Writing,
}

enum Writing {
    Start,
    First,
    More,
}

impl Pieces for Latest {
    async fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        if matches!(self.state, Writing::Start) {
            out.extend_from_slice(b"{\"events\":{");
            self.state = Writing::First;
        }
        let Some(key) = self.keys.next() else {
            out.extend_from_slice(b"}}");
            return Ok(false);
        };
        if let Some(event) = self.hub.latest_by_key(&self.topic, &key).await? {
            if matches!(self.state, Writing::More) {
                out.push(b',');
            }
            self.state = Writing::More;
            write_string(out, &key);
            out.push(b':');
            event.write_json(out);
        }
        Ok(true)
    }
}
