//! However many parts there are, only a few files are open at a time.

use crate::support::*;
use prombus_core::*;
use prombus_store_disk::{DiskOptions, DiskStore};
use prombus_testkit::SimDisk;
use std::sync::Arc;
use std::time::Duration;

const PARTS: usize = 400;
/// What is open at a time, beside what is written, and what there may be with that.
const OPEN: usize = 8;
const LIMIT: usize = 24;
const EVENT: usize = 900;
/// Long enough for what must happen, on any machine.
const LONG: Duration = Duration::from_secs(25);

fn few(disk: &SimDisk) -> Arc<DiskStore> {
    let options = DiskOptions { part_bytes: 1 << 10, open_files: OPEN, reclaims: false, ..options() };
    DiskStore::open_on(Arc::new(disk.clone()), options).unwrap()
}

fn event(n: usize) -> Json {
    Json::parse(format!("\"{n} {}\"", "x".repeat(EVENT)).into()).unwrap()
}

async fn publish(store: &DiskStore, n: usize) -> Result<Receipt, CommitError> {
    let event = NewEvent { key: Some(format!("key-{n}").into()), ..NewEvent::new(event(n)) };
    let append = Append { topic: name("a"), placement: Placement::Named(Partition(0)), expect: None, event };
    store.commit(Arc::new(Commit { events: vec![append], ..Commit::default() })).await
}

/// A disk with a part for each event.
async fn many_parts() -> SimDisk {
    let disk = SimDisk::new();
    let store = few(&disk);
    store.commit(Arc::new(create("a", Durability::Sync))).await.unwrap();
    for n in 0..PARTS {
        publish(&store, n).await.unwrap();
    }
    assert_all_there(&store).await;
    store.close().await;
    drop(store);
    assert!(parts(&disk) >= PARTS, "there are only {} parts", parts(&disk));
    disk
}

/// Every event is found, one way and another.
async fn assert_all_there(store: &DiskStore) {
    let topic = TopicRef::from(&name("a"));
    let mut from = Offset(0);
    while from.0 < PARTS as u64 {
        let request = ReadRequest {
            topic: topic.clone(),
            partition: Partition(0),
            from,
            limit: 100,
            max_bytes: 1 << 20,
        };
        let page = store.read(request).await.unwrap();
        for found in &page.events {
            assert_eq!(found.payload, event(found.offset.0 as usize));
        }
        from = page.next;
    }
    for n in [0, PARTS / 2, PARTS - 1] {
        let found = store.latest_by_key(&topic, &format!("key-{n}")).await.unwrap();
        assert_eq!(found.unwrap().payload, event(n));
    }
}

#[tokio::test]
async fn many_parts_need_few_handles() {
    let disk = many_parts().await;
    assert!((OPEN..=LIMIT).contains(&disk.most_handles()));
    let store = few(&disk);
    assert_all_there(&store).await;
    let _ = store.status();
    store.close().await;
    drop(store);
    assert!((OPEN..=LIMIT).contains(&disk.most_handles()));
    assert_eq!(disk.most_handles(), 0, "all are closed again");
    assert_eq!(check(&disk), [""; 0]);
}

/// How many parts there are.
fn parts(disk: &SimDisk) -> usize {
    disk.files().iter().filter(|(path, _)| path.extension().is_some_and(|kind| kind == "part")).count()
}

/// Whoever removes many files at once needs no handle for each of them.
#[tokio::test]
async fn many_parts_are_dropped_with_few_handles() {
    let disk = many_parts().await;
    disk.limit_handles(Some(LIMIT));
    let options = DiskOptions { part_bytes: 1 << 10, open_files: OPEN, ..options() };
    let store = DiskStore::open_on(Arc::new(disk.clone()), options).unwrap();
    let (topic, partition, loss) =
        ((&name("a")).into(), Partition(0), Loss { bytes: 0, horizon_ts: Some(1) });
    let trim = ConfigChange::Trim { topic, partition, before: Offset(PARTS as u64 - 1), loss };
    store.commit(Arc::new(Commit { config: vec![trim], ..Commit::default() })).await.unwrap();
    let dropped = async {
        while parts(&disk) > PARTS / 10 {
            // Looked at less often, because whoever looks keeps the disk from others.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let dropped = tokio::time::timeout(LONG, dropped).await;
    assert!(dropped.is_ok(), "there are still {} parts", parts(&disk));
    store.close().await;
    drop(store);
    assert_eq!(check(&disk), [""; 0]);
}

#[tokio::test]
async fn a_read_that_gets_no_handle_fails_and_nothing_else_does() {
    let disk = many_parts().await;
    let store = few(&disk);
    let topic = TopicRef::from(&name("a"));
    disk.limit_handles(Some(0));
    let refused = store.latest_by_key(&topic, "key-3").await;
    assert!(
        matches!(&refused, Err(ReadError::Unavailable(why)) if why.contains("open files")),
        "{refused:?}"
    );
    // The part that is written has its handle: one more commit fits there, and a new part does not come about.
    let refused = loop {
        match publish(&store, 0).await {
            Ok(_) => {}
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, CommitError::Unavailable(_)), "{refused}");
    assert_eq!(store.status().failed, None, "it is not poisoned");
    disk.limit_handles(Some(LIMIT));
    assert_all_there(&store).await;
    publish(&store, 0).await.unwrap();
    store.close().await;
    drop(store);
    assert_eq!(check(&disk), [""; 0]);
}

/// Those of a folder that are open and have no name any more. They take room until they are closed.
fn open_without_names(folder: &std::path::Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let names = open.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    names.filter(|name| name.starts_with(folder) && name.to_string_lossy().ends_with("(deleted)")).count()
}

/// Nobody who only waits keeps a file that was removed.
#[tokio::test]
async fn files_that_were_removed_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, open_files) = (folder.path().to_owned(), 10 * PARTS);
    let options = DiskOptions { dir, open_files, part_bytes: 1 << 10, ..options() };
    let store = DiskStore::open(options).unwrap();
    store.commit(Arc::new(create("a", Durability::Sync))).await.unwrap();
    for n in 0..PARTS / 10 {
        publish(&store, n).await.unwrap();
    }
    let parts = || std::fs::read_dir(folder.path().join("journal")).unwrap().count();
    let before = parts();
    let (topic, partition, loss) =
        ((&name("a")).into(), Partition(0), Loss { bytes: 0, horizon_ts: Some(1) });
    let trim = ConfigChange::Trim { topic, partition, before: Offset(PARTS as u64 / 10 - 1), loss };
    store.commit(Arc::new(Commit { config: vec![trim], ..Commit::default() })).await.unwrap();
    let closed = async {
        while parts() > before / 4 || open_without_names(folder.path()) > 0 {
            // Others do it.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let closed = tokio::time::timeout(LONG, closed).await;
    assert!(closed.is_ok(), "{} files, and {} without names", parts(), open_without_names(folder.path()));
    store.close().await;
}
