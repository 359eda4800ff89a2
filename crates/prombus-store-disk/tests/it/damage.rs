//! Flipped bits, failed flushes and full disks.

use crate::support::*;
use prombus_core::collection::Progress;
use prombus_core::*;
use prombus_store_disk::disk::{Disk, DiskFile, Lock};
use prombus_store_disk::{DiskOptions, DiskStore, OpenError};
use prombus_testkit::SimDisk;
use prombus_testkit::sim_disk::Crash;
use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Long enough for what must happen, on any machine.
const LONG: Duration = Duration::from_secs(25);

#[tokio::test]
async fn check_finds_a_flipped_bit_in_every_byte() {
    let disk = filled(7).await;
    assert_eq!(check(&disk), [""; 0]);
    for kind in ["part", "index", "state", "table"] {
        let is_kind = |(path, _): &(std::path::PathBuf, usize)| path.extension().is_some_and(|e| e == kind);
        assert!(disk.files().iter().any(is_kind), "there is no {kind}");
    }
    let mut flips = 0;
    for (path, len) in disk.files() {
        for byte in 0..len {
            let bit = byte * 8 + (byte * 7 + 3) % 8;
            disk.flip(&path, bit);
            assert!(!check(&disk).is_empty(), "bit {bit} of {} was not found", path.display());
            disk.flip(&path, bit);
            flips += 1;
        }
    }
    assert_eq!(check(&disk), [""; 0]);
    assert!(flips > 10_000, "{flips}");
}

/// An index is written when the next part is there, so it is all that says that parts are missing behind the last one.
#[tokio::test]
async fn an_index_behind_the_last_part_says_that_it_is_missing() {
    let disk = filled(14).await;
    let path = |number: usize, kind: &str| Path::new(DIR).join(format!("journal/{number:010}.{kind}"));
    let parts = (1..).take_while(|number| !disk.bytes(&path(*number, "part")).is_empty()).count();
    for gone in [path(parts, "part"), path(parts - 1, "part"), path(parts - 2, "index")] {
        disk.remove(&gone).unwrap();
    }
    for (gone, _) in disk.files() {
        // Without checkpoints, nothing else tells of them.
        if gone.parent() == Some(&Path::new(DIR).join("state")) {
            disk.remove(&gone).unwrap();
        }
    }
    let missing = path(parts - 1, "part");
    match open(&disk) {
        Err(OpenError::Damaged { file, .. }) => assert_eq!(file, missing),
        other => panic!("{:?}", other.err()),
    }
    assert!(check(&disk).iter().any(|problem| problem.contains(&*missing.to_string_lossy())));
    assert!(!disk.bytes(&path(parts - 1, "index")).is_empty(), "it is kept");
}

/// Damage to what was flushed stops the open and says where; what it left alone opens as it was.
#[tokio::test]
async fn open_stops_at_damage_and_says_where() {
    let disk = filled(14).await;
    let parts: Vec<_> =
        disk.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "part")).collect();
    let (last, _) = parts.last().unwrap().clone();
    let end = data_end(&disk.bytes(&last));
    for byte in (0..end).step_by(5) {
        disk.flip(&last, byte * 8 + byte % 8);
        match open_keeping(&disk) {
            Err(OpenError::Damaged { file, at, .. }) => {
                assert_eq!(file, last);
                assert!(at <= byte as u64, "it is told at {at}, and is at {byte}");
            }
            Err(other) => panic!("byte {byte}: {other}"),
            Ok(_) => panic!("damage at byte {byte} of {end} was not noticed"),
        }
        disk.flip(&last, byte * 8 + byte % 8);
    }
    assert_eq!(check(&disk), [""; 0], "nothing was changed");
}

/// Where the last batch of a part ends that has something in it. Behind it, nothing can be lost.
fn data_end(bytes: &[u8]) -> usize {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut end) = (64, 64);
    while bytes[at..].starts_with(b"PBAT") {
        let (len, items) = (u32_at(at + 8), u32_at(at + 12));
        at += len as usize;
        end = if items > 0 { at } else { end };
    }
    end
}

/// Data that was flushed and not covered by a later batch looks like a torn tail, and only that.
#[tokio::test]
async fn an_idle_hub_covers_its_last_data() {
    let disk = SimDisk::new();
    // Nothing but the empty batch happens here by itself.
    let options = DiskOptions { rows_in_memory: usize::MAX, ..options() };
    let store = DiskStore::open_on(Arc::new(disk.clone()), options).unwrap();
    store.commit(Arc::new(create("sync", Durability::Sync))).await.unwrap();
    let operations = disk.operations();
    // The empty batch, and one that fills the sector before it, are two writes and one flush, without anyone asking for it.
    while disk.operations() < operations + 3 {
        tokio::task::yield_now().await;
    }
    disk.crash(Crash::Kill);
    drop(store);
    disk.restart(1);
    let (part, _) =
        disk.files().into_iter().find(|(path, _)| path.extension().is_some_and(|e| e == "part")).unwrap();
    disk.flip(&part, (64 + 60) * 8);
    assert!(matches!(open_keeping(&disk), Err(OpenError::Damaged { at: 64, .. })));
}

#[tokio::test]
async fn a_failed_flush_stops_commits_and_nothing_else() {
    let disk = filled(3).await;
    let store = open_keeping(&disk).unwrap();
    disk.fail_syncs(true);
    let commit = numbered(&store, "sync", 3).await;
    let error = store.commit(Arc::new(commit)).await.unwrap_err();
    assert!(
        matches!(&error, CommitError::Unknown(why) if why.contains("flushing the journal failed")),
        "{error}"
    );
    assert!(store.status().failed.is_some());
    // A flush that works again proves nothing about the one that failed.
    disk.fail_syncs(false);
    let commit = numbered(&store, "sync", 4).await;
    assert!(matches!(store.commit(Arc::new(commit)).await, Err(CommitError::Unavailable(_))));
    assert_eq!(commits_there(&store, "sync").await, [0, 1, 2], "reads go on, at what was answered");
    let horizon = store.advance_horizon(&name("sync"), u64::MAX - 1).await;
    assert!(matches!(horizon, Err(ReadError::Unavailable(_))), "time does not: {horizon:?}");
    drop(store);
    disk.crash(Crash::PowerCut);
    disk.restart(5);
    let store = open_keeping(&disk).unwrap();
    let there = commits_there(&store, "sync").await;
    assert!(there == [0, 1, 2] || there == [0, 1, 2, 3], "{there:?}");
    let commit = numbered(&store, "sync", 9).await;
    store.commit(Arc::new(commit)).await.unwrap();
}

/// Commits until one is refused. Tells which were not, and why that one was.
async fn until_refused(store: &DiskStore) -> (Vec<u64>, CommitError) {
    let mut done = Vec::new();
    for n in 0..10_000 {
        match store.commit(Arc::new(numbered(store, "sync", n).await)).await {
            Ok(_) => done.push(n),
            Err(error) => return (done, error),
        }
    }
    panic!("nothing is ever refused");
}

#[tokio::test]
async fn a_full_disk_refuses_events_until_there_is_room() {
    let disk = SimDisk::new();
    let options = DiskOptions { rows_in_memory: usize::MAX, ..options() };
    let store = DiskStore::open_on(Arc::new(disk.clone()), options).unwrap();
    store.commit(Arc::new(create("sync", Durability::Sync))).await.unwrap();
    store.commit(Arc::new(create("other", Durability::Sync))).await.unwrap();
    disk.limit(Some(disk.used() + 6_000));
    let (mut done, full) = until_refused(&store).await;
    assert_eq!(full, CommitError::NoRoom);
    assert!(store.status().is_full && store.status().failed.is_none());
    assert_eq!(commits_there(&store, "sync").await, done, "reads go on");
    let delete = ConfigChange::DeleteTopic { name: name("other") };
    store.commit(Arc::new(Commit { config: vec![delete], ..Commit::default() })).await.unwrap();
    let again = numbered(&store, "sync", done.len() as u64).await;
    assert_eq!(store.commit(Arc::new(again)).await, Err(CommitError::NoRoom));
    disk.limit(None);
    let n = done.len() as u64;
    let commit = numbered(&store, "sync", n).await;
    store.commit(Arc::new(commit)).await.unwrap();
    done.push(n);
    assert!(!store.status().is_full);
    assert_eq!(commits_there(&store, "sync").await, done);
    store.close().await;
    drop(store);
    assert_eq!(check(&disk), [""; 0]);
}

/// Without room that is reserved, a batch may be written in part before the disk turns out to be full.
#[tokio::test]
async fn a_write_that_finds_no_room_leaves_nothing_behind() {
    let disk = SimDisk::without_reserve();
    let options = DiskOptions { rows_in_memory: usize::MAX, part_bytes: 1 << 20, ..options() };
    let store = DiskStore::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
    store.commit(Arc::new(create("sync", Durability::Sync))).await.unwrap();
    let mut done = Vec::new();
    for n in 0..20 {
        // One more or less each time: some end within the head of a batch, some within an item.
        disk.limit(Some(disk.used() + 30 + n * 13));
        let commit = numbered(&store, "sync", n).await;
        assert_eq!(store.commit(Arc::new(commit.clone())).await, Err(CommitError::NoRoom), "{n}");
        let after = disk.copy();
        assert_eq!(check(&after), [""; 0], "after commit {n} was refused");
        disk.limit(None);
        store.commit(Arc::new(commit)).await.unwrap();
        done.push(n);
    }
    disk.crash(Crash::Kill);
    drop(store);
    disk.restart(1);
    assert_eq!(check(&disk), [""; 0]);
    let store = DiskStore::open_on(Arc::new(disk.clone()), options).unwrap();
    assert_eq!(commits_there(&store, "sync").await, done);
}

/// The parts of the journal, and nothing beside it: the rest is made again when the folder is opened.
async fn bare_journal(commits: u64) -> (SimDisk, Vec<(std::path::PathBuf, usize)>) {
    let disk = filled(commits).await;
    let (parts, rest): (Vec<_>, Vec<_>) =
        disk.files().into_iter().partition(|(path, _)| path.extension().is_some_and(|e| e == "part"));
    for (path, _) in rest.iter().filter(|(path, _)| path.extension().is_some()) {
        disk.remove(path).unwrap();
    }
    assert!(parts.len() > 2 && check(&disk).is_empty());
    (disk, parts)
}

/// The machine went down after the next part was begun and before the full one was trimmed.
#[tokio::test]
async fn leftovers_behind_a_full_part_are_cut_off() {
    let (disk, parts) = bare_journal(14).await;
    for (path, len) in &parts[..parts.len() - 1] {
        let disk = disk.copy();
        disk.open(path).unwrap().write_at(b"what a failed write left", *len as u64).unwrap();
        let found = check(&disk);
        assert!(matches!(&found[..], [one] if one.contains("the next open cuts it off")), "{found:?}");
        let store = open_keeping(&disk).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(commits_there(&store, "sync").await, (0..14).collect::<Vec<_>>());
        store.close().await;
        drop(store);
        assert_eq!(check(&disk), [""; 0]);
    }
}

/// Where check finds nothing but what the next open cuts off, the folder opens, and nowhere else.
#[tokio::test]
async fn check_and_open_judge_alike() {
    let (disk, parts) = bare_journal(14).await;
    let (mut opened, mut refused) = (0, 0);
    let mut judge = |disk: &SimDisk, what: String| {
        let found = check(disk);
        assert!(!found.is_empty(), "{what}");
        let is_harmless = found.iter().all(|one| one.contains("the next open cuts it off"));
        match open(disk) {
            Ok(_) => opened += 1,
            Err(OpenError::Damaged { .. }) => refused += 1,
            Err(error) => panic!("{what}: {error}"),
        }
        assert_eq!(open(disk).is_ok(), is_harmless, "{what}: {found:?}");
    };
    for (path, len) in &parts {
        for byte in (0..*len).step_by(37) {
            let disk = disk.copy();
            disk.flip(path, byte * 8 + byte % 8);
            judge(&disk, format!("byte {byte} of {} is flipped", path.display()));
        }
        for cut in (0..*len).step_by(41) {
            let disk = disk.copy();
            let batches = check(&disk).len();
            disk.open(path).unwrap().set_len(cut as u64).unwrap();
            // A cut between two batches that no later one vouches for, or in what was reserved, shows nowhere.
            if check(&disk).len() > batches {
                judge(&disk, format!("{} is cut at {cut}", path.display()));
            }
        }
    }
    assert!(opened > 0 && refused > 0, "{opened} folders were opened, {refused} refused");
}

#[tokio::test]
async fn a_folder_is_locked_and_its_format_checked() {
    let disk = filled(1).await;
    let first = open_keeping(&disk).unwrap();
    let Err(error @ OpenError::Locked(_)) = open_keeping(&disk) else { panic!("it is opened twice") };
    // A `main` that returns the error shows it so.
    assert_eq!(format!("{error:?}"), error.to_string());
    drop(first);
    use prombus_store_disk::disk::Disk;
    let format = std::path::Path::new(DIR).join("FORMAT");
    disk.open(&format).unwrap().write_at(b"prombus data folder, format 6\n", 0).unwrap();
    assert!(matches!(open_keeping(&disk), Err(OpenError::Newer { found: 6, .. })));
    disk.open(&format).unwrap().write_at(b"something else", 0).unwrap();
    assert!(matches!(open_keeping(&disk), Err(OpenError::NotOurs { .. })));
}

#[tokio::test]
async fn check_needs_only_to_read() {
    let disk = filled(7).await;
    disk.set_read_only(true);
    assert_eq!(check(&disk), [""; 0]);
    // Whoever else reads is in nobody's way, and keeps out whoever changes something.
    let reading = disk.lock(Path::new(DIR), Lock::Shared).unwrap();
    assert_eq!(check(&disk), [""; 0]);
    assert!(matches!(open_keeping(&disk), Err(OpenError::Io { .. })), "a hub cannot do without writing");
    disk.set_read_only(false);
    assert!(matches!(open_keeping(&disk), Err(OpenError::Locked(_))));
    drop(reading);
    let store = open_keeping(&disk).unwrap();
    assert!(check(&disk)[0].contains("in use by another hub"));
    drop(store);
}

/// Only what has exactly the name of a part is one.
#[tokio::test]
async fn a_file_that_does_not_belong_there_is_told_and_left_alone() {
    let disk = filled(7).await;
    for name in ["1.part", "+000000001.part", "00000000001.part", "0000000000.part", "notes.txt"] {
        let path = Path::new(DIR).join("journal").join(name);
        disk.create(&path).unwrap().write_at(b"x", 0).unwrap();
        let found = check(&disk);
        assert!(found.len() == 1 && found[0].contains("does not belong here"), "{name}: {found:?}");
        drop(open_keeping(&disk).unwrap_or_else(|error| panic!("{name}: {error}")));
        disk.remove(&path).unwrap();
    }
    assert_eq!(check(&disk), [""; 0]);
}

#[tokio::test]
async fn a_missing_part_is_noticed() {
    use prombus_store_disk::disk::Disk;
    for missing in 0.. {
        let disk = filled(40).await;
        let parts: Vec<_> = disk
            .files()
            .into_iter()
            .filter(|(path, _)| path.extension().is_some_and(|e| e == "part"))
            .collect();
        assert!(parts.len() > 3);
        let Some((path, _)) = parts.get(missing) else { break };
        disk.remove(path).unwrap();
        assert!(matches!(open_keeping(&disk), Err(OpenError::Damaged { .. })), "{}", path.display());
        assert!(!check(&disk).is_empty(), "{}", path.display());
    }
}

/// Rows that cannot be put into tables stay in memory up to a limit, documents are refused beyond it, and everything
/// goes on by itself when there is room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_that_takes_no_tables_is_no_damage() {
    let disk = SimDisk::new();
    let options = DiskOptions { part_bytes: 1 << 20, ..options() };
    let store = DiskStore::open_on(Arc::new(disk.clone()), options).unwrap();
    // The journal has room of its own; there is none for anything else, and none that is kept back.
    store.commit(Arc::new(create("sync", Durability::Sync))).await.unwrap();
    disk.limit(Some(disk.used()));
    disk.remove(&Path::new(DIR).join("RESERVE")).unwrap();
    disk.limit(Some(disk.used()));
    let (mut done, full) = until_refused(&store).await;
    assert!(done.len() <= 100, "changed rows pile up in memory");
    assert_eq!(full, CommitError::NoRoom);
    assert!(store.status().failed.is_none());
    assert_eq!(items(&store).await, items_after(&done), "reads go on");
    disk.limit(None);
    let n = done.len() as u64;
    // It is tried again after a while.
    loop {
        let commit = numbered(&store, "sync", n).await;
        match store.commit(Arc::new(commit)).await {
            Ok(_) => break,
            Err(error) => assert_eq!(error, CommitError::NoRoom),
        }
        tokio::task::yield_now().await;
    }
    done.push(n);
    assert_eq!(items(&store).await, items_after(&done));
    store.close().await;
    drop(store);
    assert_eq!(check(&disk), [""; 0]);
    let store = open_keeping(&disk).unwrap();
    assert_eq!(items(&store).await, items_after(&done));
}

/// A disk on which something happens to whoever begins a table.
struct AtTables(SimDisk, Box<dyn Fn() + Send + Sync>);

impl Disk for AtTables {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        if path.to_string_lossy().contains(".table") {
            (self.1)();
        }
        self.0.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.0.open(path)
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.0.open_to_read(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.create_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.sync_dir(dir)
    }

    fn lock(&self, dir: &Path, lock: Lock) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        self.0.lock(dir, lock)
    }

    fn lock_folder(&self, dir: &Path, lock: Lock) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        self.0.lock_folder(dir, lock)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.0.free_bytes(dir)
    }
}

/// What cannot be put away any more is told, to those who wait and to those who come later, and nothing is lost.
#[tokio::test]
async fn a_housekeeper_that_panics_keeps_nobody_waiting() {
    let disk = SimDisk::new();
    let options = DiskOptions { part_bytes: 1 << 20, ..options() };
    let no_tables = AtTables(disk.clone(), Box::new(|| panic!("no tables here")));
    let store = DiskStore::open_on(Arc::new(no_tables), options).unwrap();
    store.commit(Arc::new(create("sync", Durability::Sync))).await.unwrap();
    let (done, error) = until_refused(&store).await;
    assert!(matches!(&error, CommitError::Unavailable(why) if why.contains("housekeeper")), "{error}");
    assert!(store.status().failed.is_some());
    assert_eq!(items(&store).await, items_after(&done), "reads go on");
    store.close().await;
    drop(store);
    let store = open_keeping(&disk).unwrap();
    assert_eq!(items(&store).await, items_after(&done));
}

/// An index that is made fills memory only as far as commits need not wait until its rows are in a table.
#[tokio::test]
async fn no_commit_waits_for_the_rows_of_an_index() {
    const DOCUMENTS: usize = 300;
    let disk = SimDisk::new();
    let (open, closed) = mpsc::channel::<()>();
    let closed = Mutex::new(closed);
    let wait = move || assert!(closed.lock().unwrap().recv().is_err(), "open is only ever dropped");
    let at_tables = AtTables(disk.clone(), Box::new(wait));
    let options = DiskOptions { part_bytes: 8 << 20, rows_in_memory: 20_000, ..options() };
    let store = DiskStore::open_on(Arc::new(at_tables), options).unwrap();
    // Goes before the store where something fails, which else would wait for its housekeeper.
    let open = open;
    let document = |n: usize| {
        let body = Json::parse(format!("{{\"v\":\"{n:0300}\"}}").into()).unwrap();
        DocumentWrite::new("items", format!("{n:04}"), WriteOp::Set(body))
    };
    write(&store, (0..DOCUMENTS).map(document).collect()).await.unwrap();
    let index = collection::Index { fields: vec![FieldPath::parse("v").unwrap()], unique: false };
    let config = CollectionConfig { indexes: vec![index], ..CollectionConfig::default() };
    let change = ConfigChange::PutCollection { name: "items".into(), expect_revision: 1, config };
    store.commit(Arc::new(Commit { config: vec![change], ..Commit::default() })).await.unwrap();
    let progress = async || store.collection("items").await.unwrap().unwrap().indexes[0].progress.clone();
    // No table can be written, so the index comes to a stop.
    let (mut topics, mut last, mut still) = (0, None, 0);
    while still < 100 {
        let commit = store.commit(Arc::new(create(&format!("t{topics}"), Durability::Sync)));
        tokio::time::timeout(LONG, commit).await.expect("no commit waits for an index").unwrap();
        topics += 1;
        let now = progress().await;
        assert_ne!(now, Progress::Ready, "its rows take more than they may");
        still = if last.as_ref() == Some(&now) { still + 1 } else { 0 };
        last = Some(now);
    }
    drop(open);
    let mut sequence = store.changed(&Watched::Everything, Sequence(0)).await;
    while progress().await != Progress::Ready {
        sequence = store.changed(&Watched::Everything, sequence).await;
    }
    store.close().await;
    drop(store);
    assert_eq!(check(&disk), [""; 0]);
}

/// A table that is damaged is told, when the folder is opened or when the row is read; a wrong document is never given.
#[tokio::test]
async fn a_damaged_table_is_never_taken_for_documents() {
    let disk = SimDisk::new();
    let store = open_keeping(&disk).unwrap();
    // Enough for tables of many pages, most of which are not read when they are opened.
    let write = |n: u64| {
        let body = Json::parse(format!("{{\"n\":{n},\"pad\":\"{}\"}}", "x".repeat(500)).into()).unwrap();
        DocumentWrite::new("items", format!("item-{n:03}"), WriteOp::Set(body))
    };
    let commit = Commit { documents: (0..60).map(write).collect(), ..Commit::default() };
    store.commit(Arc::new(commit)).await.unwrap();
    let expected = items(&store).await;
    assert_eq!(expected.len(), 60);
    store.close().await;
    drop(store);
    let is_table = |path: &std::path::Path| path.extension().is_some_and(|extension| extension == "table");
    let (mut refused, mut told) = (0, 0);
    for (path, len) in disk.files().into_iter().filter(|(path, _)| is_table(path)) {
        for byte in (0..len).step_by(701) {
            disk.flip(&path, byte * 8 + byte % 8);
            match open_keeping(&disk) {
                Err(OpenError::DamagedState { .. }) => refused += 1,
                Err(other) => panic!("byte {byte} of {}: {other}", path.display()),
                // The page is not read at the start.
                Ok(store) => {
                    let all = ScanRequest { collection: "items".into(), after: None, limit: 100 };
                    match store.scan(all).await {
                        Err(error) => {
                            assert!(matches!(error, ReadError::Corrupt(_)), "{error}");
                            told += 1;
                        }
                        Ok(_) => assert_eq!(items(&store).await, expected),
                    }
                }
            }
            disk.flip(&path, byte * 8 + byte % 8);
        }
    }
    assert!(refused > 0 && told > 0, "{refused} opens were refused, and {told} reads");
}

/// What the batches of the journal take in all.
fn journal_bytes(disk: &SimDisk) -> usize {
    let is_part = |path: &Path| path.extension().is_some_and(|extension| extension == "part");
    let parts = disk.files().into_iter().filter(|(path, _)| is_part(path));
    parts.map(|(path, _)| data_end(&disk.bytes(&path))).sum()
}

fn padded(key: &str, bytes: usize) -> DocumentWrite {
    let body = Json::parse(format!("{{\"pad\":\"{}\"}}", "x".repeat(bytes)).into()).unwrap();
    DocumentWrite::new("items", key, WriteOp::Set(body))
}

fn bump(key: &str) -> DocumentWrite {
    DocumentWrite::new("items", key, WriteOp::Inc(Json::parse("{\"n\":1}".into()).unwrap()))
}

async fn write(store: &DiskStore, documents: Vec<DocumentWrite>) -> Result<Receipt, CommitError> {
    store.commit(Arc::new(Commit { documents, ..Commit::default() })).await
}

/// The journal has what a commit leaves, and not what each of its writes made on the way.
#[tokio::test]
async fn many_writes_to_a_document_are_logged_once() {
    const BYTES: usize = 100_000;
    let disk = SimDisk::new();
    let options = DiskOptions { part_bytes: 1 << 20, ..options() };
    let store = DiskStore::open_on(Arc::new(disk.clone()), options).unwrap();
    write(&store, vec![padded("large", BYTES)]).await.unwrap();
    let before = journal_bytes(&disk);
    let receipt = write(&store, (0..1_000).map(|_| bump("large")).collect()).await.unwrap();
    assert_eq!(receipt.versions.last(), Some(&1_001));
    let logged = journal_bytes(&disk) - before;
    assert!(logged < 2 * BYTES, "{logged} bytes were logged for a document of {BYTES}");
    drop(store);
    assert_eq!(check(&disk), [""; 0]);
    let store = open_keeping(&disk).unwrap();
    let document = store.document("items", "large").await.unwrap().unwrap();
    assert_eq!((document.version, &document.body.to_value().unwrap()["n"]), (1_001, &1_000.into()));
}

/// A commit that makes too much leaves nothing, neither on the disk nor in the batch that others share.
#[tokio::test]
async fn a_commit_that_makes_too_much_leaves_nothing() {
    const LIMIT: usize = 100_000;
    let disk = SimDisk::new();
    let options = DiskOptions { part_bytes: 1 << 20, result_bytes: LIMIT, ..options() };
    let store = DiskStore::open_on(Arc::new(disk.clone()), options).unwrap();
    for key in ["a", "b", "c"] {
        write(&store, vec![padded(key, 40_000)]).await.unwrap();
    }
    let before = journal_bytes(&disk);
    let refused = write(&store, vec![bump("a"), bump("b"), bump("new"), bump("c")]).await.unwrap_err();
    assert!(matches!(refused, CommitError::TooLarge { bytes, limit: LIMIT } if bytes > LIMIT), "{refused}");
    assert_eq!(journal_bytes(&disk), before, "nothing is written");
    assert_eq!(store.document("items", "new").await.unwrap(), None);
    write(&store, vec![bump("a"), bump("b")]).await.unwrap();
    store.close().await;
    drop(store);
    assert_eq!(check(&disk), [""; 0]);
}
