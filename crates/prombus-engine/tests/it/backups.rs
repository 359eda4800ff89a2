//! Backups through the hub: how long one is held, and when it gives way.

use prombus_core::*;
use prombus_engine::backups::{LEASE, MAX_BACKUPS};
use prombus_engine::{BackupError, Hub, HubOptions, PieceRequest, Store};
use prombus_store_disk::{DiskOptions, DiskStore};
use prombus_testkit::SimDisk;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Small, so that parts roll, and are dropped, every few commits.
const PART_BYTES: u64 = 4096;

fn hub_on(disk: &SimDisk) -> Hub {
    let options = DiskOptions { part_bytes: PART_BYTES, ..DiskOptions::new("/data") };
    let store = DiskStore::open_on(Arc::new(disk.clone()), options).unwrap();
    Hub::assemble(Store::new(store), HubOptions::default())
}

fn piece(name: &str) -> PieceRequest {
    PieceRequest { name: name.to_owned(), from: 0, fingerprint: None }
}

async fn publish(hub: &Hub, bytes: usize) -> Result<(), CommitError> {
    let payload = Json::parse(format!("\"{}\"", "x".repeat(bytes)).into()).unwrap();
    let append = Append::new(TopicName::parse("t").unwrap(), NewEvent::new(payload));
    match hub.publish(vec![append]).await {
        Err(prombus_engine::BusError::Commit(error)) => Err(error),
        published => {
            published.unwrap();
            Ok(())
        }
    }
}

/// From here on, the clock goes on only when it is told to. By itself it also does whenever nothing can be done, as while a
/// file is being read on another thread.
fn hold_clock() {
    tokio::time::pause();
    tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
}

#[tokio::test]
async fn a_backup_is_held_while_somebody_reads_it() {
    let hub = hub_on(&SimDisk::new());
    let backup = hub.backups().begin().await.unwrap();
    hold_clock();
    for _ in 0..4 {
        tokio::time::advance(LEASE / 4 * 3).await;
        assert!(!hub.backups().read(backup.id, piece("FORMAT")).await.unwrap().bytes.is_empty());
    }
    tokio::time::advance(LEASE + Duration::from_millis(1)).await;
    // The task that lets go of it has its turn.
    tokio::time::advance(Duration::from_millis(1)).await;
    let ended = hub.backups().read(backup.id, piece("FORMAT")).await;
    assert_eq!(ended, Err(BackupError::Ended(backup.id)));
    assert!(!hub.backups().end(backup.id));
}

#[tokio::test]
async fn there_are_only_so_many_at_a_time() {
    let hub = hub_on(&SimDisk::new());
    let mut backups = Vec::new();
    for _ in 0..MAX_BACKUPS {
        backups.push(hub.backups().begin().await.unwrap());
    }
    assert_eq!(hub.backups().begin().await.err(), Some(BackupError::TooMany));
    assert!(hub.backups().end(backups[1].id));
    hub.backups().begin().await.unwrap();
    // One that nobody has read for a while gives way, and none that is being read.
    hold_clock();
    tokio::time::advance(LEASE / 2).await;
    for backup in &backups[2..] {
        hub.backups().read(backup.id, piece("FORMAT")).await.unwrap();
    }
    hub.backups().begin().await.unwrap();
    let ended = hub.backups().read(backups[0].id, piece("FORMAT")).await;
    assert_eq!(ended, Err(BackupError::Ended(backups[0].id)));
    hub.backups().read(backups[2].id, piece("FORMAT")).await.unwrap();
    tokio::time::resume();
    hub.close().await;
    for backup in backups {
        let ended = hub.backups().read(backup.id, piece("FORMAT")).await;
        assert_eq!(ended, Err(BackupError::Ended(backup.id)));
    }
    let none = Uuid::nil();
    assert_eq!(hub.backups().read(none, piece("FORMAT")).await, Err(BackupError::Ended(none)));
}

/// A backup of a hub whose disk is full can be taken, but not at the cost of the space that the disk needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_gives_way_to_a_full_disk() {
    let disk = SimDisk::new();
    let hub = hub_on(&disk);
    let topic = TopicName::parse("t").unwrap();
    for _ in 0..20 {
        publish(&hub, 500).await.unwrap();
    }
    let backup = hub.backups().begin().await.unwrap();
    hub.backups().read(backup.id, piece("FORMAT")).await.unwrap();
    // What it holds is dropped, sooner or later.
    while hub.status().extra("reclaimed_bytes") == 0 {
        publish(&hub, 500).await.unwrap();
        let end = hub.bounds(&hub.topic(&topic).await.unwrap().unwrap()).await.unwrap()[0].next;
        hub.cleaning().trim(&topic, Partition(0), end).await.unwrap();
    }
    hub.backups().read(backup.id, piece("FORMAT")).await.unwrap();
    disk.limit(Some(disk.used()));
    while publish(&hub, 500).await.is_ok() {}
    let refused = hub.backups().read(backup.id, piece("FORMAT")).await;
    assert_eq!(refused, Err(BackupError::GaveWay(backup.id)));
    let fresh = hub.backups().begin().await.unwrap();
    hub.backups().read(fresh.id, piece("FORMAT")).await.unwrap();
    hub.close().await;
}

#[tokio::test]
async fn a_store_in_memory_has_no_files() {
    let store = prombus_store_memory::MemoryStore::new(Arc::new(SystemClock), 1);
    let hub = Hub::assemble(Store::new(Arc::new(store)), HubOptions::default());
    let refused = hub.backups().begin().await.err();
    assert!(matches!(refused, Some(BackupError::Copy(CopyError::NoFiles(_)))), "{refused:?}");
}
