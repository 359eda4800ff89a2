//! Opens the store that the settings choose.

use crate::failure::Failure;
use crate::serve::StoreChoice;
use prombus_core::{Clock, Homes, HubId};
use prombus_engine::Store;
use prombus_store_disk::{DiskOptions, DiskStore};
use prombus_store_memory::MemoryStore;
use prombus_store_mongo::{HomesOptions, HomesTime, MongoHomes, MongoOptions, MongoStore};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How far the clocks of hub and database may be apart: retention and windows go by the hub's, leases by neither.
const MOST_SKEW: Duration = Duration::from_secs(60);
/// A hub that has been silent for so long is gone.
const HUB_TTL: Duration = Duration::from_secs(5);
/// How often to check whether another hub is still there.
const LOOK: Duration = Duration::from_millis(200);

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
        StoreChoice::MongoDb { url, prefix } => {
            let most_skew = Some(MOST_SKEW);
            open_mongodb(MongoOptions { prefix, result_bytes, clock, most_skew, ..MongoOptions::new(url) })
                .await
        }
    }
}

async fn open_mongodb(options: MongoOptions) -> Result<Store, Failure> {
    let failed = |why: String| Failure::Failed(format!("cannot open the store: {why}"));
    let store = MongoStore::open(options).await.map_err(|error| failed(error.to_string()))?;
    let hub = HubId(format!("hub-{:08x}", fastrand::u32(..)).into());
    let ttl_ms = u64::try_from(HUB_TTL.as_millis()).unwrap_or(u64::MAX);
    let joining = HomesOptions { hub: hub.clone(), ttl_ms, time: HomesTime::Database };
    let homes = store.join(joining).await.map_err(|error| failed(error.to_string()))?;
    if let Err(why) = alone(&homes, &hub).await {
        // One that was never there leaves nothing behind, as far as it can.
        let _ = homes.leave().await;
        return Err(failed(why));
    }
    Ok(Store::new(store).shared(Arc::new(homes)))
}

/// Waits until no other hub is alive: one that was killed is missed only after its time.
async fn alone(homes: &MongoHomes, hub: &HubId) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let all = homes.hubs().await.map_err(|error| error.to_string())?;
        let Some(other) = all.into_iter().find(|other| other != hub) else { return Ok(()) };
        if begun.elapsed() > HUB_TTL + LOOK {
            return Err(format!(
                "hub {other} uses this database, and this build takes one hub at a time: stop that one first"
            ));
        }
        // That a hub is dead is told by nothing but its silence.
        tokio::time::sleep(LOOK).await;
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
        // The URL may hold a password.
        StoreChoice::MongoDb { .. } => "mongodb".to_owned(),
    }
}
