//! The in-memory index of the part that is being written: where each event is, by offset, id and key.
//!
//! Events are added one by one while their commit is checked, so each sees the ones before it; a commit that fails removes
//! its events again in reverse order, and so does a batch that cannot be written.

use crate::index::lookup::{LookupKey, id_hash};
use crate::journal::part::EventAt;
use crate::journal::position::PartitionRef;
use crate::journal::record::EventHead;
use hashbrown::HashMap;
use std::cmp::Reverse;
use uuid::Uuid;

/// The fewest buckets of [`Chains`].
const MIN_BUCKETS: usize = 64;

/// For each hash the places of its events, from the last to the first. Hashes that share a bucket share a chain;
/// there are at least as many buckets as events. Every event costs a look at a random bucket, and what the cache does
/// not hold costs more than all the rest: so buckets are small, and say by themselves that most hashes are not there.
#[derive(Default)]
struct Chains {
    buckets: Vec<Bucket>,
    links: Vec<Link>,
}

/// Where the chain of some hashes starts.
#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    /// One more than the index of the last link; 0 if there is none.
    last: u32,
    /// One bit for each hash in the chain, and perhaps for some that were taken out.
    marks: u32,
}

/// The bit of a hash: by its highest bits, because the bucket goes by the lowest.
fn mark(hash: u64) -> u32 {
    1 << (hash >> 59)
}

/// One event in a chain.
#[derive(Debug, Clone, Copy)]
struct Link {
    hash: u64,
    at: u32,
    /// One more than the index of the previous link of this bucket; 0 for the first.
    prev: u32,
}

impl Chains {
    fn bucket(&self, hash: u64) -> usize {
        // The number of buckets is a power of two.
        (hash as usize) & self.buckets.len().wrapping_sub(1)
    }

    fn push(&mut self, hash: u64, at: u32) {
        if self.links.len() == self.buckets.len() {
            self.grow();
        }
        let bucket = self.bucket(hash);
        let Bucket { last, marks } = self.buckets[bucket];
        self.links.push(Link { hash, at, prev: last });
        self.buckets[bucket] = Bucket { last: self.links.len() as u32, marks: marks | mark(hash) };
    }

    fn grow(&mut self) {
        self.buckets = vec![Bucket::default(); (2 * self.buckets.len()).max(MIN_BUCKETS)];
        for n in 0..self.links.len() {
            let hash = self.links[n].hash;
            let bucket = self.bucket(hash);
            let Bucket { last, marks } = self.buckets[bucket];
            self.links[n].prev = last;
            self.buckets[bucket] = Bucket { last: n as u32 + 1, marks: marks | mark(hash) };
        }
    }

    fn pop(&mut self) {
        if let Some(link) = self.links.pop() {
            let bucket = self.bucket(link.hash);
            self.buckets[bucket].last = link.prev;
        }
    }

    /// The places with this hash, the last one first.
    fn latest_first(&self, hash: u64) -> impl Iterator<Item = u32> + '_ {
        let bucket = self.buckets.get(self.bucket(hash)).copied().unwrap_or_default();
        let mut next = if bucket.marks & mark(hash) == 0 { 0 } else { bucket.last };
        let in_bucket = std::iter::from_fn(move || {
            let link = self.links.get((next as usize).checked_sub(1)?)?;
            next = link.prev;
            Some(link)
        });
        in_bucket.filter(move |link| link.hash == hash).map(|link| link.at)
    }

    fn entries(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.links.iter().map(|link| (link.hash, link.at))
    }
}

/// The events of one partition in one part.
#[derive(Debug)]
pub struct Run {
    /// Whose events these are.
    pub partition: PartitionRef,
    /// The offset of the first.
    pub first: u64,
    /// The offset of each, where they do not follow each other: the part was rewritten.
    sparse: Option<Vec<u64>>,
    /// The position of each.
    pub ats: Vec<u32>,
    /// The greatest `ts` up to and with each.
    pub max_ts: Vec<u64>,
}

impl Run {
    fn new(head: &EventHead) -> Self {
        let (ats, max_ts) = (Vec::new(), Vec::new());
        Self { partition: head.partition, first: head.offset, sparse: None, ats, max_ts }
    }

    /// The offset of the nth event.
    pub fn offset(&self, n: usize) -> u64 {
        self.sparse.as_ref().map_or(self.first + n as u64, |offsets| offsets[n])
    }

    /// The first offset behind all of them.
    pub fn end(&self) -> u64 {
        self.ats.len().checked_sub(1).map_or(self.first, |last| self.offset(last) + 1)
    }

    /// The offsets, where they do not follow each other.
    pub fn sparse(&self) -> Option<&[u64]> {
        self.sparse.as_deref()
    }

    /// At most `limit` events from offset `from`.
    pub fn places(&self, from: u64, limit: u64) -> Vec<EventAt> {
        let start = match &self.sparse {
            None => (from.saturating_sub(self.first) as usize).min(self.ats.len()),
            Some(offsets) => offsets.partition_point(|offset| *offset < from),
        };
        let end = start.saturating_add(limit as usize).min(self.ats.len());
        (start..end).map(|n| EventAt { offset: self.offset(n), at: self.ats[n] }).collect()
    }

    fn push(&mut self, head: &EventHead, at: u32) {
        // A run that a failed commit emptied starts wherever the partition goes on.
        if self.ats.is_empty() {
            (self.first, self.sparse) = (head.offset, None);
        }
        if self.sparse.is_none() && head.offset != self.end() {
            self.sparse = Some((self.first..self.end()).collect());
        }
        if let Some(offsets) = &mut self.sparse {
            offsets.push(head.offset);
        }
        self.ats.push(at);
        self.max_ts.push(self.max_ts.last().map_or(head.ts, |max| head.ts.max(*max)));
    }

    fn pop(&mut self) {
        self.ats.pop();
        self.max_ts.pop();
        if let Some(offsets) = &mut self.sparse {
            offsets.pop();
        }
    }
}

/// An entry of the index.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// What the engine decided about it.
    pub head: EventHead,
    /// The hash of topic and key.
    pub key_hash: Option<u64>,
    /// Its position in the part.
    pub at: u32,
    /// What it takes.
    pub bytes: u32,
}

/// An event whose id the engine made.
#[derive(Debug, Clone, Copy)]
struct Made {
    id: Uuid,
    topic: u32,
    at: u32,
}

/// What is needed to remove an event again.
struct Pending {
    /// The run that it is in; what is left of an event is in none.
    run: Option<usize>,
    bytes: u32,
    has_key: bool,
    made: bool,
}

/// The index.
#[derive(Default)]
pub struct ActiveIndex {
    /// By the producer's id.
    ids: Chains,
    /// By the engine's own id. Those only grow, so the list is sorted as it comes.
    made: Vec<Made>,
    /// By key.
    keys: Chains,
    /// By partition.
    pub runs: Vec<Run>,
    by_partition: HashMap<PartitionRef, usize>,
    /// The run that was used last; events come in bursts.
    last_run: usize,
    /// What the current batch has added.
    pending: Vec<Pending>,
    /// What the events take.
    event_bytes: u64,
    /// Whether a change beside the events may name keys.
    names_keys: bool,
}

impl ActiveIndex {
    /// Notes that a change is in the part that may name keys. It stays so where the change is taken back.
    pub fn note_keys(&mut self) {
        self.names_keys = true;
    }

    /// Whether a change beside the events may name keys.
    pub fn names_keys(&self) -> bool {
        self.names_keys
    }

    /// Adds an event.
    pub fn push(&mut self, entry: Entry) {
        let Entry { head, key_hash, at, bytes } = entry;
        let run_index = self.run_for(&head);
        self.runs[run_index].push(&head, at);
        // In a part that was rewritten, they do not come in their order.
        let made = head.hub_id && self.made.last().is_none_or(|last| last.id < head.id);
        if made {
            self.made.push(Made { id: head.id, topic: head.partition.topic, at });
        } else {
            self.ids.push(id_hash(head.partition.topic, head.id), at);
        }
        if let Some(hash) = key_hash {
            self.keys.push(hash, at);
        }
        self.event_bytes += u64::from(bytes);
        self.pending.push(Pending { run: Some(run_index), bytes, has_key: key_hash.is_some(), made });
    }

    /// Adds what is left of an event that was given up: it is found by its id only. Nothing of this is taken back.
    pub fn push_gone(&mut self, head: &EventHead, at: u32) {
        self.ids.push(id_hash(head.partition.topic, head.id), at);
        self.pending.push(Pending { run: None, bytes: 0, has_key: false, made: false });
    }

    /// What the events take.
    pub fn event_bytes(&self) -> u64 {
        self.event_bytes
    }

    fn run_for(&mut self, head: &EventHead) -> usize {
        if self.runs.get(self.last_run).is_some_and(|run| run.partition == head.partition) {
            return self.last_run;
        }
        let runs = &mut self.runs;
        self.last_run = *self.by_partition.entry(head.partition).or_insert_with(|| {
            runs.push(Run::new(head));
            runs.len() - 1
        });
        self.last_run
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.ids.links.len() + self.made.len()
    }

    /// The last place below `below` that `by` points at.
    pub fn newest(&self, by: LookupKey, below: u32) -> Option<u32> {
        match by {
            LookupKey::Key(hash) => self.keys.latest_first(hash).find(|at| *at < below),
            LookupKey::Id(id, hash) => {
                let own = self.ids.latest_first(hash).find(|at| *at < below);
                own.max(self.made(Uuid::from_u128(id)).filter(|at| *at < below))
            }
        }
    }

    /// At most `limit` places below `below` that `by` points at, the last one first.
    pub fn latest(&self, by: LookupKey, below: u32, limit: usize) -> Vec<u32> {
        match by {
            LookupKey::Key(hash) => {
                self.keys.latest_first(hash).filter(|at| *at < below).take(limit).collect()
            }
            LookupKey::Id(id, hash) => {
                let made = self.made(Uuid::from_u128(id));
                let all = self.ids.latest_first(hash).chain(made).filter(|at| *at < below);
                let mut places: Vec<u32> = all.collect();
                places.sort_unstable_by_key(|at| Reverse(*at));
                places.truncate(limit);
                places
            }
        }
    }

    /// Prefetches what will be read for these: in a short loop, the memory latency is paid once for many of them.
    pub fn warm_up(&self, many: impl Iterator<Item = LookupKey>) {
        for by in many {
            let (chains, hash) = match by {
                LookupKey::Id(_, hash) => (&self.ids, hash),
                LookupKey::Key(hash) => (&self.keys, hash),
            };
            std::hint::black_box(chains.latest_first(hash).next());
        }
    }

    fn made(&self, id: Uuid) -> Option<u32> {
        // Most ids that are asked for are not of this time at all.
        if self.made.last()?.id < id {
            return None;
        }
        self.made.binary_search_by_key(&id, |made| made.id).ok().map(|i| self.made[i].at)
    }

    /// At most `limit` places of a key within a range, in the order of the journal.
    pub fn of_key(&self, hash: u64, within: std::ops::Range<u32>, limit: usize) -> Vec<u32> {
        let chain = self.keys.latest_first(hash).take_while(|at| *at >= within.start);
        let mut places: Vec<u32> = chain.filter(|at| *at < within.end).collect();
        places.reverse();
        places.truncate(limit);
        places
    }

    /// The hash of each id with its place, sorted.
    pub fn id_entries(&self) -> Vec<(u64, u32)> {
        let made = self.made.iter().map(|made| (id_hash(made.topic, made.id), made.at));
        let mut entries: Vec<(u64, u32)> = made.chain(self.ids.entries()).collect();
        entries.sort_unstable();
        entries
    }

    /// The hash of each key with its place, sorted.
    pub fn key_entries(&self) -> Vec<(u64, u32)> {
        let mut entries: Vec<(u64, u32)> = self.keys.entries().collect();
        entries.sort_unstable();
        entries
    }

    /// How many events the current batch has added.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Keeps what the current batch has added.
    pub fn keep(&mut self) {
        self.pending.clear();
    }

    /// Removes what the current batch has added beyond its first `count`.
    pub fn undo_to(&mut self, count: usize) {
        while self.pending.len() > count
            && let Some(Pending { run, bytes, has_key, made }) = self.pending.pop()
        {
            self.event_bytes -= u64::from(bytes);
            if let Some(run) = run {
                self.runs[run].pop();
            }
            if made {
                self.made.pop();
            } else {
                self.ids.pop();
            }
            if has_key {
                self.keys.pop();
            }
        }
    }

    /// The events of a partition, if there are any.
    pub fn run(&self, partition: PartitionRef) -> Option<&Run> {
        self.by_partition.get(&partition).map(|run| &self.runs[*run]).filter(|run| !run.ats.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(partition: u32, offset: u64, at: u32, key_hash: Option<u64>) -> Entry {
        let partition = PartitionRef { topic: 1, partition };
        let (id, hub_id) = (Uuid::from_u128(u128::from(at)), at.is_multiple_of(20));
        let head = EventHead { partition, offset, id, hub_id, ts: 100 - offset, recorded_ts: 0 };
        Entry { head, key_hash, at, bytes: 7 }
    }

    fn by_id(at: u32) -> LookupKey {
        LookupKey::id(1, Uuid::from_u128(u128::from(at)))
    }

    #[test]
    fn a_failed_commit_leaves_no_trace() {
        let mut index = ActiveIndex::default();
        index.push(entry(0, 0, 10, Some(7)));
        index.push(entry(0, 1, 20, Some(7)));
        index.keep();
        index.push(entry(0, 2, 30, Some(7)));
        index.push(entry(5, 9, 40, None));
        assert_eq!(index.of_key(7, 0..99, 9), [10, 20, 30]);
        assert_eq!(
            [10, 20, 30, 40].map(|at| index.newest(by_id(at), 99)),
            [Some(10), Some(20), Some(30), Some(40)]
        );
        index.undo_to(0);
        assert_eq!(index.of_key(7, 0..99, 9), [10, 20]);
        assert_eq!(index.newest(LookupKey::Key(7), 20), Some(10));
        assert_eq!([10, 20, 30, 40].map(|at| index.newest(by_id(at), 99)), [Some(10), Some(20), None, None]);
        assert!(index.run(PartitionRef { topic: 1, partition: 5 }).is_none());
        index.push(entry(5, 3, 50, None));
        index.keep();
        assert_eq!(index.run(PartitionRef { topic: 1, partition: 5 }).unwrap().first, 3);
        let run = index.run(PartitionRef { topic: 1, partition: 0 }).unwrap();
        assert_eq!((&run.ats[..], &run.max_ts[..]), (&[10, 20][..], &[100, 100][..]));
        assert_eq!((index.id_entries().len(), index.key_entries().len()), (3, 2));
        assert_eq!(index.event_bytes(), 21);
    }
}
