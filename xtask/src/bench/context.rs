//! What all groups share: where data go, how much is measured, and which binary.

use super::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How much smaller a quick run is.
const QUICK: u64 = 10;
/// The usual size of a part of the journal.
const PART_BYTES: u64 = 128 << 20;

/// What all groups share.
pub struct Context {
    /// The repository.
    pub root: PathBuf,
    /// Whether this is only a first look.
    pub quick: bool,
    dir: PathBuf,
    bin: Option<PathBuf>,
}

impl Context {
    /// Settles where things are.
    pub fn new(args: &Args) -> Result<Self, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = root.parent().unwrap_or(root).to_owned();
        let dir = args.dir.clone().unwrap_or_else(|| root.join("target")).join("bench");
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(Self { root, quick: args.quick, dir, bin: args.bin.clone() })
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
        if let Some(bin) = &self.bin {
            return Ok(bin.clone());
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .current_dir(&self.root)
            .args(["build", "--quiet", "--release", "--package", "prombus"])
            .status()
            .map_err(|error| format!("cannot start cargo: {error}"))?;
        if !status.success() {
            return Err("prombus does not build".to_owned());
        }
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or(self.root.join("target"), PathBuf::from);
        Ok(target.join("release").join("prombus"))
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
