//! What to do instead of a batch that was refused: it is taken apart, until the event that is to blame is alone.

use super::{Runner, Stop, ends_of, outcome};
use crate::bus::BusError;
use crate::filter::KEEP_TIME;
use crate::projections::batch::{Batch, Projector};
use prombus_core::CommitError;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// A batch that was not committed.
pub(super) struct RefusedBatch {
    pub batch: Batch,
    pub ends: BTreeMap<u32, u64>,
    pub error: BusError,
}

/// What is left to do of a batch that was refused.
struct Pieces {
    /// The next one last.
    rest: Vec<Batch>,
    /// Whether that is all of it.
    whole: bool,
}

impl Runner {
    /// Does what can be done of a batch that was refused another way.
    pub(super) async fn make_up_for(&mut self, refused: RefusedBatch) -> Result<(), Stop> {
        let RefusedBatch { batch, ends, error } = refused;
        self.hub.note_lost_home(&self.home, &error);
        let done = self.recover(batch, ends, error).await;
        if matches!(&done, Err(stop) if stop.pause.is_some()) {
            // Look again at everything: someone else may have been here, or the commit has happened after all.
            self.topic = None;
            self.forget_partitions();
        }
        self.go_back();
        done
    }

    /// Does a batch that was refused in pieces, so that only what is to blame is left out. Where that takes long, the
    /// rest is read again later: meanwhile it is told how far the projection is, and commands are heard.
    async fn recover(&mut self, batch: Batch, ends: BTreeMap<u32, u64>, error: BusError) -> Result<(), Stop> {
        let mut pieces = Pieces { rest: Vec::new(), whole: true };
        let start = Instant::now();
        self.take_apart(batch, error, &mut pieces)?;
        while let Some(mut piece) = pieces.rest.pop() {
            if piece.applied.len() > self.most_events {
                let (first, rest) = piece.split(self.most_events);
                pieces.rest.push(rest);
                piece = first;
            }
            // Behind its last event a page may go on over what was removed.
            let is_last = pieces.whole && pieces.rest.is_empty();
            let ends = if is_last { ends.clone() } else { ends_of(&piece) };
            match self.commit_now(&mut piece, &ends).await {
                Err(error) => self.take_apart(piece, error, &mut pieces)?,
                Ok(()) if start.elapsed() > KEEP_TIME => break,
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// What to do instead of a batch that was refused.
    fn take_apart(&mut self, batch: Batch, error: BusError, pieces: &mut Pieces) -> Result<(), Stop> {
        let count = batch.applied.len();
        if is_too_large(&error) && count > 1 {
            (self.most_events, self.full_batches) = (count / 2, 0);
            pieces.rest.push(batch);
            return Ok(());
        }
        let Some(at) = self.culprit(&batch, &error) else { return Err(error.into()) };
        let (before, rest) = batch.split(at);
        let (mut alone, after) = rest.split(1);
        if !alone.blame_first(&error.to_string(), self.projector.retries()) {
            return Err(error.into());
        }
        match self.projector {
            Projector::Plan(_) | Projector::Halted(_) => pieces.rest.push(after),
            // What it did after this event may rest on what it has read of it: that is done again.
            Projector::Code(_) if !after.applied.is_empty() || !pieces.rest.is_empty() => {
                (pieces.rest, pieces.whole) = (Vec::new(), false);
            }
            Projector::Code(_) => {}
        }
        pieces.rest.extend([alone, before]);
        pieces.rest.retain(|piece| !piece.applied.is_empty());
        Ok(())
    }

    /// Which event of a batch is to blame for an error, if one is.
    pub fn culprit(&self, batch: &Batch, error: &BusError) -> Option<usize> {
        match error {
            BusError::Commit(
                CommitError::BadWrite { index, .. }
                | CommitError::NotUnique { index, .. }
                | CommitError::IndexValueTooLong { index, .. },
            ) => Some(batch.event_of(*index)),
            error if is_too_large(error) => Some(0),
            BusError::Commit(CommitError::TopicNotFound(topic)) if *topic != self.topic_name => {
                let publish = batch.publishes.iter().position(|append| append.topic == *topic)?;
                batch.publisher_of(publish)
            }
            error => batch.publisher_of(error.index()?),
        }
        .filter(|at| *at < batch.applied.len())
    }

    async fn commit_now(&mut self, batch: &mut Batch, ends: &BTreeMap<u32, u64>) -> Result<(), BusError> {
        let room = self.room_for(self.kib_of(batch).await).await;
        let mut commit = Arc::new(self.commit(batch, ends));
        let done = outcome(self.hub.bus.enqueue(&mut commit).await).await;
        if let Some(room) = room {
            room.give_back();
        }
        match done {
            Ok(()) => self.landed(batch, ends),
            Err(_) => batch.take_back(commit),
        }
        done
    }
}

/// Whether a batch makes too much, so that fewer events might do.
fn is_too_large(error: &BusError) -> bool {
    matches!(error, BusError::Commit(CommitError::TooLarge { .. }))
}
