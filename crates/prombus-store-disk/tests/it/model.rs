//! Random commits on the memory store and on the disk engine, with crashes and reopens of the second in between:
//! they answer alike, and everything that can be read of them is the same.

use prombus_core::{CommitError, ManualClock};
use prombus_store_disk::{DiskOptions, DiskStore};
use prombus_store_memory::MemoryStore;
use prombus_testkit::model::{Model, Options, assert_same};
use prombus_testkit::sim_disk::Crash;
use prombus_testkit::{SimDisk, Subject};
use std::sync::Arc;

/// Seeds that a run goes through, and how many lives the engine has with each.
const SEEDS: u64 = 12;
const LIVES: u64 = 8;
const COMMITS: u64 = 25;

struct World {
    clock: Arc<ManualClock>,
    disk: SimDisk,
    random: fastrand::Rng,
}

impl World {
    fn new(seed: u64) -> Self {
        let clock = Arc::new(ManualClock::at(1_754_683_200_000));
        Self { clock, disk: SimDisk::new(), random: fastrand::Rng::with_seed(seed) }
    }

    fn memory(&self) -> Subject {
        Subject::new(Arc::new(MemoryStore::new(self.clock.clone(), 1)), self.clock.clone())
    }

    fn open(&mut self) -> Subject {
        // The size changes from life to life, as it may for a user.
        let part_bytes = self.random.u64(1 << 10..1 << 16);
        let most_rows = 1 << self.random.u32(6..16);
        let rows_in_memory = self.random.usize(0..most_rows);
        let (clock, seed) = (self.clock.clone(), self.random.u64(..));
        let options = DiskOptions { part_bytes, rows_in_memory, clock, seed, ..DiskOptions::new("/data") };
        let store = DiskStore::open_on(Arc::new(self.disk.clone()), options).unwrap();
        Subject::new(store, self.clock.clone())
    }

    fn crash(&mut self, store: Subject, crash: Crash) -> Subject {
        self.disk.crash(crash);
        drop(store);
        self.disk.restart(self.random.u64(..));
        self.open()
    }
}

/// Crashes between commits.
async fn between(seed: u64, crash: Crash) {
    let mut world = World::new(seed);
    let (memory, mut disk) = (world.memory(), world.open());
    let options = Options { interval: crash == Crash::Kill, ..Options::new(seed, world.clock.clone()) };
    let mut model = Model::new(options);
    for _ in 0..LIVES {
        for _ in 0..COMMITS {
            let _ = model.step(&[&memory, &disk]).await;
        }
        assert_same(&memory, &disk).await;
        if world.random.bool() {
            disk.log.erase().await.unwrap();
            assert_same(&memory, &disk).await;
        }
        disk = world.crash(disk, crash);
        assert_same(&memory, &disk).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_between_commits_change_nothing() {
    for seed in 0..SEEDS {
        between(seed, Crash::Kill).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_cuts_between_commits_change_nothing() {
    for seed in 100..100 + SEEDS {
        between(seed, Crash::PowerCut).await;
    }
}

/// Crashes in the middle of commits: each happened as a whole or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_cuts_during_commits_leave_all_or_nothing() {
    let mut survived = [0, 0];
    for seed in 200..200 + SEEDS {
        let mut world = World::new(seed);
        let (memory, mut disk) = (world.memory(), world.open());
        let mut model = Model::new(Options { interval: false, ..Options::new(seed, world.clock.clone()) });
        for _ in 0..LIVES {
            let at = world.disk.operations() + world.random.u64(1..60);
            world.disk.crash_at(at, Crash::PowerCut);
            for commit in 0..COMMITS {
                if commit % 8 == 7 {
                    // It is for the next life where the machine goes down.
                    let _ = disk.log.erase().await;
                }
                let proposal = model.propose(&memory).await;
                let answer = disk.commit(model.commit_for(1, &proposal)).await;
                if matches!(answer, Err(CommitError::Unavailable(_) | CommitError::Unknown(_))) {
                    disk = world.crash(disk, Crash::PowerCut);
                    let lived = model.settle_in_doubt(&proposal, &memory, &disk).await;
                    survived[usize::from(lived)] += 1;
                    break;
                }
                let first = memory.commit(model.commit_for(0, &proposal)).await;
                model.settle(&proposal, &[&memory, &disk], &[first, answer]).await;
            }
            disk = world.crash(disk, Crash::PowerCut);
            assert_same(&memory, &disk).await;
        }
    }
    assert!(survived[0] > 0 && survived[1] > 0, "commits both survived and did not: {survived:?}");
}
