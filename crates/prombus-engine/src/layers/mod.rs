//! What happens to every commit on its way to the log, and in which order.

mod checks;
mod rules;

pub use checks::{Checks, CommitSize};
pub use rules::Rules;
