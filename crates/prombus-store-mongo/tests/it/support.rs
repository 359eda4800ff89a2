//! A database for each test.

use mongodb::Client;
use prombus_core::{Clock, ManualClock};
use prombus_store_mongo::{MongoOptions, MongoStore};
use prombus_testkit::{Reopen, Subject};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Where the replica set is.
const VARIABLE: &str = "PROMBUS_TEST_MONGODB";

/// Databases of tests that have ended.
static DONE: Mutex<Vec<String>> = Mutex::new(Vec::new());
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The URL of the replica set, without a database. A set that is not there is a failure, and no test is skipped.
pub fn set() -> String {
    match std::env::var(VARIABLE) {
        Ok(url) => url,
        Err(_) => {
            panic!("{VARIABLE} is not set: run `cargo xtask test`, or `cargo xtask mongo cargo test ...`")
        }
    }
}

/// A database that is dropped by a later test, or goes with the set.
pub struct Fresh {
    pub name: String,
}

impl Fresh {
    pub async fn new() -> Self {
        let done = std::mem::take(&mut *DONE.lock().unwrap());
        if !done.is_empty() {
            let client = Client::with_uri_str(set()).await.unwrap();
            for name in done {
                client.database(&name).drop().await.unwrap();
            }
        }
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { name: format!("test-{}-{n}", std::process::id()) }
    }

    pub fn url(&self) -> String {
        set().replacen("/?", &format!("/{}?", self.name), 1)
    }

    pub fn options(&self, clock: &Arc<ManualClock>) -> MongoOptions {
        let clock: Arc<dyn Clock> = clock.clone();
        MongoOptions { clock, ..MongoOptions::new(self.url()) }
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        DONE.lock().unwrap().push(std::mem::take(&mut self.name));
    }
}

/// A store on a database.
pub async fn open(fresh: &Fresh, clock: &Arc<ManualClock>) -> Arc<MongoStore> {
    MongoStore::open(fresh.options(clock)).await.unwrap()
}

/// The same store as a subject that can be opened again.
pub async fn subject_on(fresh: Arc<Fresh>, clock: Arc<ManualClock>) -> Subject {
    let store = open(&fresh, &clock).await;
    let reopen = {
        let (fresh, clock) = (fresh.clone(), clock.clone());
        move || {
            let opening = open(&fresh, &clock);
            let store = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(opening));
            Subject::new(store, clock.clone())
        }
    };
    let keep = Reopen { keep: Box::new(fresh), open: Box::new(reopen) };
    Subject { keep: Box::new(keep), ..Subject::new(store, clock) }
}

pub async fn subject() -> Subject {
    subject_on(Arc::new(Fresh::new().await), Arc::new(ManualClock::at(1_754_683_200_000))).await
}
