//! An open that took long is followed by a checkpoint: whatever makes a replay slow does so once.

use crate::support::*;
use prombus_core::*;
use prombus_store_disk::{DiskOptions, DiskStore};
use prombus_testkit::SimDisk;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// With its content: a later one in the same part has the same name.
fn newest_checkpoint(disk: &SimDisk) -> Option<(PathBuf, Vec<u8>)> {
    let paths = disk.files().into_iter().map(|(path, _)| path);
    let newest = paths.filter(|path| path.extension().is_some_and(|end| end == "state")).max()?;
    let content = disk.bytes(&newest);
    Some((newest, content))
}

async fn opened_and_closed(disk: &SimDisk, slow_open: Duration) {
    let options = DiskOptions { part_bytes: 1 << 20, rows_in_memory: usize::MAX, slow_open, ..options() };
    let store = DiskStore::open_on(Arc::new(disk.clone()), options).unwrap();
    store.commit(Arc::new(Commit::default())).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_slow_open_makes_the_next_one_fast() {
    let disk = filled(20).await;
    let before = newest_checkpoint(&disk);
    opened_and_closed(&disk, Duration::MAX).await;
    assert!(newest_checkpoint(&disk) == before, "an open that is fast leaves things as they are");
    opened_and_closed(&disk, Duration::ZERO).await;
    assert!(newest_checkpoint(&disk) != before, "a slow one is followed by a checkpoint");
    assert_eq!(check(&disk), [""; 0]);
    let store = open(&disk).unwrap();
    assert_eq!(commits_there(&store, "sync").await, (0..20).collect::<Vec<_>>());
}
