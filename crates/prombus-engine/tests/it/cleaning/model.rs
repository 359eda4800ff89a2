//! Random publishes, settings, passes, trims, forgotten keys, restarts and crashes, compared with a plain list of everything that was published.

use super::stage::*;
use prombus_core::*;
use prombus_engine::{Reduce, TimeTravelError};
use std::collections::BTreeMap;

/// An event as the list has it.
#[derive(Debug, Clone)]
struct Entry {
    at: (Partition, Offset),
    key: Option<String>,
    ts: u64,
    recorded_ts: u64,
    ends: bool,
    bytes: u64,
    is_left: bool,
}

/// Everything that was published, in order.
#[derive(Debug, Default)]
struct Model(Vec<Entry>);

impl Model {
    fn left(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.0.iter_mut().filter(|entry| entry.is_left)
    }

    /// The entries of each key that are left.
    fn keys(&self) -> BTreeMap<String, Vec<usize>> {
        let mut keys: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, entry) in self.0.iter().enumerate().filter(|(_, entry)| entry.is_left) {
            if let Some(key) = &entry.key {
                keys.entry(key.clone()).or_default().push(index);
            }
        }
        keys
    }

    fn clean(&mut self, config: &TopicConfig, now: u64) {
        let is_older = |entry: &Entry, ms: u64| entry.recorded_ts + ms <= now;
        if config.retention_ms > 0 {
            self.left().for_each(|entry| entry.is_left = entry.recorded_ts + config.retention_ms >= now);
        }
        if config.compaction {
            for entries in self.keys().into_values() {
                let (last, superseded) = entries.split_last().unwrap();
                for index in superseded {
                    let entry = &mut self.0[*index];
                    entry.is_left = !is_older(entry, config.min_compaction_lag_ms);
                }
                let patience = config.tombstone_retention_ms.max(config.min_compaction_lag_ms);
                let last = &mut self.0[*last];
                last.is_left = !(last.ends && is_older(last, patience));
            }
        }
        if config.retention_bytes > 0 {
            let mut bytes: u64 = self.left().map(|entry| entry.bytes).sum();
            let mut oldest: Vec<&mut Entry> = self.left().collect();
            oldest.sort_by_key(|entry| (entry.recorded_ts, entry.at));
            for entry in oldest {
                if bytes > config.retention_bytes {
                    entry.is_left = false;
                    bytes -= entry.bytes;
                }
            }
        }
        self.forget_keys();
    }

    fn trim(&mut self, partition: Partition, before: Offset) {
        let goes = |entry: &Entry| entry.at.0 == partition && entry.at.1 < before;
        for entries in self.keys().into_values() {
            let last = entries.iter().rposition(|index| goes(&self.0[*index]));
            // Where the last one goes, nothing that it has superseded stays.
            if last.is_some_and(|last| last + 1 == entries.len()) {
                entries.iter().for_each(|index| self.0[*index].is_left = false);
            }
        }
        self.left().filter(|entry| goes(entry)).for_each(|entry| entry.is_left = false);
        self.forget_keys();
    }

    /// Keys of which nothing is left are as if they had never been.
    fn forget_keys(&mut self) {
        let keys = self.keys();
        self.0.retain(|entry| entry.key.as_ref().map_or(entry.is_left, |key| keys.contains_key(key)));
    }

    /// A key that is forgotten was never there. Says how many of its events were left.
    fn forget(&mut self, key: &str) -> u64 {
        let of_key = |entry: &Entry| entry.key.as_deref() == Some(key);
        let left = self.left().filter(|entry| of_key(entry)).count();
        self.0.retain(|entry| !of_key(entry));
        left as u64
    }

    /// The event that a state at a time is of, where the key had one.
    fn state(&self, key: &str, ts: u64) -> Option<(Partition, Offset)> {
        let of_key = |entry: &&Entry| entry.key.as_deref() == Some(key) && entry.ts <= ts;
        self.0.iter().rfind(of_key).filter(|entry| !entry.ends).map(|entry| entry.at)
    }

    /// The event that says what a key was at a time, among some.
    fn at(&self, key: &str, ts: u64, is_meant: impl Fn(&Entry) -> bool) -> Option<(Partition, Offset)> {
        let of_key = |entry: &&Entry| entry.key.as_deref() == Some(key) && entry.ts <= ts && is_meant(entry);
        self.0.iter().rfind(of_key).map(|entry| entry.at)
    }
}

const KEYS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

struct Run {
    s: Option<Stage>,
    topic: TopicName,
    model: Model,
    random: fastrand::Rng,
    start: u64,
    cleaning_keys: usize,
}

impl Run {
    fn s(&self) -> &Stage {
        self.s.as_ref().unwrap()
    }

    async fn publish(&mut self) {
        for _ in 0..self.random.usize(1..12) {
            let key = self.random.choice(KEYS).filter(|_| self.random.u8(..) < 230);
            let ts = (self.random.u8(..) < 200).then(|| self.start + self.random.u64(0..300));
            let draft = Draft { key, ts, ends: key.is_some() && self.random.u8(..) < 50 };
            let appended = self.s().record(&self.topic, &[draft]).await[0];
            let at = (appended.partition, appended.offset);
            let event = self.s().hub.by_id(&self.topic, appended.id).await.unwrap().unwrap();
            self.model.0.push(Entry {
                at,
                key: event.key.as_deref().map(str::to_owned),
                ts: event.ts,
                recorded_ts: event.recorded_ts,
                ends: event.payload.is_null(),
                bytes: event.size() as u64,
                is_left: true,
            });
            let ms = self.random.u64(0..4);
            self.s().clock.advance(ms);
        }
    }

    async fn alter(&mut self) {
        let random = &mut self.random;
        let settings = match random.u8(0..6) {
            0 => TopicPatch { retention_ms: Some(random.u64(0..400)), ..TopicPatch::default() },
            1 => TopicPatch { retention_bytes: Some(random.u64(0..12_000)), ..TopicPatch::default() },
            2 => TopicPatch { compaction: Some(random.u8(..) < 200), ..TopicPatch::default() },
            3 => TopicPatch { min_compaction_lag_ms: Some(random.u64(0..60)), ..TopicPatch::default() },
            4 => TopicPatch { tombstone_retention_ms: Some(random.u64(0..90)), ..TopicPatch::default() },
            _ => TopicPatch { retention_ms: Some(0), retention_bytes: Some(0), ..TopicPatch::default() },
        };
        self.s().set(&self.topic, settings).await;
    }

    async fn state(&self) -> TopicState {
        self.s().hub.topic(&self.topic).await.unwrap().unwrap()
    }

    async fn step(&mut self) {
        match self.random.u8(0..22) {
            0..8 => self.publish().await,
            8..14 => {
                let config = self.state().await.config;
                let now = self.s().clock.now_ms();
                let left = self.model.left().count() as u64;
                let cleaned = self.s().clean(&self.topic).await;
                self.model.clean(&config, now);
                assert_eq!(cleaned.events, left - self.model.left().count() as u64, "{config:?}");
            }
            14 => {
                let kept = self.s().kept(&self.topic).await;
                let partition = self.random.usize(0..kept.len());
                let Bounds { first, next } = kept[partition].bounds;
                let before = Offset(self.random.u64(first.0.saturating_sub(1)..=next.0));
                let partition = Partition(partition as u32);
                self.s().hub.cleaning().trim(&self.topic, partition, before).await.unwrap();
                self.model.trim(partition, before);
            }
            15 | 16 => self.alter().await,
            17 => {
                let partitions = self.state().await.config.partitions;
                if partitions < 4 {
                    self.s().topic("model", partitions + 1).await;
                }
            }
            18 => {
                let ms = self.random.u64(0..50);
                self.s().clock.advance(ms);
            }
            19 => {
                let key = self.random.choice(KEYS).unwrap();
                let gone = self.s().hub.forget(&self.topic, key).await.unwrap();
                assert_eq!(gone, self.model.forget(key), "of {key}");
            }
            end => {
                let stage = self.s.take().unwrap();
                self.s = Some(match stage.is_durable() {
                    true if end == 20 => stage.remembering(self.cleaning_keys).await,
                    true => stage.crash().await.remembering(self.cleaning_keys).await,
                    false => stage,
                });
            }
        }
        self.check().await;
        self.check_states().await;
    }

    /// What was at a time is what the list says, or it is gone.
    async fn check_states(&mut self) {
        let travel = self.s().hub.time_travel();
        let horizon = self.s().kept(&self.topic).await.iter().map(|kept| kept.horizon_ts).max().unwrap_or(0);
        for key in KEYS {
            for reduce in [Reduce::Replace, Reduce::Merge] {
                let ts = self.start + self.random.u64(0..800);
                let state = match travel.state_at(&self.topic, key, (ts, reduce)).await {
                    Ok(state) => state.map(|state| (state.last.partition, state.last.offset)),
                    Err(TimeTravelError::Gone { horizon_ts, .. }) => {
                        assert!(
                            reduce == Reduce::Merge || ts < horizon_ts,
                            "{key} at {ts}, after {horizon_ts}"
                        );
                        continue;
                    }
                    Err(error) => panic!("{key} at {ts}: {error}"),
                };
                assert_eq!(state, self.model.state(key, ts), "{key} at {ts}, {reduce:?}");
            }
        }
        let ts = horizon.max(self.start) + self.random.u64(0..400);
        let mut all = travel.all_at(&self.topic, ts).await.unwrap();
        let mut states = BTreeMap::new();
        while let Some(page) = all.next_page().await.unwrap() {
            states.extend(
                page.into_iter()
                    .map(|event| (event.key.unwrap().to_string(), (event.partition, event.offset))),
            );
        }
        let expected = KEYS.iter().filter_map(|key| Some((key.to_string(), self.model.state(key, ts)?)));
        assert_eq!(states, expected.collect(), "all keys at {ts}");
    }

    async fn check(&mut self) {
        let mut expected: Vec<_> = self.model.left().map(|entry| entry.at).collect();
        expected.sort_unstable();
        let left: Vec<_> =
            self.s().events(&self.topic).await.iter().map(|event| (event.partition, event.offset)).collect();
        assert_eq!(left, expected, "what is left");
        let kept = self.s().kept(&self.topic).await;
        for (partition, kept) in (0..).map(Partition).zip(&kept) {
            let here = self.model.left().filter(|entry| entry.at.0 == partition);
            assert_eq!(kept.bytes, here.map(|entry| entry.bytes).sum::<u64>(), "what it counts for");
        }
        for key in self.model.keys().into_keys() {
            let been = self.model.0.iter().filter(|entry| entry.key.as_deref() == Some(&key));
            let horizon = been.map(|entry| kept[entry.at.0.0 as usize].horizon_ts).max().unwrap_or(0);
            for _ in 0..5 {
                let ts = horizon.max(self.start) + self.random.u64(0..400);
                let (all, left) =
                    (self.model.at(&key, ts, |_| true), self.model.at(&key, ts, |entry| entry.is_left));
                assert_eq!(left, all, "what {key} was at {ts}, after the horizon {horizon}");
            }
            let at_once = self.model.at(&key, horizon, |_| true);
            assert_eq!(self.model.at(&key, horizon, |entry| entry.is_left), at_once, "{key} at its horizon");
        }
    }
}

async fn run(s: Stage, seed: u64, cleaning_keys: usize) {
    let s = s.remembering(cleaning_keys).await;
    let topic = s.topic_with("model", compacted()).await;
    let (start, random) = (s.clock.now_ms(), fastrand::Rng::with_seed(seed));
    let mut run = Run { s: Some(s), topic, model: Model::default(), random, start, cleaning_keys };
    for step in 0..250 {
        run.step().await;
        tracing::debug!(seed, step, "done");
    }
}

async fn runs(s: Stage, cleaning_keys: usize) {
    let is_durable = s.is_durable();
    let seeds = std::env::var("PROMBUS_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(4);
    drop(s);
    for seed in 0..seeds {
        println!("seed {seed}");
        let s = if is_durable { Stage::small_parts().await } else { Stage::memory().await };
        run(s, seed, cleaning_keys).await;
    }
}

pub async fn random_passes_leave_what_the_rules_say(s: Stage) {
    runs(s, 1 << 20).await;
}

/// So few keys that a pass forgets them all the time, and commits after every event or two.
pub async fn random_passes_with_little_memory_leave_what_the_rules_say(s: Stage) {
    runs(s, 8).await;
}
