//! Publishing: a bare payload, one event, or an array of them.

use super::ndjson;
use crate::answers;
use crate::auth::Caller;
use crate::body::BodyReader;
use crate::cluster::Published;
use crate::error::ApiError;
use crate::gateway::App;
use crate::incoming;
use crate::media::{self, BodyType};
use crate::params::Params;
use crate::path::PathNames;
use crate::rate::ConnectionRate;
use crate::serve::Via;
use axum::extract::{Request, State};
use axum::http::Extensions;
use axum::response::Response;
use bytes::Bytes;
use prombus_core::{Append, Commit, CommitError, LiveHub, Receipt, Ticket, TopicName};
use prombus_engine::{BusError, CommitSize};
use prombus_wire::{EventRequest, each_event};
use std::sync::Arc;
use tokio::sync::oneshot;

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
    publish_one(&Publisher::of(app, &parts.extensions, topic), append).await
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
    let publisher = &Publisher::of(app, &parts.extensions, topic);
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
#[derive(Clone)]
pub(crate) struct Publisher {
    pub app: App,
    pub rate: ConnectionRate,
    pub topic: TopicName,
    /// Whose right to publish to the topic was checked.
    pub caller: Caller,
}

/// Where events have their place in the order.
pub(crate) enum Placed {
    Here(Ticket),
    /// On the way to another hub.
    There(oneshot::Receiver<Published>),
}

impl Publisher {
    /// The publisher of a request to a topic.
    fn of(app: App, extensions: &Extensions, topic: TopicName) -> Self {
        let rate = Via::rate_of(extensions);
        let caller = extensions.get().cloned().unwrap_or_else(Caller::nobody);
        Self { app, rate, topic, caller }
    }

    /// The hub that the events go to; `None` for this one.
    pub fn destination(&self) -> Option<LiveHub> {
        let (cluster, hub) = (self.app.cluster.as_ref()?, self.app.hub().ok()?);
        cluster.publishes_at(hub, &self.topic)
    }

    /// Gives events their place in the order at that hub, where they do not come too fast.
    pub async fn enqueue(
        &self,
        to: Option<LiveHub>,
        commit: &mut Arc<Commit>,
    ) -> Result<Placed, PublishError> {
        let (Some(to), Some(cluster)) = (to, &self.app.cluster) else {
            return Ok(Placed::Here(self.enqueue_here(commit).await?));
        };
        // What the topic may take is counted at its home.
        self.rate.admit(commit.events.len())?;
        let alone = Self { rate: ConnectionRate::default(), ..self.clone() };
        Ok(Placed::There(cluster.publish_at(to, alone, commit.clone()).await))
    }

    /// Waits for what comes of that, and counts.
    pub async fn answer(&self, placed: Placed, count: usize) -> Result<Receipt, PublishError> {
        match placed {
            Placed::Here(ticket) => self.answer_here(ticket, count).await,
            Placed::There(told) => {
                let published = told.await.unwrap_or_else(|_| {
                    let error = ApiError::unavailable("the publish was given up on its way to another hub");
                    Err(error.with("outcome", "unknown").into())
                });
                published.inspect_err(|_| self.rate.put_back(count))
            }
        }
    }

    /// Gives events their place in the order of this hub, wherever their topic is at home.
    pub async fn enqueue_here(&self, commit: &mut Arc<Commit>) -> Result<Ticket, PublishError> {
        let (hub, count) = (self.app.hub()?, commit.events.len());
        self.app.rates.admit(&self.rate, &self.topic, count)?;
        Ok(hub.enqueue(commit).await.inspect_err(|_| self.put_back(count))?)
    }

    /// Waits for what comes of that, and counts.
    pub async fn answer_here(&self, ticket: Ticket, count: usize) -> Result<Receipt, PublishError> {
        let receipt = ticket.await.inspect_err(|_| self.put_back(count)).map_err(BusError::from)?;
        self.app.metrics.count_published(&self.topic, &receipt);
        Ok(receipt)
    }

    /// Publishes events. Those that are refused are still there.
    pub async fn publish(&self, commit: &mut Arc<Commit>) -> Result<Receipt, PublishError> {
        let placed = self.enqueue(self.destination(), commit).await?;
        self.answer(placed, commit.events.len()).await
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
