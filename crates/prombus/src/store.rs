//! Opens the store that the settings choose.

use crate::config::HUB_TTL;
use crate::failure::Failure;
use crate::serve::{Settings, StoreChoice};
use prombus_core::{Clock, HubId};
use prombus_engine::Store;
use prombus_store_disk::{DiskOptions, DiskStore};
use prombus_store_memory::MemoryStore;
use prombus_store_mongo::{HomesOptions, HomesTime, MongoOptions, MongoStore};
use std::sync::Arc;
use std::time::Duration;

/// How far the clocks of hub and database may be apart: retention and windows go by the hub's, leases by neither.
const MOST_SKEW: Duration = Duration::from_secs(60);
/// Opens the store that is chosen. That may take a while, and is done on its own thread.
pub async fn open(settings: &Settings, clock: Arc<dyn Clock>) -> Result<Store, Failure> {
    let result_bytes = settings.result_bytes;
    match settings.store.clone() {
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
        StoreChoice::MongoDb { url, prefix } => {
            let most_skew = Some(MOST_SKEW);
            let usual = MongoOptions::new(url);
            let wait = settings.store_wait.unwrap_or(usual.wait);
            let options = MongoOptions { prefix, result_bytes, clock, most_skew, wait, ..usual };
            // Where hubs can share the store, there is always something about the others.
            let hub_ttl = settings.gateway.cluster.as_ref().map_or(HUB_TTL, |cluster| cluster.hub_ttl);
            open_mongodb(options, hub_ttl).await
        }
    }
}

async fn open_mongodb(options: MongoOptions, hub_ttl: Duration) -> Result<Store, Failure> {
    let failed = |why: String| Failure::Failed(format!("cannot open the store: {why}"));
    let store = MongoStore::open(options).await.map_err(|error| failed(error.to_string()))?;
    let hub = HubId(format!("hub-{:08x}", fastrand::u32(..)).into());
    let ttl_ms = u64::try_from(hub_ttl.as_millis()).unwrap_or(u64::MAX);
    let homes = store.homes(HomesOptions { hub, ttl_ms, time: HomesTime::Database }).await;
    Ok(Store::new(store).shared(Arc::new(homes.map_err(|error| failed(error.to_string()))?)))
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
        // The URL may hold a password.
        StoreChoice::MongoDb { .. } => "mongodb".to_owned(),
    }
}
