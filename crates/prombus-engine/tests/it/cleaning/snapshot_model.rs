//! Random publishes, passes, growth, trims, compaction and crashes: what the snapshot topic holds is what its topic says.

use super::snapshots::{Record, to};
use super::stage::*;
use crate::support::switch::Refusal;
use prombus_core::*;
use std::collections::{BTreeMap, BTreeSet};

const STEPS: usize = 60;
const KEYS: usize = 12;

struct Run {
    s: Option<Stage>,
    topic: TopicName,
    random: fastrand::Rng,
    partitions: u32,
    keys: usize,
    /// The times of all events that were published, by place.
    past: BTreeMap<(u32, u64), (String, u64, bool)>,
}

impl Run {
    fn s(&self) -> &Stage {
        self.s.as_ref().expect("a stage")
    }

    async fn publish(&mut self) {
        let count = self.random.usize(1..8);
        let keys: Vec<String> = (0..count).map(|_| format!("k{}", self.random.usize(..KEYS))).collect();
        let drafts: Vec<Draft<'_>> = keys
            .iter()
            .map(|key| Draft {
                ts: Some(self.random.u64(1..1_000)),
                ends: self.random.u32(..8) == 0,
                key: (self.random.u32(..10) > 0).then_some(key),
            })
            .collect();
        let placed = self.s().record(&self.topic, &drafts).await;
        for (draft, at) in drafts.iter().zip(placed) {
            if let Some(key) = draft.key {
                let event = (key.to_owned(), draft.ts.expect("a time"), draft.ends);
                self.past.insert((at.partition.0, at.offset.0), event);
            }
        }
    }

    /// One commit of the next pass is refused, or happens and its answer is lost.
    fn disturb(&mut self) {
        let error = CommitError::Unavailable("the test says so".into());
        let (after, happens) = (self.random.usize(..3), self.random.bool());
        self.s().log.refuse(Refusal { which: |_| true, after, times: 1, error, happens });
    }

    async fn step(&mut self) {
        match self.random.u32(..20) {
            0..=7 => self.publish().await,
            8..=11 => {
                self.s().snapshot(&self.topic).await;
                self.check(true).await;
            }
            12 | 13 => {
                self.disturb();
                let done = self.s().hub.cleaning().snapshot(&self.topic).await.is_ok();
                self.s().log.refuse_all(false);
                self.check(done).await;
            }
            14 if self.partitions < 5 => {
                self.partitions += 1;
                let patch = TopicPatch { partitions: Some(self.partitions), ..TopicPatch::default() };
                self.s().set(&self.topic, patch).await;
            }
            15 => {
                let partition = Partition(self.random.u32(..self.partitions));
                let bounds = self.s().kept(&self.topic).await[partition.0 as usize].bounds;
                let before = Offset(self.random.u64(bounds.first.0..=bounds.next.0.min(bounds.first.0 + 3)));
                self.s().hub.cleaning().trim(&self.topic, partition, before).await.expect("a trim");
            }
            16 => drop(self.s().clean(&self.topic).await),
            17 => drop(self.s().clean(&topic_name("t.snapshot")).await),
            _ => {
                let s = self.s.take().expect("a stage");
                // A crash where there is something to come back to.
                self.s = Some(match self.random.bool() && s.is_durable() {
                    true => s.crash().await,
                    false => s.remembering(self.keys).await,
                });
            }
        }
    }

    /// Whether records say what their events do, in the order of those; and after a pass, whether none is missing.
    async fn check(&self, has_ended: bool) {
        let s = self.s();
        let mut by_key: BTreeMap<String, Vec<Record>> = BTreeMap::new();
        for record in s.records("t.snapshot").await {
            by_key.entry(record.key.clone()).or_default().push(record);
        }
        for (key, records) in &by_key {
            let places: Vec<(u32, u64)> = records.iter().map(Record::place).collect();
            assert!(places.is_sorted_by(|one, next| one < next), "{key} is at {places:?}");
            for record in records {
                let (of, ts, ends) = &self.past[&record.place()];
                assert_eq!((of, *ts, *ends), (key, record.ts, record.payload.is_null()));
                assert!(record.max_ts >= *ts);
                let all = self.past.range(..=record.place()).filter(|(_, (of, ..))| of == key);
                assert!(all.map(|(_, (_, ts, _))| *ts).max() >= Some(record.max_ts));
            }
        }
        let status = s.snapshots_of(&self.topic).await;
        let mut last: BTreeMap<String, Event> = BTreeMap::new();
        let mut all_keys = BTreeSet::new();
        for event in s.events(&self.topic).await {
            if let Some(key) = &event.key {
                all_keys.insert(key.to_string());
                last.insert(key.to_string(), event);
            }
        }
        for (key, event) in last {
            let place = (event.partition.0, event.offset.0);
            let is_through = event.offset < status.through[event.partition.0 as usize];
            assert!(is_through || !has_ended, "{key} at {place:?} is not through: {status:?}");
            if is_through {
                let latest = by_key.get(&key).and_then(|records| records.last()).map(Record::place);
                assert_eq!(latest, Some(place), "the record of {key}");
            }
        }
    }
}

async fn run(s: Stage, seed: u64, keys: usize) {
    let s = s.remembering(keys).await;
    let settings = TopicPatch { compaction: Some(seed.is_multiple_of(2)), ..to("t.snapshot") };
    let topic = s.topic_with("t", settings).await;
    let (random, past) = (fastrand::Rng::with_seed(seed), BTreeMap::new());
    let mut run = Run { s: Some(s), topic, random, partitions: 1, keys, past };
    for _ in 0..STEPS {
        run.step().await;
    }
    run.s().snapshot(&run.topic).await;
    run.check(true).await;
}

async fn runs(s: Stage, keys: usize) {
    let seeds = if s.is_durable() { 0..4 } else { 0..40 };
    for seed in seeds {
        let stage = if s.is_durable() { Stage::small_parts().await } else { Stage::memory().await };
        eprintln!("seed {seed}");
        run(stage, seed, keys).await;
    }
}

pub async fn random_passes_leave_the_records_of_all_keys(s: Stage) {
    runs(s, 1 << 20).await;
}

pub async fn random_passes_with_little_memory_leave_the_records_of_all_keys(s: Stage) {
    runs(s, 12).await;
}
