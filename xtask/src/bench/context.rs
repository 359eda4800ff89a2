//! What all groups share: where data go, how much is measured, and which binary.

use super::Args;
use crate::repo;
use std::fs;
use std::path::{Path, PathBuf};

/// How much smaller a quick run is.
const QUICK: u64 = 10;
/// The usual size of a part of the journal.
const PART_BYTES: u64 = 128 << 20;

/// What all groups share.
pub struct Context {
    quick: bool,
    dir: PathBuf,
    bin: Option<PathBuf>,
}

impl Context {
    /// Settles where things are.
    pub fn new(args: &Args) -> Result<Self, String> {
        let dir = args.dir.clone().unwrap_or_else(repo::target_dir).join("bench");
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(Self { quick: args.quick, dir, bin: args.bin.clone() })
    }

    /// `full`, or a tenth of it.
    pub fn scaled(&self, full: u64) -> u64 {
        if self.quick { full / QUICK } else { full }
    }

    /// The size of a part of the journal: such that a run fills some either way.
    pub fn part_bytes(&self) -> u64 {
        self.scaled(PART_BYTES)
    }

    /// An empty folder. What was measured before is gone and on disk, so that it disturbs nothing.
    pub fn fresh_dir(&self, name: &str) -> Result<PathBuf, String> {
        let dir = self.dir.join(name);
        remove(&dir)?;
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        settle();
        Ok(dir)
    }

    /// Removes everything that was made.
    pub fn clean_up(&self) -> Result<(), String> {
        remove(&self.dir)
    }

    /// The prombus binary: the one that was named, or one that is built now.
    pub fn prombus(&self) -> Result<PathBuf, String> {
        self.bin.clone().map_or_else(repo::build_hub, Ok)
    }
}

/// Waits until the disk has nothing left to write.
pub fn settle() {
    rustix::fs::sync();
}

fn remove(dir: &Path) -> Result<(), String> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", dir.display()))
        }
        _ => Ok(()),
    }
}
