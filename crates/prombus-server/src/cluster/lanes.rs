//! Publishes on their way to the homes of their topics: what waits for the same hub goes there together.
//!
//! There are a few lanes to each hub, and all publishes to a topic are in the same one. A lane has one batch under way at a time;
//! what comes meanwhile makes the next one. So the order within a topic is that in which publishes got their places here, and
//! however many there are, each waits for one batch before its own. While a topic moves, later publishes follow earlier ones
//! into their lane, also where the topic has come here meanwhile.
//!
//! What provably did not begin at the other hub is published from here, around the home: that is correct, only slower. What waits
//! in a lane has not begun. For the rest, nobody knows.

use super::Cluster;
use super::batch::{self, MAX_BATCH_BYTES, MAX_BATCH_PUBLISHES};
use super::peers::{Forward, Sent};
use super::pledges::until_gone;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::gateway::App;
use crate::routes::publish::{PublishError, Publisher};
use axum::body::Body;
use axum::http::{HeaderMap, Method, Response, StatusCode};
use futures::future::join_all;
use http_body_util::{BodyExt, Limited};
use parking_lot::Mutex;
use prombus_core::{Commit, LiveHub, Receipt, TopicName};
use prombus_engine::Hub;
use prombus_engine::homes::Place;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// So many batches are under way to a hub at most.
const LANES: u64 = 4;
/// The largest answer to a batch.
const MAX_ANSWER_BYTES: usize = 32 << 20;

/// What came of a publish.
pub(crate) type Published = Result<Receipt, PublishError>;

/// A lane to a hub.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lane {
    to: LiveHub,
    number: u64,
}

impl Hash for Lane {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.to.id, self.number).hash(state);
    }
}

/// Events of one topic for another hub, which publishes all of them or none.
pub(super) struct Parcel {
    pub publisher: Publisher,
    pub commit: Arc<Commit>,
    tell: oneshot::Sender<Published>,
    _room: OwnedSemaphorePermit,
}

/// The lane in which publishes to a topic are, and how many.
struct UnderWay {
    lane: Lane,
    count: usize,
}

#[derive(Default)]
struct State {
    /// What waits. A lane that is listed has someone who empties it.
    lanes: HashMap<Lane, VecDeque<Parcel>>,
    under_way: HashMap<TopicName, UnderWay>,
}

/// Publishes on their way to other hubs.
#[derive(Default)]
pub(super) struct Lanes(Mutex<State>);

impl Cluster {
    /// The hub that publishes to `topic` go to; `None` for this one.
    pub fn publishes_at(&self, hub: &Hub, topic: &TopicName) -> Option<LiveHub> {
        if let Some(known) = self.lanes.0.lock().under_way.get(topic) {
            return Some(known.lane.to.clone());
        }
        match hub.place(topic) {
            Place::At(home) => Some(home),
            Place::Here => None,
        }
    }

    /// Gives a commit its place in the order of those for its topic, on the way to `home`.
    pub async fn publish_at(
        &self,
        home: LiveHub,
        publisher: Publisher,
        commit: Arc<Commit>,
    ) -> oneshot::Receiver<Published> {
        let (tell, told) = oneshot::channel();
        let topic = publisher.topic.clone();
        let Ok(room) = self.peer(&home).publishes.clone().acquire_owned().await else { return told };
        let parcel = Parcel { publisher, commit, tell, _room: room };
        let mut hasher = DefaultHasher::new();
        topic.hash(&mut hasher);
        let lane = Lane { to: home, number: hasher.finish() % LANES };
        let mut state = self.lanes.0.lock();
        let known = state.under_way.entry(topic).or_insert(UnderWay { lane, count: 0 });
        known.count += 1;
        let lane = known.lane.clone();
        match state.lanes.entry(lane) {
            Entry::Occupied(mut waiting) => waiting.get_mut().push_back(parcel),
            Entry::Vacant(empty) => {
                let (app, lane) = (parcel.publisher.app.clone(), empty.key().clone());
                empty.insert(VecDeque::from([parcel]));
                tokio::spawn(empty_lane(app, lane));
            }
        }
        told
    }
}

impl Lanes {
    /// What goes next, as much as fits together; `None` where nothing waits, and then the lane is closed.
    fn next(&self, lane: &Lane) -> Option<Vec<Parcel>> {
        let mut state = self.0.lock();
        let waiting = state.lanes.get_mut(lane)?;
        let (mut batch, mut bytes): (Vec<Parcel>, usize) = (Vec::new(), 0);
        while let Some(parcel) = waiting.front() {
            let size: usize = parcel.commit.events.iter().map(|append| append.event.size()).sum();
            let fits = batch.len() < MAX_BATCH_PUBLISHES && bytes + size <= MAX_BATCH_BYTES;
            if !batch.is_empty() && !fits {
                break;
            }
            bytes += size;
            batch.extend(waiting.pop_front());
        }
        if batch.is_empty() {
            state.lanes.remove(lane);
            return None;
        }
        Some(batch)
    }

    /// Tells what came of publishes, which are no longer under way.
    fn tell(&self, done: Vec<(Parcel, Published)>) {
        {
            let mut state = self.0.lock();
            for (Parcel { publisher, .. }, _) in &done {
                if let Entry::Occupied(mut known) = state.under_way.entry(publisher.topic.clone()) {
                    known.get_mut().count -= 1;
                    if known.get().count == 0 {
                        known.remove();
                    }
                }
            }
        }
        // Whoever no longer waits does not want to know.
        done.into_iter().for_each(|(parcel, published)| drop(parcel.tell.send(published)));
    }
}

/// Sends what waits in a lane, batch after batch, until nothing does.
async fn empty_lane(app: App, lane: Lane) {
    let (Some(cluster), Ok(hub)) = (app.cluster.clone(), app.hub()) else { return };
    while let Some(batch) = cluster.lanes.next(&lane) {
        // All publishes to a topic go the same way, or they would overtake each other.
        let mut places: HashMap<TopicName, bool> = HashMap::new();
        let is_there = |parcel: &Parcel| {
            let topic = &parcel.publisher.topic;
            *places.entry(topic.clone()).or_insert_with(|| hub.place(topic) == Place::At(lane.to.clone()))
        };
        let (there, moved): (Vec<Parcel>, Vec<Parcel>) = batch.into_iter().partition(is_there);
        let (there, moved) = tokio::join!(send(&cluster, (hub, &lane.to), there), publish_here(moved));
        cluster.lanes.tell(there.into_iter().chain(moved).collect());
    }
}

/// Publishes around the home.
async fn publish_here(parcels: Vec<Parcel>) -> Vec<(Parcel, Published)> {
    let mut enqueued = Vec::with_capacity(parcels.len());
    for mut parcel in parcels {
        let placed = parcel.publisher.enqueue_here(&mut parcel.commit).await;
        enqueued.push((parcel, placed));
    }
    let answers = enqueued.into_iter().map(|(parcel, placed)| async move {
        let published = match placed {
            Ok(ticket) => parcel.publisher.answer_here(ticket, parcel.commit.events.len()).await,
            Err(error) => Err(error),
        };
        (parcel, published)
    });
    join_all(answers).await
}

/// Has a batch published by another hub; by this one, where that did not begin.
async fn send(
    cluster: &Cluster,
    (hub, to): (&Hub, &LiveHub),
    parcels: Vec<Parcel>,
) -> Vec<(Parcel, Published)> {
    if parcels.is_empty() {
        return Vec::new();
    }
    let (headers, caller) = (HeaderMap::new(), Caller::nobody());
    let forward = Forward {
        method: &Method::POST,
        target: batch::PATH,
        headers: &headers,
        body: batch::write(&parcels).into(),
        caller: &caller,
    };
    let sent = tokio::select! {
        sent = cluster.send(hub, to, forward) => sent,
        () = until_gone(hub, &to.id) => Sent::Unknown(ApiError::unavailable(format!("hub {} does not answer", to.id))),
    };
    let unknown = match sent {
        Sent::NotBegun(_) => return publish_here(parcels).await,
        // One that does not know what this is, or refuses it as a whole, has not begun.
        Sent::Answered(answer) if answer.status() != StatusCode::OK && !may_have_begun(answer.status()) => {
            return publish_here(parcels).await;
        }
        Sent::Answered(answer) => match read(answer, parcels.len()).await {
            Ok(outcomes) => return parcels.into_iter().zip(outcomes).collect(),
            Err(error) => error,
        },
        Sent::Unknown(error) => error,
    };
    let unknown = unknown.with("outcome", "unknown");
    parcels.into_iter().map(|parcel| (parcel, Err(unknown.clone().into()))).collect()
}

/// Whether an answer without outcomes leaves open what has happened.
fn may_have_begun(status: StatusCode) -> bool {
    status == StatusCode::INTERNAL_SERVER_ERROR
}

async fn read(answer: Response<Body>, count: usize) -> Result<Vec<Published>, ApiError> {
    if answer.status() != StatusCode::OK {
        return Err(ApiError::unavailable("the home of the topic has failed in the middle of this"));
    }
    let whole = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
    let whole = whole.map_err(|error| {
        ApiError::unavailable(format!("the answer of the home of the topic was cut off: {error}"))
    })?;
    batch::read_outcomes(&whole.to_bytes(), count)
}
