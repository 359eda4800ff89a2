//! What other hubs ask of this one: whether it is from them, for whom, and what they are answered.

use super::Cluster;
use super::batch;
use super::peers::{Hello, Welcome};
use super::told::{
    ANSWER, CALLER, FORWARD, MOVED, NOT_BEGUN, STALE, Told, answered, carried, read_caller, upgrade_headers,
};
use super::trust::{Distrust, Said, SessionKey, digest_of};
use crate::answers::json_of;
use crate::auth::Caller;
use crate::body::{BodyReader, json_body};
use crate::error::{ApiError, Moved};
use crate::gateway::App;
use crate::rate::ConnectionRate;
use crate::serve::Via;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The name of a hub is no longer.
const MAX_NAME_BYTES: usize = 200;

/// That a request comes from another hub, which has checked what its caller may do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forwarded;

/// That a WebSocket is from another hub, which may say anew whose it is.
#[derive(Clone)]
pub(crate) struct Vouched {
    key: SessionKey,
    socket: u64,
    /// The next number by which it says so.
    next: u64,
    /// Whether tokens are asked for here.
    is_guarded: bool,
}

impl Vouched {
    /// Whose it is from now on, if that is said by the hub that has opened it, and not again.
    pub fn caller(&mut self, frame: &CallerFrame<'_>) -> Option<Caller> {
        let CallerFrame { caller, renewal, tag, .. } = frame;
        let said = Said::Caller { socket: self.socket, renewal: *renewal, caller };
        if *renewal < self.next || !self.key.believes(&said, tag) {
            return None;
        }
        self.next = renewal.saturating_add(1);
        read_caller(caller).filter(|caller| !(self.is_guarded && caller.is_anyone()))
    }
}

/// A frame that says whose a WebSocket is.
#[derive(Deserialize)]
pub(crate) struct CallerFrame<'a> {
    #[serde(rename = "op")]
    _op: &'a str,
    caller: &'a str,
    renewal: u64,
    tag: &'a str,
}

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
        if answer.extensions().get::<Moved>().is_some() {
            answer.headers_mut().insert(NOT_BEGUN, MOVED);
        }
        let said = answered(self.count, (answer.status(), answer.headers()));
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
    // As long as it has no name, nobody knows of it.
    let Some(own) = cluster.id.get() else { return Err(refused()) };
    let Some((told, caller)) = Told::parse(&parts.headers) else { return Err(refused()) };
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let said = told.said(parts.method.as_str(), target, caller);
    let key = match cluster.trust.accept(&told.parties(&own.0), &said, &told.tag) {
        Ok(key) => key,
        Err(Distrust::Stale) => {
            let mut answer = ApiError::unavailable("the hubs have to greet each other again").into_response();
            answer.headers_mut().insert(NOT_BEGUN, STALE);
            let key = cluster.trust.key(&told.parties(&own.0));
            return Err(Box::new(AnswerKey { key, count: told.count }.sign(answer)));
        }
        Err(Distrust::Forged | Distrust::Repeated) => return Err(refused()),
    };
    // Where tokens are asked for, no hub vouches for one who has none.
    let is_known = |caller: &Caller| !(app.auth.is_on() && caller.is_anyone());
    let Some(caller) = read_caller(caller).filter(is_known) else { return Err(refused()) };
    cluster.counts.heard.fetch_add(1, Ordering::Relaxed);
    let answer = AnswerKey { key, count: told.count };
    if app.hub().is_err() {
        // It has joined, and is about to serve.
        let starting = ApiError::unavailable("this hub is starting").moved();
        return Err(Box::new(answer.sign(starting.into_response())));
    }
    parts.extensions.insert::<Caller>(caller);
    parts.extensions.insert(Forwarded);
    parts.extensions.insert(Vouched {
        key: answer.key.clone(),
        socket: told.count,
        next: 0,
        is_guarded: app.auth.is_on(),
    });
    // What a connection may publish was counted where the caller's connection is.
    if let Some(via) = parts.extensions.get_mut::<Via>() {
        via.rate = ConnectionRate::default();
    }
    let body = BodyReader::new(body, &parts, app);
    let body = match parts.uri.path() {
        batch::PATH => body.at_most(batch::MAX_REQUEST_BYTES),
        _ => body,
    };
    let body = body.whole().await;
    let body = body.map_err(|error| Box::new(answer.sign(error.into_response())))?;
    let carried = carried(&parts.headers);
    if digest_of(&carried, &body) != told.digest {
        return Err(refused());
    }
    // Nothing else has any effect, but for what opens a WebSocket.
    let upgrades = upgrade_headers(&parts.headers);
    parts.headers = carried;
    parts.headers.extend(upgrades);
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
    let hub = cluster.id.get().ok_or_else(|| ApiError::unavailable("this hub is starting"))?.to_string();
    let challenge = cluster.trust.challenge(&from, &nonce).map_err(ApiError::internal)?;
    let of = super::trust::Parties { from: &from, to: &hub, nonce: &nonce, challenge: &challenge };
    let tag = cluster.trust.key(&of).tag(&Said::Hello);
    Ok(json_of(StatusCode::OK, &Welcome { hub, challenge, tag }))
}

#[cfg(test)]
mod tests {
    use super::super::peers::Voucher;
    use super::super::trust::{Parties, Trust};
    use super::*;

    #[test]
    fn whose_a_socket_is_can_be_said_anew_by_who_has_opened_it() {
        let trust = Trust::new("correct horse battery staple").unwrap();
        let key = || trust.key(&Parties { from: "one", to: "other", nonce: "1", challenge: "2" });
        let vouched = |socket, is_guarded| Vouched { key: key(), socket, next: 0, is_guarded };
        let (mut heard, mut voucher) = (vouched(7, true), Voucher::new(key(), 7));
        let say = |voucher: &mut Voucher, caller: &Caller| voucher.frame(caller).to_string();
        let hear = |vouched: &mut Vouched, frame: &str| {
            vouched.caller(&serde_json::from_str::<CallerFrame<'_>>(frame).unwrap())
        };
        let (first, second) = (say(&mut voucher, &Caller::nobody()), say(&mut voucher, &Caller::nobody()));
        assert!(hear(&mut heard, &first).is_some());
        assert!(hear(&mut heard, &first).is_none(), "once");
        assert!(hear(&mut vouched(8, true), &first).is_none(), "for that socket");
        assert!(hear(&mut heard, &second).is_some());
        assert!(hear(&mut heard, &first).is_none(), "nothing earlier");
        let anyone = say(&mut voucher, &Caller::anyone());
        assert!(hear(&mut heard, &anyone).is_none(), "where tokens are asked for");
        assert!(hear(&mut vouched(7, false), &anyone).is_some());
        let other = trust.key(&Parties { from: "else", to: "other", nonce: "1", challenge: "2" });
        let forged = say(&mut Voucher::new(other, 7), &Caller::nobody());
        assert!(hear(&mut vouched(7, true), &forged).is_none());
    }
}
