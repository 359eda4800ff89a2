//! Random commits on the memory store and on MongoDB: they answer alike, and everything that can be read of them is the
//! same.

use crate::support::{Fresh, subject_on};
use prombus_core::ManualClock;
use prombus_store_memory::MemoryStore;
use prombus_testkit::Subject;
use prombus_testkit::model::{Model, Options, assert_same};
use std::sync::Arc;

const SEEDS: u64 = 3;
const LIVES: u64 = 3;
const COMMITS: u64 = 60;

async fn run(seed: u64) {
    let clock = Arc::new(ManualClock::at(1_754_683_200_000));
    let memory = Subject::new(Arc::new(MemoryStore::new(clock.clone(), 1)), clock.clone());
    let mut mongo = subject_on(Arc::new(Fresh::new().await), clock.clone()).await;
    let mut model = Model::new(Options::new(seed, clock));
    for life in 0..LIVES {
        for _ in 0..COMMITS {
            let _ = model.step(&[&memory, &mongo]).await;
        }
        if life % 2 == 0 {
            mongo.log.erase().await.unwrap();
        }
        assert_same(&memory, &mongo).await;
        mongo = mongo.reopened().await;
    }
    assert_same(&memory, &mongo).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_is_the_same_as_memory() {
    for seed in 0..SEEDS {
        run(seed).await;
    }
}
