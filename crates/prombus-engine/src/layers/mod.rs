//! What happens to every commit on its way to the log, and in which order.

mod checks;
mod given_up;
mod rules;
mod schemas;

pub use checks::{Checks, CommitSize};
pub use given_up::{GivenUp, GivenUpEvents, GivenUpObserver};
pub use rules::Rules;
pub use schemas::SchemaChecks;
