//! The log keeps its promises through the Rust client: publishes go over WebSocket, through a real socket to a real
//! hub, and reads over HTTP.

use crate::client_support::quick;
use crate::common::Hub;
use prombus_client::{Client, ClientError, Expect, Live, NewEvent, Published, Publisher, PublisherOptions};
use prombus_core::{Append, Commit, CommitError, EventLogExt, Json, Placement, Receipt, Sequence, TopicName};
use prombus_testkit::http::{appended, refusal};
use prombus_testkit::{HttpLog, Subject};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{Mutex, watch};

/// How single events are published.
#[derive(Clone, Copy)]
enum PublishBy {
    /// Each by a call.
    Call,
    /// By the publisher of their topic.
    Publisher,
}

/// The log of a hub, through the client.
struct LiveLog {
    http: HttpLog,
    live: Live,
    publish_by: PublishBy,
    publishers: Mutex<HashMap<TopicName, Publisher>>,
    commits: watch::Sender<u64>,
}

async fn log(publish_by: PublishBy) -> Subject {
    let file = "[store]\nmemory = true\n[topics]\nauto_create = false\n";
    let hub = tokio::task::spawn_blocking(move || Hub::with_file(file, &["--config", "prombus.toml"]))
        .await
        .unwrap();
    let live = Client::new(&hub.url, None).unwrap().connect_with(quick()).await.unwrap();
    let http = HttpLog::new(&hub.url);
    let log =
        LiveLog { http, live, publish_by, publishers: Mutex::default(), commits: watch::Sender::new(0) };
    Subject { log: Arc::new(log), documents: None, clock: None, keep: Box::new(std::sync::Mutex::new(hub)) }
}

/// A field as the client has it, unless it would be written otherwise than it was given: the client has strings, and
/// not the texts of strings.
fn field<T: DeserializeOwned + Serialize + Default>(given: &Option<Box<Json>>) -> Option<T> {
    let Some(given) = given else { return Some(T::default()) };
    let value: T = serde_json::from_slice(given.as_bytes()).unwrap();
    (serde_json::to_vec(&value).unwrap() == given.as_bytes()).then_some(value)
}

fn to_client(append: &Append) -> Option<NewEvent> {
    let event = &append.event;
    let payload = String::from_utf8(event.payload.as_bytes().to_vec()).unwrap();
    let mut new = NewEvent::new(RawValue::from_string(payload).unwrap());
    new.id = event.id.map(|id| id.to_string());
    new.ts = event.ts;
    new.key = event.key.as_ref().map(ToString::to_string);
    new.sid = field::<Option<String>>(&event.sid)?;
    new.headers = field(&event.headers)?;
    new.tags = field(&event.tags)?;
    new.caused_by = field(&event.caused_by)?;
    if let (None, Placement::Named(partition)) = (&event.key, append.placement) {
        new.partition = Some(partition.0);
    }
    new.expect = append.expect.map(|expect| Expect { last_id: expect.last_id.map(|id| id.to_string()) });
    Some(new)
}

impl LiveLog {
    async fn publish(&self, topic: &TopicName, events: &[NewEvent]) -> Result<Vec<Published>, ClientError> {
        let name = topic.as_str();
        match (self.publish_by, events) {
            (PublishBy::Call, [one]) => Ok(vec![self.live.publish(name, one).await?]),
            (PublishBy::Publisher, [one]) => {
                let publisher = {
                    let mut publishers = self.publishers.lock().await;
                    let make = || self.live.publisher(name, PublisherOptions::default());
                    publishers.entry(topic.clone()).or_insert_with(make).clone()
                };
                Ok(vec![publisher.send(one).await?.await?])
            }
            (_, all) => self.live.publish_batch(name, all).await,
        }
    }

    fn count(&self) -> Sequence {
        let mut sequence = 0;
        self.commits.send_modify(|commits| {
            *commits += 1;
            sequence = *commits;
        });
        Sequence(sequence)
    }

    async fn carry_out(&self, commit: &Arc<Commit>) -> Result<Receipt, CommitError> {
        let one_topic = commit.events.windows(2).all(|two| two[0].topic == two[1].topic);
        let plain = commit.config.is_empty() && commit.documents.is_empty() && commit.cursors.is_empty();
        let events: Option<Vec<NewEvent>> = commit.events.iter().map(to_client).collect();
        let (Some(events), Some(first), true) = (events, commit.events.first(), one_topic && plain) else {
            let receipt = self.http.commit(commit.clone()).await?;
            return Ok(Receipt { sequence: self.count(), ..receipt });
        };
        let topic = &first.topic;
        let published = self.publish(topic, &events).await.map_err(|error| match error {
            ClientError::Hub(error) => refusal(&error, topic, &commit.events),
            error => CommitError::Unavailable(error.to_string()),
        })?;
        let (events, durability) = appended(&published).map_err(CommitError::Unavailable)?;
        Ok(Receipt { events, versions: Vec::new(), durability, sequence: self.count() })
    }
}

prombus_testkit::forward_log! { LiveLog => http:
    read kept offset_at by_id latest_by_key previous_by_key history erase advance_horizon topic topics
    cursor readers status close;

    async fn enqueue(&self, commit: Arc<Commit>) -> Result<Ticket, CommitError> {
        // Nobody here knows of its place before it is answered.
        Ok(Ticket::decided(self.carry_out(&commit).await))
    }

    async fn changed(&self, _of: &Watched, after: Sequence) -> Sequence {
        let mut commits = self.commits.subscribe();
        let now = commits.wait_for(|now| *now > after.0).await;
        now.map_or(after, |now| Sequence(*now))
    }
}

mod calls {
    async fn calls() -> prombus_testkit::Subject {
        super::log(super::PublishBy::Call).await
    }

    prombus_testkit::log_conformance!(calls);
}

mod publishers {
    async fn publishers() -> prombus_testkit::Subject {
        super::log(super::PublishBy::Publisher).await
    }

    prombus_testkit::log_conformance!(publishers);
}
