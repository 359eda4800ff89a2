//! What a store holds is moved to MongoDB and back, by random histories; and nobody uses a database that is being moved.

use crate::support::{Fresh, open};
use prombus_core::{Clock, EventLog, ManualClock, Transfer, transfer};
use prombus_store_disk::{DiskOptions, DiskStore};
use prombus_store_memory::MemoryStore;
use prombus_store_mongo::{HomesOptions, HomesTime, MongoOptions, MongoStore, OpenError, Purpose};
use prombus_testkit::model::{Model, Options, assert_same};
use prombus_testkit::transfer::moved;
use prombus_testkit::{SimDisk, Subject};
use std::sync::Arc;

const SEEDS: u64 = 2;
const COMMITS: u64 = 60;

async fn open_for(
    fresh: &Fresh,
    clock: &Arc<ManualClock>,
    purpose: Purpose,
) -> Result<Arc<MongoStore>, OpenError> {
    MongoStore::open(MongoOptions { purpose, ..fresh.options(clock) }).await
}

fn open_disk(disk: &SimDisk, clock: &Arc<ManualClock>, filled_from: Option<&str>) -> Arc<DiskStore> {
    let options = DiskOptions {
        part_bytes: 4096,
        clock: clock.clone(),
        filled_from: filled_from.map(str::to_owned),
        ..DiskOptions::new("/data")
    };
    DiskStore::open_on(Arc::new(disk.clone()), options).unwrap()
}

/// From memory to a folder, to MongoDB, and back to a folder; in between, things go on as where nothing was moved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_moved_store_goes_on_as_the_one_that_stayed() {
    for seed in 0..SEEDS {
        let clock = Arc::new(ManualClock::at(1_754_683_200_000));
        let stays = Subject::new(Arc::new(MemoryStore::new(clock.clone(), 1)), clock.clone());
        let mut model = Model::new(Options::new(seed, clock.clone()));
        let first = Arc::new(MemoryStore::new(clock.clone(), 2));
        let (mut source, mut goes): (Arc<dyn Transfer>, _) =
            (first.clone(), Subject::new(first, clock.clone()));
        // A database goes when nobody has it any more.
        let mut databases = Vec::new();
        for to_mongo in [false, true, false] {
            for _ in 0..COMMITS {
                let _ = model.step(&[&stays, &goes]).await;
            }
            let now_ms = clock.now_ms();
            if to_mongo {
                let fresh = Fresh::new().await;
                let target = open_for(&fresh, &clock, Purpose::FillFrom("folder".into())).await.unwrap();
                moved(&*source, &*target, now_ms).await;
                target.close().await;
                let target = open(&fresh, &clock).await;
                databases.push(fresh);
                (source, goes) = (target.clone(), Subject::new(target, clock.clone()));
            } else {
                let disk = SimDisk::new();
                let target = open_disk(&disk, &clock, Some("there"));
                moved(&*source, &*target, now_ms).await;
                target.close().await;
                drop(target);
                let target = open_disk(&disk, &clock, None);
                (source, goes) = (target.clone(), Subject::new(target, clock.clone()));
            }
            assert_same(&stays, &goes).await;
            // Recorded time has moved on in one of them.
            clock.advance(1_000);
        }
        for _ in 0..COMMITS {
            let _ = model.step(&[&stays, &goes]).await;
        }
        assert_same(&stays, &goes).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hubs_and_moves_keep_apart() {
    let clock = Arc::new(ManualClock::at(1_754_683_200_000));
    let fresh = Fresh::new().await;
    let filling = || Purpose::FillFrom("folder".into());
    let used = open(&fresh, &clock).await;
    let hub = prombus_core::HubId("one".into());
    let options = HomesOptions { hub, ttl_ms: 60_000, time: HomesTime::Database };
    let homes = used.homes(options).await.unwrap();
    for purpose in [Purpose::MoveFrom, filling()] {
        let refused = open_for(&fresh, &clock, purpose).await.err();
        assert!(matches!(&refused, Some(OpenError::InUse(hubs)) if hubs == &["one"]), "{refused:?}");
    }
    drop(homes);
    used.close().await;
    let moving = open_for(&fresh, &clock, Purpose::MoveFrom).await.unwrap();
    for purpose in [Purpose::Use, Purpose::MoveFrom] {
        let refused = open_for(&fresh, &clock, purpose).await.err();
        assert!(matches!(refused, Some(OpenError::BeingMoved)), "{refused:?}");
    }
    moving.close().await;
    open(&fresh, &clock).await.close().await;
}

/// A move that was given up on the way goes on, and until then the database is no hub's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_half_filled_is_no_hubs() {
    let clock = Arc::new(ManualClock::at(1_754_683_200_000));
    let source = Arc::new(MemoryStore::new(clock.clone(), 1));
    let stays = Subject::new(source.clone(), clock.clone());
    let mut model = Model::new(Options::new(7, clock.clone()));
    for _ in 0..COMMITS {
        let _ = model.step(&[&stays]).await;
    }
    let fresh = Fresh::new().await;
    let filling = |from: &str| open_for(&fresh, &clock, Purpose::FillFrom(from.into()));
    let target = filling("folder").await.unwrap();
    transfer::fill((&*source, &*target), clock.now_ms(), &mut |_| {}).await.unwrap();
    target.close().await;
    for purpose in [Purpose::Use, Purpose::MoveFrom, Purpose::FillFrom("other".into())] {
        let refused = open_for(&fresh, &clock, purpose).await.err();
        assert!(matches!(&refused, Some(OpenError::Moving { from }) if from == "folder"), "{refused:?}");
    }
    let target = filling("folder").await.unwrap();
    moved(&*source, &*target, clock.now_ms()).await;
    target.close().await;
    let refused = filling("folder").await.err();
    assert!(matches!(refused, Some(OpenError::NotEmpty)), "{refused:?}");
    let goes = Subject::new(open(&fresh, &clock).await, clock.clone());
    assert_same(&stays, &goes).await;
}
