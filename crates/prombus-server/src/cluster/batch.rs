//! Publishes of several callers in one request between hubs, and what came of each.

use super::heard::Forwarded;
use super::lanes::{Parcel, Published};
use super::pledges::only_hubs;
use super::told::{read_caller, write_caller};
use crate::answers::json_of;
use crate::auth::{AccessRequest, Action, Caller};
use crate::body::BodyReader;
use crate::error::ApiError;
use crate::gateway::App;
use crate::incoming;
use crate::rate::ConnectionRate;
use crate::routes::publish::{PublishError, Publisher, parse_array};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use futures::future::join_all;
use prombus_core::json::write_string;
use prombus_core::{Appended, Durability, Offset, Partition, Receipt, Sequence, Ticket, TopicName};
use prombus_wire::ErrorBody;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;
use uuid::Uuid;

/// Where hubs take publishes of each other.
pub(crate) const PATH: &str = "/cluster/publishes";
/// How many publishes a batch has at most.
pub(super) const MAX_BATCH_PUBLISHES: usize = 1_000;
/// And about how many bytes of events, where it has more than one.
pub(super) const MAX_BATCH_BYTES: usize = 4 << 20;
/// The largest request: one commit may have more than a batch, and JSON makes more of it.
pub(crate) const MAX_REQUEST_BYTES: usize = 64 << 20;

/// One publish. Whoever has the same caller as the one before does not say so again.
#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow, default)]
    caller: Option<Cow<'a, str>>,
    topic: TopicName,
    #[serde(borrow)]
    events: &'a RawValue,
}

/// What came of one.
#[derive(Serialize, Deserialize)]
enum Outcome {
    Done {
        durability: Durability,
        events: Vec<(Uuid, Partition, Offset, u64, bool)>,
    },
    Refused {
        status: u16,
        /// The event that is to blame.
        index: Option<usize>,
        error: ErrorBody,
    },
}

/// The request of a batch.
pub(super) fn write(parcels: &[Parcel]) -> Vec<u8> {
    let mut out = vec![b'['];
    let mut before = String::new();
    for Parcel { publisher, commit, .. } in parcels {
        if out.len() > 1 {
            out.push(b',');
        }
        out.push(b'{');
        let caller = write_caller(&publisher.caller);
        if caller != before {
            out.extend_from_slice(b"\"caller\":");
            write_string(&mut out, &caller);
            out.push(b',');
            before = caller;
        }
        out.extend_from_slice(b"\"topic\":");
        write_string(&mut out, publisher.topic.as_str());
        out.extend_from_slice(b",\"events\":[");
        for (n, append) in commit.events.iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            incoming::write_request(append, &mut out);
        }
        out.extend_from_slice(b"]}");
    }
    out.push(b']');
    out
}

/// What came of each of `count` publishes.
pub(super) fn read_outcomes(body: &[u8], count: usize) -> Result<Vec<Published>, ApiError> {
    let outcomes: Vec<Outcome> = serde_json::from_slice(body).unwrap_or_default();
    if outcomes.len() != count {
        return Err(ApiError::unavailable("what the home of the topic has answered makes no sense"));
    }
    Ok(outcomes.into_iter().map(Outcome::read).collect())
}

impl Outcome {
    fn of(published: Published) -> Self {
        let event = |done: Appended| (done.id, done.partition, done.offset, done.ts, done.duplicate);
        match published {
            Ok(Receipt { events, durability, .. }) => {
                Self::Done { durability, events: events.into_iter().map(event).collect() }
            }
            Err(PublishError { index, error }) => {
                let (status, error) = error.told();
                Self::Refused { status, index, error }
            }
        }
    }

    fn read(self) -> Published {
        let appended =
            |(id, partition, offset, ts, duplicate)| Appended { id, partition, offset, ts, duplicate };
        match self {
            Self::Done { durability, events } => Ok(Receipt {
                events: events.into_iter().map(appended).collect(),
                versions: Vec::new(),
                durability,
                sequence: Sequence(0),
            }),
            Self::Refused { status, index, error } => {
                Err(PublishError { index, error: ApiError::from_told((status, error)) })
            }
        }
    }
}

/// `POST /cluster/publishes`: publishes what another hub has for topics at home here. If one of them is not at home here any
/// more, that is correct all the same.
pub(crate) async fn publishes(
    State(app): State<App>,
    forwarded: Option<Extension<Forwarded>>,
    request: Request,
) -> Result<Response, ApiError> {
    only_hubs(&app, forwarded)?;
    let (parts, body) = request.into_parts();
    let body = BodyReader::new(body, &parts, &app).at_most(MAX_REQUEST_BYTES).whole().await?;
    let asked: Vec<Asked<'_>> = serde_json::from_slice(&body)?;
    let (mut caller, mut enqueued) = (Caller::nobody(), Vec::with_capacity(asked.len()));
    for one in asked {
        if let Some(told) = &one.caller {
            let known = read_caller(told).filter(|caller| !(app.auth.is_on() && caller.is_anyone()));
            caller = known.unwrap_or_else(Caller::nobody);
        }
        let publisher = Publisher {
            app: app.clone(),
            // What a connection may publish was counted where the caller's connection is.
            rate: ConnectionRate::default(),
            topic: one.topic,
            caller: caller.clone(),
        };
        // One after the other, in their order.
        let placed = enqueue(&publisher, &body.slice_ref(one.events.get().as_bytes())).await;
        enqueued.push((publisher, placed));
    }
    let answers = enqueued.into_iter().map(|(publisher, placed)| async move {
        let (ticket, count) = placed?;
        publisher.answer_here(ticket, count).await
    });
    let outcomes: Vec<Outcome> = join_all(answers).await.into_iter().map(Outcome::of).collect();
    Ok(json_of(StatusCode::OK, &outcomes))
}

async fn enqueue(publisher: &Publisher, events: &Bytes) -> Result<(Ticket, usize), PublishError> {
    let Publisher { app, topic, caller, .. } = publisher;
    caller.check(AccessRequest::on(Action::Publish, topic.as_str()))?;
    if let Some(why) = caller.ended() {
        return Err(ApiError::unauthorized(why).into());
    }
    let events = parse_array(topic, events, app.hub()?.limits().commit_bytes)?;
    let count = events.len();
    Ok((publisher.enqueue_here(&mut Arc::new(events.into())).await?, count))
}
