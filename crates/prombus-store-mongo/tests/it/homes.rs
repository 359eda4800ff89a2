//! Homes in MongoDB keep what the port promises.

use crate::support::{Fresh, open};
use prombus_core::{HubId, ManualClock};
use prombus_store_mongo::{HomesOptions, HomesTime, MongoHomes, MongoStore};
use prombus_testkit::HomesSubject;
use std::sync::Arc;

const TTL_MS: u64 = 60;

async fn hub(store: &MongoStore, name: &str, clock: &Arc<ManualClock>) -> Arc<MongoHomes> {
    let time = HomesTime::Shared(clock.clone());
    Arc::new(store.homes(HomesOptions { hub: HubId(name.into()), ttl_ms: TTL_MS, time }).await.unwrap())
}

async fn two() -> HomesSubject {
    let clock = Arc::new(ManualClock::at(1_754_683_200_000));
    // Nothing keeps it for the length of the test, so it stays until the set ends.
    let fresh = Box::leak(Box::new(Fresh::new().await));
    let store = open(fresh, &clock).await;
    let (one, other) = (hub(&store, "one", &clock).await, hub(&store, "other", &clock).await);
    HomesSubject { one, other, clock, ttl_ms: TTL_MS }
}

prombus_testkit::homes_conformance!(two);
