//! The end of the journal: whichever sector of it is lost, nothing that was answered goes unnoticed, and nothing that a
//! client sends makes a torn tail look like damage.

use crate::support::*;
use prombus_core::*;
use prombus_store_disk::{DiskOptions, DiskStore, OpenError};
use prombus_testkit::SimDisk;
use prombus_testkit::sim_disk::{Crash, SECTOR};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PART: &str = "/data/journal/0000000001.part";
const MAGIC: &[u8] = b"PBAT";
const BATCH_HEAD: usize = 56;

/// One part and nothing else, so that everything is read when it is opened.
fn one_part(disk: &SimDisk) -> Result<Arc<DiskStore>, OpenError> {
    let options = DiskOptions { part_bytes: 16 << 10, rows_in_memory: usize::MAX, ..options() };
    DiskStore::open_on(Arc::new(disk.clone()), options)
}

async fn with_commits(commits: u64) -> (SimDisk, Arc<DiskStore>) {
    let disk = SimDisk::new();
    let store = one_part(&disk).unwrap();
    store.commit(Arc::new(create("sync", Durability::Sync))).await.unwrap();
    for n in 0..commits {
        let commit = numbered(&store, "sync", n).await;
        store.commit(Arc::new(commit)).await.unwrap();
    }
    (disk, store)
}

/// A disk that a hub has left in peace.
async fn stopped(commits: u64) -> SimDisk {
    let (disk, store) = with_commits(commits).await;
    store.close().await;
    disk
}

/// A disk whose hub was killed when it had been idle for a while.
async fn idle(commits: u64) -> SimDisk {
    let (disk, store) = with_commits(commits).await;
    let is_empty = |bytes: &[u8], at: usize| bytes[at + 12..at + 16] == [0; 4];
    loop {
        let bytes = disk.bytes(Path::new(PART));
        let last = last_batch(&bytes);
        if is_empty(&bytes, last) && last.is_multiple_of(SECTOR) {
            break;
        }
        tokio::task::yield_now().await;
    }
    disk.crash(Crash::Kill);
    drop(store);
    disk.restart(1);
    disk
}

/// Where the last batch starts.
fn last_batch(bytes: &[u8]) -> usize {
    (0..bytes.len() - BATCH_HEAD).step_by(8).rfind(|at| bytes[*at..].starts_with(MAGIC)).unwrap()
}

/// Where what was written ends.
fn end(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Loses one sector of a file at a time, in two ways: everything is there, or the open refuses.
async fn assert_no_loss_goes_unnoticed(disk: &SimDisk, commits: u64, files: &[(PathBuf, usize)]) {
    for (path, len) in files {
        for start in (0..*len).step_by(SECTOR) {
            for change in [|_| 0u8, |byte: u8| !byte] {
                let copy = disk.copy();
                copy.damage(path, start..start + SECTOR, change);
                let Ok(store) = one_part(&copy) else { continue };
                let there = commits_there(&store, "sync").await;
                let expected: Vec<u64> = (0..commits).collect();
                assert_eq!(there, expected, "after the loss of {} from byte {start}", path.display());
                assert_eq!(counter(&store).await, commits);
            }
        }
    }
}

/// The file of the part, as far as something is written there, and what an inverted sector behind would be.
fn written(disk: &SimDisk) -> Vec<(PathBuf, usize)> {
    let path = PathBuf::from(PART);
    let end = end(&disk.bytes(&path));
    vec![(path, end + SECTOR)]
}

#[tokio::test]
async fn a_sector_that_is_lost_after_a_clean_stop_is_noticed() {
    // With each number of commits, the end is elsewhere in its sector.
    for commits in 1..20 {
        let disk = stopped(commits).await;
        assert_no_loss_goes_unnoticed(&disk, commits, &written(&disk)).await;
    }
    let disk = stopped(5).await;
    assert_no_loss_goes_unnoticed(&disk, 5, &disk.files()).await;
}

#[tokio::test]
async fn a_sector_that_is_lost_after_an_idle_hub_is_noticed() {
    let disks = (1..6).map(|commits| tokio::spawn(async move { (idle(commits).await, commits) }));
    for disk in disks.collect::<Vec<_>>() {
        let (disk, commits) = disk.await.unwrap();
        assert_no_loss_goes_unnoticed(&disk, commits, &written(&disk)).await;
    }
}

/// What is appended behind data and their cover is covered in turn.
#[tokio::test]
async fn a_sector_that_is_lost_after_several_stops_is_noticed() {
    let disk = stopped(3).await;
    for n in 3..6 {
        let store = one_part(&disk).unwrap();
        let commit = numbered(&store, "sync", n).await;
        store.commit(Arc::new(commit)).await.unwrap();
        store.close().await;
    }
    assert_no_loss_goes_unnoticed(&disk, 6, &written(&disk)).await;
}

/// An event with a key, behind one that was answered; and the disk as a kill leaves it then.
async fn with_key(key: &str) -> SimDisk {
    let (disk, store) = with_commits(1).await;
    let event = NewEvent { key: Some(key.into()), ..NewEvent::new(payload(1, 0)) };
    let (topic, placement) = (name("sync"), Placement::Named(Partition(0)));
    let events = vec![Append { topic, placement, expect: None, event }];
    store.commit(Arc::new(Commit { events, ..Commit::default() })).await.unwrap();
    disk.crash(Crash::Kill);
    drop(store);
    disk.restart(1);
    disk
}

/// A batch at `at` that says that everything before it was flushed, as text; as good as it gets without the secret.
fn forged(at: usize) -> String {
    let pos = (1u64 << 32 | at as u64).to_le_bytes();
    for sequence in 0u64..1 << 14 {
        let mut batch = MAGIC.to_vec();
        batch.extend([0; 4]);
        batch.extend((BATCH_HEAD as u32).to_le_bytes());
        batch.extend(0u32.to_le_bytes());
        batch.extend(pos);
        batch.extend(1u64.to_le_bytes());
        batch.extend(pos);
        batch.extend(sequence.to_le_bytes());
        batch.extend(1_000_000u64.to_le_bytes());
        let crc = crc32fast::hash(&batch[8..]);
        batch[4..8].copy_from_slice(&crc.to_le_bytes());
        if let Ok(text) = String::from_utf8(batch) {
            return text;
        }
    }
    panic!("no batch at byte {at} is text");
}

#[tokio::test]
async fn what_a_client_sends_does_not_make_a_torn_tail_look_damaged() {
    // Where the key of such an event comes to lie.
    let room = "k".repeat(4 * BATCH_HEAD);
    let bytes = with_key(&room).await.bytes(Path::new(PART));
    let key = bytes.windows(room.len()).position(|window| window == room.as_bytes()).unwrap();
    let is_text = |at: &usize| at.to_le_bytes().iter().all(|byte| *byte < 0x80);
    let at = (key.next_multiple_of(8)..).step_by(8).find(is_text).unwrap();
    let (before, batch) = ("k".repeat(at - key), forged(at));
    let disk =
        with_key(&format!("{before}{batch}{}", "k".repeat(room.len() - before.len() - batch.len()))).await;
    let bytes = disk.bytes(Path::new(PART));
    assert_eq!(&bytes[at..at + BATCH_HEAD], batch.as_bytes(), "it lies where it says");
    let start = (0..at).step_by(8).rfind(|at| bytes[*at..].starts_with(MAGIC)).unwrap();
    let end = end(&bytes);
    for place in (start + 8..=end).step_by(8) {
        for torn in [start..place, place..end + 8] {
            let copy = disk.copy();
            copy.damage(Path::new(PART), torn.clone(), |_| 0);
            let store = one_part(&copy).unwrap_or_else(|error| panic!("torn at {torn:?}: {error}"));
            assert_eq!(counter(&store).await, 1, "what was answered before is there");
        }
    }
}
