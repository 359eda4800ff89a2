//! Who goes over documents that are in tables, or events of full parts, does so beside the runtime; who finds documents in
//! memory, or events in the part that is being written, stays on it.

use crate::support::*;
use prombus_core::*;
use prombus_store_disk::{DiskOptions, DiskStore};
use prombus_testkit::SimDisk;
use std::future::ready;
use std::pin::pin;
use std::sync::{Arc, mpsc};

fn all_items() -> Find {
    let (conditions, sort) = Default::default();
    let (max_bytes, sort_bytes) = (usize::MAX, usize::MAX);
    Find { collection: "items".into(), conditions, sort, offset: 0, limit: 9, max_bytes, sort_bytes }
}

/// What a future gives at once.
async fn at_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = ready(()) => None,
    }
}

async fn in_memory() -> Arc<DiskStore> {
    let options = DiskOptions { part_bytes: 1 << 20, rows_in_memory: usize::MAX, ..options() };
    let store = DiskStore::open_on(Arc::new(SimDisk::new()), options).unwrap();
    let write = DocumentWrite::new("items", "a", WriteOp::Set(Json::parse("{}".into()).unwrap()));
    store.commit(Arc::new(Commit { documents: vec![write], ..Commit::default() })).await.unwrap();
    store
}

/// A runtime with a single thread for what blocks.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap()
}

/// Keeps that thread from everybody else, until the sender is dropped.
fn keep_busy() -> (mpsc::Sender<()>, tokio::task::JoinHandle<bool>) {
    let (release, released) = mpsc::channel::<()>();
    (release, tokio::task::spawn_blocking(move || released.recv().is_err()))
}

#[test]
fn only_tables_are_gone_over_beside_the_runtime() {
    runtime().block_on(async {
        let (few, tables) = (in_memory().await, open(&filled(20).await).unwrap());
        let (release, busy) = keep_busy();
        let found = at_once(&mut pin!(few.find(all_items()))).await.unwrap().unwrap();
        assert_eq!(found.documents.len(), 1);
        let mut finding = pin!(tables.find(all_items()));
        assert!(at_once(&mut finding).await.is_none());
        drop(release);
        assert!(busy.await.unwrap());
        assert_eq!(finding.await.unwrap().documents.len(), items(&tables).await.len());
    });
}

#[test]
fn only_single_events_of_full_parts_are_looked_up_beside_the_runtime() {
    runtime().block_on(async {
        let store = open_keeping(&filled(20).await).unwrap();
        let topic = TopicRef::from(&name("sync"));
        let next = store.bounds(&topic, Partition(0)).await.unwrap().next;
        let at = async |from| {
            let (topic, partition) = (topic.clone(), Partition(0));
            let request = ReadRequest { topic, partition, from, limit: 1, max_bytes: 1 << 20 };
            store.read(request).await.unwrap().events.remove(0)
        };
        let (first, last) = (at(Offset(0)).await, at(Offset(next.0 - 1)).await);
        let (release, busy) = keep_busy();
        let found = at_once(&mut pin!(store.by_id(&topic, last.id))).await.unwrap().unwrap();
        assert_eq!(found.as_ref(), Some(&last));
        let mut by_id = pin!(store.by_id(&topic, first.id));
        let mut latest = pin!(store.latest_by_key(&topic, "a key"));
        let mut previous = pin!(store.event_before(&topic, "a key", (Partition(0), last.offset)));
        assert!(at_once(&mut by_id).await.is_none());
        assert!(at_once(&mut latest).await.is_none());
        assert!(at_once(&mut previous).await.is_none());
        drop(release);
        assert!(busy.await.unwrap());
        assert_eq!(by_id.await.unwrap(), Some(first));
        assert_eq!((latest.await.unwrap(), previous.await.unwrap()), (None, None));
    });
}

#[test]
fn only_full_parts_are_read_beside_the_runtime() {
    runtime().block_on(async {
        let store = open_keeping(&filled(20).await).unwrap();
        let topic = TopicRef::from(&name("sync"));
        let read = |from| ReadRequest {
            topic: topic.clone(),
            partition: Partition(0),
            from,
            limit: 3,
            max_bytes: 1 << 20,
        };
        let next = store.bounds(&topic, Partition(0)).await.unwrap().next;
        let (release, busy) = keep_busy();
        let last = at_once(&mut pin!(store.read(read(Offset(next.0 - 1))))).await.unwrap().unwrap();
        assert_eq!(last.events.len(), 1);
        let mut first = pin!(store.read(read(Offset(0))));
        let mut found =
            pin!(store.offset_at(TsRequest { topic: topic.clone(), partition: Partition(0), ts: 0 }));
        let mut history = pin!(store.history(HistoryRequest {
            topic: topic.clone(),
            key: "a key".into(),
            after: None,
            limit: 3,
            max_bytes: 1 << 20,
        }));
        assert!(at_once(&mut first).await.is_none());
        assert!(at_once(&mut found).await.is_none());
        assert!(at_once(&mut history).await.is_none());
        drop(release);
        assert!(busy.await.unwrap());
        assert_eq!(first.await.unwrap().events.len(), 3);
        assert_eq!(found.await.unwrap(), Offset(0));
        assert!(history.await.unwrap().is_empty());
    });
}
