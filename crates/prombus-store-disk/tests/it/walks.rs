//! Who goes over documents that are in tables does so beside the runtime; who finds them in memory stays on it.

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

#[test]
fn only_tables_are_gone_over_beside_the_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let (few, tables) = (in_memory().await, open(&filled(20).await).unwrap());
        // Nobody else gets the only thread that there is for what blocks.
        let (release, released) = mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || released.recv().is_err());
        let found = at_once(&mut pin!(few.find(all_items()))).await.unwrap().unwrap();
        assert_eq!(found.documents.len(), 1);
        let mut finding = pin!(tables.find(all_items()));
        assert!(at_once(&mut finding).await.is_none());
        drop(release);
        assert!(busy.await.unwrap());
        assert_eq!(finding.await.unwrap().documents.len(), items(&tables).await.len());
    });
}
