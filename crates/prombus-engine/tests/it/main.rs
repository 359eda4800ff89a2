//! What the hub promises those who use it as a library.
//!
//! One binary, because each binary more is linked on its own, which takes longer than most tests.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should panic")]

#[macro_use]
mod support;

mod backups;
mod cleaning;
mod cleaning_crash;
mod commits;
mod conformance;
mod golden;
mod groups;
mod groups_simulation;
mod projections;
mod queries;
mod replays;
mod schemas;
mod schemas_crash;
mod time_travel;
mod two_hubs;
mod upcasts;
