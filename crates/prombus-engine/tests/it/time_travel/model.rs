//! Random histories, of which events are given up at random, compared with the whole of them: every answer is exact, or gone.

use super::stage::*;
use prombus_core::*;
use prombus_engine::Reduce;
use prombus_fixtures::merge_patch;
use prombus_testkit::build::json;
use prombus_testkit::guarded;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const KEYS: usize = 6;
const LATEST_TS: u64 = 30;
const STEPS: usize = 60;

/// An event of the whole history.
#[derive(Debug, Clone)]
struct Past {
    at: (Partition, Offset),
    key: String,
    ts: u64,
    payload: String,
    is_kept: bool,
    /// Whether a trim took it when no later event of its key was there: then the key was not there.
    was_all: bool,
}

impl Past {
    fn is_null(&self) -> bool {
        self.payload == "null"
    }
}

struct World {
    stage: Stage,
    topic: TopicName,
    rng: fastrand::Rng,
    /// In the order of partitions and offsets.
    past: Vec<Past>,
    partitions: u32,
    /// How many states were built on snapshots.
    based: Cell<usize>,
}

impl World {
    async fn new(stage: Stage, seed: u64) -> Self {
        let topic = stage.topic("random", 1).await;
        if !seed.is_multiple_of(3) {
            let snapshot = SnapshotConfig { topic: topic_name("random.snapshot"), every_ms: 1 };
            let patch = TopicPatch { snapshot: Some(Some(snapshot)), ..TopicPatch::default() };
            stage.hub.put_topic(&topic, patch).await.expect("a setting");
        }
        let (rng, past, based) = (fastrand::Rng::with_seed(seed), Vec::new(), Cell::new(0));
        Self { stage, topic, rng, past, partitions: 1, based }
    }

    fn key(&mut self) -> String {
        format!("key-{}", self.rng.usize(..KEYS))
    }

    async fn publish(&mut self) {
        let mut appends = Vec::new();
        for _ in 0..self.rng.usize(1..6) {
            let (key, ts) = (self.key(), self.rng.u64(1..=LATEST_TS));
            let n = self.rng.u32(..100);
            let payload = match self.rng.u32(..10) {
                0 | 1 => "null".to_owned(),
                2 => format!("{n}"),
                3 => r#"{"a":null}"#.to_owned(),
                4 => format!("{{\"b\":{{\"c\":{n}}}}}"),
                _ => format!("{{\"{}\":{n}}}", ["a", "b", "c"][n as usize % 3]),
            };
            appends.push((key, ts, payload));
        }
        let events = appends.iter().map(|(key, ts, payload)| keyed(&self.topic, key, (*ts, payload)));
        let receipt = self.stage.hub.publish(events.collect()).await.expect("events can be published");
        for ((key, ts, payload), appended) in appends.into_iter().zip(receipt.events) {
            let at = (appended.partition, appended.offset);
            self.past.push(Past { at, key, ts, payload, is_kept: true, was_all: false });
        }
        self.past.sort_by_key(|past| past.at);
    }

    /// The next event of the same key that is kept.
    fn next_kept(&self, n: usize) -> Option<&Past> {
        self.past[n + 1..].iter().find(|later| later.is_kept && later.key == self.past[n].key)
    }

    async fn trim(&mut self) {
        let partition = Partition(self.rng.u32(..self.partitions));
        let kept = self.kept(partition).await.bounds;
        let before = Offset(self.rng.u64(kept.first.0..=kept.next.0.min(kept.first.0 + 6)));
        let is_taken = |past: &Past| past.is_kept && past.at.0 == partition && past.at.1 < before;
        let taken: Vec<usize> = (0..self.past.len()).filter(|n| is_taken(&self.past[*n])).collect();
        taken.iter().for_each(|n| self.past[*n].is_kept = false);
        let (mut horizon_ts, mut ended) = (0, BTreeSet::new());
        for n in taken {
            match self.next_kept(n).map(|next| next.ts) {
                Some(next) if next > self.past[n].ts => horizon_ts = horizon_ts.max(next),
                Some(_) => {}
                None => {
                    self.past[n].was_all = true;
                    ended.insert(self.past[n].key.clone());
                }
            }
        }
        self.stage.trim_of(&self.topic, (partition.0, before.0), horizon_ts).await;
        self.end(&ended).await;
    }

    /// Gives up what lower partitions have of keys whose last event a trim has taken.
    async fn end(&mut self, keys: &BTreeSet<String>) {
        let mut by_partition: BTreeMap<Partition, Vec<Offset>> = BTreeMap::new();
        for past in self.past.iter_mut().filter(|past| past.is_kept && keys.contains(&past.key)) {
            (past.is_kept, past.was_all) = (false, true);
            by_partition.entry(past.at.0).or_default().push(past.at.1);
        }
        for (partition, offsets) in by_partition {
            self.discard(partition, offsets, None).await;
        }
    }

    /// Gives up some events that others have superseded, and tombstones that nothing is left of but themselves.
    async fn compact(&mut self) {
        let share = self.rng.f64();
        let mut by_partition: BTreeMap<Partition, (Vec<Offset>, u64)> = BTreeMap::new();
        for n in 0..self.past.len() {
            if !self.past[n].is_kept || self.rng.f64() > share {
                continue;
            }
            let past = &self.past[n];
            let has_earlier = self.past[..n].iter().any(|earlier| earlier.is_kept && earlier.key == past.key);
            let horizon_ts = match self.next_kept(n) {
                Some(next) if next.ts > past.ts => next.ts,
                Some(_) => 0,
                None if past.is_null() && !has_earlier => 0,
                None => continue,
            };
            let (partition, offset) = past.at;
            let (offsets, horizon) = by_partition.entry(partition).or_default();
            offsets.push(offset);
            *horizon = horizon_ts.max(*horizon);
            self.past[n].is_kept = false;
        }
        for (partition, (offsets, horizon_ts)) in by_partition {
            self.discard(partition, offsets, Some(horizon_ts)).await;
        }
    }

    async fn discard(&self, partition: Partition, offsets: Vec<Offset>, horizon_ts: Option<u64>) {
        let topic = self.stage.hub.topic(&self.topic).await.unwrap().unwrap().pinned();
        let (offsets, loss) = (Arc::new(offsets.into_iter().collect()), Loss { bytes: 0, horizon_ts });
        self.stage.change(ConfigChange::Discard { topic, partition, offsets, loss }).await;
    }

    async fn forget(&mut self) {
        let key = self.key();
        let mut by_partition: BTreeMap<Partition, Vec<Offset>> = BTreeMap::new();
        for past in self.past.iter().filter(|past| past.key == key) {
            by_partition.entry(past.at.0).or_default().push(past.at.1);
        }
        for (partition, offsets) in by_partition {
            self.discard(partition, offsets, None).await;
        }
        self.past.retain(|past| past.key != key);
    }

    /// A pass of the compactor, or a record that somebody made up.
    async fn snapshot(&mut self) {
        self.stage.hub.cleaning().snapshot(&self.topic).await.expect("a pass");
        let target = topic_name("random.snapshot");
        if self.rng.u32(..3) == 0 && self.stage.hub.topic(&target).await.unwrap().is_some() {
            let (key, max_ts) = (self.key(), self.rng.u64(..=LATEST_TS));
            let (partition, offset) = (self.rng.u32(..self.partitions + 1), self.rng.u64(..20));
            let payload = format!(
                r#"{{"key":"{key}","payload":"made up","ts":{max_ts},"partition":{partition},"offset":{offset},"max_ts":{max_ts}}}"#
            );
            let made_up = keyed(&target, &key, (1, &payload));
            self.stage.hub.publish(vec![made_up]).await.expect("a record");
        }
    }

    async fn step(&mut self) {
        match self.rng.u32(..23) {
            20..=22 => self.snapshot().await,
            0..=9 => self.publish().await,
            10..=12 => self.trim().await,
            13..=15 => self.compact().await,
            16 => self.forget().await,
            17 if self.partitions < 4 => {
                self.partitions += 1;
                self.stage.topic("random", self.partitions).await;
            }
            _ => {
                let (key, at) = (self.key(), self.rng.u64(..=LATEST_TS + 1));
                self.check_key(&key, at).await;
            }
        }
    }

    async fn kept(&self, partition: Partition) -> Kept {
        self.stage.log.kept(&(&self.topic).into(), partition).await.expect("a partition")
    }

    /// What is kept of the partitions that a key was ever in, or may have been.
    async fn kept_of(&self, key: &str) -> BTreeMap<Partition, Kept> {
        let sizes = 1..=self.partitions;
        let places: BTreeSet<Partition> =
            sizes.map(|size| hashing::partition_of(key.as_bytes(), size)).collect();
        let mut kept = BTreeMap::new();
        for partition in places {
            kept.insert(partition, self.kept(partition).await);
        }
        kept
    }

    /// All events of a key up to a time, kept or not.
    fn history(&self, key: &str, at: u64) -> Vec<&Past> {
        self.past.iter().filter(|past| past.key == key && past.ts <= at).collect()
    }

    /// What the whole history says.
    fn replaced(&self, key: &str, at: u64) -> Answer {
        match self.history(key, at).last() {
            Some(last) if !last.is_null() => Answer::State(last.payload.clone()),
            _ => Answer::Nothing,
        }
    }

    fn merged(&self, key: &str, at: u64) -> Answer {
        let mut state = None;
        for past in self.history(key, at) {
            state = match past.is_null() {
                true => None,
                false => Some(merge_patch(state.take(), &serde_json::from_str(&past.payload).unwrap())),
            };
        }
        state.map_or(Answer::Nothing, |state| Answer::State(state.to_string()))
    }

    fn listed(&self, key: &str, at: u64) -> Answer {
        let mut state: Option<Vec<&str>> = None;
        for past in self.history(key, at) {
            match past.is_null() {
                true => state = None,
                false => state.get_or_insert_default().push(&past.payload),
            }
        }
        state.map_or(Answer::Nothing, |state| Answer::State(state.join(" ")))
    }

    /// Whether a trim took all that there was of a key at a time.
    fn was_taken(&self, key: &str, at: u64) -> bool {
        self.history(key, at).last().is_some_and(|last| last.was_all)
    }

    async fn check_key(&self, key: &str, at: u64) {
        let kept = self.kept_of(key).await;
        let horizon = kept.values().map(|kept| kept.horizon_ts).max().unwrap();
        let is_whole = kept.values().all(|kept| kept.bounds.first == Offset(0) && !kept.has_holes);
        let list = |list: Option<Vec<String>>, event: &Event| {
            let mut list = list.unwrap_or_default();
            list.push(text(event.payload.clone()));
            Some(list)
        };
        let listed = self.stage.hub.time_travel().reconstruct_at(&self.topic, (key, at), list).await;
        let replaced = self.stage.replaced(&self.topic, key, at).await;
        let merged = self.stage.merged(&self.topic, key, at).await;
        let answer = self.stage.hub.time_travel().state_at(&self.topic, key, (at, Reduce::Replace)).await;
        let base = answer.ok().flatten().and_then(|answer| answer.base);
        self.based.set(self.based.get() + usize::from(base.is_some()));
        let listed = told(listed, |list| list.join(" "));
        let context = || format!("{key} at {at}, of {:#?} with {kept:#?}", self.past);
        for (said, whole) in [
            (&replaced, self.replaced(key, at)),
            (&merged, self.merged(key, at)),
            (&listed, self.listed(key, at)),
        ] {
            match said {
                Answer::State(_) => assert_eq!(*said, whole, "{}", context()),
                Answer::Nothing => {
                    assert!(whole == Answer::Nothing || self.was_taken(key, at), "{whole:?}: {}", context());
                }
                Answer::Gone(told) => {
                    assert_eq!(*told, horizon, "{}", context());
                    assert!(!is_whole, "nothing is gone: {}", context());
                }
            }
        }
        if matches!(replaced, Answer::Gone(_)) {
            assert!(at < horizon, "the last payload is known: {}", context());
        }
    }

    async fn check_all(&self, at: u64, keys_bytes: usize) {
        let mut horizon = 0;
        for partition in 0..self.partitions {
            horizon = horizon.max(self.kept(Partition(partition)).await.horizon_ts);
        }
        let keys: BTreeSet<&str> = self.past.iter().map(|past| past.key.as_str()).collect();
        let found = match self.stage.all_keys(&self.topic, at, keys_bytes).await {
            Ok(found) => found,
            Err(error) => {
                assert!(at < horizon, "{error} at {at}, but all is known: {:#?}", self.past);
                return;
            }
        };
        assert!(at >= horizon, "what is before the horizon is not known");
        for key in keys {
            match (found.get(key), self.replaced(key, at)) {
                (Some(state), whole) => assert_eq!(Answer::State(state.clone()), whole, "{key} at {at}"),
                (None, Answer::Nothing) => {}
                (None, whole) => assert!(self.was_taken(key, at), "{key} at {at} was {whole:?}"),
            }
        }
        assert!(found.keys().all(|key| self.past.iter().any(|past| past.key == *key)));
    }

    async fn run(&mut self) {
        for _ in 0..STEPS {
            self.step().await;
        }
        for key in (0..KEYS).map(|n| format!("key-{n}")) {
            for at in 0..=LATEST_TS + 1 {
                self.check_key(&key, at).await;
            }
        }
        for at in 0..=LATEST_TS + 1 {
            self.check_all(at, if at % 2 == 0 { 1 << 20 } else { 100 }).await;
        }
    }
}

#[tokio::test]
async fn answers_are_exact_or_gone_in_memory() {
    let based = Cell::new(0);
    for seed in 0..150 {
        let name = format!("seed {seed} in memory");
        let run = async {
            let mut world = World::new(Stage::memory().await, seed).await;
            world.run().await;
            based.set(based.get() + world.based.get());
        };
        guarded(&name, run).await;
    }
    assert!(based.get() > 1_000, "snapshots are built on: {}", based.get());
}

#[tokio::test]
async fn answers_are_exact_or_gone_on_disk() {
    for seed in 1_000..1_015 {
        let name = format!("seed {seed} on disk");
        guarded(&name, async { World::new(Stage::small_parts().await, seed).await.run().await }).await;
    }
}

#[test]
fn the_model_merges() {
    let merged =
        merge_patch(Some(json(r#"{"a":1}"#).to_value().unwrap()), &json(r#"{"a":null}"#).to_value().unwrap());
    assert_eq!(merged.to_string(), "{}");
}
