//! A backup of a store that is in use: it has all that was answered before it began, as of one commit, and what is in its
//! folder can be opened at every moment, whatever goes down.

use crate::support::*;
use prombus_core::*;
use prombus_store_disk::{BackupError, DiskOptions, DiskStore, OpenError, Target, WantedFile};
use prombus_testkit::SimDisk;
use prombus_testkit::sim_disk::Crash;
use std::path::Path;
use std::sync::Arc;

/// Small, so that files come in several pieces.
const PIECE: usize = 1000;

/// Fetches a copy into the folder on `disk`; how many bytes that took.
pub async fn fetch(copy: &dyn HeldCopy, disk: &SimDisk) -> Result<u64, BackupError> {
    let target = Target::open_on(Arc::new(disk.clone()), Path::new(DIR))?;
    let update = target.begin(copy.files())?;
    let mut fetched = 0;
    for wanted in update.wanted().to_vec() {
        let WantedFile { name, bytes, have } = wanted.clone();
        let is_same = match have {
            Some((bytes, fingerprint)) => copy.fingerprint(&name, bytes).await.unwrap() == fingerprint,
            None => true,
        };
        let mut incoming = update.receive(if is_same { wanted } else { wanted.from_the_start() })?;
        while incoming.at() < bytes {
            let piece = copy.read(&name, incoming.at(), PIECE).await.unwrap();
            fetched += piece.len() as u64;
            incoming.write(&piece)?;
        }
        incoming.finish()?;
    }
    update.finish()?;
    Ok(fetched)
}

pub async fn back_up(store: &DiskStore, disk: &SimDisk) -> u64 {
    fetch(&*store.hold().await.unwrap(), disk).await.unwrap()
}

/// What a store has, in words.
async fn content(store: &DiskStore) -> String {
    let commits = commits_there(store, "sync").await;
    assert_eq!(counter(store).await, commits.len() as u64);
    assert_eq!(items(store).await, items_after(&commits));
    listing::listing(store).await
}

/// What a backup has, opened where nothing comes of it; that nothing is wrong with it is seen before and after.
async fn restored(disk: &SimDisk, what: &str) -> String {
    assert_eq!(check(disk), [""; 0], "{what}");
    let disk = disk.copy();
    let store = open(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    let content = content(&store).await;
    let next = commits_there(&store, "sync").await.len() as u64;
    store.close().await;
    drop(store);
    assert_eq!(check(&disk), [""; 0], "{what}");
    // A hub that has it goes on.
    let store = open(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    store.commit(Arc::new(create(&format!("later-{next}"), Durability::Sync))).await.unwrap();
    content
}

async fn workload(store: &DiskStore, commits: std::ops::Range<u64>) {
    for n in commits {
        let commit = numbered(store, "sync", n).await;
        store.commit(Arc::new(commit)).await.unwrap();
    }
}

async fn begun(disk: &SimDisk) -> Arc<DiskStore> {
    let store = open(disk).unwrap();
    for (topic, durability) in [("sync", Durability::Sync), ("interval", Durability::Interval)] {
        store.commit(Arc::new(create(topic, durability))).await.unwrap();
    }
    store
}

/// Events that are published and given up again, so that parts of the journal are rewritten and dropped.
async fn churn(store: &DiskStore, rounds: std::ops::Range<u64>) {
    for round in rounds {
        for n in 0..6 {
            let commit = numbered(store, "interval", round * 6 + n).await;
            store.commit(Arc::new(commit)).await.unwrap();
        }
        for partition in [Partition(0), Partition(1)] {
            let topic = name("interval");
            let kept = store.kept(&TopicRef::from(&topic), partition).await.unwrap().bounds;
            let before = Offset(kept.next.0.saturating_sub(3).max(kept.first.0));
            let trim =
                ConfigChange::Trim { topic: (&topic).into(), partition, before, loss: Loss::default() };
            store.commit(Arc::new(Commit { config: vec![trim], ..Commit::default() })).await.unwrap();
        }
    }
}

fn parts(files: &[CopyFile]) -> Vec<&str> {
    files.iter().map(|file| file.name.as_str()).filter(|name| name.ends_with(".part")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_what_the_store_was() {
    let (disk, backup) = (SimDisk::new(), SimDisk::new());
    let store = begun(&disk).await;
    for n in 0..30 {
        workload(&store, n..n + 1).await;
        churn(&store, n..n + 1).await;
        back_up(&store, &backup).await;
        let now = content(&store).await;
        assert_eq!(restored(&backup, &format!("after commit {n}")).await, now, "after commit {n}");
    }
    assert!(disk.files().iter().any(|(path, _)| path.to_string_lossy().ends_with(".table")));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_backup_fetches_what_is_new() {
    let (disk, backup) = (SimDisk::new(), SimDisk::new());
    let store = begun(&disk).await;
    workload(&store, 0..40).await;
    store.close().await;
    drop(store);
    // From here on the store does nothing by itself: no part is full, and none is rewritten.
    let quiet = DiskOptions { part_bytes: 1 << 20, rows_in_memory: usize::MAX, reclaims: false, ..options() };
    let store = DiskStore::open_on(Arc::new(disk.clone()), quiet).unwrap();
    let all = back_up(&store, &backup).await;
    let files = backup.files();
    assert_eq!(back_up(&store, &backup).await, 0);
    assert_eq!(backup.files(), files, "nothing is done for nothing");
    let event = numbered(&store, "interval", 1).await;
    store.commit(Arc::new(event)).await.unwrap();
    let more = back_up(&store, &backup).await;
    assert!(0 < more && more < 1024 && more < all / 8, "{more} of {all}");
    assert_eq!(restored(&backup, "after a little more").await, content(&store).await);
}

/// What was answered and need not be flushed yet is in it as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_has_what_was_answered_unflushed() {
    let (disk, backup) = (SimDisk::new(), SimDisk::new());
    let store = begun(&disk).await;
    for n in 0..20 {
        let commit = numbered(&store, "interval", n).await;
        store.commit(Arc::new(commit)).await.unwrap();
        let copy = store.hold().await.unwrap();
        // Whatever becomes of the hub, what is held was flushed.
        let cut = disk.copy();
        cut.crash(Crash::PowerCut);
        cut.restart(n);
        fetch(&*copy, &backup).await.unwrap();
        let there = open(&backup.copy()).unwrap();
        assert_eq!(commits_there(&there, "interval").await, (0..=n).collect::<Vec<_>>());
        assert_eq!(commits_there(&open(&cut).unwrap(), "interval").await, (0..=n).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_stays_whatever_is_rewritten() {
    let (disk, backup) = (SimDisk::new(), SimDisk::new());
    let store = begun(&disk).await;
    workload(&store, 0..10).await;
    churn(&store, 0..4).await;
    let (then, copy) = (content(&store).await, store.hold().await.unwrap());
    let held = copy.files().to_vec();
    let (mut n, mut round) = (10, 4);
    while copy.held_back() == 0 {
        workload(&store, n..n + 1).await;
        churn(&store, round..round + 1).await;
        (n, round) = (n + 1, round + 1);
        assert!(n < 2_000, "nothing is ever rewritten");
    }
    assert_eq!(copy.files(), held);
    fetch(&*copy, &backup).await.unwrap();
    assert_eq!(restored(&backup, "held").await, then);
    // Once more into the same folder: what the hub no longer has goes.
    let copy = store.hold().await.unwrap();
    fetch(&*copy, &backup).await.unwrap();
    let there: Vec<String> =
        backup.files().iter().map(|(path, _)| path.to_string_lossy().into_owned()).collect();
    for name in parts(&held).into_iter().filter(|name| !parts(copy.files()).contains(name)) {
        assert!(!there.iter().any(|path| path.ends_with(name)), "{name} is gone from the hub: {there:?}");
    }
    assert_eq!(restored(&backup, "once more").await, content(&store).await);
}

/// The machine with the backup goes down in every operation; then again in every operation of opening what is there.
async fn crash_everywhere(crash: Crash) {
    let (disk, first) = (SimDisk::new(), SimDisk::new());
    let store = begun(&disk).await;
    workload(&store, 0..20).await;
    churn(&store, 0..8).await;
    let (before, copy) = (content(&store).await, store.hold().await.unwrap());
    fetch(&*copy, &first).await.unwrap();
    workload(&store, 20..45).await;
    let mut round = 8;
    // Some of what was copied is not needed any more: how soon is up to the machine.
    while copy.held_back() == 0 || round < 20 {
        churn(&store, round..round + 1).await;
        round += 1;
        assert!(round < 10_000, "nothing is ever dropped");
    }
    let (after, copy) = (content(&store).await, store.hold().await.unwrap());
    let whole = first.copy();
    whole.restart(1);
    fetch(&*copy, &whole).await.unwrap();
    let operations = whole.operations();
    assert!(operations > 30, "there is enough to be interrupted: {operations}");
    let (mut olds, mut news) = (0, 0);
    for at in 1..=operations {
        let what = format!("{crash:?} in operation {at} of {operations}");
        let disk = first.copy();
        disk.restart(at);
        disk.crash_at(at, crash);
        assert!(fetch(&*copy, &disk).await.is_err(), "{what}");
        disk.restart(at * 1_000);
        let found = restored(&disk, &what).await;
        assert!(found == before || found == after, "{what}: {found}");
        if found == before {
            olds += 1
        } else {
            news += 1
        }
        // The same however often the machine goes down while it is opened.
        let opened = disk.copy();
        // Each operation of that has its turn, over all the others.
        for again in (1..=40).filter(|again| (again + at) % 7 == 0) {
            opened.restart(at * 31 + again);
            opened.crash_at(again, crash);
            let store = open(&opened);
            opened.crash(crash);
            drop(store);
            opened.restart(at * 37 + again);
            let Ok(store) = open(&opened.copy()) else { panic!("{what}, and again in {again}") };
            assert_eq!(content(&store).await, found, "{what}, and again in operation {again}");
        }
        // The next backup into it is whole, and goes on with what has come in.
        fetch(&*copy, &disk).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(restored(&disk, &what).await, after, "{what}");
        let files = |disk: &SimDisk| disk.files().into_iter().map(|(path, _)| path).collect::<Vec<_>>();
        assert_eq!(files(&disk), files(&whole), "{what}: nothing is left over");
    }
    assert!(olds > 10 && news > 3, "{olds} and {news}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_in_every_operation_leaves_a_backup() {
    crash_everywhere(Crash::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_in_every_operation_leaves_a_backup() {
    crash_everywhere(Crash::PowerCut).await;
}

/// A first backup that was interrupted is no data folder, and the next one goes on with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unfinished_first_backup_is_told_from_a_finished_one() {
    let disk = SimDisk::new();
    let store = begun(&disk).await;
    workload(&store, 0..20).await;
    let (now, copy) = (content(&store).await, store.hold().await.unwrap());
    let whole = SimDisk::new();
    whole.restart(1);
    let all = fetch(&*copy, &whole).await.unwrap();
    for at in 1..=whole.operations() {
        let what = format!("operation {at}");
        let disk = SimDisk::new();
        disk.restart(at);
        disk.crash_at(at, Crash::PowerCut);
        assert!(fetch(&*copy, &disk).await.is_err(), "{what}");
        disk.restart(at);
        let is_begun = disk.files().iter().any(|(path, _)| path.ends_with("BACKUP"));
        match open(&disk.copy()) {
            Ok(store) if is_begun => assert_eq!(content(&store).await, now, "{what}"),
            Ok(store) => assert_eq!(store.topics().await.unwrap(), [], "{what}: it is empty"),
            Err(OpenError::NotOurs { why, .. }) => assert!(why.contains("prombus backup"), "{what}: {why}"),
            Err(error) => panic!("{what}: {error}"),
        }
        let again = fetch(&*copy, &disk).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(again <= all, "{what}");
        assert_eq!(restored(&disk, &what).await, now, "{what}");
    }
}

/// A hub that was restored from an older backup, and has gone another way, backs up into a folder with a newer one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_hub_that_went_another_way_is_not_mixed_up() {
    let (disk, old, new) = (SimDisk::new(), SimDisk::new(), SimDisk::new());
    let store = begun(&disk).await;
    workload(&store, 0..15).await;
    back_up(&store, &old).await;
    workload(&store, 15..40).await;
    churn(&store, 0..10).await;
    back_up(&store, &new).await;
    store.close().await;
    let other = DiskStore::open_on(Arc::new(old.clone()), DiskOptions { seed: 77, ..options() }).unwrap();
    workload(&other, 15..33).await;
    churn(&other, 20..26).await;
    back_up(&other, &new).await;
    assert_eq!(restored(&new, "another way").await, content(&other).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_an_empty_folder_or_a_backup_is_taken() {
    let (disk, backup) = (SimDisk::new(), SimDisk::new());
    let store = begun(&disk).await;
    let copy = store.hold().await.unwrap();
    let refused = fetch(&*copy, &disk).await.unwrap_err();
    assert!(matches!(refused, BackupError::NotABackup { .. }), "{refused}");
    let other = SimDisk::new();
    let with_file = Path::new(DIR);
    prombus_store_disk::disk::Disk::create_dir(&other, with_file).unwrap();
    prombus_store_disk::disk::Disk::create(&other, &with_file.join("holiday.jpg")).unwrap();
    let refused = fetch(&*copy, &other).await.unwrap_err();
    assert!(matches!(refused, BackupError::NotABackup { .. }), "{refused}");
    // Two at a time are one too many.
    let first = Target::open_on(Arc::new(backup.clone()), Path::new(DIR)).unwrap();
    let second = fetch(&*copy, &backup).await.unwrap_err();
    assert!(matches!(second, BackupError::Open(OpenError::Locked(_))), "{second}");
    drop(first);
    fetch(&*copy, &backup).await.unwrap();
    // A hub that has opened a backup has made it its own.
    let hub = open(&backup).unwrap();
    let refused = fetch(&*copy, &backup).await.unwrap_err();
    assert!(matches!(refused, BackupError::NotABackup { .. }), "{refused}");
    hub.close().await;
}

/// What a copy of a backup lacks is seen before anything is changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_that_was_cut_off_is_not_opened() {
    let (disk, backup) = (SimDisk::new(), SimDisk::new());
    let store = begun(&disk).await;
    workload(&store, 0..25).await;
    back_up(&store, &backup).await;
    for (path, len) in backup.files() {
        if ["BACKUP", "LOCK"].iter().any(|name| path.ends_with(name)) {
            continue;
        }
        let gone = backup.copy();
        prombus_store_disk::disk::Disk::remove(&gone, &path).unwrap();
        let short = backup.copy();
        let file = prombus_store_disk::disk::Disk::open(&short, &path).unwrap();
        file.set_len(len as u64 / 2).unwrap();
        for cut in [gone, short] {
            let before = cut.files();
            assert_ne!(check(&cut), [""; 0], "{}", path.display());
            let Err(error) = open(&cut) else { panic!("{} is not missed", path.display()) };
            assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
            assert_eq!(cut.files(), before);
            // Another backup into it mends it.
            back_up(&store, &cut).await;
            assert_eq!(restored(&cut, "mended").await, content(&store).await);
        }
    }
}

#[tokio::test]
async fn a_store_that_is_closed_gives_no_copy() {
    let disk = SimDisk::new();
    let store = begun(&disk).await;
    let copy = store.hold().await.unwrap();
    for (name, from) in [("LOCK", 0), ("FORMAT", 1 << 40), ("../FORMAT", 0), ("journal/0000000009.part", 0)] {
        assert!(copy.read(name, from, 1).await.is_err(), "{name}");
    }
    store.close().await;
    let Err(error) = store.hold().await else { panic!("a closed store is copied") };
    assert!(matches!(error, CopyError::Unavailable(_)), "{error}");
    // Whoever copies keeps nobody from opening the folder.
    drop(store);
    drop(open(&disk).unwrap());
}
