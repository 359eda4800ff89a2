//! Opens the store that the settings choose.

use crate::failure::Failure;
use crate::serve::StoreChoice;
use prombus_core::Clock;
use prombus_engine::Store;
use prombus_store_disk::{DiskOptions, DiskStore};
use prombus_store_memory::MemoryStore;
use std::sync::Arc;

/// Opens the store, in which a commit may make `result_bytes`. That may take a while, and is done on its own thread.
pub async fn open(choice: StoreChoice, result_bytes: usize, clock: Arc<dyn Clock>) -> Result<Store, Failure> {
    match choice {
        StoreChoice::Memory => {
            let store = MemoryStore::new(clock, fastrand::u64(..)).with_result_bytes(result_bytes);
            Ok(Store::new(Arc::new(store)))
        }
        StoreChoice::Disk { dir, part_bytes, rewrite_bytes_per_s } => {
            let usual = DiskOptions::new(dir);
            let part_bytes = part_bytes.unwrap_or(usual.part_bytes);
            let rewrite_bytes_per_s = rewrite_bytes_per_s.unwrap_or(usual.rewrite_bytes_per_s);
            let options = DiskOptions { clock, result_bytes, part_bytes, rewrite_bytes_per_s, ..usual };
            open_disk(options).await
        }
    }
}

async fn open_disk(options: DiskOptions) -> Result<Store, Failure> {
    let opened = tokio::task::spawn_blocking(move || DiskStore::open(options)).await;
    let failed = |why: String| Failure::Failed(format!("cannot open the store: {why}"));
    match opened {
        Ok(Ok(store)) => Ok(Store::new(store)),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// The store in a few words.
pub fn describe(choice: &StoreChoice) -> String {
    match choice {
        StoreChoice::Memory => "memory".to_owned(),
        StoreChoice::Disk { dir, .. } => dir.display().to_string(),
    }
}
