//! Homes in memory keep what the port promises.

use prombus_core::ManualClock;
use prombus_core::homes::SharedHomes;
use prombus_testkit::HomesSubject;
use std::sync::Arc;

const TTL_MS: u64 = 300;

async fn memory() -> HomesSubject {
    let clock = Arc::new(ManualClock::at(1_754_683_200_000));
    let shared = SharedHomes::new(clock.clone(), Some(TTL_MS));
    let [one, other] = ["one", "other"].map(|id| Arc::new(shared.hub(id)));
    HomesSubject { one, other, clock, ttl_ms: TTL_MS }
}

prombus_testkit::homes_conformance!(memory);
