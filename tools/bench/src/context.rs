//! What all groups of benchmarks share: where data goes, how much is measured, and which binary is used.

use super::Args;
use prombus_fixtures::Usage;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// How much smaller a quick run is.
const QUICK: u64 = 10;
/// The usual size of a part of the journal.
const PART_BYTES: u64 = 128 << 20;

/// What all groups share.
pub struct Context {
    quick: bool,
    dir: PathBuf,
    hub: Option<PathBuf>,
}

impl Context {
    /// Settles where things are; builds the hub, where one is needed and none was named.
    pub fn new(args: &Args, needs_hub: bool) -> Result<Self, String> {
        let dir = args.dir.clone().unwrap_or_else(repo::target_dir).join("bench");
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let hub = match &args.bin {
            None if needs_hub => Some(repo::build_hub()?),
            named => named.clone(),
        };
        Ok(Self { quick: args.quick, dir, hub })
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

    /// The prombus binary, for groups that have said that they need it.
    pub fn hub(&self) -> Result<&Path, String> {
        self.hub.as_deref().ok_or_else(|| "no hub was built".to_owned())
    }
}

/// How much more memory this process has at most while something is done than before, in MiB.
pub async fn growth_of<T>(work: impl Future<Output = Result<T, String>>) -> Result<(T, f64), String> {
    let usage = Usage::of_this_process();
    let failed = |error: io::Error| format!("the memory of this process: {error}");
    usage.forget_peak().map_err(failed)?;
    let before = usage.memory().map_err(failed)?;
    let done = work.await?;
    let grown = usage.peak_memory().map_err(failed)?.saturating_sub(before);
    Ok((done, grown as f64 / f64::from(1 << 20)))
}

/// Waits until the disk has nothing left to write.
pub fn settle() {
    rustix::fs::sync();
}

fn remove(dir: &Path) -> Result<(), String> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(format!("{}: {error}", dir.display())),
        _ => Ok(()),
    }
}
