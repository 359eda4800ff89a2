//! Publishing: a bare payload, one event, or an array of them.

use super::ndjson;
use crate::answers;
use crate::body::BodyReader;
use crate::error::ApiError;
use crate::gateway::App;
use crate::incoming;
use crate::media::{self, BodyType};
use crate::params::Params;
use crate::path::PathNames;
use crate::rate::ConnectionRate;
use axum::extract::{Request, State};
use axum::http::Extensions;
use axum::response::Response;
use bytes::Bytes;
use prombus_core::{Append, Commit, CommitError, Receipt, Ticket, TopicName};
use prombus_engine::{BusError, CommitSize};
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
    media::check_coding(&parts.headers)?;
    let append = incoming::from_parts(topic.clone(), &parts, body)?;
    publish_one(&Publisher { app, rate: rate_of(&parts.extensions), topic }, append).await
}

/// How fast the connection of a request may be. Only in tests are there requests without a connection.
fn rate_of(extensions: &Extensions) -> ConnectionRate {
    extensions.get().cloned().unwrap_or_default()
}

/// `POST /v1/topics/{topic}/events`.
pub(crate) async fn events(
    State(app): State<App>,
    names: Result<PathNames, ApiError>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    Params::parse(parts.uri.query())?.done("none")?;
    let (topic, body_type) = (names?.topic()?, media::body_type(&parts.headers)?);
    let intake = BodyReader::new(body, &parts, &app);
    let publisher = &Publisher { app, rate: rate_of(&parts.extensions), topic };
    match body_type {
        BodyType::Lines => ndjson::import(publisher, intake).await,
        BodyType::Json => {
            let body = intake.whole().await?;
            match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
                Some(b'[') => publish_array(publisher, body).await,
                _ => publish_one(publisher, parse_event(&publisher.topic, &body)?).await,
            }
        }
    }
}

/// The event that a text publishes to a topic.
pub(crate) fn parse_event(topic: &TopicName, text: &Bytes) -> Result<Append, ApiError> {
    let request: EventRequest<'_> = prombus_wire::parse_object(text)?;
    incoming::from_request(topic.clone(), request, text)
}

async fn publish_one(publisher: &Publisher, append: Append) -> Result<Response, ApiError> {
    let receipt = publisher.publish(&mut Arc::new(vec![append].into())).await?;
    Ok(answers::published(&publisher.topic, &receipt))
}

async fn publish_array(publisher: &Publisher, body: Bytes) -> Result<Response, ApiError> {
    let events = parse_array(&publisher.topic, &body, publisher.app.hub()?.limits().commit_bytes)?;
    let receipt = publisher.publish(&mut Arc::new(events.into())).await;
    let receipt = receipt.map_err(|PublishError { index, error }| error.at_index(index))?;
    Ok(answers::published_batch(&publisher.topic, &receipt))
}

/// The events that an array of no more than `max_bytes` publishes to a topic.
pub(crate) fn parse_array(
    topic: &TopicName,
    body: &Bytes,
    max_bytes: usize,
) -> Result<Vec<Append>, ApiError> {
    let text = std::str::from_utf8(body)
        .map_err(|error| ApiError::bad_json(format!("the body is not UTF-8: {error}")))?;
    let (mut events, mut size) = (Vec::with_capacity(ARRAY_EVENTS), CommitSize::new(max_bytes));
    each_event(text, |request| {
        let append = incoming::from_request(topic.clone(), request, body)?;
        // One that is too large would be refused anyway: better before all of it is in memory twice.
        size.add(append.event.size())?;
        events.push(append);
        Ok::<_, ApiError>(())
    })?;
    if events.is_empty() {
        return Err(ApiError::bad_request("an array needs at least one event"));
    }
    Ok(events)
}

/// Publishes what comes over one connection to one topic.
pub(crate) struct Publisher {
    pub app: App,
    pub rate: ConnectionRate,
    pub topic: TopicName,
}

impl Publisher {
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

    /// Publishes events. Those that are refused are still there.
    pub async fn publish(&self, commit: &mut Arc<Commit>) -> Result<Receipt, PublishError> {
        let ticket = self.enqueue(commit).await?;
        self.answer(ticket, commit.events.len()).await
    }

    fn put_back(&self, count: usize) {
        self.app.rates.put_back(&self.rate, &self.topic, count);
    }
}

/// Why a publish did not happen.
pub(crate) struct PublishError {
    /// Which event is to blame, if one is.
    pub index: Option<usize>,
    pub error: ApiError,
}

impl From<ApiError> for PublishError {
    fn from(error: ApiError) -> Self {
        Self { index: None, error }
    }
}

impl From<BusError> for PublishError {
    fn from(error: BusError) -> Self {
        let index = error.index();
        let error = match error {
            BusError::Commit(CommitError::TopicNotFound(topic)) => ApiError::not_found(format!(
                "topic {topic} does not exist; create it first, or set topics.auto_create = true"
            )),
            error => error.into(),
        };
        Self { index, error }
    }
}

impl From<PublishError> for ApiError {
    fn from(PublishError { error, .. }: PublishError) -> Self {
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn topic() -> TopicName {
        TopicName::parse("t").unwrap()
    }

    #[test]
    fn an_array_that_is_too_large_is_refused_before_it_is_built() {
        let body = Bytes::from_static(br#"[{"payload":1},{"payload":2},{"payload":3}]"#);
        assert_eq!(parse_array(&topic(), &body, 3 * 65).unwrap().len(), 3);
        assert!(parse_array(&topic(), &body, 3 * 65 - 1).is_err());
    }

    proptest! {
        #[test]
        fn random_bodies_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let bytes = Bytes::from(bytes);
            let _ = parse_array(&topic(), &bytes, 1 << 20);
            let _ = parse_event(&topic(), &bytes);
        }
    }
}
