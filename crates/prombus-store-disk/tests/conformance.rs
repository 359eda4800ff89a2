//! The disk engine keeps every promise of the ports, on a real disk: with parts of the usual size, where most
//! is still in memory, and with tiny ones, where most is sealed and in tables.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

use prombus_core::ManualClock;
use prombus_store_disk::{DiskOptions, DiskStore};
use prombus_testkit::{Reopen, Subject};
use std::sync::Arc;

const USUAL: u64 = 8 << 20;
const TINY: u64 = 2 << 10;

async fn store(part_bytes: u64) -> Subject {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(1_754_683_200_000));
    let options = DiskOptions {
        part_bytes,
        rows_in_memory: part_bytes as usize / 4,
        clock: clock.clone(),
        seed: 1,
        ..DiskOptions::new(dir.path())
    };
    let open = move || Subject::new(DiskStore::open(options.clone()).unwrap(), clock.clone());
    let opened = open();
    Subject { keep: Box::new(Reopen { keep: Box::new(dir), open: Box::new(open) }), ..opened }
}

mod usual {
    async fn disk() -> super::Subject {
        super::store(super::USUAL).await
    }

    prombus_testkit::log_conformance!(disk);
    prombus_testkit::log_exact_conformance!(disk);
    prombus_testkit::state_conformance!(disk);
}

mod tiny_parts {
    async fn disk() -> super::Subject {
        super::store(super::TINY).await
    }

    prombus_testkit::log_conformance!(disk);
    prombus_testkit::log_exact_conformance!(disk);
    prombus_testkit::state_conformance!(disk);
}
