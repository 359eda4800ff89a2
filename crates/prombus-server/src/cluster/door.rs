//! The door: what is about a topic at home elsewhere is forwarded to its home, once its caller's rights are checked.
//!
//! While a topic moves from one hub to another, nobody has it for a moment. A request that had no effect is then tried again,
//! here or elsewhere, for [`PATIENCE`].

use super::Cluster;
use super::heard::Forwarded;
use super::peers::{Forward, Sent};
use super::place::{Asked, caller_of, may_be_repeated};
use crate::body::BodyReader;
use crate::error::{ApiError, Moved};
use crate::gateway::{App, about};
use crate::path::PathNames;
use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath, Request};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use prombus_core::{LiveHub, TopicName};
use prombus_engine::Hub;
use prombus_engine::homes::Place;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// For so long what had no effect is tried again: longer than it takes to miss a hub and take over from it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries, where nothing is heard of hubs.
const PAUSE: Duration = Duration::from_millis(50);
/// A hub that is the home no more has so long to answer what was forwarded to it.
const MOVE_GRACE: Duration = Duration::from_secs(1);

/// How long something is tried.
#[derive(Debug, Default)]
pub(crate) struct Patience(Option<Instant>);

impl Patience {
    /// Waits until it may be worth another try; or gives the error back, if that was the last one.
    pub async fn wait(&mut self, hub: &Hub, error: ApiError) -> Result<(), ApiError> {
        let since = *self.0.get_or_insert_with(Instant::now);
        if since.elapsed() >= PATIENCE {
            return Err(error);
        }
        let mut hubs = hub.hubs();
        // A hub that has another list is heard of by nobody; it has a moment to catch up.
        let _ = tokio::time::timeout(PAUSE, hubs.changed()).await;
        Ok(())
    }
}

/// What is asked of the home of a topic.
#[derive(Clone)]
pub(crate) struct Question<'a> {
    pub topic: &'a TopicName,
    pub forward: Forward<'a>,
    /// Whether it may be asked twice without harm.
    pub may_repeat: bool,
}

/// What comes of asking.
pub(crate) enum Step {
    /// The home is here.
    Here,
    Answered(Response),
    /// It had no effect, or may be repeated.
    Again(ApiError),
    Failed(ApiError),
}

/// Asks the home, if it is another hub.
pub(crate) async fn put_question(cluster: &Cluster, hub: &Hub, question: &Question<'_>) -> Step {
    let Place::At(home) = hub.place(question.topic) else { return Step::Here };
    let sent = tokio::select! {
        sent = cluster.send(hub, &home, question.forward.clone()) => sent,
        () = until_moved(hub, question.topic, &home) => {
            let message = format!("hub {home}, where this was at home, does not answer", home = home.id);
            Sent::Unknown(ApiError::unavailable(message))
        }
    };
    match sent {
        Sent::Answered(answer) => Step::Answered(answer.map(Body::new)),
        Sent::NotBegun(error) => Step::Again(error),
        Sent::Unknown(error) if question.may_repeat => Step::Again(error),
        Sent::Unknown(error) => Step::Failed(error.with("outcome", "unknown")),
    }
}

/// Waits until a topic has been at home elsewhere for a while.
async fn until_moved(hub: &Hub, topic: &TopicName, from: &LiveHub) {
    let mut hubs = hub.hubs();
    while hub.place(topic) == Place::At(from.clone()) {
        if hubs.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
    // There is nothing to wait for but the time.
    tokio::time::sleep(MOVE_GRACE).await;
}

/// Lets a request through to its handler, or to its home.
pub(crate) async fn door(app: &App, request: Request, next: Next) -> Response {
    match &app.cluster {
        // Most hubs are alone, and their requests need no room for what hubs say to each other.
        None => next.run(request).await,
        Some(cluster) => Box::pin(find_home(app, cluster, request, next)).await,
    }
}

async fn find_home(app: &App, cluster: &Arc<Cluster>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let about = route.as_ref().map(|route| about(route.as_str(), request.method())).unwrap_or_default();
    let is_for_here = about == super::About::Nothing || request.extensions().get::<Forwarded>().is_some();
    let (Some(route), false) = (route, is_for_here) else { return next.run(request).await };
    let (mut parts, body) = request.into_parts();
    let serve = async {
        let body = BodyReader::new(body, &parts, app).whole().await?;
        let names = PathNames::from_request_parts(&mut parts, app).await?;
        let topic = about.topic(app, Asked { parts: &parts, names: &names, body: &body }).await;
        let Some(topic) = topic else { return Ok(next.run(whole(&parts, &body)).await) };
        let may_repeat = may_be_repeated(&parts.method, route.as_str());
        serve_at_home(app, cluster, (&topic, may_repeat), (&parts, body, next)).await
    };
    serve.await.unwrap_or_else(ApiError::into_response)
}

fn whole(parts: &Parts, body: &Bytes) -> Request {
    Request::from_parts(parts.clone(), Body::from(body.clone()))
}

async fn serve_at_home(
    app: &App,
    cluster: &Arc<Cluster>,
    (topic, may_repeat): (&TopicName, bool),
    (parts, body, next): (&Parts, Bytes, Next),
) -> Result<Response, ApiError> {
    let (hub, caller) = (app.hub()?, caller_of(parts));
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let forward = Forward {
        method: &parts.method,
        target,
        headers: &parts.headers,
        body: body.clone(),
        caller: &caller,
    };
    let question = Question { topic, forward, may_repeat };
    let mut patience = Patience::default();
    loop {
        let asked = async {
            tokio::select! {
                step = put_question(cluster, hub, &question) => Ok(step),
                // What changes something is answered all the same: its outcome would be unknown.
                why = caller.end(), if may_repeat => Err(ApiError::unauthorized(why)),
            }
        };
        let error = match asked.await? {
            Step::Answered(answer) => return Ok(answer),
            Step::Failed(error) => return Err(error),
            Step::Again(error) => error,
            Step::Here => {
                let mut answer = next.clone().run(whole(parts, &body)).await;
                match answer.extensions_mut().remove::<Moved>() {
                    None => return Ok(answer),
                    Some(Moved(error)) => *error,
                }
            }
        };
        patience.wait(hub, error).await?;
    }
}
