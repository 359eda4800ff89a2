//! A hub as a separate process, and blocking HTTP and WebSocket clients that hide nothing of what came over the socket: for
//! tests, benchmarks and chaos.
//!
//! Nothing of the hub's own code is used here, because that is what is being tested.

mod error;
pub mod http;
mod hub;
mod log;
mod merge_patch;
mod usage;
pub mod ws;

pub use error::HubError;
pub use hub::{ANY_PORT, Hub};
pub use log::Log;
pub use merge_patch::merge_patch;
pub use usage::Usage;

use std::time::Duration;

/// How long anything may take before a test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);
