//! Everything that can be read of a store, in a form that can be compared.
//!
//! What can be read in several ways is read in all of them, and must be the same. Ids that the store made are
//! replaced by the place where they first appear, and topic numbers are left out.

use super::universe::{self, COLLECTIONS, KEYS};
use crate::Subject;
use crate::subject::must;
use prombus_core::{
    Bounds, Cursor, CursorKey, Document, Event, HistoryRequest, Kept, Offset, Partition, ReadError,
    ReadRequest, ScanRequest, TopicConfig, TopicName, TopicState,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;
use std::sync::Arc;
use uuid::Uuid;

/// The sizes of pages, in events and bytes, in which a partition is read.
const PAGES: [(usize, usize); 5] =
    [(1, usize::MAX), (3, usize::MAX), (1_000, usize::MAX), (1_000, 0), (1_000, 500)];
/// The sizes of pages in which histories and collections are read.
const LIMITS: [usize; 3] = [1, 3, 1_000];
/// How many times are looked up in a partition, at most.
const MAX_TIMES: usize = 40;

/// An event by where it is.
type At = (Partition, Offset);

/// Everything that can be read of a store.
#[derive(Debug, PartialEq)]
pub struct Dump {
    topics: BTreeMap<TopicName, TopicDump>,
    documents: Vec<(&'static str, Vec<Document>)>,
    cursors: Vec<(CursorKey, Cursor)>,
}

#[derive(Debug, PartialEq)]
struct TopicDump {
    revision: u64,
    config: TopicConfig,
    growths: Vec<Arc<[Offset]>>,
    partitions: Vec<PartitionDump>,
    latest: Vec<(&'static str, Option<At>)>,
    histories: Vec<(&'static str, Vec<At>)>,
}

#[derive(Debug, PartialEq)]
struct PartitionDump {
    kept: Kept,
    events: Vec<Event>,
    by_time: Vec<(u64, Offset)>,
}

/// Fails unless everything that can be read of two stores is the same, but for ids that they made themselves.
pub async fn assert_same(a: &Subject, b: &Subject) {
    let (a, b) = (Dump::of(a).await, Dump::of(b).await);
    b.assert_equals(&a, "two stores with the same commits hold the same");
}

#[track_caller]
fn same<T: PartialEq + Debug>(found: &T, wanted: &T, what: &str) {
    assert!(found == wanted, "{what}:\n found {found:?}\nwanted {wanted:?}");
}

impl Dump {
    /// Reads everything. Fails where the store contradicts itself.
    pub async fn of(s: &Subject) -> Self {
        let states = must(s.log.topics().await, "topics can be listed");
        let numbers: HashSet<_> = states.iter().map(|state| state.number).collect();
        assert_eq!(numbers.len(), states.len(), "each topic has a number of its own");
        let mut topics = BTreeMap::new();
        for state in states {
            same(&s.topic(&state.name).await, &state, "a topic looks the same in the list");
            topics.insert(state.name.clone(), dump_topic(s, state).await);
        }
        let mut documents = Vec::new();
        for collection in COLLECTIONS.into_iter().filter(|_| s.documents.is_some()) {
            documents.push((collection, dump_collection(s, collection).await));
        }
        let mut cursors = Vec::new();
        for key in universe::cursors() {
            if let Some(cursor) = s.cursor(&key).await {
                cursors.push((key, cursor));
            }
        }
        Self { topics, documents, cursors }
    }

    /// Fails, with the first difference, unless this is the same as `wanted`.
    #[track_caller]
    pub fn assert_equals(&self, wanted: &Self, promise: &str) {
        let names = |dump: &Self| dump.topics.keys().cloned().collect::<Vec<_>>();
        same(&names(self), &names(wanted), &format!("{promise}: topics"));
        for (name, topic) in &self.topics {
            topic.assert_equals(&wanted.topics[name], &format!("{promise}: {name}"));
        }
        same(&self.documents, &wanted.documents, &format!("{promise}: documents"));
        same(&self.cursors, &wanted.cursors, &format!("{promise}: cursors"));
        assert!(self == wanted, "{promise}");
    }
}

impl TopicDump {
    #[track_caller]
    fn assert_equals(&self, wanted: &Self, what: &str) {
        same(&self.revision, &wanted.revision, &format!("{what}: revision"));
        same(&self.config, &wanted.config, &format!("{what}: settings"));
        same(&self.growths, &wanted.growths, &format!("{what}: ends before growth"));
        for (n, (found, wanted)) in self.partitions.iter().zip(&wanted.partitions).enumerate() {
            let what = format!("{what}: partition {n}");
            same(&found.kept, &wanted.kept, &format!("{what}: what is kept"));
            for (found, wanted) in found.events.iter().zip(&wanted.events) {
                same(found, wanted, &format!("{what}: event"));
            }
            same(&found.by_time, &wanted.by_time, &format!("{what}: places by time"));
        }
        same(&self.latest, &wanted.latest, &format!("{what}: latest of keys"));
        same(&self.histories, &wanted.histories, &format!("{what}: histories"));
    }
}

async fn dump_topic(s: &Subject, state: TopicState) -> TopicDump {
    let TopicState { name, revision, config, growths, .. } = state;
    let mut partitions = Vec::new();
    for partition in 0..config.partitions {
        partitions.push(dump_partition(s, &name, partition).await);
    }
    check_ids(s, &name, &partitions).await;
    let looked_up = |event: Option<Event>| event.map(|event| find(&partitions, &event));
    let (mut latest, mut histories) = (Vec::new(), Vec::new());
    for key in KEYS {
        let last = looked_up(s.latest(&name, key).await);
        let history = dump_history(s, &name, key).await;
        let history: Vec<At> = history.iter().map(|event| find(&partitions, event)).collect();
        same(&history.last().copied(), &last, "the latest of a key is the last of its history");
        latest.push((key, last));
        histories.push((key, history));
    }
    rename(&mut partitions);
    TopicDump { revision, config, growths, partitions, latest, histories }
}

/// Looks up every id. Where one came again after its window, either event may be the answer: what is found is
/// checked, and not compared with what another store finds.
async fn check_ids(s: &Subject, topic: &TopicName, partitions: &[PartitionDump]) {
    let kept: HashSet<Uuid> = partitions.iter().flat_map(|log| &log.events).map(|event| event.id).collect();
    for id in universe::own_ids().chain(kept.iter().copied()) {
        let found = s.by_id(topic, id).await;
        if let Some(event) = &found {
            find(partitions, event);
        }
        let found = found.map(|event| event.id);
        same(&found, &kept.get(&id).copied(), "an event is found by its id if one is kept");
    }
}

/// Where an event is, having checked that it is the one that is there.
fn find(partitions: &[PartitionDump], event: &Event) -> At {
    let log = &partitions[event.partition.0 as usize];
    let there = log.events.binary_search_by_key(&event.offset, |event| event.offset);
    same(&there.ok().map(|n| &log.events[n]), &Some(event), "an event is the same however it is found");
    (event.partition, event.offset)
}

/// Gives the ids that the store made names that other stores share: where each first appears.
fn rename(partitions: &mut [PartitionDump]) {
    let mut names = HashMap::new();
    for event in partitions.iter_mut().flat_map(|log| &mut log.events) {
        if !universe::is_own(event.id) {
            let name = Uuid::from_u64_pair(event.partition.0.into(), event.offset.0);
            event.id = *names.entry(event.id).or_insert(name);
        }
    }
}

/// A partition that is being read.
struct Reading<'a> {
    s: &'a Subject,
    topic: &'a TopicName,
    partition: u32,
    bounds: Bounds,
}

async fn dump_partition(s: &Subject, topic: &TopicName, partition: u32) -> PartitionDump {
    let kept = s.kept(topic, partition).await;
    let bounds = kept.bounds;
    let reading = Reading { s, topic, partition, bounds };
    let mut reads = Vec::new();
    for (limit, max_bytes) in PAGES {
        reads.push(reading.all(limit, max_bytes).await);
    }
    for read in &reads {
        same(read, &reads[0], "pages of all sizes are the same events");
    }
    let events = reads.swap_remove(0);
    assert!(events.is_sorted_by(|a, b| a.offset < b.offset), "events come in the order of their offsets");
    let bytes: usize = events.iter().map(Event::size).sum();
    same(&kept.bytes, &(bytes as u64), "the events that are kept are counted");
    for gone in [Some(0), bounds.first.0.checked_sub(1)].into_iter().flatten().filter(|n| *n < bounds.first.0)
    {
        let answer = s.log.read(s.page(topic, partition, Offset(gone))).await;
        same(&answer, &Err(ReadError::Gone { first: bounds.first }), "what is not kept is gone");
    }
    let by_time = reading.times(&events).await;
    PartitionDump { kept, events, by_time }
}

impl Reading<'_> {
    /// All events, in pages of one size.
    async fn all(&self, limit: usize, max_bytes: usize) -> Vec<Event> {
        let Bounds { first: mut from, next } = self.bounds;
        let mut events = Vec::new();
        while from < next {
            let request = ReadRequest { limit, max_bytes, ..self.s.page(self.topic, self.partition, from) };
            let page = must(self.s.log.read(request).await, "what is kept can be read");
            same(&page.end, &next, "a page knows the end");
            let is_over = page.next == page.end;
            assert!(!page.events.is_empty() || is_over, "a page has at least one event where there is one");
            assert!(page.events.len() <= limit, "a page has at most `limit` events");
            assert!(from < page.next && page.next <= page.end, "pages go on");
            events.extend(page.events);
            from = page.next;
        }
        events
    }

    /// Places by time, each checked against a plain search.
    async fn times(&self, events: &[Event]) -> Vec<(u64, Offset)> {
        let mut times: Vec<u64> =
            events.iter().flat_map(|event| [event.ts, event.ts + 1]).chain([0]).collect();
        times.sort_unstable();
        times.dedup();
        let every = times.len().div_ceil(MAX_TIMES);
        let mut found = Vec::new();
        for ts in times.into_iter().step_by(every) {
            let plain = events.iter().find(|event| event.ts >= ts);
            let plain = plain.map_or(self.bounds.next, |event| event.offset);
            let offset = self.s.offset_at(self.topic, self.partition, ts).await;
            same(&offset, &plain, "a place by time is the first at or after it");
            found.push((ts, offset));
        }
        found
    }
}

async fn dump_history(s: &Subject, topic: &TopicName, key: &'static str) -> Vec<Event> {
    let all = s.history(topic, key, LIMITS[0]).await;
    for limit in LIMITS {
        same(&s.history(topic, key, limit).await, &all, "a history is the same in pages of all sizes");
    }
    let after = all.first().map(|event| (event.partition, event.offset));
    let request =
        HistoryRequest { topic: topic.into(), key: key.to_owned(), after, limit: 1_000, max_bytes: 0 };
    let page = must(s.log.history(request).await, "histories are read");
    assert!(!page.is_empty() || all.len() <= 1, "a page of history is empty only at the end");
    same(&&page[..], &all.get(1..1 + page.len()).unwrap_or_default(), "a history goes on where it should");
    all
}

async fn dump_collection(s: &Subject, collection: &str) -> Vec<Document> {
    let mut scans = Vec::new();
    for limit in LIMITS {
        let mut all: Vec<Document> = Vec::new();
        loop {
            let after = all.last().map(|document| document.key.clone());
            let request = ScanRequest { collection: collection.to_owned(), after, limit };
            let page = must(s.documents().scan(request).await, "a collection can be scanned");
            let is_last = page.len() < limit;
            all.extend(page);
            if is_last {
                break;
            }
        }
        scans.push(all);
    }
    for scan in &scans {
        same(scan, &scans[0], "scans in pages of all sizes are the same");
    }
    let all = scans.swap_remove(0);
    for document in &all {
        let found = s.document(collection, &document.key).await;
        same(&found.as_ref(), &Some(document), "a document is the same however it is found");
    }
    all
}
