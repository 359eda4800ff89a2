//! Tests of the MongoDB store, on a replica set of three members that `cargo xtask test` starts for all of them
//! (`cargo xtask mongo` for a single command). Each test has a database of its own.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod conformance;
mod database;
mod homes;
mod model;
mod primary;
mod several;
mod support;
mod transfer;
