//! The promises of the ports as tests that any adapter can be put through.
//!
//! - [`log`]: what can also be said over HTTP (one topic a commit; the hub chooses partitions).
//! - [`log_exact`]: the rest of the log: commits of several parts, layouts, trims, waiting, closing, the clock.
//! - [`state`]: documents, collections, cursors, and commits that mix them with events.
//! - [`copies`], or [`no_copies`]: copying a store file by file, or saying what to do instead.
//! - [`homes`]: which hub has a topic, and hearing of changes.
//! - [`model`]: random commits, and a comparison of everything that can be read of two stores.
//! - [`sim_disk`]: a disk that loses whatever was not promised.
//! - [`stalling`]: the homes of a hub that can be stalled.
//! - [`transfer`]: moving everything from one store to another.
//!
//! And for users' own tests: [`Harness`], a whole hub in memory with the process example on it, and [`Given`], a
//! projection without a hub.
//!
//! An adapter's test file names a factory, and gets one test for each behaviour:
//!
//! ```ignore
//! async fn memory() -> Subject { ... }
//! prombus_testkit::log_conformance!(memory);
//! prombus_testkit::log_exact_conformance!(memory);
//! prombus_testkit::state_conformance!(memory);
//! ```
//!
//! A behaviour panics with the promise that was broken. What a suite needs and the subject does not have is a
//! failure as well, never a skip.

pub mod build;
pub mod copies;
mod forward_log;
mod given;
mod harness;
pub mod homes;
pub mod http;
pub mod log;
pub mod log_exact;
mod macros;
mod missing;
pub mod model;
pub mod no_copies;
pub mod sim_disk;
pub mod stalling;
pub mod state;
mod subject;
mod tasks;
pub mod transfer;

#[doc(hidden)]
pub use {async_trait::async_trait, prombus_core as core, uuid::Uuid};

pub use copies::CopiesSubject;
pub use given::Given;
pub use harness::{Harness, HarnessError};
pub use homes::HomesSubject;
pub use http::HttpLog;
pub use missing::DocumentError;
pub use sim_disk::SimDisk;
pub use subject::{Reopen, Subject};
pub use tasks::guarded;
