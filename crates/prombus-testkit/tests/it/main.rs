//! The kit keeps what it promises those who test with it.
//!
//! One binary, because each binary more is linked on its own, which takes longer than most tests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod harness;
mod homes;
mod model;
