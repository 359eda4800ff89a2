//! What a full disk still takes: acks as long as their share of the reserve lasts, and deletes even after that.

use crate::support::*;
use prombus_core::*;
use prombus_store_disk::disk::Disk;
use prombus_store_disk::{DiskOptions, DiskStore};
use prombus_testkit::SimDisk;
use std::sync::Arc;

/// How many topics, groups and collections can be given up after the last ack.
const DELETES: u32 = 10;
/// More acks than any reserve here has room for.
const MAX_ACKS: u64 = 10_000;
const PART: u64 = 256 << 10;
/// The file that keeps room back.
const RESERVE: &str = "RESERVE";
/// The smallest part that can be configured.
const SMALL_PART: u64 = 64 << 10;

fn victim(n: u32) -> TopicName {
    name(&format!("victim-{n}"))
}

fn victim_collection(n: u32) -> Arc<str> {
    format!("victim-{n}").into()
}

/// A collection of the hub's own, as those of definitions are.
fn definitions(n: u32) -> String {
    format!("hub~definitions-{n}")
}

/// A document is written, or removed.
fn written(collection: &str, op: WriteOp) -> Commit {
    let documents = vec![DocumentWrite::new(collection, "k", op)];
    Commit { documents, ..Commit::default() }
}

/// The cursor of a group goes on, or is removed.
fn cursor(reader: &str, version: u64, next: Option<u64>) -> Commit {
    let key = CursorKey { topic: name("other"), reader: reader.into(), partition: Partition(0) };
    let to = next.map(|next| CursorTarget { next: Offset(next), detail: Default::default() });
    let step = CursorMove { key, incarnation: None, expect_version: version, epoch: Epoch(0), to };
    Commit { cursors: vec![step], ..Commit::default() }
}

async fn commit(store: &DiskStore, commit: Commit) -> Result<Receipt, CommitError> {
    store.commit(Arc::new(commit)).await
}

/// Publishes an event with so large a payload.
async fn publish(store: &DiskStore, bytes: usize) -> Result<Receipt, CommitError> {
    let placement = Placement::Named(Partition(0));
    let event = NewEvent::new(Json::parse(format!("\"{}\"", "x".repeat(bytes)).into()).unwrap());
    let append = Append { topic: name("other"), placement, expect: None, event };
    commit(store, Commit { events: vec![append], ..Commit::default() }).await
}

/// Publishes until the disk is full: large events first, and then small ones.
async fn fill(store: &DiskStore) {
    for bytes in [5_000, 10] {
        while let published = publish(store, bytes).await
            && published != Err(CommitError::NoRoom)
        {
            published.unwrap();
        }
    }
}

/// Acks until the share of acks is used up, and says how many there were.
async fn ack_all(store: &DiskStore) -> u64 {
    for version in 0..MAX_ACKS {
        if let Err(error) = commit(store, cursor("worker", version, Some(version))).await {
            assert_eq!(error, CommitError::NoRoom);
            return version;
        }
    }
    panic!("{MAX_ACKS} acks fit onto a full disk");
}

async fn deletes_go_on_after_acks(part_bytes: u64, room: u64) {
    let disk = SimDisk::new();
    let options = DiskOptions { part_bytes, rows_in_memory: usize::MAX, ..options() };
    let store = DiskStore::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
    commit(&store, create("other", Durability::Sync)).await.unwrap();
    for n in 0..DELETES {
        commit(&store, create(victim(n).as_str(), Durability::Sync)).await.unwrap();
        commit(&store, cursor(&format!("group-{n}"), 0, Some(0))).await.unwrap();
        for collection in [&*victim_collection(n), &definitions(n)] {
            let set = WriteOp::Set(Json::parse("{}".into()).unwrap());
            commit(&store, written(collection, set)).await.unwrap();
        }
    }
    let keep = WriteOp::Set(Json::parse("{}".into()).unwrap());
    commit(&store, written("kept", keep)).await.unwrap();
    disk.limit(Some(disk.used() + room));
    fill(&store).await;
    let acks = ack_all(&store).await;
    assert!(acks > 100, "only {acks} acks were taken");
    // A changefeed may tell of it, so it takes nothing of what is kept for deletes of whole things.
    let by_user = commit(&store, written("kept", WriteOp::Delete)).await;
    assert_eq!(by_user, Err(CommitError::NoRoom));
    for n in 0..DELETES {
        let change = ConfigChange::DeleteTopic { name: victim(n) };
        commit(&store, Commit { config: vec![change], ..Commit::default() }).await.unwrap();
        commit(&store, cursor(&format!("group-{n}"), 1, None)).await.unwrap();
        commit(&store, written(&definitions(n), WriteOp::Delete)).await.unwrap();
        let (name, config) = (victim_collection(n), CollectionConfig::default());
        let put = ConfigChange::PutCollection { name: name.clone(), expect_revision: 1, config };
        let config = vec![put, ConfigChange::DropCollection { name }];
        commit(&store, Commit { config, ..Commit::default() }).await.unwrap();
    }
    assert_eq!(commit(&store, cursor("late", 0, Some(1))).await, Err(CommitError::NoRoom));
    disk.limit(None);
    commit(&store, cursor("worker", acks, Some(acks))).await.unwrap();
    store.close().await;
    drop(store);
    assert_eq!(check(&disk), [""; 0]);
    let store = DiskStore::open_on(Arc::new(disk), options).unwrap();
    for n in 0..DELETES {
        assert!(store.topic(&victim(n)).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn deletes_go_on_after_acks_where_a_part_cannot_grow() {
    deletes_go_on_after_acks(PART, 0).await;
}

#[tokio::test]
async fn deletes_go_on_after_acks_where_parts_are_small() {
    deletes_go_on_after_acks(SMALL_PART, 0).await;
}

#[tokio::test]
async fn deletes_go_on_after_acks_where_no_new_part_can_be_made() {
    // There is room for what is kept back at the end of the part, and not for another part.
    deletes_go_on_after_acks(PART, PART / 2).await;
}

#[tokio::test]
async fn what_still_fits_onto_a_full_disk_does_not_make_it_look_empty() {
    let disk = SimDisk::new();
    let options = DiskOptions { part_bytes: PART, rows_in_memory: usize::MAX, ..options() };
    let store = DiskStore::open_on(Arc::new(disk.clone()), options).unwrap();
    commit(&store, create("other", Durability::Sync)).await.unwrap();
    disk.limit(Some(disk.used()));
    assert_eq!(publish(&store, PART as usize / 2 * 3).await, Err(CommitError::NoRoom));
    publish(&store, 10).await.unwrap();
    commit(&store, cursor("worker", 0, Some(1))).await.unwrap();
    assert!(store.status().is_full, "an event is refused, and the status says that all is well");
    disk.limit(None);
    publish(&store, PART as usize / 2 * 3).await.unwrap();
    assert!(!store.status().is_full);
}

fn open_small(disk: &SimDisk) -> Arc<DiskStore> {
    let options = DiskOptions { part_bytes: SMALL_PART, rows_in_memory: usize::MAX, ..options() };
    DiskStore::open_on(Arc::new(disk.clone()), options).unwrap()
}

/// Fills ten parts with events of two topics; how many there are of the one that has nearly all.
async fn ten_parts(disk: &SimDisk) -> u64 {
    let store = open_small(disk);
    for topic in ["other", "kept"] {
        commit(&store, create(topic, Durability::Sync)).await.unwrap();
    }
    let mut events = 0;
    while disk.used() < 10 * SMALL_PART {
        publish(&store, 900).await.unwrap();
        events += 1;
        if events % 9 == 0 {
            let event = NewEvent::new(Json::parse(format!("\"{}\"", "y".repeat(900)).into()).unwrap());
            let placement = Placement::Named(Partition(0));
            let append = Append { topic: name("kept"), placement, expect: None, event };
            commit(&store, Commit { events: vec![append], ..Commit::default() }).await.unwrap();
        }
    }
    store.close().await;
    events
}

/// A store of ten parts, on a disk with only so much room left, of whose events nine in ten are given up then.
async fn mostly_dead(disk: &SimDisk, room: u64) -> Arc<DiskStore> {
    // Opened again, so that nothing else is written when the disk is full.
    let events = ten_parts(disk).await;
    let store = open_small(disk);
    disk.limit(Some(disk.used() + room));
    give_up(&store, events).await;
    store
}

/// Removes the first events of the topic that has nearly all of them.
async fn give_up(store: &DiskStore, events: u64) {
    let (partition, loss) = (Partition(0), Loss { bytes: 0, horizon_ts: Some(1) });
    let trim = ConfigChange::Trim { topic: (&name("other")).into(), partition, before: Offset(events), loss };
    commit(store, Commit { config: vec![trim], ..Commit::default() }).await.unwrap();
}

async fn room_is_made(disk: &SimDisk, store: Arc<DiskStore>) {
    comes_true("space of dead events is given back", || disk.used() <= 5 * SMALL_PART).await;
    publish(&store, SMALL_PART as usize).await.unwrap();
    store.close().await;
    drop(store);
    assert_eq!(check(disk), [""; 0]);
}

/// What is left of several parts does not fit. What is left of one does, and makes room for the next.
#[tokio::test]
async fn dead_events_make_room_on_a_full_disk() {
    let disk = SimDisk::new();
    let store = mostly_dead(&disk, SMALL_PART / 2).await;
    room_is_made(&disk, store).await;
}

#[tokio::test]
async fn dead_events_make_room_where_others_have_taken_the_last_byte() {
    let disk = SimDisk::new();
    let store = mostly_dead(&disk, 0).await;
    room_is_made(&disk, store).await;
}

#[tokio::test]
async fn what_is_kept_back_for_cleaning_outlives_a_restart() {
    let reserve = |disk: &SimDisk| disk.bytes(&std::path::Path::new(DIR).join(RESERVE)).len() as u64;
    let disk = SimDisk::new();
    ten_parts(&disk).await;
    let kept = reserve(&disk);
    assert!(kept > SMALL_PART / 2 && kept < SMALL_PART, "as much as what is left of a part may take: {kept}");
    disk.limit(Some(disk.used()));
    let store = open_small(&disk);
    assert_eq!(reserve(&disk), kept);
    store.close().await;
}

/// Where no room can be kept back, that cleaning cannot go on shows, and it goes on by itself once there is some.
#[tokio::test]
async fn a_disk_that_is_too_full_to_make_room_says_so() {
    let disk = SimDisk::new();
    let events = ten_parts(&disk).await;
    disk.remove(&std::path::Path::new(DIR).join(RESERVE)).unwrap();
    disk.limit(Some(disk.used()));
    let store = open_small(&disk);
    give_up(&store, events).await;
    let is_stuck = || store.status().extra("reclaiming_stuck") == 1;
    comes_true("it says that it cannot", is_stuck).await;
    disk.limit(None);
    comes_true("it goes on", || !is_stuck()).await;
    room_is_made(&disk, store).await;
}

/// A part of which documents take a tenth, on a disk without any room left, and nothing of it is in a checkpoint.
async fn full_with_documents(disk: &SimDisk) -> (Arc<DiskStore>, u64) {
    const LARGE_PART: u64 = 2 << 20;
    // Less than the documents take, so that they have to go into a table.
    let options = |rows_in_memory| DiskOptions { part_bytes: LARGE_PART, rows_in_memory, ..options() };
    let open = |rows| DiskStore::open_on(Arc::new(disk.clone()), options(rows)).unwrap();
    let store = open(usize::MAX);
    commit(&store, create("other", Durability::Sync)).await.unwrap();
    for n in 0..40 {
        let body = Json::parse(format!("{{\"d\":\"{}\"}}", "d".repeat(5_000)).into()).unwrap();
        let documents = vec![DocumentWrite::new("documents", format!("k-{n}"), WriteOp::Set(body))];
        commit(&store, Commit { documents, ..Commit::default() }).await.unwrap();
    }
    let events = 1_000;
    for _ in 0..events {
        publish(&store, 1_000).await.unwrap();
    }
    store.close().await;
    drop(store);
    // Opened again, so that room is kept back for a journal of this size.
    let store = open(usize::MAX);
    store.close().await;
    drop(store);
    disk.limit(Some(disk.used()));
    (open(50_000), events)
}

/// Documents that changed go into a table before anything of their part can go, also where the disk is full.
#[tokio::test]
async fn dead_events_make_room_where_documents_changed_too() {
    let disk = SimDisk::new();
    let (store, events) = full_with_documents(&disk).await;
    let before = disk.used();
    give_up(&store, events).await;
    comes_true("space of dead events is given back", || disk.used() < before / 4 * 3).await;
    publish(&store, 100_000).await.unwrap();
    assert!(store.document("documents", "k-39").await.unwrap().is_some());
    store.close().await;
    drop(store);
    assert_eq!(check(&disk), [""; 0]);
}

/// A forgotten key is erased on a full disk as long as there is room that is kept back.
#[tokio::test]
async fn a_full_disk_does_not_keep_what_was_forgotten() {
    let disk = SimDisk::new();
    let (store, events) = full_with_documents(&disk).await;
    let note = ConfigChange::Forget { topic: (&name("other")).into(), key: "nobody".into() };
    commit(&store, Commit { config: vec![note], ..Commit::default() }).await.unwrap();
    give_up(&store, events).await;
    store.erase().await.unwrap();
    assert_eq!(disk.holding(b"nobody"), [""; 0].map(std::path::PathBuf::from));
    store.close().await;
    drop(store);
    assert_eq!(check(&disk), [""; 0]);
}
