//! Which checkpoints exist, which tables they refer to, and what can be deleted because no checkpoint needs it.
//!
//! A checkpoint is durably deleted before the tables that only it refers to, so that none is ever without its tables.

use crate::disk::{Disk, remove_if_there};
use crate::journal::position::Pos;
use crate::state::checkpoint;
use crate::state::rows;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// How many checkpoints are kept, in case the newest is damaged.
const KEEP: usize = 2;

/// The checkpoints that are on disk.
#[derive(Debug, Default)]
pub struct Checkpoints {
    /// Where they are and which tables they name, from the first to the last.
    checkpoints: Vec<(Pos, Vec<u64>)>,
    /// Tables that a checkpoint named that no longer exists.
    retired: BTreeSet<u64>,
}

impl Checkpoints {
    /// Notes a checkpoint that is durable. One as of the same place was replaced by it.
    pub fn add(&mut self, pos: Pos, tables: Vec<u64>) {
        if let Some(same) = self.checkpoints.iter().position(|(known, _)| *known == pos) {
            self.retired.extend(self.checkpoints.remove(same).1);
        }
        let at = self.checkpoints.partition_point(|(known, _)| *known < pos);
        self.checkpoints.insert(at, (pos, tables));
    }

    /// The part that the oldest one is of; 0 where there is none.
    pub fn oldest_part(&self) -> u32 {
        self.checkpoints.first().map_or(0, |(pos, _)| pos.part)
    }

    /// Whether a checkpoint refers to the table.
    pub fn names(&self, table: u64) -> bool {
        self.checkpoints.iter().any(|(_, tables)| tables.contains(&table))
    }

    /// Deletes old checkpoints, and then tables that no checkpoint refers to. What cannot be deleted now is retried the
    /// next time.
    pub fn let_go(&mut self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let old = self.checkpoints.len().saturating_sub(KEEP);
        for (pos, _) in &self.checkpoints[..old] {
            remove_if_there(disk, &checkpoint::path(dir, *pos))?;
        }
        if old > 0 {
            // One that comes back after a power cut would need parts that may be rewritten once it is gone.
            disk.sync_dir(&checkpoint::folder(dir))?;
        }
        self.retired.extend(self.checkpoints.drain(..old).flat_map(|(_, tables)| tables));
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
