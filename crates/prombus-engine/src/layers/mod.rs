//! What happens to every commit on its way to the log, and in which order.

mod checks;
mod removal_notices;
mod rules;
mod schemas;

pub use checks::{Checks, CommitSize};
pub use removal_notices::{RemovalNotices, RemovalObserver, RemovedEvents};
pub use rules::Rules;
pub use schemas::SchemaChecks;
