//! Following a topic: catch up, then live, over all partitions, with a token to go on from after any event. Several
//! topics at once are followed in rounds (`rounds.rs`).

mod rounds;
mod token;

pub use rounds::{MAX_PARTITIONS, RoundsResume, TopicsFollower, TopicsQuery};

use crate::filter::{Filter, Turn};
use crate::query::{From, Query, QueryError, Reader};
use prombus_core::{
    Event, EventLog, EventLogExt, Offset, Page, Partition, ReadError, ReadRequest, Sequence, TopicState,
    Watched,
};
use std::sync::Arc;
use token::Kind;

/// How many events are read at once.
const READ_EVENTS: usize = 1_024;
/// How many bytes are read at once, about.
const READ_BYTES: usize = 1 << 20;
/// How many bytes the tokens of the events may take that are read at once: each names all partitions.
const TOKEN_BYTES: usize = 1 << 20;

/// The places of a follower in all partitions, as an opaque text that a client can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    topic: u32,
    /// The first offset of each partition that was not seen.
    next: Vec<u64>,
}

impl Resume {
    /// At the first offset of each partition that was not seen.
    pub fn at(topic: &TopicState, next: impl IntoIterator<Item = Offset>) -> Self {
        Self { topic: topic.number.0, next: next.into_iter().map(|next| next.0).collect() }
    }

    /// The text of it.
    pub fn encode(&self) -> String {
        let topic = std::iter::once(u64::from(self.topic));
        token::encode(Kind::Topic, topic.chain(self.next.iter().copied()))
    }

    /// What a text says.
    pub fn decode(text: &str) -> Result<Self, QueryError> {
        let numbers = token::decode(Kind::Topic, text)?;
        let (topic, next) = numbers.split_first().ok_or(QueryError::BadToken)?;
        Ok(Self { topic: u32::try_from(*topic).map_err(|_| QueryError::BadToken)?, next: next.to_vec() })
    }
}

/// The topic that was followed is no more.
fn gone(topic: &TopicState) -> QueryError {
    ReadError::TopicGone(topic.name.clone()).into()
}

/// Follows a topic.
pub struct Follower {
    log: Arc<dyn EventLog>,
    topic: TopicState,
    query: Query,
    next: Vec<u64>,
    /// The partition that is asked first for more events, so that none waits for a busy one.
    first: u32,
    seen: Sequence,
}

impl Follower {
    /// About how much memory it takes for as long as it is there.
    pub fn held_bytes(&self) -> usize {
        size_of_val(&*self.next)
    }

    /// From where `query` starts, or where `resume` says.
    pub async fn new(
        log: Arc<dyn EventLog>,
        topic: TopicState,
        query: Query,
        resume: Option<Resume>,
    ) -> Result<Self, QueryError> {
        let resumes = resume.is_some();
        let next = match resume {
            Some(resume) if resume.topic != topic.number.0 => return Err(gone(&topic)),
            Some(resume) if resume.next.len() > topic.config.partitions as usize => {
                return Err(QueryError::BadToken);
            }
            Some(resume) => resume.next,
            None => {
                let mut reader =
                    Reader::new(log.clone(), topic.clone(), query.clone(), crate::QueryPosition::START)?;
                // A partition that is not read starts nowhere.
                let starts = reader.starts().await?.into_iter();
                starts.map(|start| if start.0 == u64::MAX { 0 } else { start.0 }).collect()
            }
        };
        let mut follower = Self { log, topic, query, next, first: 0, seen: Sequence(0) };
        follower.next.resize(follower.topic.config.partitions as usize, 0);
        follower.check_kept(resumes).await?;
        Ok(follower)
    }

    /// Fails where a place is no longer kept, before the first event is waited for. Who starts at whatever is kept starts
    /// there.
    async fn check_kept(&mut self, resumes: bool) -> Result<(), QueryError> {
        for partition in self.partitions() {
            let first = self.log.bounds(&self.topic.pinned(), partition).await?.first;
            let next = &mut self.next[partition.0 as usize];
            let starts_there = match self.query.from {
                From::Earliest => !resumes || *next == 0,
                From::Latest | From::Ts(_) => !resumes,
                From::AfterId(_) | From::Offset(_) => false,
            };
            if *next < first.0 && !starts_there {
                return Err(QueryError::Gone { topic: self.topic.name.clone(), partition, first });
            }
            *next = first.0.max(*next);
        }
        Ok(())
    }

    fn partitions(&self) -> impl Iterator<Item = Partition> + use<> {
        let wanted = self.query.partition;
        let all = (0..self.topic.config.partitions).map(Partition);
        all.filter(move |partition| wanted.is_none_or(|wanted| wanted == *partition))
    }

    /// The topic.
    pub fn topic(&self) -> &TopicState {
        &self.topic
    }

    /// The filter, where there is one.
    pub fn filter(&self) -> Option<&Filter> {
        self.query.filter.as_ref()
    }

    /// The next events, all of one partition: those that are wanted of what can be read at once, which may be none.
    /// `None` where there is nothing more to read yet. Nothing is lost if it is given up.
    pub async fn next_events(&mut self) -> Result<Option<Vec<Event>>, QueryError> {
        let open = self.open_partitions();
        let (before, after): (Vec<_>, Vec<_>) = self
            .partitions()
            .filter(|partition| partition.0 < open)
            .partition(|partition| partition.0 < self.first);
        for partition in after.into_iter().chain(before) {
            if let Some(events) = self.some_of(partition).await? {
                self.first = partition.0 + 1;
                return Ok(Some(events));
            }
        }
        Ok(None)
    }

    /// How many partitions can be read. Those that were added to others have to wait until these were read up to there: a
    /// key that has moved has earlier events in them.
    fn open_partitions(&self) -> u32 {
        let is_reached = |ends: &[Offset]| ends.iter().zip(&self.next).all(|(end, next)| *next >= end.0);
        let all = self.topic.config.partitions;
        if self.query.partition.is_some() {
            return all;
        }
        let waited_for = self.topic.growths.iter().find(|ends| !is_reached(ends));
        waited_for.map_or(all, |ends| ends.len() as u32)
    }

    /// How many events are read at once.
    fn read_events(&self) -> usize {
        let numbers: usize = self.next.iter().map(|next| token::bytes_of(*next)).sum();
        (TOKEN_BYTES / token::text_bytes(numbers)).clamp(1, READ_EVENTS)
    }

    /// Waits until there may be more events. It must be asked for them before.
    pub async fn changed(&mut self) -> Result<(), QueryError> {
        let topic = Watched::Topic(self.topic.name.clone());
        self.seen = self.log.changed(&topic, self.seen).await;
        self.see_topic().await
    }

    /// The events that are wanted of a page of one partition; `None` at its end.
    async fn some_of(&mut self, partition: Partition) -> Result<Option<Vec<Event>>, QueryError> {
        loop {
            let from = self.next[partition.0 as usize];
            let turn = Turn::at(self.filter()).await;
            let request = ReadRequest {
                topic: self.topic.pinned(),
                partition,
                from: Offset(from),
                limit: self.read_events(),
                max_bytes: READ_BYTES,
            };
            let Page { events, next, .. } = match self.log.read(request).await {
                // Retention was faster than the first read.
                Err(ReadError::Gone { first }) if from == 0 => {
                    self.next[partition.0 as usize] = first.0;
                    continue;
                }
                page => page.map_err(|error| QueryError::reading((&self.topic.name, partition), error))?,
            };
            if next.0 <= from {
                return Ok(None);
            }
            // From here on nothing waits, so that what was read is handed out.
            let (wanted, looked_at) = self.wanted(events, turn);
            self.next[partition.0 as usize] = looked_at.map_or(next.0, |offset| offset.0 + 1);
            return Ok(Some(wanted));
        }
    }

    /// The events that are wanted, and the last that was looked at where that is not the last of them.
    fn wanted(&self, mut events: Vec<Event>, turn: Option<Turn>) -> (Vec<Event>, Option<Offset>) {
        let Query { key, to_ts, filter, .. } = &self.query;
        events.retain(|event| {
            key.as_ref().is_none_or(|key| event.key.as_deref() == Some(key))
                && to_ts.is_none_or(|to| event.ts <= to)
        });
        match filter.as_ref().zip(turn) {
            None => (events, None),
            Some((filter, turn)) => {
                let (events, stopped) = filter.keep(events, turn);
                (events, stopped.map(|(_, offset)| offset))
            }
        }
    }

    /// Sees partitions that came since, and that the topic is gone.
    async fn see_topic(&mut self) -> Result<(), QueryError> {
        match self.log.topic(&self.topic.name).await? {
            Some(topic) if topic.number == self.topic.number => {
                self.next.resize(topic.config.partitions as usize, 0);
                self.topic = topic;
                Ok(())
            }
            _ => Err(gone(&self.topic)),
        }
    }

    /// The token with which one goes on after `event`, which must be of what was handed out last.
    pub fn token_after(&self, event: &Event) -> String {
        let mut next = self.next.clone();
        next[event.partition.0 as usize] = event.offset.0 + 1;
        Resume { topic: self.topic.number.0, next }.encode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prombus_core::{
        Append, Commit, ConfigChange, Json, NewEvent, Placement, SystemClock, TopicConfig, TopicName,
    };
    use prombus_store_memory::MemoryStore;
    use proptest::prelude::*;

    fn topic() -> TopicName {
        TopicName::parse("t").unwrap()
    }

    async fn store(partitions: u32) -> Arc<MemoryStore> {
        let store = Arc::new(MemoryStore::new(Arc::new(SystemClock), 1));
        let config = TopicConfig { partitions, ..TopicConfig::default() };
        let created = ConfigChange::CreateTopic { name: topic(), config };
        store.commit(Arc::new(Commit { config: vec![created], ..Commit::default() })).await.unwrap();
        store
    }

    async fn publish(store: &MemoryStore, partition: u32, count: usize) {
        let payload = Json::from_stored(bytes::Bytes::from_static(b"1"));
        let event = Append {
            placement: Placement::Named(Partition(partition)),
            ..Append::new(topic(), NewEvent::new(payload))
        };
        store.commit(Arc::new(vec![event; count].into())).await.unwrap();
    }

    async fn follower(store: &Arc<MemoryStore>, resume: Option<Resume>) -> Follower {
        let query = Query::of_all(From::Earliest);
        let state = store.topic(&topic()).await.unwrap().unwrap();
        Follower::new(store.clone(), state, query, resume).await.unwrap()
    }

    /// The partition of each page, in order.
    async fn order_of(store: &Arc<MemoryStore>) -> Vec<u32> {
        let mut follower = follower(store, None).await;
        let mut order = Vec::new();
        while let Some(events) = follower.next_events().await.unwrap() {
            order.push(events[0].partition.0);
        }
        order
    }

    #[tokio::test]
    async fn tokens_of_many_partitions_are_counted() {
        let store = store(1_000).await;
        publish(&store, 0, 600).await;
        let state = store.topic(&topic()).await.unwrap().unwrap();
        let next = [Offset(0)].into_iter().chain([Offset(u64::MAX); 999]);
        let mut follower = follower(&store, Some(Resume::at(&state, next))).await;
        let events = follower.next_events().await.unwrap().unwrap();
        let tokens: usize = events.iter().map(|event| follower.token_after(event).len()).sum();
        assert!(tokens <= TOKEN_BYTES && tokens > TOKEN_BYTES / 2, "{} have {tokens} bytes", events.len());
    }

    #[tokio::test]
    async fn no_partition_waits_for_a_busy_one() {
        let store = store(2).await;
        publish(&store, 0, 3 * READ_EVENTS).await;
        publish(&store, 1, 1).await;
        assert_eq!(order_of(&store).await, [0, 1, 0, 0]);
    }

    #[tokio::test]
    async fn a_partition_waits_for_what_was_there_before_it_was_added() {
        let store = store(1).await;
        publish(&store, 0, 2 * READ_EVENTS).await;
        let config = TopicConfig { partitions: 2, ..TopicConfig::default() };
        let grown = ConfigChange::AlterTopic { name: topic(), expect_revision: 1, config };
        store.commit(Arc::new(Commit { config: vec![grown], ..Commit::default() })).await.unwrap();
        publish(&store, 0, 2 * READ_EVENTS).await;
        publish(&store, 1, 1).await;
        assert_eq!(order_of(&store).await, [0, 0, 1, 0, 0]);
    }

    proptest! {
        #[test]
        fn places_survive_their_text(topic: u32, next in prop::collection::vec(any::<u64>(), 0..20)) {
            let resume = Resume { topic, next };
            prop_assert_eq!(Resume::decode(&resume.encode()).ok(), Some(resume));
        }

        #[test]
        fn any_text_is_a_token_or_not(text in "\\PC{0,40}") {
            let _ = Resume::decode(&text);
        }
    }
}
