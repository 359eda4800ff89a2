//! Data folders that earlier builds made open with this one, with everything in them.

use crate::support::DIR;
use crate::support::listing::listing;
use prombus_core::collection::{Condition, IndexFailure, Operand, Progress, Test};
use prombus_core::*;
use prombus_store_disk::disk::Disk;
use prombus_store_disk::{DiskOptions, DiskStore, check};
use prombus_testkit::SimDisk;
use prombus_testkit::sim_disk::Crash;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test]
async fn golden_folders_open_with_everything_in_them() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut folders = 0;
    for entry in fs::read_dir(golden).unwrap() {
        let folder = entry.unwrap().path();
        let expected = fs::read_to_string(folder.join("expected.txt")).unwrap();
        // What these topics do not set has another name since.
        let expected = expected.replace("\"retention_days\":0", "\"retention_ms\":0");
        let dir = tempfile::tempdir().unwrap();
        copy(&folder.join("data"), dir.path());
        assert_eq!(check(dir.path(), &mut |_| {}).unwrap().problems, [], "{}", folder.display());
        for _ in 0..2 {
            let options = DiskOptions { part_bytes: 8 << 10, ..DiskOptions::new(dir.path()) };
            let store = DiskStore::open(options).unwrap();
            assert_eq!(listing(&store).await, expected, "{}", folder.display());
            everything_is_found(&store, &folder, &folder.to_string_lossy()).await;
            store.close().await;
        }
        assert_eq!(check(dir.path(), &mut |_| {}).unwrap().problems, [], "{}", folder.display());
        goes_on(dir.path()).await;
        let journal = fs::read_dir(dir.path().join("journal")).unwrap().map(|entry| entry.unwrap().path());
        let last = journal.filter(|path| path.extension().is_some_and(|kind| kind == "part")).max().unwrap();
        assert_eq!(fs::read(last).unwrap()[12], 3, "what is written from now on has a secret");
        folders += 1;
    }
    assert!(folders > 0, "there is at least one golden folder");
}

/// Whether a folder is of a build that did not count bytes. The others were made by trims that did not say what they took.
fn is_counted_now(folder: &Path) -> bool {
    let format = fs::read_to_string(folder.join("data/FORMAT")).unwrap();
    ["1\n", "2\n", "3\n"].iter().any(|early| format.ends_with(early))
}

/// Every event is found by its id and in the history of its key, and all of them are counted.
async fn everything_is_found(store: &DiskStore, folder: &Path, what: &str) {
    for topic in store.topics().await.unwrap() {
        let (mut histories, pinned) = (BTreeMap::<String, BTreeSet<_>>::new(), topic.pinned());
        for partition in (0..topic.config.partitions).map(Partition) {
            let kept = store.kept(&pinned, partition).await.unwrap();
            let Bounds { first, next } = kept.bounds;
            let request = ReadRequest {
                topic: pinned.clone(),
                partition,
                from: first,
                limit: 1_000,
                max_bytes: 1 << 20,
            };
            let page = store.read(request).await.unwrap();
            assert_eq!(page.next, next, "{what}");
            let bytes = page.events.iter().map(Event::size).sum::<usize>() as u64;
            assert!(kept.bytes >= bytes, "{what}: {} of {bytes} bytes in partition {partition}", kept.bytes);
            assert!(
                kept.bytes == bytes || !is_counted_now(folder),
                "{what}: {} and {bytes} bytes",
                kept.bytes
            );
            for event in page.events {
                let found = store.by_id(&pinned, event.id).await.unwrap();
                assert_eq!(found.as_ref(), Some(&event), "{what}");
                let Some(key) = event.key else { continue };
                histories.entry(key.to_string()).or_default().insert((
                    event.recorded_ts,
                    partition,
                    event.offset,
                ));
            }
        }
        for (key, expected) in histories {
            let (topic, limit, max_bytes) = (pinned.clone(), 1_000, 1 << 20);
            let request = HistoryRequest { topic, key: key.clone(), after: None, limit, max_bytes };
            let history = store.history(request).await.unwrap();
            let place = |event: &Event| (event.recorded_ts, event.partition, event.offset);
            assert_eq!(history.iter().map(place).collect::<BTreeSet<_>>(), expected, "{what}: {key}");
            let latest = store.latest_by_key(&pinned, &key).await.unwrap();
            assert_eq!(latest.as_ref(), history.last(), "{what}: {key}");
        }
    }
}

/// The manifest of a backup of these files. What they are compared by is of no interest to whoever opens it.
fn manifest(files: &[(String, u64)]) -> String {
    let mut text = "prombus backup, format 1\ngeneration 1\n".to_owned();
    for (name, bytes) in files {
        text.push_str(&format!("{:032x} {bytes} {name}\n", 0));
    }
    let end = xxhash_rust::xxh3::xxh3_128(text.as_bytes());
    format!("{text}end {end:032x}\n")
}

/// A backup of a hub with an earlier format opens, and takes the backup of that hub after its upgrade.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backups_of_earlier_formats_open_with_everything_in_them() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for entry in fs::read_dir(golden).unwrap() {
        let folder = entry.unwrap().path();
        let what = folder.display();
        let (backup, hub) = (SimDisk::new(), SimDisk::new());
        for disk in [&backup, &hub] {
            load(&folder.join("data"), Path::new(DIR), disk);
        }
        let name = |path: &Path| path.strip_prefix(DIR).unwrap().to_string_lossy().into_owned();
        let files: Vec<_> = backup.files().iter().map(|(path, bytes)| (name(path), *bytes as u64)).collect();
        let listed = backup.create(&Path::new(DIR).join("BACKUP")).unwrap();
        listed.write_at(manifest(&files).as_bytes(), 0).unwrap();
        assert_eq!(crate::support::check(&backup), [""; 0], "{what}");
        let options =
            || DiskOptions { part_bytes: 8 << 10, slow_open: Duration::MAX, ..DiskOptions::new(DIR) };
        let open = |disk: &SimDisk| DiskStore::open_on(Arc::new(disk.clone()), options()).unwrap();
        let opened = open(&backup.copy());
        let upgraded = open(&hub);
        let expected = listing(&upgraded).await;
        assert_eq!(listing(&opened).await, expected, "{what}");
        crate::backup::back_up(&upgraded, &backup).await;
        assert_eq!(crate::support::check(&backup), [""; 0], "{what}");
        assert_eq!(listing(&open(&backup)).await, expected, "{what}: after the upgrade");
    }
}

/// A folder on a simulated disk.
fn load(from: &Path, to: &Path, disk: &SimDisk) {
    disk.create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            load(&entry.path(), &target, disk);
        } else {
            let file = disk.create(&target).unwrap();
            file.write_at(&fs::read(entry.path()).unwrap(), 0).unwrap();
            file.sync().unwrap();
        }
    }
    disk.sync_dir(to).unwrap();
}

/// A folder becomes one of this format when it is opened, whatever happens meanwhile.
#[tokio::test]
async fn crashes_during_an_upgrade_lose_nothing() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for entry in fs::read_dir(golden).unwrap() {
        crashes_during_the_upgrade_of(&entry.unwrap().path()).await;
    }
}

async fn crashes_during_the_upgrade_of(folder: &Path) {
    let expected = fs::read_to_string(folder.join("expected.txt")).unwrap();
    // What these topics do not set has another name since.
    let expected = expected.replace("\"retention_days\":0", "\"retention_ms\":0");
    let old = SimDisk::new();
    load(&folder.join("data"), Path::new(DIR), &old);
    let open = |disk: &SimDisk| {
        let options = DiskOptions { part_bytes: 8 << 10, slow_open: Duration::MAX, ..DiskOptions::new(DIR) };
        DiskStore::open_on(Arc::new(disk.clone()), options)
    };
    let mut at = 0;
    let mut has_ended = false;
    while !has_ended {
        at += 1;
        for crash in [Crash::Kill, Crash::PowerCut] {
            let what = format!("{}: {crash:?} in operation {at}", folder.display());
            let disk = old.copy();
            disk.restart(at);
            disk.crash_at(at, crash);
            if let Ok(store) = open(&disk) {
                store.close().await;
                has_ended = !disk.is_down();
            }
            disk.crash(crash);
            disk.restart(at);
            let store = open(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(listing(&store).await, expected, "{what}");
            everything_is_found(&store, folder, &what).await;
            store.close().await;
            drop(store);
            assert_eq!(crate::support::check(&disk), [""; 0], "{what}");
        }
    }
    assert!(at > 10, "there were only {at} operations");
}

/// What the documents of a folder have that was made before values in indexes had a longest length.
fn long(n: usize) -> String {
    "x".repeat(5_000) + &n.to_string()
}

async fn found(store: &DiskStore, field: &str, value: String) -> Vec<String> {
    let test = Test::Eq(Operand::value(value.into()));
    let find = Find {
        collection: "documents".into(),
        conditions: vec![Condition { field: FieldPath::parse(field).unwrap(), test }],
        sort: Vec::new(),
        offset: 0,
        limit: 100,
        max_bytes: usize::MAX,
        sort_bytes: usize::MAX,
    };
    store.find(find).await.unwrap().documents.into_iter().map(|document| document.key).collect()
}

/// The index that was being made has failed; waits until that is so.
async fn failed(store: &DiskStore) -> IndexFailure {
    let mut seen = Sequence(0);
    loop {
        match &store.collection("documents").await.unwrap().unwrap().indexes[3].progress {
            Progress::Failed(failure) => return failure.clone(),
            Progress::Building { .. } => seen = store.changed(&Watched::Everything, seen).await,
            Progress::Ready => panic!("it is not ready over what is too long"),
        }
    }
}

/// Rows that are longer than they may be now stay in use. Their documents can be shortened and deleted; written
/// otherwise they can not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_that_are_too_long_now_are_kept_found_and_mended() {
    let dir = tempfile::tempdir().unwrap();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/format-3-long-values/data"), dir.path());
    let open = || DiskStore::open(DiskOptions { index_step: 7, ..DiskOptions::new(dir.path()) }).unwrap();
    let store = open();
    let failure = IndexFailure::TooLong { key: "k039".into(), bytes: long(39).len() + 3 };
    assert_eq!(failed(&store).await, failure);
    let ready = store.collection("documents").await.unwrap().unwrap();
    assert!(ready.indexes[..3].iter().all(|index| index.is_ready()), "those that were there are used");
    let commit = async |key: &str, op: WriteOp| {
        let documents = vec![DocumentWrite::new("documents", key, op)];
        store.commit(Arc::new(Commit { documents, ..Commit::default() })).await
    };
    let set = |text: &str| WriteOp::Set(Json::parse(text.to_owned().into()).unwrap());
    assert_eq!(found(&store, "v", long(0)).await, ["k119", "k079", "k039"]);
    assert_eq!(found(&store, "u", long(79)).await, ["k079"]);
    let add = WriteOp::Inc(Json::parse("{\"n\":1}".into()).unwrap());
    let refused = commit("k039", add).await.unwrap_err();
    assert!(matches!(refused, CommitError::IndexValueTooLong { bytes: 5_004, .. }), "{refused}");
    commit("k039", set("{\"v\":\"short\"}")).await.unwrap();
    commit("k079", WriteOp::Delete).await.unwrap();
    store.close().await;
    drop(store);
    assert_eq!(check(dir.path(), &mut |_| {}).unwrap().problems, []);
    let store = open();
    assert_eq!(found(&store, "v", long(0)).await, ["k119"]);
    assert_eq!(found(&store, "u", long(79)).await, [""; 0]);
    assert_eq!(found(&store, "v", "short".into()).await, ["k039"]);
    assert_eq!(failed(&store).await, failure, "it stays so until it is put again");
    store.close().await;
}

/// A golden folder is not only read: it goes on.
async fn goes_on(dir: &Path) {
    let store = DiskStore::open(DiskOptions { part_bytes: 8 << 10, ..DiskOptions::new(dir) }).unwrap();
    let topic = store.topics().await.unwrap().remove(0);
    let before = store.bounds(&topic.pinned(), Partition(0)).await.unwrap();
    let append = Append {
        topic: topic.name.clone(),
        placement: Placement::Named(Partition(0)),
        expect: None,
        event: NewEvent::new(Json::parse("null".into()).unwrap()),
    };
    let receipt = store.commit(Arc::new(Commit { events: vec![append], ..Commit::default() })).await.unwrap();
    assert_eq!(receipt.events[0].offset, before.next);
    store.close().await;
    drop(store);
    assert_eq!(check(dir, &mut |_| {}).unwrap().problems, []);
}
