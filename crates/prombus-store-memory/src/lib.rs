//! The memory store: the smallest store that keeps every promise of the ports, except that nothing
//! outlives the process. It is the model that other stores are tested against.

mod collections;
mod stage;
mod state;
mod transfer;

use async_trait::async_trait;
use collections::Collections;
use parking_lot::RwLock;
use prombus_core::{
    Bounds, Clock, CollectionState, Commit, CommitError, Copies, CopyError, Cursor, CursorKey, Document,
    Documents, Event, EventLog, Find, FoundDocuments, HeldCopy, Histogram, HistoryRequest, IdMaker, Kept,
    Offset, Page, Partition, PreviousRequest, ReadError, ReadRequest, ScanRequest, Sequence, StoreStatus,
    Ticket, TopicName, TopicRef, TopicState, TsRequest, Wakes, Watched,
};
use state::{Log, State, Topic};
use std::sync::Arc;
use uuid::Uuid;

/// A store in memory.
pub struct MemoryStore {
    state: RwLock<State>,
    wakes: Wakes,
    clock: Arc<dyn Clock>,
    flushes: Arc<Histogram>,
}

impl MemoryStore {
    /// An empty store. `seed` starts the randomness of its ids.
    pub fn new(clock: Arc<dyn Clock>, seed: u64) -> Self {
        Self {
            state: RwLock::new(State::new(IdMaker::new(seed))),
            wakes: Wakes::new(0),
            clock,
            flushes: Arc::default(),
        }
    }

    /// The same store, in which a commit may make so much: see [`ResultBytes`](prombus_core::ResultBytes).
    #[must_use]
    pub fn with_result_bytes(self, most: usize) -> Self {
        self.state.write().result_bytes = most;
        self
    }

    fn in_topic<T>(
        &self,
        asked: &TopicRef,
        look: impl FnOnce(&Topic) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let state = self.state.read();
        look(asked.pick(state.topics.get(&asked.name), |topic| topic.state.number)?)
    }

    fn in_collection<T>(
        &self,
        name: &str,
        look: impl FnOnce(&Collections, &CollectionState) -> Result<T, ReadError>,
    ) -> Result<Option<T>, ReadError> {
        let state = self.state.read();
        state.collections.states.get(name).map(|found| look(&state.collections, found)).transpose()
    }

    fn in_partition<T>(
        &self,
        asked: &TopicRef,
        partition: Partition,
        look: impl FnOnce(&Log) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        self.in_topic(asked, |topic| {
            look(topic.logs.get(partition.0 as usize).ok_or_else(|| ReadError::NoSuchPartition {
                topic: asked.name.clone(),
                partitions: topic.state.config.partitions,
            })?)
        })
    }
}

#[async_trait]
impl EventLog for MemoryStore {
    async fn enqueue(&self, commit: Arc<Commit>) -> Result<Ticket, CommitError> {
        let mut state = self.state.write();
        if state.closed {
            return Err(CommitError::Unavailable("the store is closed".into()));
        }
        // There is no queue: its turn has come.
        let done = state.commit(&commit, self.clock.now_ms()).map(|(receipt, mut changed_set)| {
            changed_set.wrote(&commit.documents);
            // While the state is locked, so that sequence and state move as one.
            self.wakes.wake(receipt.sequence.0, &changed_set);
            receipt
        });
        Ok(Ticket::decided(done))
    }

    async fn read(&self, request: ReadRequest) -> Result<Page, ReadError> {
        self.in_partition(&request.topic, request.partition, |log| {
            let Bounds { first, next: end } = log.bounds;
            if request.from < first {
                return Err(ReadError::Gone { first });
            }
            let mut bytes = 0;
            let events: Vec<Event> = log
                .from(request.from)
                .take(request.limit)
                .take_while(|event| {
                    let fits = bytes == 0 || bytes < request.max_bytes;
                    bytes += event.payload.len();
                    fits
                })
                .cloned()
                .collect();
            let behind = events.last().map_or(request.from, |event| event.offset.plus(1));
            let next = log.from(behind).next().map_or(end, |event| event.offset);
            Ok(Page { events, next, end })
        })
    }

    async fn kept(&self, topic: &TopicRef, partition: Partition) -> Result<Kept, ReadError> {
        self.in_partition(topic, partition, |log| Ok(log.kept()))
    }

    async fn offset_at(&self, request: TsRequest) -> Result<Offset, ReadError> {
        self.in_partition(&request.topic, request.partition, |log| {
            let mut events = log.events.values();
            Ok(events.find(|event| event.ts >= request.ts).map_or(log.bounds.next, |event| event.offset))
        })
    }

    async fn by_id(&self, topic: &TopicRef, id: Uuid) -> Result<Option<Event>, ReadError> {
        self.in_topic(topic, |topic| {
            let all = topic.ids.get(&id).map_or(&[][..], Vec::as_slice);
            Ok(all.iter().rev().find_map(|published| topic.at(published.at())).cloned())
        })
    }

    async fn latest_by_key(&self, topic: &TopicRef, key: &str) -> Result<Option<Event>, ReadError> {
        self.in_topic(topic, |topic| Ok(topic.latest(key).cloned()))
    }

    async fn previous_by_key(&self, request: PreviousRequest) -> Result<Vec<Option<Event>>, ReadError> {
        let PreviousRequest { topic, events, max_bytes } = request;
        self.in_topic(&topic, |topic| {
            let previous = |(key, place): &(String, _)| {
                let all = topic.keys.get(key.as_str()).map_or(&[][..], Vec::as_slice);
                let earlier = &all[..all.iter().position(|at| at == place).unwrap_or(0)];
                earlier.iter().rev().find_map(|at| topic.at(*at)).cloned()
            };
            let mut bytes = 0;
            let fits = |event: &Option<Event>| {
                let fits = bytes == 0 || bytes < max_bytes;
                bytes += event.as_ref().map_or(0, |event| event.payload.len());
                fits
            };
            Ok(events.iter().map(previous).take_while(fits).collect())
        })
    }

    async fn history(&self, request: HistoryRequest) -> Result<Vec<Event>, ReadError> {
        self.in_topic(&request.topic, |topic| {
            let all = topic.keys.get(request.key.as_str()).map_or(&[][..], Vec::as_slice);
            let start = request.after.map_or(0, |after| all.partition_point(|at| *at <= after));
            let mut bytes = 0;
            let events = all[start..].iter().filter_map(|at| topic.at(*at));
            Ok(events
                .take(request.limit)
                .take_while(|event| {
                    let fits = bytes == 0 || bytes < request.max_bytes;
                    bytes += event.payload.len();
                    fits
                })
                .cloned()
                .collect())
        })
    }

    async fn erase(&self) -> Result<(), CommitError> {
        // Nothing is left of what is given up but digests of it, and of keys that were forgotten not even their names.
        Ok(())
    }

    async fn advance_horizon(&self, topic: &TopicName, past: u64) -> Result<u64, ReadError> {
        let mut state = self.state.write();
        if !state.topics.contains_key(topic) {
            return Err(ReadError::TopicNotFound(topic.clone()));
        }
        state.last_recorded_ts = state.last_recorded_ts.max(past.saturating_add(1));
        Ok(state.last_recorded_ts)
    }

    async fn changed(&self, of: &Watched, after: Sequence) -> Sequence {
        self.wakes.changed(of, after).await
    }

    async fn topic(&self, name: &TopicName) -> Result<Option<TopicState>, ReadError> {
        Ok(self.state.read().topics.get(name).map(|topic| TopicState::clone(&topic.state)))
    }

    async fn topics(&self) -> Result<Vec<TopicState>, ReadError> {
        Ok(self.state.read().topics.values().map(|topic| TopicState::clone(&topic.state)).collect())
    }

    async fn cursor(&self, key: &CursorKey) -> Result<Option<Cursor>, ReadError> {
        Ok(self.state.read().cursors.get(key).cloned())
    }

    async fn readers(&self, topic: &TopicName, prefix: &str) -> Result<Vec<String>, ReadError> {
        let state = self.state.read();
        let is_meant = |key: &&CursorKey| key.topic == *topic && key.reader.starts_with(prefix);
        let mut readers: Vec<String> =
            state.cursors.keys().filter(is_meant).map(|key| key.reader.clone()).collect();
        readers.sort_unstable();
        readers.dedup();
        Ok(readers)
    }

    fn status(&self) -> StoreStatus {
        let failed = self.state.read().closed.then(|| "the store is closed".to_owned());
        let (extra, flushes) = (Vec::new(), self.flushes.clone());
        StoreStatus { kind: "memory", failed, is_full: false, extra, flushes }
    }

    async fn close(&self) {
        self.state.write().closed = true;
    }
}

#[async_trait]
impl Documents for MemoryStore {
    async fn document(&self, collection: &str, key: &str) -> Result<Option<Document>, ReadError> {
        self.in_collection(collection, |rows, state| prombus_rows::get(rows, state, key)).map(Option::flatten)
    }

    async fn scan(&self, request: ScanRequest) -> Result<Vec<Document>, ReadError> {
        let scan = |rows: &Collections, state: &CollectionState| {
            prombus_rows::scan(rows, state, request.after.as_deref(), request.limit)
        };
        self.in_collection(&request.collection, scan).map(Option::unwrap_or_default)
    }

    async fn find(&self, request: Find) -> Result<FoundDocuments, ReadError> {
        let found =
            self.in_collection(&request.collection, |rows, state| prombus_rows::find(rows, state, &request))?;
        Ok(found.unwrap_or_default())
    }

    async fn collection(&self, name: &str) -> Result<Option<CollectionState>, ReadError> {
        Ok(self.state.read().collections.states.get(name).cloned())
    }

    async fn collections(&self) -> Result<Vec<CollectionState>, ReadError> {
        Ok(self.state.read().collections.states.values().cloned().collect())
    }
}

#[async_trait]
impl Copies for MemoryStore {
    async fn hold(&self) -> Result<Arc<dyn HeldCopy>, CopyError> {
        Err(CopyError::NoFiles(
            "it is in memory only; export its topics with `prombus export`, or run the hub with --data",
        ))
    }
}
