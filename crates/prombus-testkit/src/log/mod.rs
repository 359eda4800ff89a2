//! Behaviours of the log that can also be said over HTTP: one topic a commit, partitions as the hub chooses them,
//! and no hold on the clock.

mod appending;
mod batches;
mod concurrency;
mod content;
mod duplicates;
mod expectations;
mod history;
mod keys;
mod pages;
mod topics;

pub use appending::*;
pub use batches::*;
pub use concurrency::*;
pub use content::*;
pub use duplicates::*;
pub use expectations::*;
pub use history::*;
pub use keys::*;
pub use pages::*;
pub use topics::*;
