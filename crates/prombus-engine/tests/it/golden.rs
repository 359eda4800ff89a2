//! Data folders that earlier builds made are cleaned like any other: all that is there counts, and what goes is gone for good.

use prombus_core::*;
use prombus_engine::{Hub, HubOptions, Store};
use prombus_store_disk::{DiskOptions, DiskStore, check};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

fn open(dir: &Path) -> (Hub, Arc<DiskStore>) {
    let store = DiskStore::open(DiskOptions { part_bytes: 8 << 10, ..DiskOptions::new(dir) }).unwrap();
    (Hub::assemble(Store::new(store.clone()), HubOptions::default()), store)
}

/// The events of a topic in the order in which they are to go.
async fn events(store: &DiskStore, topic: &TopicState) -> Vec<Event> {
    let mut all = Vec::new();
    for partition in (0..topic.config.partitions).map(Partition) {
        let (topic, limit, max_bytes) = (topic.pinned(), usize::MAX, usize::MAX);
        let Bounds { first: from, .. } = store.bounds(&topic, partition).await.unwrap();
        let page = store.read(ReadRequest { topic, partition, from, limit, max_bytes }).await.unwrap();
        assert_eq!(page.next, page.end);
        all.extend(page.events);
    }
    all.sort_by_key(|event| (event.recorded_ts, event.partition, event.offset));
    all
}

/// What must not change: documents, and the cursor that a folder has.
async fn others(store: &DiskStore, topic: &TopicState) -> (Vec<Document>, Option<Cursor>) {
    let request = ScanRequest { collection: "documents".into(), after: None, limit: usize::MAX };
    let key = CursorKey { topic: topic.name.clone(), reader: "reader".into(), partition: Partition(0) };
    (store.scan(request).await.unwrap(), store.cursor(&key).await.unwrap())
}

/// The files below a folder that hold some bytes.
fn files_with(folder: &Path, bytes: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, bytes));
        } else if fs::read(&path).unwrap().windows(bytes.len()).any(|window| window == bytes) {
            found.push(path);
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_of_all_formats_are_cleaned() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../prombus-store-disk/tests/golden");
    let mut folders = 0;
    for entry in fs::read_dir(golden).unwrap() {
        let folder = entry.unwrap().path();
        let what = folder.display();
        let dir = tempfile::tempdir().unwrap();
        copy(&folder.join("data"), dir.path());
        let (hub, store) = open(dir.path());
        let topic = store.topics().await.unwrap().remove(0);
        let (before, unchanged) = (events(&store, &topic).await, others(&store, &topic).await);
        // One of them has documents only.
        let Some(key) = before.iter().find_map(|event| event.key.clone()) else { continue };
        let (gone, mut left): (Vec<_>, Vec<_>) =
            before.into_iter().partition(|event| event.key.as_ref() == Some(&key));
        assert_eq!(hub.forget(&topic.name, &key).await.unwrap(), gone.len() as u64, "{what}");
        assert_eq!(events(&store, &topic).await, left, "{what}: {key} is forgotten");
        hub.cleaning().clean(&topic.name).await.unwrap();
        for event in &gone {
            let found = files_with(dir.path(), event.payload.as_bytes());
            assert_eq!(found, [""; 0].map(PathBuf::from), "{what}: {:?}", event.payload);
        }
        let sizes = |events: &[Event]| events.iter().map(Event::size).sum::<usize>() as u64;
        let counted: u64 = hub.kept(&topic).await.unwrap().iter().map(|kept| kept.bytes).sum();
        // Some of these folders were made by trims that did not say what they took.
        assert!(counted >= sizes(&left), "{what}: {counted} bytes are counted");
        // The older half does not fit, and of the other half everything does.
        let older: Vec<Event> = left.drain(..left.len() / 2).collect();
        let most = counted - sizes(&older);
        let patch = TopicPatch { retention_bytes: Some(most), ..TopicPatch::default() };
        hub.put_topic(&topic.name, patch).await.unwrap();
        hub.cleaning().clean(&topic.name).await.unwrap();
        assert_eq!(events(&store, &topic).await, left, "{what}: the oldest go until the rest fits");
        hub.close().await;
        drop((hub, store));
        assert_eq!(check(dir.path(), &mut |_| {}).unwrap().problems, [], "{what}");
        let (hub, store) = open(dir.path());
        assert_eq!(events(&store, &topic).await, left, "{what}, opened again");
        assert_eq!(others(&store, &topic).await, unchanged, "{what}");
        hub.close().await;
        folders += 1;
    }
    assert!(folders >= 5, "only {folders} folders have events");
}
