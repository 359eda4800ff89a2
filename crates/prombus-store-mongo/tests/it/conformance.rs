//! The MongoDB store keeps every promise of the ports.

use crate::support::subject;
use prombus_core::Copies;
use std::sync::Arc;

mod log {
    use super::subject;

    prombus_testkit::log_conformance!(subject);
}

mod log_exact {
    use super::subject;

    prombus_testkit::log_exact_conformance!(subject);
}

mod state {
    use super::subject;

    prombus_testkit::state_conformance!(subject);
}

async fn copies() -> Arc<dyn Copies> {
    let clock = Arc::new(prombus_core::ManualClock::at(0));
    let fresh = Box::leak(Box::new(crate::support::Fresh::new().await));
    crate::support::open(fresh, &clock).await
}

prombus_testkit::no_copies_conformance!(copies);
