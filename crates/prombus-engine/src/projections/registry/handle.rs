//! A projection that runs, as those who talk to it have it.

use crate::projections::actor::{Command, ProjectionCell, Setup};
use crate::projections::stored::Record;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// A projection that runs.
pub(super) struct Handle {
    pub commands: mpsc::Sender<Command>,
    pub cell: Arc<ProjectionCell>,
    pub record: watch::Receiver<Record>,
    /// What it is, apart from the record.
    pub setup: Setup,
    pub is_stored: bool,
    pub task: JoinHandle<()>,
}

impl Handle {
    /// Whether it fills that collection.
    pub fn writes(&self, collection: &str) -> bool {
        self.setup.collections.iter().any(|(name, _)| **name == *collection)
    }
}
