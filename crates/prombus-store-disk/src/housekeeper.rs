//! The thread that puts away full parts: it writes their index and then a checkpoint, off the writer's way.

use crate::checkpoint;
use crate::part::{Index, Part, index_path};
use crate::shared::Shared;
use crate::sidecar::{self, PartFacts, Sidecar};
use crate::view::View;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// So many full parts may wait with their index in memory before the writer has to.
pub const MAX_WAITING: usize = 2;
/// How long to wait before what failed (for want of room, say) is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// A part to put away.
pub struct Chore {
    /// The part.
    pub part: Arc<Part>,
    /// What must be known to write its index.
    pub facts: PartFacts,
    /// The state as of the start of the next part, and the epoch.
    pub checkpoint: Option<(View, u64)>,
}

/// Works until the writer is gone and everything is put away, or cannot be.
pub fn run(shared: &Shared, first: Vec<Chore>, chores: &Receiver<Chore>) {
    let mut waiting: VecDeque<Chore> = first.into();
    let mut open = true;
    while open || !waiting.is_empty() {
        if waiting.is_empty() {
            match chores.recv() {
                Ok(chore) => waiting.push_back(chore),
                Err(_) => open = false,
            }
        }
        let Some(chore) = waiting.front() else { continue };
        match put_away(shared, chore) {
            Ok(()) => {
                waiting.pop_front();
            }
            // Nothing is lost: the next start does it again.
            Err(error) if !open => {
                tracing::warn!(%error, part = chore.part.number, "a part was left without an index on disk");
                return;
            }
            Err(error) => {
                tracing::warn!(%error, part = chore.part.number, "a part cannot be put away yet");
                match chores.recv_timeout(RETRY_AFTER) {
                    Ok(chore) => waiting.push_back(chore),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => open = false,
                }
            }
        }
    }
}

fn put_away(shared: &Shared, chore: &Chore) -> io::Result<()> {
    let Chore { part, facts, checkpoint } = chore;
    let (disk, dir) = (&*shared.disk, &shared.options.dir);
    let path = index_path(dir, facts.part);
    let unsealed = match &*part.index() {
        Index::Sealed(_) => false,
        Index::Active(index) => {
            // Gives back what was reserved and not used.
            part.file.set_len(u64::from(facts.end))?;
            part.file.sync()?;
            sidecar::write(disk, &path, &index.read(), *facts)?;
            true
        }
    };
    if unsealed {
        part.seal(Sidecar::open(disk.open_to_read(&path)?, facts.part)?);
    }
    if let Some((view, epoch)) = checkpoint {
        checkpoint::write(disk, dir, view, *epoch)?;
    }
    Ok(())
}
