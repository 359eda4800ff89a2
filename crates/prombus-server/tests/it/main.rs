//! The gateway over a real socket.
//!
//! One binary, because each binary more is linked on its own, which takes longer than most tests.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should panic")]

mod common;

mod collections;
mod commit;
mod conformance;
mod connections;
mod copies;
mod damage;
mod export;
mod gone;
mod groups;
mod keys;
mod many_hubs;
mod ndjson;
mod ops;
mod projections;
mod publish;
mod raw_publish;
mod read;
mod reports;
mod rewritten;
mod snapshot_topics;
mod snapshots;
mod states;
mod topics;
