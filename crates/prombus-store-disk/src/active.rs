//! The index of a part that is still in memory: where each event lies, by offset, id and key.
//!
//! Events go in one by one while their commit is being checked, so each sees the ones before it; a commit that
//! fails takes its events out again in reverse, and so does a batch that cannot be written.

use crate::position::PartitionRef;
use hashbrown::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Hashes that are already hashes.
#[derive(Default)]
pub struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// For each hash the places of its events, from the last to the first.
#[derive(Default)]
pub struct Chains {
    heads: HashMap<u64, u32, BuildHasherDefault<Identity>>,
    links: Vec<Link>,
}

/// One event in a chain.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// The hash of its id or key.
    pub hash: u64,
    /// Where it lies in the part.
    pub at: u32,
    /// One more than the index of the previous link with this hash; 0 for the first.
    prev: u32,
}

impl Chains {
    fn push(&mut self, hash: u64, at: u32) {
        let this = self.links.len() as u32 + 1;
        let prev = self.heads.insert(hash, this).unwrap_or(0);
        self.links.push(Link { hash, at, prev });
    }

    fn pop(&mut self) {
        if let Some(link) = self.links.pop() {
            if link.prev == 0 {
                self.heads.remove(&link.hash);
            } else {
                self.heads.insert(link.hash, link.prev);
            }
        }
    }

    /// The places with this hash, the last one first.
    pub fn latest_first(&self, hash: u64) -> impl Iterator<Item = u32> + '_ {
        let mut next = self.heads.get(&hash).copied().unwrap_or(0);
        std::iter::from_fn(move || {
            let link = self.links.get((next as usize).checked_sub(1)?)?;
            next = link.prev;
            Some(link.at)
        })
    }

    /// All links, in the order of the journal.
    pub fn links(&self) -> &[Link] {
        &self.links
    }
}

/// The events of one partition in one part.
#[derive(Debug)]
pub struct Run {
    /// Whose events these are.
    pub partition: PartitionRef,
    /// The offset of the first.
    pub first: u64,
    /// Where each lies.
    pub ats: Vec<u32>,
    /// The greatest `ts` up to and with each.
    pub max_ts: Vec<u64>,
}

/// What is put into the index for one event.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Where it belongs.
    pub partition: PartitionRef,
    /// Its offset.
    pub offset: u64,
    /// Its event time.
    pub ts: u64,
    /// The hash of topic and id.
    pub id_hash: u64,
    /// The hash of topic and key.
    pub key_hash: Option<u64>,
    /// Where it lies in the part.
    pub at: u32,
}

/// The index.
#[derive(Default)]
pub struct ActiveIndex {
    /// By id.
    pub ids: Chains,
    /// By key.
    pub keys: Chains,
    /// By partition.
    pub runs: Vec<Run>,
    by_partition: HashMap<PartitionRef, usize>,
    /// The run that was used last; events come in bursts.
    last_run: usize,
    /// What the batch that is being made has put in: run, and whether there was a key.
    pending: Vec<(usize, bool)>,
}

impl ActiveIndex {
    /// Puts an event in.
    pub fn push(&mut self, entry: Entry) {
        let run_index = self.run_for(entry);
        let run = &mut self.runs[run_index];
        // A run that a failed commit emptied starts wherever the partition goes on.
        if run.ats.is_empty() {
            run.first = entry.offset;
        }
        run.ats.push(entry.at);
        run.max_ts.push(run.max_ts.last().map_or(entry.ts, |max| entry.ts.max(*max)));
        self.ids.push(entry.id_hash, entry.at);
        if let Some(hash) = entry.key_hash {
            self.keys.push(hash, entry.at);
        }
        self.pending.push((run_index, entry.key_hash.is_some()));
    }

    fn run_for(&mut self, entry: Entry) -> usize {
        if self.runs.get(self.last_run).is_some_and(|run| run.partition == entry.partition) {
            return self.last_run;
        }
        let runs = &mut self.runs;
        self.last_run = *self.by_partition.entry(entry.partition).or_insert_with(|| {
            runs.push(Run {
                partition: entry.partition,
                first: entry.offset,
                ats: Vec::new(),
                max_ts: Vec::new(),
            });
            runs.len() - 1
        });
        self.last_run
    }

    /// How many events the batch that is being made has put in.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Keeps what the batch has put in.
    pub fn keep(&mut self) {
        self.pending.clear();
    }

    /// Takes out what the batch has put in beyond its first `count`.
    pub fn undo_to(&mut self, count: usize) {
        while self.pending.len() > count
            && let Some((run, has_key)) = self.pending.pop()
        {
            self.runs[run].ats.pop();
            self.runs[run].max_ts.pop();
            self.ids.pop();
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

    fn entry(partition: u32, offset: u64, at: u32, key: Option<u64>) -> Entry {
        let partition = PartitionRef { topic: 1, partition };
        Entry { partition, offset, ts: 100 - offset, id_hash: u64::from(at), key_hash: key, at }
    }

    #[test]
    fn a_failed_commit_leaves_no_trace() {
        let mut index = ActiveIndex::default();
        index.push(entry(0, 0, 10, Some(7)));
        index.push(entry(0, 1, 20, Some(7)));
        index.keep();
        index.push(entry(0, 2, 30, Some(7)));
        index.push(entry(5, 9, 40, None));
        assert_eq!(index.keys.latest_first(7).collect::<Vec<_>>(), [30, 20, 10]);
        index.undo_to(0);
        assert_eq!(index.keys.latest_first(7).collect::<Vec<_>>(), [20, 10]);
        assert_eq!(index.ids.latest_first(30).count() + index.ids.latest_first(40).count(), 0);
        assert!(index.run(PartitionRef { topic: 1, partition: 5 }).is_none());
        index.push(entry(5, 3, 50, None));
        index.keep();
        assert_eq!(index.run(PartitionRef { topic: 1, partition: 5 }).unwrap().first, 3);
        let run = index.run(PartitionRef { topic: 1, partition: 0 }).unwrap();
        assert_eq!((&run.ats[..], &run.max_ts[..]), (&[10, 20][..], &[100, 100][..]));
    }
}
