//! What the crash tests share: a small workload whose every answer is known.

pub mod listing;

use prombus_core::*;
use prombus_store_disk::disk::Disk;
use prombus_store_disk::{DiskOptions, DiskStore, OpenError};
use prombus_testkit::SimDisk;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

pub const DIR: &str = "/data";
/// Small, so that parts roll, are sealed and checkpointed every few commits.
pub const PART_BYTES: u64 = 4096;
/// Small, so that rows are frozen, put into tables and merged all the time.
pub const ROWS_IN_MEMORY: usize = 300;

pub fn options() -> DiskOptions {
    DiskOptions {
        part_bytes: PART_BYTES,
        rows_in_memory: ROWS_IN_MEMORY,
        // So that every index over documents takes several steps.
        index_step: 1,
        // So that files are closed and opened again all the time.
        open_files: 2,
        // What an open leaves behind must not depend on how busy the machine is.
        slow_open: std::time::Duration::MAX,
        clock: Arc::new(ManualClock::at(1_000_000)),
        seed: 1,
        ..DiskOptions::new(DIR)
    }
}

pub fn open(disk: &SimDisk) -> Result<Arc<DiskStore>, OpenError> {
    DiskStore::open_on(Arc::new(disk.clone()), options())
}

/// Opens a folder whose parts all stay as they are.
pub fn open_keeping(disk: &SimDisk) -> Result<Arc<DiskStore>, OpenError> {
    DiskStore::open_on(Arc::new(disk.clone()), DiskOptions { reclaims: false, ..options() })
}

/// A folder with so many commits of the workload, whose parts all stay as they are.
pub async fn filled(commits: u64) -> SimDisk {
    let disk = SimDisk::new();
    let store = open_keeping(&disk).unwrap();
    store.commit(Arc::new(create("sync", Durability::Sync))).await.unwrap();
    for n in 0..commits {
        let commit = numbered(&store, "sync", n).await;
        store.commit(Arc::new(commit)).await.unwrap();
    }
    store.close().await;
    disk
}

pub fn check(disk: &SimDisk) -> Vec<String> {
    match prombus_store_disk::check_on(disk, Path::new(DIR), &mut |_| {}) {
        Ok(report) => report.problems.iter().map(ToString::to_string).collect(),
        Err(error) => vec![error.to_string()],
    }
}

/// Waits for what others do.
pub async fn comes_true(what: &str, is_true: impl Fn() -> bool) {
    let comes = async {
        while !is_true() {
            // Nobody is told when it is.
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let came = tokio::time::timeout(std::time::Duration::from_secs(25), comes).await;
    assert!(came.is_ok(), "in vain: {what}");
}

/// Puts a file where there may be none.
pub fn put(disk: &SimDisk, path: &Path, bytes: &[u8]) {
    let file = disk.create(path).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
    disk.sync_dir(path.parent().unwrap()).unwrap();
}

/// Every index in the folder is of a part that is there.
pub fn assert_indexes_have_parts(disk: &SimDisk, what: &str) {
    let files = disk.files();
    let is_there = |part: &Path| files.iter().any(|(path, _)| path == part);
    for (path, _) in &files {
        let is_index = path.extension().is_some_and(|end| end == "index");
        assert!(!is_index || is_there(&path.with_extension("part")), "{what}: {}", path.display());
    }
}

pub fn name(text: &str) -> TopicName {
    TopicName::parse(text).unwrap()
}

pub fn create(topic: &str, durability: Durability) -> Commit {
    let config = TopicConfig { partitions: 2, durability, ..TopicConfig::default() };
    Commit { config: vec![ConfigChange::CreateTopic { name: name(topic), config }], ..Commit::default() }
}

/// The payload of event `i` of commit `n`.
pub fn payload(n: u64, i: u64) -> Json {
    Json::parse(
        format!("{{\"commit\":{n},\"i\":{i},\"pad\":\"{}\"}}", "x".repeat((n * 37 % 200) as usize)).into(),
    )
    .unwrap()
}

/// Commit `n` of the workload: some events over both partitions, one with an id of its own, and a counter.
pub async fn numbered(store: &DiskStore, topic: &str, n: u64) -> Commit {
    let events = (0..1 + n % 4)
        .map(|i| Append {
            topic: name(topic),
            placement: Placement::Named(Partition((i % 2) as u32)),
            expect: None,
            event: NewEvent {
                id: (i == 0).then(|| Uuid::from_u128(u128::from(n) + 1)),
                key: Some(format!("key-{}", n % 3).into()),
                ..NewEvent::new(payload(n, i))
            },
        })
        .collect();
    // A document makes every commit flush, so a topic that need not be flushed goes without.
    if topic != "sync" {
        return Commit { events, ..Commit::default() };
    }
    let one = Json::parse("{\"commits\":1}".into()).unwrap();
    let mut documents = vec![DocumentWrite::new("counters", topic, WriteOp::Inc(one)), item(n)];
    if n % 7 == 6 {
        documents.push(DocumentWrite::new("items", item_key(n + 1), WriteOp::Delete));
    }
    Commit { events, documents, config: item_config(store, n).await, ..Commit::default() }
}

fn item_key(n: u64) -> String {
    format!("item-{}", n % 5)
}

fn item(n: u64) -> DocumentWrite {
    let body = Json::parse(format!("{{\"n\":{n},\"group\":\"{}\"}}", n % 3).into()).unwrap();
    DocumentWrite { ts: n, ..DocumentWrite::new("items", item_key(n), WriteOp::Set(body)) }
}

/// Now and then the collection of items gets another index, and sometimes it starts over.
async fn item_config(store: &DiskStore, n: u64) -> Vec<ConfigChange> {
    let name: Arc<str> = "items".into();
    let fields = vec![FieldPath::parse(if n.is_multiple_of(2) { "group" } else { "n" }).unwrap()];
    let indexes = vec![collection::Index { fields, unique: false }];
    let config = CollectionConfig { indexes, ..CollectionConfig::default() };
    let state = store.collection(&name).await.unwrap();
    let expect_revision = state.map_or(0, |state| state.revision);
    match n % 9 {
        4 => vec![ConfigChange::PutCollection { name, expect_revision, config }],
        8 => vec![
            ConfigChange::DropCollection { name: name.clone() },
            ConfigChange::PutCollection { name, expect_revision: 0, config },
        ],
        _ => Vec::new(),
    }
}

/// The items, by key, after these commits.
pub fn items_after(commits: &[u64]) -> std::collections::BTreeMap<String, u64> {
    let mut items = std::collections::BTreeMap::new();
    for n in commits {
        if n % 9 == 8 {
            items.clear();
        }
        items.insert(item_key(*n), *n);
        if n % 7 == 6 {
            items.remove(&item_key(n + 1));
        }
    }
    items
}

/// The items that are there, by key; that the collection counts them is checked on the way.
pub async fn items(store: &DiskStore) -> std::collections::BTreeMap<String, u64> {
    let request = ScanRequest { collection: "items".into(), after: None, limit: 100 };
    let found = store.scan(request).await.unwrap();
    let count = store.collection("items").await.unwrap().map_or(0, |state| state.documents);
    assert_eq!(found.len() as u64, count, "the collection counts its documents");
    found.into_iter().map(|d| (d.key.clone(), d.body.to_value().unwrap()["n"].as_u64().unwrap())).collect()
}

/// The items, found group by group and in the order of their numbers: by an index where one is ready.
pub async fn items_by_group(store: &DiskStore) -> std::collections::BTreeMap<String, u64> {
    let field = |name: &str| FieldPath::parse(name).unwrap();
    let mut items = std::collections::BTreeMap::new();
    for group in ["0", "1", "2"] {
        let test = collection::Test::Eq(collection::Operand::value(group.into()));
        let found = store.find(Find {
            collection: "items".into(),
            conditions: vec![collection::Condition { field: field("group"), test }],
            sort: vec![collection::SortKey { field: field("n"), descending: false }],
            offset: 0,
            limit: 100,
            max_bytes: usize::MAX,
            sort_bytes: usize::MAX,
        });
        let found = found.await.unwrap().documents;
        let number = |document: &Document| document.body.to_value().unwrap()["n"].as_u64().unwrap();
        assert!(found.iter().map(number).is_sorted(), "they come in order");
        items.extend(found.iter().map(|document| (document.key.clone(), number(document))));
    }
    items
}

/// Waits until no index of the items is being made.
pub async fn items_are_indexed(store: &DiskStore) {
    let mut seen = store.changed(&Watched::Everything, Sequence(0)).await;
    while let Some(state) = store.collection("items").await.unwrap()
        && state.building().is_some()
    {
        seen = store.changed(&Watched::Everything, seen).await;
    }
}

/// The commits of a topic that are there, in order, each whole, once, and in both partitions without gaps.
pub async fn commits_there(store: &DiskStore, topic: &str) -> Vec<u64> {
    let topic = TopicRef::from(&name(topic));
    let mut by_commit: std::collections::BTreeMap<u64, Vec<u64>> = Default::default();
    for partition in [Partition(0), Partition(1)] {
        let Ok(bounds) = store.bounds(&topic, partition).await else { return Vec::new() };
        let mut from = Offset(0);
        let mut last = None;
        loop {
            let request = ReadRequest { topic: topic.clone(), partition, from, limit: 3, max_bytes: 1 << 20 };
            let page = store.read(request).await.unwrap();
            for (event, expected) in page.events.iter().zip(from.0..) {
                assert_eq!(event.offset, Offset(expected), "offsets never gap");
                let value = event.payload.to_value().unwrap();
                let (n, i) = (value["commit"].as_u64().unwrap(), value["i"].as_u64().unwrap());
                assert_eq!(event.payload, payload(n, i), "payloads come back as they went");
                assert!(last <= Some(n), "commits never reorder");
                last = Some(n);
                by_commit.entry(n).or_default().push(i);
                let found = store.by_id(&topic, event.id).await.unwrap();
                assert_eq!(found.as_ref(), Some(event), "every event is found by its id");
            }
            from = page.next;
            if from == page.end {
                break;
            }
        }
        assert_eq!(from, bounds.next);
    }
    for (n, events) in &mut by_commit {
        events.sort_unstable();
        assert_eq!(*events, (0..1 + n % 4).collect::<Vec<_>>(), "commit {n} is there as a whole, once");
    }
    by_commit.into_keys().collect()
}

/// What the counter that every commit of the topic `sync` increments says.
pub async fn counter(store: &DiskStore) -> u64 {
    let document = store.document("counters", "sync").await.unwrap();
    document.map_or(0, |document| document.body.to_value().unwrap()["commits"].as_u64().unwrap())
}
