//! Reading everything back, and comparing it with what was to be put.

use super::filling::{AT_ONCE, BYTES_AT_ONCE, DOCUMENTS_AT_ONCE};
use super::{Counting, RememberedRequest, Side, Transfer, TransferError, TransferProgress};
use crate::collection::CollectionState;
use crate::ports::{Kept, ReadRequest, ScanRequest};
use crate::position::Partition;
use crate::topic::TopicState;
use std::fmt;
use xxhash_rust::xxh3::xxh3_128;

/// How many things there are, and a digest of them in which their order does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// How many.
    pub count: u64,
    /// The sum of their hashes.
    pub digest: u128,
}

impl Tally {
    fn add(&mut self, bytes: &[u8]) {
        self.count += 1;
        self.digest = self.digest.wrapping_add(xxh3_128(bytes));
    }

    fn add_shown(&mut self, thing: &impl fmt::Debug) {
        self.add(format!("{thing:?}").as_bytes());
    }
}

/// What was moved, and compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// Topics, with their settings and growth.
    pub topics: Tally,
    /// Events.
    pub events: Tally,
    /// Ids of events that were given up.
    pub ids: Tally,
    /// Cursors.
    pub cursors: Tally,
    /// Collections, with their settings and indexes.
    pub collections: Tally,
    /// Documents.
    pub documents: Tally,
}

/// Reads both stores, which is to say that the target can be read, and fails with the first thing that differs.
pub async fn compare(
    (source, target): (&dyn Transfer, &dyn Transfer),
    now_ms: u64,
    tell: &mut (dyn FnMut(TransferProgress) + Send),
) -> Result<Moved, TransferError> {
    let (source, target) = (Side::source(source), Side::target(target));
    let progress = TransferProgress { is_comparing: true, done: 0, of: source.size().await? };
    let counting = Counting { progress, tell };
    let mut comparing = Comparing { source, target, counting, moved: Moved::default() };
    comparing.topics().await?;
    comparing.moved.ids = comparing.remembered(now_ms).await?;
    comparing.collections().await?;
    comparing.counters().await?;
    Ok(comparing.moved)
}

struct Comparing<'a> {
    source: Side<'a>,
    target: Side<'a>,
    counting: Counting<'a>,
    moved: Moved,
}

fn same<T: PartialEq>(found: &T, wanted: &T, what: impl FnOnce() -> String) -> Result<(), TransferError> {
    if found == wanted { Ok(()) } else { Err(TransferError::Differs(what())) }
}

impl Comparing<'_> {
    async fn topics(&mut self) -> Result<(), TransferError> {
        let (source, target) = (self.source, self.target);
        let topics = source.read(source.store.topics().await)?;
        same(&target.read(target.store.topics().await)?, &topics, || "the list of topics".into())?;
        for topic in &topics {
            self.moved.topics.add_shown(topic);
            for partition in 0..topic.config.partitions {
                self.partition(topic, Partition(partition)).await?;
            }
            self.cursors(topic).await?;
        }
        Ok(())
    }

    async fn cursors(&mut self, topic: &TopicState) -> Result<(), TransferError> {
        let mut after = None;
        loop {
            let page = self.source.cursors(&topic.name, after.clone()).await?;
            same(&self.target.cursors(&topic.name, after).await?, &page, || {
                format!("a group, projection or other reader of topic {}", topic.name)
            })?;
            page.iter().for_each(|cursor| self.moved.cursors.add_shown(cursor));
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Some((last.reader.clone(), last.partition));
        }
    }

    async fn partition(&mut self, topic: &TopicState, partition: Partition) -> Result<(), TransferError> {
        let (source, target) = (self.source, self.target);
        let pinned = topic.pinned();
        let kept: Kept = source.read(source.store.kept(&pinned, partition).await)?;
        let what = || format!("partition {partition} of topic {}", topic.name);
        same(&target.read(target.store.kept(&pinned, partition).await)?, &kept, what)?;
        let (mut from, mut line) = (kept.bounds.first, Vec::new());
        while from < kept.bounds.next {
            let topic = pinned.clone();
            let request = ReadRequest { topic, partition, from, limit: AT_ONCE, max_bytes: BYTES_AT_ONCE };
            let page = source.read(source.store.read(request.clone()).await)?;
            let limit = page.events.len().max(1);
            let request = ReadRequest { limit, max_bytes: usize::MAX, ..request };
            same(&target.read(target.store.read(request).await)?, &page, what)?;
            for event in &page.events {
                line.clear();
                event.write_json(&mut line);
                self.moved.events.add(&line);
            }
            self.counting.add(page.next.0 - from.0);
            from = page.next;
        }
        Ok(())
    }

    async fn remembered(&mut self, now_ms: u64) -> Result<Tally, TransferError> {
        let mut tallies = [Tally::default(); 2];
        for (side, tally) in [self.source, self.target].into_iter().zip(&mut tallies) {
            let mut from = None;
            loop {
                let page = side.store.remembered(RememberedRequest { now_ms, from }).await;
                let page = side.read(page)?;
                page.events.iter().for_each(|known| tally.add_shown(known));
                if page.next.is_none() {
                    break;
                }
                from = page.next;
            }
        }
        let [source, target] = tallies;
        same(&target, &source, || "what recognises the ids of removed events".into())?;
        Ok(source)
    }

    async fn collections(&mut self) -> Result<(), TransferError> {
        let (source, target) = (self.source, self.target);
        let collections = source.read(source.store.collections().await)?;
        let there = target.read(target.store.collections().await)?;
        same(&there, &collections, || "the list of collections".into())?;
        for state in &collections {
            self.moved.collections.add_shown(state);
            self.documents(state).await?;
        }
        Ok(())
    }

    async fn documents(&mut self, state: &CollectionState) -> Result<(), TransferError> {
        let mut after = None;
        loop {
            let (collection, limit) = (state.name.to_string(), DOCUMENTS_AT_ONCE);
            let request = ScanRequest { collection, after, limit };
            let page = self.source.read(self.source.store.scan(request.clone()).await)?;
            let there = self.target.read(self.target.store.scan(request).await)?;
            same(&there, &page, || format!("collection {}", state.name))?;
            page.iter().for_each(|document| self.moved.documents.add_shown(&(&state.name, document)));
            self.counting.add(page.len() as u64);
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.key.clone());
        }
    }

    async fn counters(&mut self) -> Result<(), TransferError> {
        let source = self.source.read(self.source.store.counters().await)?;
        let target = self.target.read(self.target.store.counters().await)?;
        let numbers = |counters: &super::Counters| (counters.next_topic, counters.next_collection);
        let goes_on = target.recorded_ts > source.recorded_ts;
        same(&(numbers(&target), goes_on), &(numbers(&source), true), || "what the store counts".into())
    }
}
