//! Projections: events of a topic become documents of collections, each exactly once.

mod actor;
mod batch;
mod circle;
mod definition;
pub(crate) mod expression;
mod merged_partitions;
mod plan;
mod registry;
mod replay;
mod runner;
mod slots;
mod stored;
mod together;
mod trial;
mod tx;

pub use definition::{
    DEFAULT_RETRIES, Definition, IndexDefinition, MAX_DEFINITION_BYTES, MAX_RETRIES, SetDefinition,
    WriteDefinition,
};

pub use plan::Plan;
pub use registry::{CodeSetup, Holdings, Projections};
pub(crate) use replay::{EventToReplay, Outcome};
pub(crate) use runner::{LARGE_BATCHES, ProjectionContext};
pub(crate) use slots::WorkSlots;
pub use together::{BadDefinition, check_together};
pub use trial::Trial;
pub use tx::{Project, ProjectFailure, Tx};

/// What the macro [`projection!`](crate::projection) needs to name.
#[doc(hidden)]
pub use {async_trait::async_trait, prombus_core::Event, prombus_core::ParseJson};

use crate::bus::BusError;
use crate::filter::BadFilter;
use prombus_core::{Offset, Partition, ReadError, TopicName};

/// Why a projection is not as it was asked to be.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ProjectionError {
    /// There is no such projection.
    #[error("there is no projection {0:?}")]
    NotFound(String),
    /// The definition makes no sense.
    #[error("{0}")]
    Bad(String),
    /// There is a limit.
    #[error("the definition takes {0} bytes, more than the {MAX_DEFINITION_BYTES} that it may")]
    TooLarge(usize),
    /// An expression of the definition does not compile.
    #[error("`{place}` does not compile: {} (line {}, column {})", error.message, error.line, error.column)]
    BadExpression {
        /// Which one.
        place: String,
        /// What is wrong with it.
        error: BadFilter,
    },
    /// A collection belongs to someone else.
    #[error("collection {collection} is written by {owner}, and by nothing else")]
    NotOwner {
        /// The collection.
        collection: String,
        /// Who owns it.
        owner: String,
    },
    /// Part of the history is gone.
    #[error(
        "offsets below {first} of partition {partition} are no longer kept, so a rebuild would lack what they did; ask for {{\"partial\": true}} if that is what you want"
    )]
    Incomplete {
        /// The partition.
        partition: Partition,
        /// The first offset that is kept.
        first: Offset,
    },
    /// It is being rebuilt already.
    #[error("projection {0:?} is already being rebuilt")]
    Rebuilding(String),
    /// The store cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store refused a commit.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// How a projection is doing.
#[derive(Debug, Clone)]
pub struct ProjectionStatus {
    /// Its name.
    pub name: String,
    /// What it is.
    pub definition: Definition,
    /// The collections that it writes.
    pub collections: Vec<String>,
    /// What it does now.
    pub state: ProjectionState,
    /// Whether its collections were made by another definition in part.
    pub stale: bool,
    /// How many events it is behind, over all partitions.
    pub lag: u64,
    /// Where it is.
    pub partitions: Vec<ProjectionPartition>,
    /// How many events went to the dead letters since the hub was started.
    pub errors: u64,
    /// What the last of them failed with.
    pub last_error: Option<String>,
    /// How far a rebuild is, while there is one.
    pub rebuild: Option<RebuildStatus>,
    /// Why the last rebuild since the hub was started was given up; absent where it was not.
    pub rebuild_error: Option<String>,
}

/// What is counted of a projection.
#[derive(Debug, Clone)]
pub struct ProjectionFigures {
    /// Its name.
    pub name: String,
    /// The topic whose events it takes.
    pub topic: TopicName,
    /// How many events went to the dead letters since the hub was started.
    pub errors: u64,
    /// How many events it is behind, over all partitions.
    pub lag: u64,
}

/// What a projection does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProjectionState {
    /// It runs.
    Running,
    /// It was stored, and its expressions are being compiled.
    Starting,
    /// It waits for its topic to be made.
    Waiting(TopicName),
    /// It has stopped, for this reason, until it is rebuilt or defined anew.
    Stopped(String),
}

/// Where a projection is in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProjectionPartition {
    /// The partition.
    pub partition: Partition,
    /// The first offset that it has not seen.
    pub next: Offset,
    /// The first offset that does not exist yet.
    pub tail: Offset,
}

/// How far a rebuild is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuildStatus {
    /// How many events are to be done yet.
    pub lag: u64,
    /// How many events failed in it.
    pub failed: u64,
}

/// How long a reader waits at most until a projection has seen an offset.
pub const MAX_WAIT: std::time::Duration = std::time::Duration::from_secs(5);

/// A place that a projection must have seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinOffset {
    /// The partition; may be left out where the topic has one.
    pub partition: Option<Partition>,
    /// The offset.
    pub offset: Offset,
}
