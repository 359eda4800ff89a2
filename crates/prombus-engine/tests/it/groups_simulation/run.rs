//! One run: the lives of a hub, one after another on the same store; in some, two hubs at a time.

use crate::groups_simulation::actors::{Member, Seat, finish, give_up, meddle, produce, stall};
use crate::groups_simulation::archive::{Archive, GivenUp, Logged};
use crate::groups_simulation::history::{Entry, EventPosition, History, Stamped};
use crate::groups_simulation::plan::Plan;
use crate::groups_simulation::world::{SlowStore, Tide, WallClock, pass};
use parking_lot::Mutex;
use prombus_core::homes::SharedHomes;
use prombus_core::{
    Event, EventLog, EventLogExt, Offset, Partition, ReadRequest, TopicName, TopicPatch, TopicState,
};
use prombus_engine::{Hub, HubOptions, Limits, Store};
use prombus_store_memory::MemoryStore;
use prombus_testkit::stalling::StallingHomes;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

/// What is not done after so long, when nobody gets in the way, never will be. The clock may have been stepped back.
const PATIENCE: Duration = Duration::from_secs(2 * 3_600);

/// A dead letter as it is in the log.
#[derive(Debug, Clone)]
pub struct Letter {
    pub group: String,
    pub place: EventPosition,
    pub attempts: u32,
    pub caused_by: String,
}

/// All that is known after a run.
pub struct Outcome {
    pub plan: Plan,
    pub histories: Vec<Vec<Stamped>>,
    /// All that was ever in the log.
    pub log: BTreeMap<EventPosition, Logged>,
    /// What was given up of it.
    pub given_up: BTreeMap<EventPosition, GivenUp>,
    /// The first offset that is kept, by partition.
    pub firsts: Vec<u64>,
    /// What each group says that it has lost; `None` where it had not settled everything in the end.
    pub lost: Vec<Option<u64>>,
    pub letters: Vec<Letter>,
    /// Where the lower partitions ended when each partition was added.
    pub before: Vec<Vec<u64>>,
}

struct World {
    plan: Plan,
    topic: TopicName,
    memory: Arc<MemoryStore>,
    clock: Arc<WallClock>,
    rng: fastrand::Rng,
    histories: Vec<Arc<History>>,
    loads: Vec<Arc<Mutex<Vec<Arc<prombus_engine::groups::Group>>>>>,
    next: Arc<AtomicU64>,
    tide: Arc<Tide>,
    /// Where hubs that share the store say which of them has the topic.
    shared: Option<SharedHomes>,
    /// How many hubs there were.
    hubs: usize,
    archive: Arc<Archive>,
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime can be made")
}

/// Runs a seed.
pub fn run(seed: u64) -> Outcome {
    let mut rng = fastrand::Rng::with_seed(seed);
    let plan = Plan::new(&mut rng);
    run_plan(seed, plan, rng)
}

/// Runs a seed with two hubs.
pub fn run_two_hubs(seed: u64) -> Outcome {
    let mut rng = fastrand::Rng::with_seed(seed);
    let plan = Plan::of_two_hubs(&mut rng);
    run_plan(seed, plan, rng)
}

fn run_plan(seed: u64, plan: Plan, rng: fastrand::Rng) -> Outcome {
    let clock = WallClock::new();
    let memory = Arc::new(MemoryStore::new(clock.clone(), seed));
    let mut world = World {
        topic: TopicName::parse("orders").expect("a valid name"),
        archive: Archive::new(memory.clone(), clock.clone()),
        memory,
        clock,
        rng,
        histories: plan.groups.iter().map(|_| Arc::default()).collect(),
        loads: plan.groups.iter().map(|_| Arc::default()).collect(),
        next: Arc::default(),
        tide: Arc::default(),
        shared: None,
        hubs: 0,
        plan,
    };
    // Were it compiled on the way, the clock would go ahead meanwhile: it does not wait for other threads.
    let _known = prombus_engine::Filter::compile(&super::plan::filter());
    let mut before = Duration::ZERO;
    for (n, length) in world.plan.lives.clone().into_iter().enumerate() {
        let runtime = runtime();
        before = runtime.block_on(world.live(before, n == 0, length));
        // Dropping it takes every task with it, wherever it is.
        drop(runtime);
        let killed = |history: &Arc<History>| {
            history.note(Stamped { at: before, load: usize::MAX, moves: 0, entry: Entry::Killed })
        };
        world.histories.iter().for_each(killed);
    }
    let runtime = runtime();
    let lost = runtime.block_on(world.finish(before));
    runtime.block_on(world.outcome(lost))
}

impl World {
    fn hub(&mut self) -> (Hub, Arc<SlowStore>) {
        let slow = SlowStore::new(self.memory.clone(), self.tide.clone(), self.rng.fork());
        let mut store = Store::new(slow.clone());
        if let Some(ttl) = self.plan.hub_ttl {
            let clock = self.clock.clone();
            let shared =
                self.shared.get_or_insert_with(|| SharedHomes::new(clock, Some(ttl.as_millis() as u64)));
            self.hubs += 1;
            let inner = shared.hub(&format!("hub-{}", self.hubs));
            store = store.shared(Arc::new(StallingHomes { inner, stall: slow.homes_stall.clone() }));
        }
        let options = HubOptions {
            limits: Limits::default(),
            auto_create: false,
            topics: HashMap::new(),
            clock: self.clock.clone(),
        };
        (Hub::assemble(store, options), slow)
    }

    fn seats(&self, hubs: &[Hub]) -> Vec<Seat> {
        let seat = |n: usize| Seat {
            hubs: hubs.to_vec(),
            topic: self.topic.clone(),
            plan: self.plan.groups[n].clone(),
            history: self.histories[n].clone(),
            clock: self.clock.clone(),
            loads: self.loads[n].clone(),
        };
        (0..self.plan.groups.len()).map(seat).collect()
    }

    /// Starts those who publish and those who meddle.
    fn start(&mut self, hub: &Hub) {
        let numbers = (self.next.clone(), self.plan.events, self.plan.keys);
        tokio::spawn(produce(hub.clone(), self.topic.clone(), numbers, self.rng.fork()));
        tokio::spawn(meddle(hub.clone(), self.topic.clone(), self.clock.clone(), self.rng.fork()));
        if self.plan.gives_up {
            tokio::spawn(give_up(hub.clone(), self.topic.clone(), self.archive.clone(), self.rng.fork()));
        }
    }

    /// One life, which ends in the middle of everything. Gives when that is.
    async fn live(&mut self, before: Duration, first: bool, length: Duration) -> Duration {
        self.clock.start_life(before);
        let count = if self.plan.hub_ttl.is_some() { 2 } else { 1 };
        let (hubs, stores): (Vec<Hub>, Vec<Arc<SlowStore>>) = (0..count).map(|_| self.hub()).unzip();
        let (hub, seats) = (hubs[0].clone(), self.seats(&hubs));
        if first {
            let patch = TopicPatch { partitions: Some(self.plan.partitions), ..TopicPatch::default() };
            hub.put_topic(&self.topic, patch).await.expect("a topic can be made");
            for seat in &seats {
                seat.group(0).await.expect("a group can be made");
            }
        }
        stores.iter().for_each(|slow| slow.refuse_some(self.plan.store_refuses));
        if let Some(ttl) = self.plan.hub_ttl {
            tokio::spawn(stall(stores, ttl, self.rng.fork()));
        }
        self.start(&hub);
        for seat in seats {
            for n in 0..seat.plan.members {
                // Some are the same member.
                let named = n > 0 || self.rng.bool();
                let name = named.then(|| format!("m{}", self.rng.usize(..seat.plan.members)));
                tokio::spawn(Member::new(seat.clone(), name, self.rng.fork()).run());
            }
        }
        pass(length).await;
        self.clock.elapsed()
    }

    /// The last life: everything is published and settled. Gives what each group says that it has lost.
    async fn finish(&mut self, before: Duration) -> Vec<Option<u64>> {
        self.clock.start_life(before);
        let (hub, _) = self.hub();
        let numbers = (self.next.clone(), self.plan.events, self.plan.keys);
        produce(hub.clone(), self.topic.clone(), numbers, self.rng.fork()).await;
        let until = Instant::now() + PATIENCE;
        let mut lost = Vec::new();
        for seat in self.seats(std::slice::from_ref(&hub)) {
            lost.push(finish(seat, "last".into(), until).await);
        }
        lost
    }

    async fn outcome(&self, lost: Vec<Option<u64>>) -> Outcome {
        let state = self.memory.topic(&self.topic).await.expect("it can be read").expect("it was made");
        let letters = self.topic.dead_letters().expect("a valid name");
        let letters = self.memory.topic(&letters).await.expect("it can be read");
        let letters = match letters {
            Some(letters) => self.events(&letters).await.iter().map(letter).collect(),
            None => Vec::new(),
        };
        let (log, given_up) = self.archive.all(&state).await;
        let mut firsts = Vec::new();
        for partition in (0..state.config.partitions).map(Partition) {
            let bounds = self.memory.bounds(&state.pinned(), partition).await.expect("it can be read");
            firsts.push(bounds.first.0);
        }
        Outcome {
            plan: self.plan.clone(),
            histories: self.histories.iter().map(|history| history.all()).collect(),
            log,
            given_up,
            firsts,
            lost,
            letters,
            before: (0..state.config.partitions)
                .map(|partition| state.before(Partition(partition)).iter().map(|end| end.0).collect())
                .collect(),
        }
    }

    async fn events(&self, topic: &TopicState) -> Vec<Event> {
        let mut events = Vec::new();
        for partition in (0..topic.config.partitions).map(Partition) {
            let request = ReadRequest {
                topic: topic.pinned(),
                partition,
                from: Offset(0),
                limit: usize::MAX,
                max_bytes: usize::MAX,
            };
            events.extend(self.memory.read(request).await.expect("it can be read").events);
        }
        events
    }
}

fn letter(event: &Event) -> Letter {
    let value = event.payload.to_value().expect("letters are JSON");
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    let caused_by = event.caused_by.as_ref().expect("letters have causes").to_value().expect("JSON");
    Letter {
        group: value["group"].as_str().expect("a name").to_owned(),
        place: (number(&value["original"]["partition"]) as u32, number(&value["original"]["offset"])),
        attempts: number(&value["attempts"]) as u32,
        caused_by: caused_by[0].as_str().expect("an id").to_owned(),
    }
}
