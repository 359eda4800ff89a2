//! States that take long to make: nobody else waits for them.

use super::stage::*;
use prombus_core::*;
use prombus_engine::{Hub, HubOptions, Store};
use prombus_store_memory::MemoryStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// More than is worked on among other tasks.
const MUCH: usize = 128 << 10;
/// Long enough for what must happen, on any machine.
const LONG: Duration = Duration::from_secs(25);

/// There is a single thread for tasks, and applying the event takes until another task has gone on.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn others_go_on_while_a_large_event_is_applied() {
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock), 1));
    let hub = Hub::assemble(Store::new(store), HubOptions::default());
    let topic = topic_name("large");
    hub.put_topic(&topic, TopicPatch::default()).await.unwrap();
    hub.publish(vec![keyed(&topic, "k", (10, &format!("\"{}\"", "x".repeat(MUCH))))]).await.unwrap();
    let turns = Arc::new(AtomicU64::new(0));
    let counted = turns.clone();
    let other = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let state = tokio::spawn(async move {
        let until = Instant::now() + LONG;
        let apply = |_: Option<bool>, _: &Event| {
            let before = turns.load(Ordering::Relaxed);
            while turns.load(Ordering::Relaxed) == before && Instant::now() < until {
                std::hint::spin_loop();
            }
            Some(turns.load(Ordering::Relaxed) > before)
        };
        hub.time_travel().reconstruct_at(&topic, ("k", 20), apply).await
    });
    assert!(state.await.unwrap().unwrap().unwrap().state);
    other.abort();
}
