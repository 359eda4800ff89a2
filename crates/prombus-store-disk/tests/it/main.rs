//! The disk engine as its users see it, on real disks and on such as fail.
//!
//! One binary, because each binary more is linked on its own, which takes longer than most tests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod advice;
mod backup;
mod support;

mod conformance;
mod crash;
mod cut;
mod damage;
mod erase;
mod full_disk;
mod golden;
mod handles;
mod model;
mod reclaim;
mod sectors;
mod slow_open;
mod threads;
mod transfer;
mod walks;
