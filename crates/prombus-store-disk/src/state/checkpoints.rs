//! Which checkpoints exist, which tables they refer to, and what can be deleted because no checkpoint needs it.
//!
//! A checkpoint is durably deleted before the tables that only it refers to, so that none is ever without its tables.

use crate::disk::{Disk, DiskFile, remove_if_there};
use crate::journal::position::Pos;
use crate::state::checkpoint;
use crate::state::rows::{self, Tables};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// How many checkpoints are kept, in case the newest is damaged.
const KEEP: usize = 2;

/// The newest checkpoint, with all that belongs to it.
pub struct Newest {
    /// Where it is.
    pub pos: Pos,
    /// Its file.
    pub file: Arc<dyn DiskFile>,
    /// The tables that it names.
    pub tables: Arc<Tables>,
}

/// The checkpoints that are on disk.
#[derive(Debug, Default)]
pub struct Checkpoints {
    /// From the first to the last.
    checkpoints: Vec<KnownCheckpoint>,
    /// Tables that a checkpoint named that no longer exists.
    retired: BTreeSet<u64>,
}

/// What is known of a checkpoint.
#[derive(Debug)]
pub struct KnownCheckpoint {
    /// Where it is.
    pub pos: Pos,
    /// The tables that it names.
    pub tables: Vec<u64>,
    /// Whether it names keys that are to be erased.
    pub has_names: bool,
}

impl Checkpoints {
    /// Notes a checkpoint that is durable. One as of the same place was replaced by it.
    pub fn add(&mut self, known: KnownCheckpoint) {
        if let Some(same) = self.checkpoints.iter().position(|other| other.pos == known.pos) {
            self.retired.extend(self.checkpoints.remove(same).tables);
        }
        let at = self.checkpoints.partition_point(|other| other.pos < known.pos);
        self.checkpoints.insert(at, known);
    }

    /// Whether one of them names keys that are to be erased.
    pub fn have_names(&self) -> bool {
        self.checkpoints.iter().any(|known| known.has_names)
    }

    /// The part that the oldest one is of; 0 where there is none.
    pub fn oldest_part(&self) -> u32 {
        self.checkpoints.first().map_or(0, |known| known.pos.part)
    }

    /// The newest one, whose tables are among those that are open; `None` where there is none.
    pub fn newest(&self, disk: &dyn Disk, dir: &Path, open: &Tables) -> io::Result<Option<Newest>> {
        let Some(known) = self.checkpoints.last() else { return Ok(None) };
        let named = open.list().iter().filter(|table| known.tables.contains(&table.number()));
        let tables = Arc::new(Tables::new(named.cloned().collect()));
        let file = disk.open_to_read(&checkpoint::path(dir, known.pos))?;
        Ok(Some(Newest { pos: known.pos, file, tables }))
    }

    /// Whether a checkpoint refers to the table.
    pub fn names(&self, table: u64) -> bool {
        self.checkpoints.iter().any(|known| known.tables.contains(&table))
    }

    /// Deletes old checkpoints, and then tables that no checkpoint refers to. What cannot be deleted now is retried the
    /// next time.
    pub fn let_go(&mut self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        self.keep(KEEP, disk, dir)
    }

    /// The same with all but the last one.
    pub fn let_go_of_older(&mut self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        self.keep(1, disk, dir)
    }

    fn keep(&mut self, keep: usize, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let old = self.checkpoints.len().saturating_sub(keep);
        for known in &self.checkpoints[..old] {
            remove_if_there(disk, &checkpoint::path(dir, known.pos))?;
        }
        if old > 0 {
            // One that comes back after a power cut would need parts that may be rewritten once it is gone.
            disk.sync_dir(&checkpoint::folder(dir))?;
        }
        self.retired.extend(self.checkpoints.drain(..old).flat_map(|known| known.tables));
        let retired = std::mem::take(&mut self.retired);
        // One that another checkpoint names comes back here when that one goes.
        self.retired = retired.into_iter().filter(|table| !self.names(*table)).collect();
        while let Some(table) = self.retired.first().copied() {
            remove_if_there(disk, &rows::path(dir, table))?;
            self.retired.remove(&table);
        }
        Ok(())
    }
}
