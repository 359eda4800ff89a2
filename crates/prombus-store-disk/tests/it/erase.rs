//! What was forgotten is erased from every file, whatever happens on the way, and nothing else goes with it.

use crate::backup::{back_up, fetch};
use crate::support::listing::listing;
use crate::support::*;
use prombus_core::*;
use prombus_store_disk::{DiskOptions, DiskStore};
use prombus_testkit::SimDisk;
use prombus_testkit::sim_disk::{Crash, Fault};
use std::sync::Arc;
use uuid::Uuid;

/// The key that is forgotten, and what its events and documents say.
const KEY: &str = "forgotten-key";
const SECRET: &str = "told-in-confidence";

fn topic() -> TopicName {
    name("t")
}

fn json(text: String) -> Json {
    Json::parse(text.into()).unwrap()
}

/// Commit `n`: two events and two documents, one of each of the key in every third commit.
fn step(n: u64) -> Commit {
    let key = |i: u64| if n % 3 == i { KEY.to_owned() } else { format!("key-{}", n % 4) };
    let body = |key: &str| {
        json(format!("{{\"n\":{n},\"said\":\"{}\"}}", if key == KEY { SECRET } else { "nothing" }))
    };
    let append = |i: u64| {
        let id = Some(Uuid::from_u128(u128::from(2 * n + i) + 1));
        let event = NewEvent { id, key: Some(key(i).into()), ..NewEvent::new(body(&key(i))) };
        Append { placement: Placement::Named(Partition(0)), ..Append::new(topic(), event) }
    };
    let write = |i: u64| DocumentWrite::new("documents", key(i), WriteOp::Set(body(&key(i))));
    let auto_create = Some(Arc::new(NewTopics { configs: [(topic(), TopicConfig::default())].into() }));
    Commit { documents: vec![write(0), write(1)], auto_create, ..[0, 1].map(append).to_vec().into() }
}

async fn commit(store: &DiskStore, commit: Commit) -> Result<Receipt, CommitError> {
    store.commit(Arc::new(commit)).await
}

/// Thirty commits, some of them of the key.
async fn fill(store: &DiskStore) {
    for n in 0..30 {
        commit(store, step(n)).await.unwrap();
    }
}

/// An index over what documents say, so that rows of it are to be erased as well.
async fn index(store: &DiskStore) -> Result<Receipt, CommitError> {
    let fields = vec![FieldPath::parse("said").unwrap(), FieldPath::parse("n").unwrap()];
    let indexes = vec![collection::Index { fields, unique: false }];
    let config = CollectionConfig { indexes, ..CollectionConfig::default() };
    let change = ConfigChange::PutCollection { name: "documents".into(), expect_revision: 0, config };
    commit(store, Commit { config: vec![change], ..Commit::default() }).await
}

async fn history(store: &DiskStore) -> Vec<Event> {
    let (topic, key) = (TopicRef::from(&topic()), KEY.to_owned());
    let request = HistoryRequest { topic, key, after: None, limit: 1_000, max_bytes: usize::MAX };
    store.history(request).await.unwrap_or_default()
}

fn discard(offsets: impl Iterator<Item = Offset>) -> ConfigChange {
    let (partition, loss) = (Partition(0), Loss::default());
    ConfigChange::Discard { topic: (&topic()).into(), partition, offsets: Arc::new(offsets.collect()), loss }
}

/// Forgets the key as a hub does: its events, its document, and the note that it is to be erased.
async fn forget(store: &DiskStore) -> Result<Receipt, CommitError> {
    let gone = discard(history(store).await.iter().map(|event| event.offset));
    let note = ConfigChange::Forget { topic: (&topic()).into(), key: KEY.into() };
    let document = DocumentWrite::new("documents", KEY, WriteOp::Delete);
    commit(store, Commit { config: vec![gone, note], documents: vec![document], ..Commit::default() }).await
}

/// How far a run has come, as the answers say.
#[derive(Debug, Default, Clone, Copy)]
struct Outcome {
    commits: u64,
    is_forgotten: bool,
    is_erased: bool,
}

/// Fills a store, gives some events of the key up without forgetting it, forgets it, and goes on.
async fn run(store: &DiskStore) -> Outcome {
    let mut outcome = Outcome::default();
    if index(store).await.is_err() {
        return outcome;
    }
    for n in 0..24 {
        if n == 12 {
            let early = history(store).await.into_iter().map(|event| event.offset).take(2);
            if commit(store, Commit { config: vec![discard(early)], ..Commit::default() }).await.is_err() {
                return outcome;
            }
        }
        if n == 21 {
            outcome.is_forgotten = forget(store).await.is_ok();
            outcome.is_erased = outcome.is_forgotten && store.erase().await.is_ok();
            if !outcome.is_erased {
                return outcome;
            }
        }
        // Nothing of the key comes after it was forgotten.
        let n = if n >= 21 { 3 * n + 2 } else { n };
        if commit(store, step(n)).await.is_err() {
            return outcome;
        }
        outcome.commits += 1;
    }
    outcome
}

fn assert_erased(disk: &SimDisk, what: &str) {
    for bytes in [KEY, SECRET] {
        assert_eq!(disk.holding(bytes.as_bytes()), [""; 0].map(std::path::PathBuf::from), "{what}: {bytes}");
    }
}

/// All that can be read of a store that is not of the key.
async fn rest(store: &DiskStore) -> Vec<String> {
    listing(store).await.lines().filter(|line| !line.contains(KEY)).map(str::to_owned).collect()
}

/// What a store without crashes has, not of the key.
async fn expected() -> Vec<String> {
    let store = open(&SimDisk::new()).unwrap();
    run(&store).await;
    rest(&store).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_forgotten_is_in_no_file() {
    for reclaims in [true, false] {
        let disk = SimDisk::new();
        let reopen = || {
            let options = DiskOptions { reclaims, ..options() };
            DiskStore::open_on(Arc::new(disk.clone()), options).unwrap()
        };
        let store = reopen();
        fill(&store).await;
        assert!(!disk.holding(KEY.as_bytes()).is_empty() && !disk.holding(SECRET.as_bytes()).is_empty());
        let before = rest(&store).await;
        forget(&store).await.unwrap();
        assert_eq!((history(&store).await, store.document("documents", KEY).await.unwrap()), (vec![], None));
        store.erase().await.unwrap();
        assert_erased(&disk, "at once");
        assert_eq!(rest(&store).await, before);
        store.erase().await.unwrap();
        store.close().await;
        drop(store);
        assert_erased(&disk, "after it was closed");
        assert_eq!(check(&disk), [""; 0]);
        let store = reopen();
        assert_eq!(rest(&store).await, before);
        // It comes again, and goes again.
        for n in 30..40 {
            commit(&store, step(n)).await.unwrap();
        }
        store.erase().await.unwrap();
        assert!(!history(&store).await.is_empty() && !disk.holding(KEY.as_bytes()).is_empty());
        forget(&store).await.unwrap();
        store.close().await;
        drop(store);
        let store = reopen();
        store.erase().await.unwrap();
        assert_erased(&disk, "after a restart");
        // Every id is recognised.
        for n in 0..40 {
            let Commit { events, .. } = step(n);
            let receipt = commit(&store, events.into()).await.unwrap();
            assert!(receipt.events.iter().all(|event| event.duplicate), "commit {n} again");
        }
        store.close().await;
        drop(store);
        assert_eq!(check(&disk), [""; 0]);
    }
}

/// A collection that was dropped, and a topic that was deleted after a key was forgotten in it, are in files as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_dropped_is_erased_too() {
    let disk = SimDisk::new();
    let store = open(&disk).unwrap();
    fill(&store).await;
    forget(&store).await.unwrap();
    let config = vec![
        ConfigChange::DropCollection { name: "documents".into() },
        ConfigChange::DeleteTopic { name: topic() },
    ];
    commit(&store, Commit { config, ..Commit::default() }).await.unwrap();
    store.erase().await.unwrap();
    assert_erased(&disk, "with its topic");
    store.close().await;
    drop(store);
    assert_eq!(check(&disk), [""; 0]);
}

/// A backup into a folder that holds something of the key, from a backup before and from one that was interrupted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_that_is_made_again_is_clean() {
    let (disk, backup, other) = (SimDisk::new(), SimDisk::new(), SimDisk::new());
    let store = open(&disk).unwrap();
    for n in 0..15 {
        commit(&store, step(n)).await.unwrap();
    }
    back_up(&store, &backup).await;
    for n in 15..40 {
        commit(&store, step(n)).await.unwrap();
    }
    backup.restart(1);
    backup.crash_at(60, Crash::Kill);
    fetch(&*store.hold().await.unwrap(), &backup).await.expect_err("it is interrupted");
    backup.restart(2);
    let came = backup.files().iter().any(|(path, _)| path.to_string_lossy().contains(".g2"));
    assert!(came && !backup.holding(KEY.as_bytes()).is_empty(), "{:?}", backup.files());
    // One that began before has it, however late it is read.
    let held = store.hold().await.unwrap();
    forget(&store).await.unwrap();
    store.erase().await.unwrap();
    assert_erased(&disk, "on the disk of the hub");
    fetch(&*held, &other).await.unwrap();
    assert!(!other.holding(KEY.as_bytes()).is_empty(), "what is held is as it was");
    drop(held);
    for (folder, what) in [(&backup, "again"), (&other, "after one that was held")] {
        back_up(&store, folder).await;
        folder.crash(Crash::PowerCut);
        folder.restart(3);
        assert_erased(folder, what);
        assert_eq!(check(folder), [""; 0], "{what}");
        assert_eq!(rest(&open(folder).unwrap()).await, rest(&store).await, "{what}");
    }
}

/// Forgets while others publish: nothing of the new life goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_life_during_an_erasure_stays() {
    let disk = SimDisk::new();
    let store = open(&disk).unwrap();
    fill(&store).await;
    let mut lives = 0;
    for round in 0..5 {
        forget(&store).await.unwrap();
        let (erased, ()) = tokio::join!(store.erase(), async {
            for n in 0..6 {
                commit(&store, step(40 + 6 * round + n)).await.unwrap();
            }
        });
        erased.unwrap();
        lives += history(&store).await.len();
    }
    assert_eq!(lives, 5 * 4, "what came meanwhile is there until it is forgotten");
    forget(&store).await.unwrap();
    store.erase().await.unwrap();
    assert_erased(&disk, "in the end");
}

/// A key is forgotten again while it is erased: what went the first time is erased all the same when that is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_forgotten_again_during_an_erasure_is_erased() {
    let filled = SimDisk::new();
    let store = open_keeping(&filled).unwrap();
    fill(&store).await;
    forget(&store).await.unwrap();
    store.close().await;
    drop(store);
    for pauses in 0..40 {
        let disk = filled.copy();
        disk.restart(1);
        let store = open_keeping(&disk).unwrap();
        let (erased, again) = tokio::join!(store.erase(), async {
            for _ in 0..pauses {
                tokio::task::yield_now().await;
            }
            let note = ConfigChange::Forget { topic: (&topic()).into(), key: KEY.into() };
            commit(&store, Commit { config: vec![note], ..Commit::default() }).await
        });
        erased.and(again.map(drop)).unwrap();
        let left = disk.holding(SECRET.as_bytes());
        assert_eq!(left, [""; 0].map(std::path::PathBuf::from), "forgotten again after {pauses} pauses");
        store.erase().await.unwrap();
        assert_erased(&disk, "in the end");
        store.close().await;
    }
}

/// All files. An open that replays many rows puts them into a table of its own, under another number each time.
fn names(disk: &SimDisk) -> Vec<std::path::PathBuf> {
    let is_table = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "table");
    let name = |path: std::path::PathBuf| if is_table(&path) { path.with_file_name("table") } else { path };
    disk.files().into_iter().map(|(path, _)| name(path)).collect()
}

async fn crash_everywhere(crash: Crash) {
    let whole = SimDisk::new();
    let outcome = run(&open(&whole).unwrap()).await;
    assert!(outcome.is_erased && outcome.commits == 24, "{outcome:?}");
    assert_erased(&whole, "without a crash");
    let (operations, expected) = (whole.operations(), expected().await);
    for at in 1..=operations + 3 {
        let what = format!("{crash:?} in operation {at} of {operations}");
        let disk = SimDisk::new();
        disk.restart(at * 31);
        disk.crash_at(at, crash);
        let outcome = match open(&disk) {
            Ok(store) => run(&store).await,
            Err(_) => Outcome::default(),
        };
        disk.crash(crash);
        disk.restart(at * 1_000);
        let store = open(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
        let left = history(&store).await;
        assert!(left.is_empty() || !outcome.is_forgotten, "{what}: it comes back");
        if outcome.is_erased && outcome.commits == 24 {
            assert_eq!(rest(&store).await, expected, "{what}: something else is lost");
        }
        if outcome.is_forgotten {
            store.erase().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_erased(&disk, &what);
        }
        let seen = rest(&store).await;
        store.close().await;
        drop(store);
        assert_eq!(check(&disk), [""; 0], "{what}");
        // An open removes what was under way when the store was closed, and the next one finds nothing to do.
        let mut files = Vec::new();
        for _ in 0..2 {
            files = names(&disk);
            let store = open_keeping(&disk).unwrap_or_else(|error| panic!("{what}, again: {error}"));
            assert_eq!(rest(&store).await, seen, "{what}: a restart changes nothing");
            store.close().await;
        }
        assert_eq!(names(&disk), files, "{what}: no file is left over");
        assert_indexes_have_parts(&disk, &what);
        if outcome.is_forgotten {
            assert_erased(&disk, &what);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_moment_brings_nothing_back() {
    crash_everywhere(Crash::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_at_any_moment_brings_nothing_back() {
    crash_everywhere(Crash::PowerCut).await;
}

/// A part without documents and without events of the key is left alone, whatever is wrong with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_hold_a_forgotten_key_is_not_read() {
    let disk = SimDisk::new();
    let store = open_keeping(&disk).unwrap();
    let events = |n: u64| {
        let event = |i| NewEvent { key: Some("other".into()), ..NewEvent::new(payload(n, i)) };
        let append =
            |i| Append { placement: Placement::Named(Partition(0)), ..Append::new(topic(), event(i)) };
        let auto_create = Some(Arc::new(NewTopics { configs: [(topic(), TopicConfig::default())].into() }));
        Commit { auto_create, ..(0..4).map(append).collect::<Vec<_>>().into() }
    };
    for n in 0..30 {
        commit(&store, events(n)).await.unwrap();
    }
    let before = disk.files();
    commit(&store, step(0)).await.unwrap();
    forget(&store).await.unwrap();
    store.close().await;
    drop(store);
    let is_part = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "part");
    let second = before.into_iter().map(|(path, _)| path).filter(is_part).nth(1).unwrap();
    let at = disk.bytes(&second).windows(8).position(|window| window == b"\"commit\"").unwrap();
    disk.flip(&second, 8 * at);
    let store = open_keeping(&disk).unwrap();
    store.erase().await.unwrap();
    assert_erased(&disk, "beside a damaged part");
    store.close().await;
}

/// Somebody waits for it, and publishers go first all the same. A store that closes waits for neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erasure_keeps_to_its_budget() {
    let filled = SimDisk::new();
    let store = open_keeping(&filled).unwrap();
    fill(&store).await;
    forget(&store).await.unwrap();
    store.close().await;
    drop(store);
    let open_with = |rewrite_bytes_per_s| {
        let disk = filled.copy();
        disk.restart(1);
        let options = DiskOptions { rewrite_bytes_per_s, reclaims: false, ..options() };
        (DiskStore::open_on(Arc::new(disk.clone()), options).unwrap(), disk)
    };
    let began = std::time::Instant::now();
    let (store, disk) = open_with(10_000);
    store.erase().await.unwrap();
    assert!(began.elapsed() > std::time::Duration::from_millis(500), "{:?}", began.elapsed());
    assert_erased(&disk, "slowly");
    store.close().await;
    let (store, _disk) = open_with(1);
    let (erased, ()) = tokio::join!(store.erase(), async {
        tokio::task::yield_now().await;
        store.close().await;
    });
    assert!(matches!(erased, Err(CommitError::Unavailable(_))), "{erased:?}");
}

/// Whatever fails, it is said, and the next attempt does it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erasure_that_fails_is_done_later() {
    let filled = SimDisk::new();
    let store = open(&filled).unwrap();
    for n in 0..20 {
        commit(&store, step(n)).await.unwrap();
    }
    forget(&store).await.unwrap();
    store.close().await;
    drop(store);
    let mut failed = 0;
    for (nth, fault) in (1..60).flat_map(|nth| [(nth, Fault::Full), (nth, Fault::Refused)]) {
        let disk = filled.copy();
        disk.restart(nth);
        let store = open(&disk).unwrap();
        disk.fail_at(disk.operations() + nth, fault);
        failed += u64::from(store.erase().await.is_err());
        store.close().await;
        drop(store);
        let store = open(&disk).unwrap();
        store.erase().await.unwrap();
        assert_erased(&disk, &format!("after {fault:?} in operation {nth}"));
        assert!(history(&store).await.is_empty());
        store.close().await;
        drop(store);
        assert_eq!(check(&disk), [""; 0], "{fault:?} in operation {nth}");
    }
    assert!(failed > 10, "{failed} failed");
}

/// Without room to rewrite in, that is what is said; a forget itself needs none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_told_of() {
    let disk = SimDisk::new();
    // What is reclaimed in the background would make room.
    let store = open_keeping(&disk).unwrap();
    fill(&store).await;
    disk.limit(Some(disk.used()));
    let gone = discard(history(&store).await.iter().map(|event| event.offset));
    let note = ConfigChange::Forget { topic: (&topic()).into(), key: KEY.into() };
    commit(&store, Commit { config: vec![gone, note], ..Commit::default() }).await.unwrap();
    assert_eq!(history(&store).await, []);
    assert_eq!(store.erase().await, Err(CommitError::NoRoom));
    disk.limit(None);
    let document = DocumentWrite::new("documents", KEY, WriteOp::Delete);
    commit(&store, Commit { documents: vec![document], ..Commit::default() }).await.unwrap();
    store.erase().await.unwrap();
    assert_erased(&disk, "once there is room");
}
