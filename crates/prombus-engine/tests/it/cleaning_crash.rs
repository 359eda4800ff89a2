//! The machine goes down in every disk operation of passes of all kinds: nothing goes that the rules keep, nothing that has
//! gone comes back, and the next passes finish what these have begun.

use prombus_core::*;
use prombus_engine::{Hub, HubOptions, SnapshotStatus, Store};
use prombus_store_disk::{DiskOptions, DiskStore, check_on};
use prombus_testkit::SimDisk;
use prombus_testkit::sim_disk::Crash;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DIR: &str = "/data";
/// How many rounds of events are there before the passes, and one more comes between them.
const ROUNDS: u64 = 3;
/// How many events of each topic a round publishes, in one commit.
const EVENTS: u64 = 8;
const KEYS: u64 = 3;
/// How much later the next round is.
const STEP_MS: u64 = 1_000;

/// The latest of each key stays, and is published to another topic.
const COMPACTED: &str = "compacted";
const SNAPSHOTS: &str = "compacted.snapshot";
/// How many events stay, by their size.
const BOUNDED: &str = "bounded";
const KEPT: u64 = 11;
/// What is of the last two rounds stays.
const AGED: &str = "aged";
const RETENTION_MS: u64 = STEP_MS;
const TOPICS: [&str; 3] = [COMPACTED, BOUNDED, AGED];

/// A key of the compacted topic that is forgotten, and what its events say.
const SECRET_KEY: &str = "forgotten-key";
const SECRET: &str = "told-in-confidence";

fn name(topic: &str) -> TopicName {
    TopicName::parse(topic).unwrap()
}

/// The key of event `n` of a topic.
fn key_of(topic: &str, n: u64) -> String {
    let is_secret = topic == COMPACTED && n < ROUNDS * EVENTS && n % 5 == 3;
    if is_secret { SECRET_KEY.to_owned() } else { format!("key-{}", n % KEYS) }
}

/// All events of a topic are of the same size, but for their keys.
fn append(topic: &str, n: u64) -> Append {
    let key = key_of(topic, n);
    let said = if key == SECRET_KEY { SECRET } else { "nothing-of-interest" };
    let payload = format!("{{\"n\":{},\"said\":\"{said}\",\"pad\":\"{}\"}}", 1_000 + n, "x".repeat(120));
    let event = NewEvent { key: Some(key.into()), ..NewEvent::new(Json::parse(payload.into()).unwrap()) };
    Append::new(name(topic), event)
}

/// A hub on a simulated disk.
struct Machine {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    hub: Hub,
    store: Arc<DiskStore>,
}

type Outcome = Result<(), Box<dyn Error>>;

impl Machine {
    fn start(disk: &SimDisk, clock: &Arc<ManualClock>) -> Result<Self, Box<dyn Error>> {
        let (disk, clock) = (disk.clone(), clock.clone());
        let options = DiskOptions {
            part_bytes: 4096,
            slow_open: std::time::Duration::MAX,
            clock: clock.clone(),
            seed: 1,
            ..DiskOptions::new(DIR)
        };
        let store = DiskStore::open_on(Arc::new(disk.clone()), options)?;
        let hub_options = HubOptions { clock: clock.clone(), ..HubOptions::default() };
        let hub = Hub::assemble(Store::new(store.clone()), hub_options);
        Ok(Self { disk, clock, hub, store })
    }

    async fn stop(self) {
        self.hub.close().await;
    }

    async fn publish(&self, round: u64) -> Outcome {
        for topic in TOPICS {
            let events = (round * EVENTS..(round + 1) * EVENTS).map(|n| append(topic, n)).collect();
            self.hub.publish(events).await?;
        }
        self.clock.advance(STEP_MS);
        Ok(())
    }

    /// The events of a topic that can be read, by their offsets.
    async fn events(&self, topic: &str) -> BTreeMap<u64, Event> {
        self.try_events(topic).await.unwrap()
    }

    async fn try_events(&self, topic: &str) -> Result<BTreeMap<u64, Event>, ReadError> {
        let topic = TopicRef::from(&name(topic));
        let bounds = self.store.bounds(&topic, Partition(0)).await?;
        let (mut from, mut found) = (bounds.first, BTreeMap::new());
        while from < bounds.next {
            let (topic, partition) = (topic.clone(), Partition(0));
            let request = ReadRequest { topic, partition, from, limit: 7, max_bytes: usize::MAX };
            let page = self.store.read(request).await?;
            found.extend(page.events.into_iter().map(|event| (event.offset.0, event)));
            from = page.next;
        }
        Ok(found)
    }

    async fn next(&self, topic: &str) -> u64 {
        self.store.bounds(&TopicRef::from(&name(topic)), Partition(0)).await.unwrap().next.0
    }

    async fn snapshots(&self) -> SnapshotStatus {
        let topic = self.hub.topic(&name(COMPACTED)).await.unwrap().unwrap();
        let kept = self.hub.kept(&topic).await.unwrap();
        self.hub.snapshots(&topic, &kept).await.unwrap().unwrap()
    }

    /// The places of the events that the records are of, in the order of the records, by key.
    async fn records(&self) -> BTreeMap<String, Vec<u64>> {
        let mut records = BTreeMap::<String, Vec<u64>>::new();
        for record in self.events(SNAPSHOTS).await.into_values() {
            let text = record.payload.to_value().unwrap();
            let offset = text["offset"].as_u64().unwrap();
            assert_eq!(text["key"].as_str(), record.key.as_deref());
            assert_eq!(text["key"], key_of(COMPACTED, offset));
            records.entry(record.key.unwrap().to_string()).or_default().push(offset);
        }
        records
    }
}

/// A disk with some rounds of events, which no pass has seen.
async fn filled() -> (SimDisk, u64) {
    let (disk, clock) = (SimDisk::new(), Arc::new(ManualClock::at(1_000_000)));
    let machine = Machine::start(&disk, &clock).unwrap();
    let snapshot = SnapshotConfig { topic: name(SNAPSHOTS), every_ms: 1_000_000 };
    let compacted =
        TopicPatch { compaction: Some(true), snapshot: Some(Some(snapshot)), ..TopicPatch::default() };
    machine.hub.put_topic(&name(COMPACTED), compacted).await.unwrap();
    let aged = TopicPatch { retention_ms: Some(RETENTION_MS), ..TopicPatch::default() };
    machine.hub.put_topic(&name(AGED), aged).await.unwrap();
    for round in 0..ROUNDS {
        machine.publish(round).await.unwrap();
    }
    // An event more does not fit.
    let size = machine.events(BOUNDED).await[&0].size() as u64;
    let bounded = TopicPatch { retention_bytes: Some((KEPT + 1) * size - 1), ..TopicPatch::default() };
    machine.hub.put_topic(&name(BOUNDED), bounded).await.unwrap();
    machine.stop().await;
    (disk, clock.now_ms())
}

/// What was answered before the machine went down.
#[derive(Debug, Default)]
struct Answered {
    /// How many rounds were published.
    rounds: u64,
    /// What each pass has left of what was there.
    left: BTreeMap<&'static str, BTreeSet<u64>>,
    forgetting: bool,
    is_forgotten: bool,
}

/// All that a hub does to let events go, until it is done or fails.
async fn pass(machine: &Machine, answered: &mut Answered) -> Outcome {
    machine.hub.cleaning().snapshot(&name(COMPACTED)).await?;
    clean(machine, answered).await?;
    machine.publish(ROUNDS).await?;
    answered.rounds += 1;
    answered.forgetting = true;
    machine.hub.forget(&name(COMPACTED), SECRET_KEY).await?;
    answered.is_forgotten = true;
    machine.hub.cleaning().snapshot(&name(COMPACTED)).await?;
    clean(machine, answered).await
}

async fn clean(machine: &Machine, answered: &mut Answered) -> Outcome {
    for topic in TOPICS {
        machine.hub.cleaning().clean(&name(topic)).await?;
        answered.left.insert(topic, machine.try_events(topic).await?.into_keys().collect());
    }
    machine.hub.cleaning().clean(&name(SNAPSHOTS)).await?;
    Ok(())
}

/// Whether the rules let event `n` go, of a topic that ends at `next`.
fn may_go(machine: &Machine, topic: &str, (n, next): (u64, u64)) -> bool {
    match topic {
        COMPACTED => (n + 1..next).any(|later| key_of(topic, later) == key_of(topic, n)),
        BOUNDED => n + KEPT < next,
        _ => 1_000_000 + n / EVENTS * STEP_MS + RETENTION_MS < machine.clock.now_ms(),
    }
}

/// What must stay is there, what has gone is not, and snapshots say what they have.
async fn verify(machine: &Machine, answered: &Answered, what: &str) {
    for topic in TOPICS {
        let (there, next) = (machine.events(topic).await, machine.next(topic).await);
        let ends = [answered.rounds * EVENTS, (ROUNDS + 1) * EVENTS];
        assert!(ends.contains(&next), "{what}: {topic} ends at {next}: {answered:?}");
        for n in 0..next {
            let is_forgotten = key_of(topic, n) == SECRET_KEY && answered.forgetting;
            match there.get(&n) {
                Some(event) => assert_eq!(event.payload, append(topic, n).event.payload, "{what}"),
                None => assert!(
                    is_forgotten || may_go(machine, topic, (n, next)),
                    "{what}: event {n} of {topic} is lost: {answered:?}, there {:?}",
                    there.keys()
                ),
            }
        }
        if let Some(left) = answered.left.get(topic) {
            let cleaned = left.last().map_or(0, |last| last + 1);
            let back: Vec<_> = there.range(..cleaned).filter(|(n, _)| !left.contains(*n)).collect();
            assert!(back.is_empty(), "{what}: {back:?} of {topic} are back");
        }
    }
    let (records, through) = (machine.records().await, machine.snapshots().await.through[0].0);
    assert!(records.values().all(|places| places.is_sorted_by(|a, b| a < b)), "{what}: {records:?}");
    let mut last = BTreeMap::new();
    last.extend((0..machine.next(COMPACTED).await).map(|n| (key_of(COMPACTED, n), n)));
    if answered.forgetting {
        last.remove(SECRET_KEY);
    }
    for (key, n) in last.into_iter().filter(|(_, n)| *n < through) {
        let newest = records.get(&key).and_then(|places| places.last());
        assert_eq!(newest, Some(&n), "{what}: through {through}, {records:?}");
    }
    if answered.is_forgotten {
        let events = machine.events(COMPACTED).await;
        assert!(events.values().all(|event| event.key.as_deref() != Some(SECRET_KEY)), "{what}: it is back");
        assert!(!records.contains_key(SECRET_KEY), "{what}: its record is back");
    }
}

/// The next passes leave exactly what the rules say, and nothing of the key.
async fn finish(machine: &Machine, what: &str) {
    machine.hub.forget(&name(COMPACTED), SECRET_KEY).await.unwrap();
    machine.hub.cleaning().snapshot(&name(COMPACTED)).await.unwrap();
    clean(machine, &mut Answered::default()).await.unwrap();
    for topic in TOPICS {
        let next = machine.next(topic).await;
        let is_forgotten = |n: &u64| key_of(topic, *n) == SECRET_KEY;
        let kept = |n: &u64| !is_forgotten(n) && !may_go(machine, topic, (*n, next));
        let found: Vec<u64> = machine.events(topic).await.into_keys().collect();
        assert_eq!(found, (0..next).filter(kept).collect::<Vec<_>>(), "{what}: {topic}");
    }
    let latest = machine.events(COMPACTED).await;
    let latest = latest.values().map(|event| (key_of(COMPACTED, event.offset.0), vec![event.offset.0]));
    assert_eq!(machine.records().await, latest.collect(), "{what}");
    assert_eq!(machine.snapshots().await.through[0].0, machine.next(COMPACTED).await, "{what}");
    for bytes in [SECRET_KEY, SECRET] {
        assert_eq!(machine.disk.holding(bytes.as_bytes()), Vec::<PathBuf>::new(), "{what}: {bytes}");
    }
}

/// No index of a part that is gone was left by the crash; a later forget would remove it.
fn indexes_have_parts(disk: &SimDisk, what: &str) {
    let files = disk.files();
    let is_there = |part: &Path| files.iter().any(|(path, _)| path == part);
    for (path, _) in &files {
        let is_index = path.extension().is_some_and(|end| end == "index");
        assert!(!is_index || is_there(&path.with_extension("part")), "{what}: {}", path.display());
    }
}

/// Nothing is left over of what was begun.
fn no_file_is_left_over(disk: &SimDisk, what: &str) {
    let report = check_on(disk, Path::new(DIR), &mut |_| {}).unwrap();
    assert_eq!(report.problems, [], "{what}");
    let unfinished = |(path, _): &(PathBuf, usize)| path.extension().is_some_and(|end| end == "tmp");
    assert!(!disk.files().iter().any(unfinished), "{what}: {:?}", disk.files());
}

async fn crash_everywhere(crash: Crash) {
    let (filled, now_ms) = filled().await;
    let clock = || Arc::new(ManualClock::at(now_ms));
    let whole = filled.copy();
    whole.restart(0);
    let machine = Machine::start(&whole, &clock()).unwrap();
    let mut answered = Answered { rounds: ROUNDS, ..Answered::default() };
    pass(&machine, &mut answered).await.unwrap();
    verify(&machine, &answered, "without a crash").await;
    assert!(machine.store.status().extra("reclaimed_bytes") > 0, "parts are rewritten");
    machine.stop().await;
    let operations = whole.operations();
    for at in 1..=operations + 3 {
        let what = format!("{crash:?} in operation {at} of {operations}");
        let (disk, clock) = (filled.copy(), clock());
        disk.restart(at * 31);
        disk.crash_at(at, crash);
        let mut answered = Answered { rounds: ROUNDS, ..Answered::default() };
        if let Ok(machine) = Machine::start(&disk, &clock) {
            // Where it has come to is in the answers.
            let _ = pass(&machine, &mut answered).await;
        }
        disk.crash(crash);
        disk.restart(at * 1_000);
        let machine = Machine::start(&disk, &clock).unwrap_or_else(|error| panic!("{what}: {error}"));
        indexes_have_parts(&disk, &what);
        verify(&machine, &answered, &what).await;
        finish(&machine, &what).await;
        machine.stop().await;
        no_file_is_left_over(&disk, &what);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_in_every_operation_of_a_pass_loses_nothing() {
    crash_everywhere(Crash::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_in_every_operation_of_a_pass_loses_nothing() {
    crash_everywhere(Crash::PowerCut).await;
}
