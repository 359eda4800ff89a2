//! What a store holds is moved to the memory store and to a data folder, by random histories, also where the machine goes down on
//! the way.

use prombus_core::{Clock, EventLog, ManualClock, Transfer, transfer};
use prombus_store_disk::{DiskOptions, DiskStore, OpenError};
use prombus_store_memory::MemoryStore;
use prombus_testkit::model::{Model, Options, assert_same};
use prombus_testkit::sim_disk::Crash;
use prombus_testkit::transfer::moved;
use prombus_testkit::{SimDisk, Subject};
use std::path::Path;
use std::sync::Arc;

const SEEDS: u64 = 6;
const COMMITS: u64 = 60;

fn open(
    disk: &SimDisk,
    clock: &Arc<ManualClock>,
    filled_from: Option<&str>,
) -> Result<Arc<DiskStore>, OpenError> {
    let options = DiskOptions {
        part_bytes: 4096,
        rows_in_memory: 300,
        clock: clock.clone(),
        filled_from: filled_from.map(str::to_owned),
        ..DiskOptions::new("/data")
    };
    DiskStore::open_on(Arc::new(disk.clone()), options)
}

fn memory(clock: &Arc<ManualClock>) -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(clock.clone(), 1))
}

/// There and back: from memory to a folder, from that to another one, and to memory. In between, things go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_moved_store_goes_on_as_the_one_that_stayed() {
    for seed in 0..SEEDS {
        let clock = Arc::new(ManualClock::at(1_754_683_200_000));
        let stays = Subject::new(memory(&clock), clock.clone());
        let mut model = Model::new(Options::new(seed, clock.clone()));
        let mut source: Arc<dyn Transfer> = memory(&clock);
        let mut goes = Subject::new(memory(&clock), clock.clone());
        for life in 0..4 {
            if life == 0 {
                let first = memory(&clock);
                (source, goes) = (first.clone(), Subject::new(first, clock.clone()));
            }
            for _ in 0..COMMITS {
                let _ = model.step(&[&stays, &goes]).await;
            }
            let now_ms = clock.now_ms();
            if life == 2 {
                let target = memory(&clock);
                moved(&*source, &*target, now_ms).await;
                (source, goes) = (target.clone(), Subject::new(target, clock.clone()));
            } else {
                let disk = SimDisk::new();
                let target = open(&disk, &clock, Some("there")).unwrap();
                moved(&*source, &*target, now_ms).await;
                target.close().await;
                drop(target);
                let problems = prombus_store_disk::check_on(&disk, Path::new("/data"), &mut |_| {});
                assert!(problems.is_ok_and(|report| report.problems.is_empty()), "seed {seed}");
                let target = open(&disk, &clock, None).unwrap();
                (source, goes) = (target.clone(), Subject::new(target, clock.clone()));
            }
            assert_same(&stays, &goes).await;
            // Recorded time has moved on in one of them.
            clock.advance(1_000);
        }
    }
}

/// Wherever a move is cut off, it goes on, and until then the folder is no hub's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_goes_on_where_the_machine_went_down() {
    for seed in 0..SEEDS {
        let clock = Arc::new(ManualClock::at(1_754_683_200_000));
        let source = memory(&clock);
        let stays = Subject::new(source.clone(), clock.clone());
        let mut model = Model::new(Options::new(seed, clock.clone()));
        for _ in 0..COMMITS {
            let _ = model.step(&[&stays]).await;
        }
        let now_ms = clock.now_ms();
        let disk = SimDisk::new();
        let mut cuts = 0;
        for wait in [10, 25, 40, 60, 90, 130] {
            disk.crash_at(disk.operations() + wait, Crash::PowerCut);
            let cut = match open(&disk, &clock, Some("there")) {
                Ok(target) => {
                    let filled = transfer::fill((&*source, &*target), now_ms, &mut |_| {}).await;
                    drop(target);
                    filled.is_err()
                }
                Err(_) => true,
            };
            disk.crash(Crash::PowerCut);
            disk.restart(seed + wait);
            cuts += u32::from(cut);
            match open(&disk, &clock, None) {
                Err(OpenError::Moving { from, .. }) => assert_eq!(from, "there"),
                // It was cut off before it began.
                Ok(_) => assert_eq!(wait, 10),
                Err(error) => panic!("{error}"),
            }
        }
        assert!(cuts > 2, "seed {seed}: {cuts}");
        assert!(matches!(open(&disk, &clock, Some("elsewhere")), Err(OpenError::Moving { .. })));
        let target = open(&disk, &clock, Some("there")).unwrap();
        moved(&*source, &*target, now_ms).await;
        target.close().await;
        drop(target);
        assert!(matches!(open(&disk, &clock, Some("there")), Err(OpenError::NotEmpty(_))));
        let goes = Subject::new(open(&disk, &clock, None).unwrap(), clock.clone());
        assert_same(&stays, &goes).await;
    }
}
