//! What was in the log and is not any more: kept here before it is given up, so that what came of it can be judged.

use crate::groups_simulation::actors::number_of;
use crate::groups_simulation::history::EventPosition;
use crate::groups_simulation::world::WallClock;
use parking_lot::Mutex;
use prombus_core::{Bounds, Event, EventLog, Partition, ReadRequest, TopicState};
use prombus_store_memory::MemoryStore;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// An event as it is in the log.
#[derive(Debug, Clone)]
pub struct Logged {
    pub number: u64,
    pub key: Option<String>,
    pub id: String,
}

/// How an event was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// With all before it.
    Trimmed,
    /// By itself, or perhaps so.
    Discarded,
}

/// When an event was given up.
#[derive(Debug, Clone, Copy)]
pub struct GivenUp {
    pub how: How,
    /// When somebody set about it first.
    pub began: Duration,
    /// When it was certainly so; never, where nobody heard of it.
    pub done: Option<Duration>,
}

/// Everything that there ever was.
pub struct Archive {
    memory: Arc<MemoryStore>,
    clock: Arc<WallClock>,
    logged: Mutex<BTreeMap<EventPosition, Logged>>,
    given_up: Mutex<BTreeMap<EventPosition, GivenUp>>,
}

impl Archive {
    pub fn new(memory: Arc<MemoryStore>, clock: Arc<WallClock>) -> Arc<Self> {
        Arc::new(Self { memory, clock, logged: Mutex::default(), given_up: Mutex::default() })
    }

    /// Writes down what a partition holds now.
    pub async fn look(&self, topic: &TopicState, partition: Partition) -> Option<Bounds> {
        let bounds = self.memory.kept(&topic.pinned(), partition).await.ok()?.bounds;
        let request = ReadRequest {
            topic: topic.pinned(),
            partition,
            from: bounds.first,
            limit: usize::MAX,
            max_bytes: usize::MAX,
        };
        let events = self.memory.read(request).await.ok()?.events;
        self.logged.lock().extend(events.iter().map(logged));
        Some(bounds)
    }

    /// Somebody sets about giving events up. Gives those that nobody has set about before.
    pub fn begins(&self, places: &[EventPosition], how: How) -> Vec<EventPosition> {
        let mut given_up = self.given_up.lock();
        let news = places.iter().copied().filter(|place| !given_up.contains_key(place)).collect();
        for place in places {
            let new = GivenUp { how, began: self.clock.elapsed(), done: None };
            let known = given_up.entry(*place).or_insert(new);
            // Whether those that nobody heard of were given up the first time is not known, so they are perhaps holes.
            if known.done.is_none() && known.how != how {
                known.how = How::Discarded;
            }
        }
        news
    }

    /// They are given up.
    pub fn is_done(&self, places: &[EventPosition]) {
        let now = self.clock.elapsed();
        let mut given_up = self.given_up.lock();
        for place in places {
            if let Some(known) = given_up.get_mut(place) {
                known.done.get_or_insert(now);
            }
        }
    }

    /// They are not given up: those that nobody had set about before.
    pub fn is_off(&self, news: &[EventPosition]) {
        self.given_up.lock().retain(|place, _| !news.contains(place));
    }

    /// All that there ever was, what is gone of it, and where each partition starts now.
    pub async fn all(
        &self,
        topic: &TopicState,
    ) -> (BTreeMap<EventPosition, Logged>, BTreeMap<EventPosition, GivenUp>) {
        let mut kept = BTreeMap::new();
        for partition in (0..topic.config.partitions).map(Partition) {
            let before = std::mem::take(&mut *self.logged.lock());
            self.look(topic, partition).await.expect("it can be read");
            kept.extend(std::mem::replace(&mut *self.logged.lock(), before));
        }
        // What was under way when the hub was killed has happened or not.
        let mut given_up = self.given_up.lock().clone();
        given_up.retain(|place, _| !kept.contains_key(place));
        let mut logged = self.logged.lock().clone();
        logged.extend(kept);
        (logged, given_up)
    }
}

fn logged(event: &Event) -> (EventPosition, Logged) {
    let (number, id) = (number_of(&event.payload), event.id.to_string());
    let key = event.key.as_ref().map(|key| key.to_string());
    ((event.partition.0, event.offset.0), Logged { number, key, id })
}
