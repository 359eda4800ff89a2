//! The memory store keeps every promise of the ports.

use prombus_core::{Copies, ManualClock};
use prombus_store_memory::MemoryStore;
use prombus_testkit::Subject;
use std::sync::Arc;

async fn memory() -> Subject {
    let clock = Arc::new(ManualClock::at(1_754_683_200_000));
    Subject::new(Arc::new(MemoryStore::new(clock.clone(), 1)), clock)
}

prombus_testkit::log_conformance!(memory);
prombus_testkit::log_exact_conformance!(memory);
prombus_testkit::state_conformance!(memory);

async fn copies() -> Arc<dyn Copies> {
    Arc::new(MemoryStore::new(Arc::new(ManualClock::at(0)), 1))
}

prombus_testkit::no_copies_conformance!(copies);
