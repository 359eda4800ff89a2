//! The thread that merges tables, so that a long merge keeps nothing else waiting.

use crate::background::housekeeper::Chore;
use crate::shared::Shared;
use crate::state::rows::{Merge, Table};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

/// Whether a row with this key is still needed.
pub type Keep = dyn Fn(&[u8]) -> bool + Send;

/// Tables to merge.
pub struct MergeJob {
    /// Neighbours, the oldest first.
    pub tables: Vec<Arc<Table>>,
    /// Whether the oldest of all is among them.
    pub from_oldest: bool,
    /// What of their rows is kept.
    pub keep: Box<Keep>,
}

/// The result of a merge.
pub struct Merged {
    /// The tables that were merged.
    pub tables: Vec<Arc<Table>>,
    /// The table that has their rows, durably; none where no row is left.
    pub result: io::Result<Option<Arc<Table>>>,
}

/// Runs until all of its clients are gone.
pub fn run(shared: &Shared, jobs: &Receiver<MergeJob>, done: &SyncSender<Chore>) {
    while let Ok(MergeJob { tables, from_oldest, keep }) = jobs.recv() {
        let merge = Merge { tables: &tables, from_oldest, keep: &*keep, stop: &shared.closing };
        // It can wait for room, and takes more than is kept back.
        let result = merge.write(shared.new_table(&*shared.disk));
        if done.send(Chore::Merged(Merged { tables, result })).is_err() {
            return;
        }
    }
}
