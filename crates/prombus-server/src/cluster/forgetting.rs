//! Forgetting a key whose copies are in topics at home on several hubs: each hub forgets it in its own, and names the others.

use super::pledges::only_hubs;
use super::{Forward, Forwarded, Patience, Question, Step, put_question};
use crate::answers::json_of;
use crate::auth::Caller;
use crate::body::json_body;
use crate::error::ApiError;
use crate::gateway::App;
use crate::media::JSON;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use prombus_core::TopicName;
use prombus_engine::Forgotten;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Where hubs ask each other to forget a key.
pub(crate) const PATH: &str = "/cluster/forget";
/// The largest answer: the names of all topics fit.
const MAX_ANSWER_BYTES: usize = 32 << 20;

#[derive(Serialize, Deserialize)]
struct Asked {
    topic: TopicName,
    key: String,
    /// The topics in which nothing is left of it.
    done: BTreeSet<TopicName>,
}

#[derive(Serialize, Deserialize)]
struct Answer {
    events: u64,
    done: BTreeSet<TopicName>,
    elsewhere: BTreeSet<TopicName>,
}

/// Forgets a key in a topic that is at home here, and wherever the hubs have put its events. Says how many events of the topic that
/// were. Whoever is interrupted asks again: what is forgotten already is no obstacle.
pub(crate) async fn forget_everywhere(app: &App, topic: &TopicName, key: &str) -> Result<u64, ApiError> {
    let Forgotten { events, mut done, elsewhere } =
        app.hub()?.forget_here(topic, key, BTreeSet::new()).await?;
    let mut waiting = elsewhere;
    while let Some(next) = waiting.pop_first() {
        let forgotten = forget_at_home(app, Asked { topic: next, key: key.to_owned(), done }).await?;
        done = forgotten.done;
        waiting.extend(forgotten.elsewhere);
        waiting.retain(|topic| !done.contains(topic));
    }
    Ok(events)
}

/// Has the home of a topic forget a key there.
async fn forget_at_home(app: &App, asked: Asked) -> Result<Forgotten, ApiError> {
    let (hub, caller) = (app.hub()?, Caller::nobody());
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    // It has text keys only, so writing it cannot fail.
    let body = serde_json::to_vec(&asked).unwrap_or_default().into();
    let forward = Forward { method: &Method::POST, target: PATH, headers: &headers, body, caller: &caller };
    let question = Question { topic: &asked.topic, forward, may_repeat: true };
    let mut patience = Patience::default();
    let answer = loop {
        let step = match &app.cluster {
            Some(cluster) => put_question(cluster, hub, &question).await,
            None => Step::Here,
        };
        let error = match step {
            Step::Answered(answer) => break answer,
            Step::Failed(error) => return Err(error),
            Step::Again(error) => error,
            Step::Here => {
                let forgotten = hub.forget_here(&asked.topic, &asked.key, asked.done.clone()).await;
                match forgotten.map_err(ApiError::from) {
                    Err(error) if error.is_moved() => error,
                    forgotten => return forgotten,
                }
            }
        };
        patience.wait(hub, error).await?;
    };
    let status = answer.status();
    let cut_off = |error: &dyn std::fmt::Display| {
        ApiError::unavailable(format!("the answer of the home of {} is not whole: {error}", asked.topic))
    };
    let whole = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
    let whole = whole.map_err(|error| cut_off(&error))?.to_bytes();
    if status != StatusCode::OK {
        return Err(ApiError::from_answer(status, &whole));
    }
    let Answer { events, done, elsewhere } =
        serde_json::from_slice(&whole).map_err(|error| cut_off(&error))?;
    Ok(Forgotten { events, done, elsewhere })
}

/// `POST /cluster/forget`: forgets a key in a topic that is at home here. The hub that asks has checked that this may be.
pub(crate) async fn forget(
    State(app): State<App>,
    forwarded: Option<Extension<Forwarded>>,
    request: Request,
) -> Result<Response, ApiError> {
    only_hubs(&app, forwarded)?;
    let Asked { topic, key, done } = serde_json::from_slice(&json_body(&app, request).await?)?;
    let Forgotten { events, done, elsewhere } = app.hub()?.forget_here(&topic, &key, done).await?;
    Ok(json_of(StatusCode::OK, &Answer { events, done, elsewhere }))
}
