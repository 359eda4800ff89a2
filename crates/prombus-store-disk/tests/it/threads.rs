//! Whoever asks for what is on the disk waits for it on another thread: a slow disk keeps other tasks going.

use crate::support::*;
use prombus_core::*;
use prombus_testkit::SimDisk;
use std::sync::Arc;

#[tokio::test]
async fn documents_in_tables_are_read_on_another_thread() {
    let disk = SimDisk::new();
    let store = open_keeping(&disk).unwrap();
    let write = |n: u64| {
        let body = Json::parse(format!("{{\"n\":{n}}}").into()).unwrap();
        DocumentWrite::new("items", format!("item-{n}"), WriteOp::Set(body))
    };
    let commit = Commit { documents: (0..100).map(write).collect(), ..Commit::default() };
    store.commit(Arc::new(commit)).await.unwrap();
    store.close().await;
    drop(store);
    // What was not written since is in tables.
    let store = open_keeping(&disk).unwrap();
    let before = disk.reads_of_this_thread();
    for n in 0..100 {
        let document = store.document("items", &format!("item-{n}")).await.unwrap().unwrap();
        assert_eq!(document.version, 1);
    }
    assert!(store.document("items", "none").await.unwrap().is_none());
    assert_eq!(disk.reads_of_this_thread(), before);
}
