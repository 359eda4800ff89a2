//! A hub as a process of its own, and a blocking HTTP client that hides nothing of what came over the socket: for tests,
//! benchmarks and chaos.
//!
//! Nothing of the hub's own code is used here, because it is what gets judged.

mod error;
pub mod http;
mod hub;
mod log;
mod usage;

pub use error::HubError;
pub use hub::{ANY_PORT, Hub};
pub use log::Log;

use std::time::Duration;

/// How long anything may take before a test is given up.
pub const PATIENCE: Duration = Duration::from_secs(60);
