//! What other hubs ask of this one: whether it is from them, for whom, and what they are answered.

use super::Cluster;
use super::peers::{Hello, Welcome};
use super::told::{ANSWER, CALLER, FORWARD, MOVED, NOT_BEGUN, STALE, Told, read_caller};
use super::trust::{Distrust, Said, SessionKey, digest_of};
use crate::answers::json_of;
use crate::auth::Caller;
use crate::body::{BodyReader, json_body};
use crate::error::{ApiError, Moved};
use crate::gateway::App;
use crate::rate::ConnectionRate;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The name of a hub is no longer.
const MAX_NAME_BYTES: usize = 200;

/// That a request comes from another hub, which has checked what its caller may do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forwarded;

/// Whether a request says that it comes from another hub.
pub(crate) fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.contains_key(FORWARD) || headers.contains_key(CALLER)
}

/// Why a request is not taken for one of another hub.
const FORWARDED: &str =
    "the headers x-prombus-* are for hubs that have the same cluster.secret; leave them out";

/// A request that is from another hub.
pub(crate) struct Heard {
    pub parts: Parts,
    pub body: Body,
    answer: AnswerKey,
}

/// What an answer is signed with.
pub(crate) struct AnswerKey {
    key: SessionKey,
    count: u64,
}

impl Heard {
    pub fn split(self) -> (Parts, Body, AnswerKey) {
        (self.parts, self.body, self.answer)
    }
}

impl AnswerKey {
    /// Signs an answer; and says so if the request had no effect because its topic is not here.
    pub fn sign(&self, mut answer: Response) -> Response {
        let said = Said::Answer { count: self.count, status: answer.status().as_u16() };
        if answer.extensions().get::<Moved>().is_some() {
            answer.headers_mut().insert(NOT_BEGUN, MOVED);
        }
        if let Ok(tag) = HeaderValue::try_from(self.key.tag(&said)) {
            answer.headers_mut().insert(ANSWER, tag);
        }
        answer
    }
}

/// Makes sure that a request comes from another hub, as a whole. What does not is answered here.
pub(crate) async fn hear(app: &App, cluster: &Cluster, request: Request) -> Result<Heard, Box<Response>> {
    let (mut parts, body) = request.into_parts();
    let refused = || Box::new(ApiError::forbidden(FORWARDED).into_response());
    let Ok(hub) = app.hub() else {
        // It has joined, and is about to serve.
        let mut answer = ApiError::unavailable("this hub is starting").into_response();
        answer.headers_mut().insert(NOT_BEGUN, STALE);
        return Err(Box::new(answer));
    };
    let Some((told, caller)) = Told::parse(&parts.headers) else { return Err(refused()) };
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let said = told.said(parts.method.as_str(), target, caller);
    let key = match cluster.trust.accept(&told.parties(&hub.id().0), &said, &told.tag) {
        Ok(key) => key,
        Err(Distrust::Stale) => {
            let mut answer = ApiError::unavailable("the hubs have to greet each other again").into_response();
            answer.headers_mut().insert(NOT_BEGUN, STALE);
            return Err(Box::new(answer));
        }
        Err(Distrust::Forged | Distrust::Repeated) => return Err(refused()),
    };
    let Some(caller) = read_caller(caller) else { return Err(refused()) };
    cluster.counts.heard.fetch_add(1, Ordering::Relaxed);
    let answer = AnswerKey { key, count: told.count };
    parts.extensions.insert::<Caller>(caller);
    parts.extensions.insert(Forwarded);
    // What a connection may publish was counted where the caller's connection is.
    parts.extensions.insert(ConnectionRate::default());
    let body = BodyReader::new(body, &parts, app).whole().await;
    let body = body.map_err(|error| Box::new(answer.sign(error.into_response())))?;
    if digest_of(&body) != told.digest {
        return Err(refused());
    }
    parts.headers.remove(FORWARD);
    parts.headers.remove(CALLER);
    Ok(Heard { parts, body: Body::from(body), answer })
}

/// `POST /cluster/hello`: a challenge for a hub, and the proof that this one has the secret.
pub(crate) async fn hello(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    let cluster: Arc<Cluster> =
        app.cluster.clone().ok_or_else(|| ApiError::not_found("this hub is not one of several"))?;
    let body = json_body(&app, request).await?;
    let Hello { from, nonce } = serde_json::from_slice(&body)?;
    if from.len() > MAX_NAME_BYTES || nonce.len() > MAX_NAME_BYTES {
        return Err(ApiError::bad_request("the name or the nonce is too long"));
    }
    let hub = app.hub()?.id().to_string();
    let challenge = cluster.trust.challenge(&from, &nonce).map_err(ApiError::internal)?;
    let of = super::trust::Parties { from: &from, to: &hub, nonce: &nonce, challenge: &challenge };
    let tag = cluster.trust.key(&of).tag(&Said::Hello);
    Ok(json_of(StatusCode::OK, &Welcome { hub, challenge, tag }))
}
