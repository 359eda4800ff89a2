//! Data folders that earlier builds made open with this one, with everything in them.

use crate::support::listing::listing;
use prombus_core::*;
use prombus_store_disk::{DiskOptions, DiskStore, check};
use std::fs;
use std::path::Path;
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

#[tokio::test]
async fn golden_folders_open_with_everything_in_them() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut folders = 0;
    for entry in fs::read_dir(golden).unwrap() {
        let folder = entry.unwrap().path();
        let expected = fs::read_to_string(folder.join("expected.txt")).unwrap();
        let dir = tempfile::tempdir().unwrap();
        copy(&folder.join("data"), dir.path());
        assert_eq!(check(dir.path(), &mut |_| {}).unwrap().problems, [], "{}", folder.display());
        for _ in 0..2 {
            let options = DiskOptions { part_bytes: 8 << 10, ..DiskOptions::new(dir.path()) };
            let store = DiskStore::open(options).unwrap();
            assert_eq!(listing(&store).await, expected, "{}", folder.display());
            store.close().await;
        }
        goes_on(dir.path()).await;
        folders += 1;
    }
    assert!(folders > 0, "there is at least one golden folder");
}

/// A golden folder is not only read: it goes on.
async fn goes_on(dir: &Path) {
    let store = DiskStore::open(DiskOptions { part_bytes: 8 << 10, ..DiskOptions::new(dir) }).unwrap();
    let topic = store.topics().await.unwrap().remove(0);
    let before = store.bounds(&topic.pinned(), Partition(0)).await.unwrap();
    let layout = Layout { topic: topic.number, partitions: topic.config.partitions };
    let append = Append {
        topic: topic.name.clone(),
        placement: Placement::Placed(Partition(0), layout),
        expect: None,
        event: NewEvent::new(Json::parse("null".into()).unwrap()),
    };
    let receipt = store.commit(Arc::new(Commit { events: vec![append], ..Commit::default() })).await.unwrap();
    assert_eq!(receipt.events[0].offset, before.next);
    store.close().await;
    drop(store);
    assert_eq!(check(dir, &mut |_| {}).unwrap().problems, []);
}
