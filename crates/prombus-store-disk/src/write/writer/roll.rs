//! How the journal goes on in another part.

use super::{Job, Writer};
use crate::background::housekeeper::Chore;
use crate::disk::is_full;
use crate::index::sidecar::PartFacts;
use crate::journal::batch::Secret;
use crate::journal::part::{self, CreateError, PART_HEAD, Part, PartHead, PartName};
use crate::journal::position::Pos;
use prombus_core::CommitError;
use std::io;
use std::sync::Arc;

/// Whether there is no new part for want of room only.
fn lacks_room(rolled: &Result<(), CreateError>) -> bool {
    matches!(rolled, Err(CreateError::Surely(error)) if is_full(error))
}

impl Writer {
    /// Goes on in a part of its own where the last one has no secret. Where none can be made, the old one has to do.
    pub(super) fn leave_early_part(&mut self) {
        if self.secret.is_some() {
            return;
        }
        match self.roll(self.shared.options.reserve_step()) {
            Ok(()) => {}
            Err(CreateError::Surely(error)) => {
                tracing::warn!(%error, "continuing with the last journal part, which has an earlier format");
            }
            Err(CreateError::Perhaps(error)) => self.fail_roll(&error),
        }
    }

    /// Continues in a new part; if that cannot be created, refuses what does not fit.
    pub(super) fn roll_or_refuse(&mut self) {
        let Err(error) = self.flush_and_roll() else { return };
        for Job { work, answer, .. } in self.carried.drain(..) {
            drop(work);
            let _ = answer.send(Err(error.clone()));
        }
    }

    /// Continues in a new part.
    fn flush_and_roll(&mut self) -> Result<(), CommitError> {
        self.flush_before_roll()?;
        let rolled = self.roll(self.shared.options.reserve_step());
        self.rolled(rolled)
    }

    /// Continues in a new part, so that the old one can be cleaned. On a full disk, the new one gets a little of the room
    /// that is kept back for that: enough for what only removes things, and nothing for events.
    pub(crate) fn roll_for_cleaning(&mut self) -> Result<(), CommitError> {
        self.flush_before_roll()?;
        let (shared, least) = (self.shared.clone(), self.shared.options.headroom());
        let reserve = &shared.cleaning_disk.0;
        let mut rolled = self.roll(shared.options.reserve_step());
        if lacks_room(&rolled) {
            rolled = self.roll(least);
        }
        if lacks_room(&rolled) && reserve.kept_bytes() >= least && reserve.give(least) {
            rolled = self.roll(least);
        }
        self.rolled(rolled)
    }

    fn flush_before_roll(&mut self) -> Result<(), CommitError> {
        match self.dirty_since.is_none() || self.flush() {
            true => Ok(()),
            false => Err(CommitError::Unavailable(self.shared.failure())),
        }
    }

    /// What it means for who waits that there is no new part.
    fn rolled(&mut self, rolled: Result<(), CreateError>) -> Result<(), CommitError> {
        Err(match rolled {
            Ok(()) => return Ok(()),
            Err(CreateError::Surely(error)) if is_full(&error) => {
                self.shared.set_disk_full(true);
                CommitError::NoRoom
            }
            Err(CreateError::Surely(error)) => {
                CommitError::Unavailable(format!("a new part of the journal cannot be created: {error}"))
            }
            Err(CreateError::Perhaps(error)) => {
                self.fail_roll(&error);
                CommitError::Unavailable(self.shared.failure())
            }
        })
    }

    /// Whether nothing was written to the part yet.
    pub(crate) fn is_at_start_of_part(&self) -> bool {
        self.at() as usize == PART_HEAD
    }

    fn fail_roll(&self, error: &io::Error) {
        let failure =
            format!("it is unknown whether the new part of the journal exists ({error}); restart the hub");
        self.shared.fail(&failure);
    }

    /// Continues in a new part, for which so much room is reserved.
    fn roll(&mut self, reserved: u64) -> Result<(), CreateError> {
        let prev_end = self.stage.view.end;
        let name = PartName::written(prev_end.part + 1);
        let secret = Some(Secret::new());
        let head = PartHead { name, epoch: self.epoch, prev_end, secret };
        let file = part::create(&*self.shared.disk, &self.shared.options.dir, head, reserved)?;
        let facts = PartFacts {
            name: PartName::written(prev_end.part),
            end: prev_end.at,
            last_recorded_ts: self.stage.view.last_recorded_ts,
        };
        let next = Arc::new(Part::active(name, file, Default::default()));
        let full = std::mem::replace(&mut self.part, next);
        full.ends_at(prev_end.at);
        self.reserved = reserved;
        self.secret = secret;
        if reserved >= self.shared.options.reserve_step() {
            self.shared.set_disk_full(false);
        }
        self.stage.view.end = Pos { part: name.number, at: PART_HEAD as u32 };
        self.flushed_to = self.stage.view.end;
        self.covered = true;
        Arc::make_mut(&mut self.stage.view.parts).push(self.part.clone());
        self.show();
        self.begin();
        self.checkpoint_is_due = true;
        // Waits where the housekeeper is behind, so that indexes in memory do not pile up.
        let _ = self.chores.0.send(Chore::Seal { part: full, facts });
        Ok(())
    }
}
