//! Following all topics that match, in rounds by recorded time.
//!
//! A round hands out what was recorded from one moment until another, topic after topic in the order in which the topics
//! were made. Before it begins, every topic is complete up to its end ([`EventLog::advance_horizon`]). So a place in the
//! stream is the two moments, a topic, a partition and an offset, however many topics there are: topics before the place are
//! done up to the round's end, those behind it up to its start. A topic that was made since has only events of later rounds.

use super::token::{self, Kind};
use super::{READ_BYTES, READ_EVENTS};
use crate::filter::{Filter, Turn};
use crate::query::{From, QueryError};
use crate::topics::{LONGEST_REST, SHORTEST_REST};
use prombus_core::{
    Clock, Event, EventLog, EventLogExt, Offset, Page, Partition, ReadError, ReadRequest, Sequence,
    TopicName, TopicNumber, TopicRef, TopicState, TsRequest, Watched,
};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most partitions that one stream follows, or that the patterns of one connection stand for; a topic has at least
/// one.
pub const MAX_PARTITIONS: usize = 20_000;
/// What a topic takes in a map beside its partitions, about.
const TOPIC_BYTES: usize = 2 * size_of::<(TopicNumber, Followed)>();
/// How long the clock is waited for, so that recorded time does not run ahead of it.
const CLOCK_WAIT: Duration = Duration::from_millis(1);
/// How often it is looked at then, at most: one that was set back is not waited for.
const CLOCK_WAITS: usize = 3;
/// Of its time, a stream spends one part in so many on looking at topics that may have changed.
const REST_FACTOR: u32 = 5;

/// Which topics are followed, and what of them.
pub struct TopicsQuery {
    /// Whether a topic is one of them. It is asked once of each.
    pub matches: Box<dyn Fn(&TopicName) -> bool + Send + Sync>,
    /// Where to start: `Earliest`, `Latest` or `Ts`. Topics that are made later start at their first event.
    pub from: From,
    /// Only events of this key.
    pub key: Option<String>,
    /// Only events that match.
    pub filter: Option<Filter>,
    /// Whether events are raised to the latest version of their topic's schema, before the filter looks at them.
    pub normalize: bool,
}

/// A place in the stream, as an opaque text that a client can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundsResume {
    /// What was recorded from here on; 0 in the round that starts where the query does.
    since: u64,
    /// And before this.
    until: u64,
    at: At,
}

/// The first event of the round that was not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct At {
    topic: u32,
    partition: u32,
    next: u64,
}

impl RoundsResume {
    fn encode(self) -> String {
        let Self { since, until, at } = self;
        let numbers = [since, until, at.topic.into(), at.partition.into(), at.next];
        token::encode(Kind::Rounds, numbers.into_iter())
    }

    /// What a text says.
    pub fn decode(text: &str) -> Result<Self, QueryError> {
        let numbers = token::decode(Kind::Rounds, text)?;
        let [since, until, topic, partition, next] = numbers[..] else { return Err(QueryError::BadToken) };
        let small = |number: u64| u32::try_from(number).map_err(|_| QueryError::BadToken);
        Ok(Self { since, until, at: At { topic: small(topic)?, partition: small(partition)?, next } })
    }
}

/// How far one partition is followed.
struct RoundPosition {
    /// The first offset that was not seen.
    next: u64,
    /// The first that was not visible when it was looked at last.
    end: u64,
}

/// A topic that is followed. There may be thousands of them for each of thousands of streams, so it is small.
struct Followed {
    topic: TopicRef,
    places: Box<[RoundPosition]>,
}

impl Followed {
    fn has_more(&self) -> bool {
        self.places.iter().any(|place| place.next < place.end)
    }
}

/// What a look at one topic has found.
struct FoundTopic {
    topic: TopicRef,
    ends: Vec<u64>,
    /// Where partitions start that were not followed before.
    starts: Vec<u64>,
}

/// Follows all topics that match.
pub struct TopicsFollower {
    log: Arc<dyn EventLog>,
    clock: Arc<dyn Clock>,
    query: TopicsQuery,
    topics: BTreeMap<TopicNumber, Followed>,
    /// How many partitions they have.
    partitions: usize,
    /// Topics that do not match.
    others: HashSet<TopicNumber>,
    /// The round that is under way, or was last.
    round: RoundsResume,
    under_way: bool,
    seen: Sequence,
    rest: Duration,
}

impl TopicsFollower {
    /// From where `query` starts, or where `resume` says.
    pub async fn new(
        (log, clock): (Arc<dyn EventLog>, Arc<dyn Clock>),
        query: TopicsQuery,
        resume: Option<RoundsResume>,
    ) -> Result<Self, QueryError> {
        let round = resume.unwrap_or(RoundsResume { since: 0, until: 0, at: At::default() });
        let mut follower = Self {
            log,
            clock,
            query,
            topics: BTreeMap::new(),
            partitions: 0,
            others: HashSet::new(),
            round,
            under_way: resume.is_some(),
            seen: Sequence(0),
            rest: Duration::ZERO,
        };
        if resume.is_none() && follower.query.from == From::Latest {
            // What is there now is not wanted. Without any topic, all that come are new.
            follower.look(Opening::Later).await?;
            if !follower.topics.is_empty() {
                follower.round.since = follower.complete().await?;
                follower.round.until = follower.round.since;
                follower.topics.clear();
            }
        }
        follower.look(Opening::Now).await?;
        follower.check_kept().await?;
        Ok(follower)
    }

    /// Fails where the place that a client goes on from is no longer kept, before the first event is waited for.
    async fn check_kept(&self) -> Result<(), QueryError> {
        let At { topic, partition, next } = self.round.at;
        let followed = self.topics.get(&TopicNumber(topic)).filter(|_| self.under_way && next > 0);
        let Some(followed) = followed else { return Ok(()) };
        let partition = Partition(partition);
        let first = self.log.bounds(&followed.topic, partition).await?.first;
        let topic = followed.topic.name.clone();
        if next < first.0 { Err(QueryError::Gone { topic, partition, first }) } else { Ok(()) }
    }

    /// About how much memory it takes for as long as it is there.
    pub fn held_bytes(&self) -> usize {
        let others = self.others.capacity() * size_of::<TopicNumber>();
        others + self.topics.len() * TOPIC_BYTES + self.partitions * size_of::<RoundPosition>()
    }

    /// The filter, where there is one.
    pub fn filter(&self) -> Option<&Filter> {
        self.query.filter.as_ref()
    }

    /// The next events, all of one partition: those that are wanted of what can be read at once, which may be none.
    /// `None` where there is nothing more to read yet. Nothing is lost if it is given up.
    pub async fn next_events(&mut self) -> Result<Option<Vec<Event>>, QueryError> {
        loop {
            if !self.under_way && !self.begin().await? {
                return Ok(None);
            }
            let Some((topic, partition)) = self.next_place() else {
                // What comes now is of the next round.
                self.under_way = false;
                continue;
            };
            if let Some(events) = self.some_of(topic, partition).await? {
                return Ok(Some(events));
            }
        }
    }

    /// Waits until there may be more events. It must be asked for them before.
    pub async fn changed(&mut self) -> Result<(), QueryError> {
        let topics = self.topics.values().map(|followed| followed.topic.name.clone()).collect();
        self.seen = self.log.changed(&Watched::AnyOf(topics), self.seen).await;
        if self.rest >= SHORTEST_REST {
            // Most commits may be about other topics, and there may be thousands of them to look at.
            tokio::time::sleep(self.rest).await;
        }
        Ok(())
    }

    /// The token with which one goes on after `event`, which must be of what was handed out last.
    pub fn token_after(&self, event: &Event) -> String {
        let at = At { next: event.offset.0 + 1, ..self.round.at };
        RoundsResume { at, ..self.round }.encode()
    }

    /// The token with which one goes on here, before the first event was handed out.
    pub fn token(&self) -> String {
        self.round.encode()
    }

    /// Begins a round, where there is something for it.
    async fn begin(&mut self) -> Result<bool, QueryError> {
        self.look(Opening::Done).await?;
        if !self.topics.values().any(Followed::has_more) {
            return Ok(false);
        }
        let until = self.complete().await?;
        // Now everything that was recorded before is visible, also what was not a moment ago.
        self.look(Opening::Done).await?;
        let first = self.topics.keys().next().map_or(0, |number| number.0);
        self.round =
            RoundsResume { since: self.round.until, until, at: At { topic: first, ..At::default() } };
        self.under_way = true;
        Ok(true)
    }

    /// A moment up to which all topics are complete, after all that is visible.
    async fn complete(&self) -> Result<u64, QueryError> {
        let mut until = 0;
        for followed in self.topics.values() {
            tokio::task::consume_budget().await;
            let name = &followed.topic.name;
            let horizon = match until {
                0 => match self.log.advance_horizon(name, 0).await {
                    Ok(now) => {
                        self.wait_for_clock(now).await;
                        self.log.advance_horizon(name, now).await
                    }
                    error => error,
                },
                until => self.log.advance_horizon(name, until - 1).await,
            };
            match horizon {
                Ok(horizon) if until == 0 => until = horizon,
                // It is complete for longer than the first.
                Ok(_) | Err(ReadError::TopicNotFound(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(until.max(self.round.until))
    }

    /// Recorded time moves on when it is asked for what comes after now, and a thousand rounds a second must not take it
    /// into the future.
    async fn wait_for_clock(&self, past: u64) {
        for _ in 0..CLOCK_WAITS {
            if self.clock.now_ms() > past {
                return;
            }
            // A clock tells nobody that it has moved on.
            tokio::time::sleep(CLOCK_WAIT).await;
        }
    }

    /// The partition where the round goes on; `None` at its end.
    fn next_place(&mut self) -> Option<(TopicNumber, Partition)> {
        let At { topic, partition, .. } = self.round.at;
        for (number, followed) in self.topics.range(TopicNumber(topic)..) {
            let from = if number.0 == topic { partition as usize } else { 0 };
            for (at, place) in followed.places.iter().enumerate().skip(from) {
                if place.next < place.end {
                    let (partition, next) = (at as u32, place.next);
                    self.round.at = At { topic: number.0, partition, next };
                    return Some((*number, Partition(partition)));
                }
            }
        }
        None
    }

    /// The events that are wanted of a page of one partition; `None` where the round has no more of it.
    async fn some_of(
        &mut self,
        number: TopicNumber,
        partition: Partition,
    ) -> Result<Option<Vec<Event>>, QueryError> {
        let Some(followed) = self.topics.get(&number) else { return Ok(None) };
        let from = followed.places[partition.0 as usize].next;
        let turn = Turn::at(self.query.filter.as_ref()).await;
        let request = ReadRequest {
            topic: followed.topic.clone(),
            partition,
            from: Offset(from),
            limit: READ_EVENTS,
            max_bytes: READ_BYTES,
        };
        let page = self.log.read(request).await;
        let Some(followed) = self.topics.get_mut(&number) else { return Ok(None) };
        let place = &mut followed.places[partition.0 as usize];
        let Page { mut events, next, .. } = match page {
            // Retention was faster than the first read.
            Err(ReadError::Gone { first }) if from == 0 => {
                place.next = first.0;
                return Ok(None);
            }
            Err(ReadError::TopicGone(_) | ReadError::TopicNotFound(_)) => {
                self.topics.remove(&number);
                return Ok(None);
            }
            page => page.map_err(|error| QueryError::reading((&followed.topic.name, partition), error))?,
        };
        let of_round = events.partition_point(|event| event.recorded_ts < self.round.until);
        let next = events.get(of_round).map_or(next, |later| later.offset);
        let is_done = of_round < events.len() || next.0 >= place.end;
        events.truncate(of_round);
        let (wanted, stopped) = wanted(&self.query, events, turn);
        place.next = stopped.map_or(next.0, |offset| offset.0 + 1);
        if is_done && stopped.is_none() {
            // The rest is of a later round, which looks again.
            place.end = place.next;
        }
        Ok(Some(wanted))
    }

    /// Looks which topics there are, and how far they go.
    async fn look(&mut self, opening: Opening) -> Result<(), QueryError> {
        let began = Instant::now();
        let topics = self.log.topics().await?;
        if self.others.len() > 2 * topics.len() {
            self.others.clear();
        }
        let (mut found, mut partitions) = (Vec::new(), 0);
        for state in topics {
            if self.others.contains(&state.number) {
                continue;
            }
            if !self.topics.contains_key(&state.number) && !(self.query.matches)(&state.name) {
                self.others.insert(state.number);
                continue;
            }
            partitions += state.config.partitions as usize;
            if partitions > MAX_PARTITIONS {
                return Err(QueryError::TooManyPartitions { limit: MAX_PARTITIONS });
            }
            match self.look_at(&state, opening).await {
                Ok(one) => found.push((state.number, one)),
                Err(QueryError::Read(ReadError::TopicGone(_) | ReadError::TopicNotFound(_))) => {}
                Err(error) => return Err(error),
            }
        }
        self.take(found);
        self.partitions = partitions;
        self.rest = LONGEST_REST.min(began.elapsed() * REST_FACTOR);
        Ok(())
    }

    async fn look_at(&self, state: &TopicState, opening: Opening) -> Result<FoundTopic, QueryError> {
        let known = self.topics.get(&state.number).map_or(0, |followed| followed.places.len());
        let (topic, partitions) = (state.pinned(), state.config.partitions);
        let (mut ends, mut starts) = (Vec::with_capacity(partitions as usize), Vec::new());
        for partition in (0..partitions).map(Partition) {
            // Thousands of topics are looked at here, and a store may answer at once each time.
            tokio::task::consume_budget().await;
            let end = self.log.bounds(&topic, partition).await?.next;
            ends.push(end.0);
            if partition.0 as usize >= known {
                starts.push(match opening {
                    Opening::Now => self.start(state, partition, end).await?,
                    // It is new, and so are all of its events.
                    Opening::Later | Opening::Done => 0,
                });
            }
        }
        Ok(FoundTopic { topic, ends, starts })
    }

    /// Takes over what was found. Topics that were not are gone.
    fn take(&mut self, found: Vec<(TopicNumber, FoundTopic)>) {
        let mut before = std::mem::take(&mut self.topics);
        for (number, FoundTopic { topic, ends, starts }) in found {
            let known = before.remove(&number).map_or_else(Box::default, |followed| followed.places);
            let next = known.iter().map(|place| place.next).chain(starts);
            let places = next.zip(ends).map(|(next, end)| RoundPosition { next, end }).collect();
            self.topics.insert(number, Followed { topic, places });
        }
    }

    /// Where a partition starts that was there before the stream, or that it goes on with.
    async fn start(&self, topic: &TopicState, partition: Partition, end: Offset) -> Result<u64, QueryError> {
        let RoundsResume { since, until, at } = self.round;
        let place = (topic.number.0, partition.0);
        // After an event, the next offset is never the first one; a place before the first event names no partition.
        if self.under_way && place == (at.topic, at.partition) && at.next > 0 {
            return Ok(at.next);
        }
        match if self.under_way && place < (at.topic, at.partition) { until } else { since } {
            0 => match self.query.from {
                From::Ts(ts) => {
                    let topic = topic.pinned();
                    Ok(self.log.offset_at(TsRequest { topic, partition, ts }).await?.0)
                }
                _ => Ok(0),
            },
            time => self.recorded_at(topic, partition, (time, end)).await,
        }
    }

    /// The first offset whose event was recorded at `time` or later; the end where there is none.
    async fn recorded_at(
        &self,
        topic: &TopicState,
        partition: Partition,
        (time, end): (u64, Offset),
    ) -> Result<u64, QueryError> {
        let first = self.log.bounds(&topic.pinned(), partition).await?.first.0;
        let (mut low, mut high) = (first, end.0);
        // Most topics stand still most of the time: their last event tells.
        let mut look_at = high.saturating_sub(1).max(low);
        while low < high {
            tokio::task::consume_budget().await;
            let request = ReadRequest {
                topic: topic.pinned(),
                partition,
                from: Offset(look_at),
                limit: 1,
                max_bytes: 1,
            };
            match self.log.read(request).await {
                Ok(Page { events, .. }) => match events.first() {
                    Some(event) if event.recorded_ts < time => low = event.offset.0 + 1,
                    // Behind holes, there may be no event left.
                    _ => high = look_at,
                },
                Err(ReadError::Gone { first }) => low = first.0,
                Err(error) => return Err(error.into()),
            }
            look_at = low + high.saturating_sub(low) / 2;
        }
        Ok(low)
    }
}

/// Whether topics are looked at to find where they start.
#[derive(Clone, Copy)]
enum Opening {
    /// Only whether there are any.
    Later,
    Now,
    Done,
}

/// The events that are wanted, and the last that was looked at where that is not the last of them.
fn wanted(query: &TopicsQuery, mut events: Vec<Event>, turn: Option<Turn>) -> (Vec<Event>, Option<Offset>) {
    if let Some(key) = &query.key {
        events.retain(|event| event.key.as_deref() == Some(key));
    }
    match query.filter.as_ref().zip(turn) {
        None => (events, None),
        Some((filter, turn)) => {
            let (events, stopped) = filter.keep(events, turn);
            (events, stopped.map(|(_, offset)| offset))
        }
    }
}

#[cfg(test)]
mod tests;
