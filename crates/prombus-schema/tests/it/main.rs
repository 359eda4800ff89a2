//! Containment, validation and examples, against each other.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should panic")]

mod docs;
mod growing;
mod hostile;
mod lenient;
mod lint;
mod mutate;
mod mutated;
mod pairs;
mod random;
mod reading;
mod rewritten;
mod scoped;
mod verdicts;
