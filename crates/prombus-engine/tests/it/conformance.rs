//! The layers change nothing about what the log promises: the suite runs through all of them, over memory.
#![deny(clippy::missing_trait_methods, reason = "a wrapper that skips a method tests nothing")]

use prombus_core::*;
use prombus_engine::bus::LogBus;
use prombus_engine::layers::{Checks, Rules, SchemaChecks};
use prombus_engine::schemas::Shared;
use prombus_engine::{Bus, BusError, Layer, Limits};
use prombus_store_memory::MemoryStore;
use prombus_testkit::Subject;
use std::sync::Arc;

/// A log whose commits go through the layers.
struct Layered {
    bus: Arc<dyn Bus>,
    log: Arc<MemoryStore>,
}

prombus_testkit::forward_log! { Layered => log:
    read kept offset_at by_id latest_by_key previous_by_key history erase advance_horizon changed topic
    topics cursor readers status close;

    async fn enqueue(&self, mut commit: Arc<Commit>) -> Result<Ticket, CommitError> {
        match self.bus.enqueue(&mut commit).await {
            Ok(ticket) => Ok(ticket),
            Err(BusError::Commit(error)) => Err(error),
            Err(other) => panic!("a layer refused what the log would have taken: {other}"),
        }
    }
}

async fn layered() -> Subject {
    let clock = Arc::new(ManualClock::at(1_754_683_200_000));
    let log = Arc::new(MemoryStore::new(clock.clone(), 1));
    let bus: Arc<dyn Bus> = Arc::new(LogBus(log.clone()));
    let bus = Rules { limits: CommitLimits::default(), auto_create: None }.wrap(bus);
    let shared = Shared::new(log.clone(), log.clone(), Limits::default().event_bytes);
    let bus = SchemaChecks::new(&shared, Arc::default()).wrap(bus);
    let bus = Checks { limits: Limits::default(), clock: clock.clone() }.wrap(bus);
    let documents = log.clone();
    let log: Arc<dyn EventLog> = Arc::new(Layered { bus, log });
    Subject { log, documents: Some(documents), clock: Some(clock), keep: Box::new(()) }
}

prombus_testkit::log_conformance!(layered);
prombus_testkit::state_conformance!(layered);
