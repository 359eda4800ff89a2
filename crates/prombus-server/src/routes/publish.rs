//! Publishing: a bare payload, one event, or an array of them.

use super::ndjson;
use crate::answers;
use crate::auth::Caller;
use crate::body::BodyReader;
use crate::error::ApiError;
use crate::gateway::App;
use crate::media::{self, BodyType};
use crate::outgoing;
use crate::params::Params;
use crate::path::PathNames;
use crate::rate::ConnectionRate;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::Extensions;
use axum::response::Response;
use bytes::Bytes;
use prombus_core::{Commit, CommitError, Receipt, Ticket, TopicName};
use prombus_engine::{BusError, Outgoing};
use prombus_wire::{EventRequest, each_event};
use std::sync::Arc;

/// How many events of an array there is room for before it is known how many it has.
const ARRAY_EVENTS: usize = 128;

/// `POST /publish/{topic}`: the body is the payload.
pub(crate) async fn raw(
    State(app): State<App>,
    names: Result<PathNames, ApiError>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    // The body comes first, whatever else may be wrong: then its connection goes on, however large it is.
    let body = BodyReader::new(body, &parts, &app).whole().await?;
    let topic = names?.topic()?;
    let outgoing = outgoing::from_parts(Params::parse(parts.uri.query())?, &parts.headers, body)?;
    publish_one(&Way { app, rate: rate_of(&parts.extensions), topic }, outgoing).await
}

/// How fast the connection of a request may be. Only in tests are there requests without a connection.
fn rate_of(extensions: &Extensions) -> ConnectionRate {
    extensions.get().cloned().unwrap_or_default()
}

/// `POST /v1/topics/{topic}/events`.
pub(crate) async fn events(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: Result<PathNames, ApiError>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    Params::parse(parts.uri.query())?.done("none")?;
    let (topic, body_type) = (names?.topic()?, media::body_type(&parts.headers)?);
    let intake = BodyReader::new(body, &parts, &app);
    let way = &Way { app, rate: rate_of(&parts.extensions), topic };
    match body_type {
        BodyType::Lines => ndjson::import(way, intake, &caller).await,
        BodyType::Json => {
            let body = intake.whole().await?;
            match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
                Some(b'[') => publish_array(way, body).await,
                _ => publish_one(way, parse_event(&body)?).await,
            }
        }
    }
}

/// The event that a text asks for.
pub(crate) fn parse_event(text: &Bytes) -> Result<Outgoing, ApiError> {
    let request: EventRequest<'_> = prombus_wire::parse_object(text)?;
    outgoing::from_request(request, text)
}

async fn publish_one(way: &Way, outgoing: Outgoing) -> Result<Response, ApiError> {
    let receipt = publish(way, &mut Outgoing::all_to(&way.topic, vec![outgoing]).into()).await?;
    Ok(answers::published(&way.topic, &receipt))
}

async fn publish_array(way: &Way, body: Bytes) -> Result<Response, ApiError> {
    let events = parse_array(&body, way.app.hub()?.limits().commit_bytes)?;
    let receipt = publish(way, &mut Outgoing::all_to(&way.topic, events).into()).await.map_err(|error| {
        let index = error.index();
        ApiError::from(error).at_index(index)
    });
    Ok(answers::published_batch(&way.topic, &receipt?))
}

/// The events of an array that takes no more than `max_bytes`.
pub(crate) fn parse_array(body: &Bytes, max_bytes: usize) -> Result<Vec<Outgoing>, ApiError> {
    let text = std::str::from_utf8(body)
        .map_err(|error| ApiError::bad_json(format!("the body is not UTF-8: {error}")))?;
    let (mut events, mut bytes) = (Vec::with_capacity(ARRAY_EVENTS), 0);
    each_event(text, |request| {
        let outgoing = outgoing::from_request(request, body)?;
        bytes += outgoing.event.size();
        if bytes > max_bytes {
            // It would be refused anyway: better before all of it is in memory twice.
            return Err(BusError::CommitTooLarge { bytes, limit: max_bytes }.into());
        }
        events.push(outgoing);
        Ok(())
    })?;
    if events.is_empty() {
        return Err(ApiError::bad_request("an array needs at least one event"));
    }
    Ok(events)
}

/// Where events come from, and where they go.
pub(crate) struct Way {
    pub app: App,
    pub rate: ConnectionRate,
    pub topic: TopicName,
}

impl Way {
    /// Gives events their place in the order, where they do not come too fast.
    pub async fn enqueue(&self, commit: &mut Arc<Commit>) -> Result<Ticket, PublishError> {
        let (hub, count) = (self.app.hub()?, commit.events.len());
        self.app.rates.admit(&self.rate, &self.topic, count)?;
        Ok(hub.enqueue(commit).await.inspect_err(|_| self.put_back(count))?)
    }

    /// Waits for what comes of that, and counts.
    pub async fn answer(&self, ticket: Ticket, count: usize) -> Result<Receipt, PublishError> {
        let receipt = ticket.await.inspect_err(|_| self.put_back(count)).map_err(BusError::from)?;
        self.app.metrics.count_published(&self.topic, &receipt);
        Ok(receipt)
    }

    fn put_back(&self, count: usize) {
        self.app.rates.put_back(&self.rate, &self.topic, count);
    }
}

/// Publishes events. Those that are refused are still there.
pub(crate) async fn publish(way: &Way, commit: &mut Arc<Commit>) -> Result<Receipt, PublishError> {
    let ticket = way.enqueue(commit).await?;
    way.answer(ticket, commit.events.len()).await
}

/// Why a publish did not happen.
pub(crate) enum PublishError {
    /// There is no hub yet, or it comes too fast.
    Closed(ApiError),
    /// The hub refused.
    Refused(BusError),
}

impl PublishError {
    /// Which event is to blame, where one is.
    pub fn index(&self) -> Option<usize> {
        match self {
            Self::Closed(_) => None,
            Self::Refused(error) => error.index(),
        }
    }
}

impl From<ApiError> for PublishError {
    fn from(error: ApiError) -> Self {
        Self::Closed(error)
    }
}

impl From<BusError> for PublishError {
    fn from(error: BusError) -> Self {
        Self::Refused(error)
    }
}

impl From<PublishError> for ApiError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Closed(error) => error,
            PublishError::Refused(BusError::Commit(CommitError::TopicNotFound(topic))) => Self::not_found(
                format!("topic {topic} does not exist; create it first, or set topics.auto_create = true"),
            ),
            PublishError::Refused(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_array_that_is_too_large_is_refused_before_it_is_built() {
        let body = Bytes::from_static(br#"[{"payload":1},{"payload":2},{"payload":3}]"#);
        assert_eq!(parse_array(&body, 3 * 65).unwrap().len(), 3);
        assert!(parse_array(&body, 3 * 65 - 1).is_err());
    }

    proptest! {
        #[test]
        fn random_bodies_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let bytes = Bytes::from(bytes);
            let _ = parse_array(&bytes, 1 << 20);
            let _ = parse_event(&bytes);
        }
    }
}
