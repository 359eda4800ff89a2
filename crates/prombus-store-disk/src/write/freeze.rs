//! What the writer does between batches: it freezes changed rows for a table, takes over finished tables, waits if memory
//! is full, and advances recorded time.
//!
//! Rows are frozen only once everything written is flushed: a table must never contain what the journal might lose.

use crate::background::housekeeper::Chore;
use crate::backup::held::Moment;
use crate::state::view::View;
use crate::write::writer::{self, Asked, Handover, Message, Renew, Renewed, Work, Writer};
use prombus_core::CommitError;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Rows may be changed up to so many times the limit while the last ones are being written to a table.
const MOST_LIMITS: usize = 2;

impl Writer {
    /// Records a message. Its effect on the state waits for the end of the batch.
    pub(crate) fn note(&mut self, message: Message) {
        match message {
            Message::Commit(job) => self.arrived.push_back(job),
            Message::Horizon(horizon) => self.horizons.push(horizon),
            Message::Tables(new) => {
                let kept = new.kept.or_else(|| self.handover.take().and_then(|old| old.kept));
                self.handover = Some(Handover { kept, ..new });
            }
            Message::Renew(renew) => self.renewals.push(renew),
            Message::Checkpoint => self.checkpoint_is_due = true,
            Message::Stuck(why) => {
                writer::refuse(&mut self.asked, &why);
                self.stuck = Some(why);
            }
            Message::Hold(holder) => self.holders.push(holder),
            Message::Stop => self.is_stopping = true,
        }
    }

    /// Whether something was noted that can be done at once, so that nobody waits for the next message.
    pub(crate) fn has_noted(&self) -> bool {
        let is_asked = !self.horizons.is_empty() || !self.renewals.is_empty() || !self.holders.is_empty();
        let is_due = self.checkpoint_is_due && !self.is_checkpointing;
        is_asked || ((is_due || self.handover.is_some()) && self.shared.failed().is_none())
    }

    /// Between two batches: takes over tables, freezes rows if that is due, and advances recorded time.
    pub(crate) fn between_batches(&mut self) {
        if self.shared.failed().is_some() {
            // Whoever waits learns that it is in vain.
            self.horizons.clear();
            self.renewals.clear();
            self.asked.clear();
            self.holders.clear();
            return;
        }
        self.move_time_on();
        self.tell_holders();
        if let Some(Handover { tables, kept }) = self.handover.take() {
            let rows = &mut self.stage.view.rows;
            let mut forgotten = None;
            if let Some(kept) = kept {
                forgotten = Some(rows.replace_frozen(tables, kept));
                self.is_checkpointing = false;
                self.stuck = None;
            } else {
                rows.replace_tables(tables);
            }
            self.show_between();
            if let Some(forgotten) = forgotten {
                // Letting go of many documents takes a while: not here, where there is another place for it.
                let _ = self.chores.0.try_send(Chore::LetGo(forgotten));
            }
        }
        if self.shared.lists_are_asked_for() {
            self.prepare();
        }
        self.begin_renewals();
        self.checkpoint_if_due();
    }

    /// Has a checkpoint taken for those who asked for one, behind everything that was committed so far.
    fn begin_renewals(&mut self) {
        for Renew { ends_part, answer } in std::mem::take(&mut self.renewals) {
            if ends_part
                && !self.is_at_start_of_part()
                && let Err(error) = self.roll_for_cleaning()
            {
                // Whoever no longer waits does not want to know.
                let _ = answer.send(Err(error));
                continue;
            }
            let view = &self.stage.view;
            let renewed = Renewed { part: view.end.part, sequence: view.sequence };
            self.asked.push(Asked { answer, renewed });
            self.checkpoint_is_due = true;
        }
    }

    /// Everything that was recorded so far is in the state that is shown, and what comes is recorded later.
    fn move_time_on(&mut self) {
        let Some(past) = self.horizons.iter().map(|horizon| horizon.past).max() else { return };
        let recorded = &mut self.stage.view.last_recorded_ts;
        *recorded = (*recorded).max(past.saturating_add(1));
        self.show_between();
        let now = self.stage.view.last_recorded_ts;
        for horizon in self.horizons.drain(..) {
            // Whoever no longer waits does not want to know.
            let _ = horizon.answer.send(now);
        }
    }

    /// Tells whoever is to copy the store what it is now. Everything is flushed, and a batch says so: what a copy lacks at
    /// its end then looks like damage, and not like a tail that was never flushed.
    fn tell_holders(&mut self) {
        if self.holders.is_empty() || (self.dirty_since.is_some() && !self.flush()) {
            return self.holders.clear();
        }
        if !self.covered {
            self.cover();
        }
        for holder in self.holders.drain(..) {
            let checkpoint = self.shared.newest.lock().clone();
            // Whoever no longer waits does not want to know.
            let _ = holder.send(Moment { view: self.stage.view.clone(), checkpoint });
        }
    }

    /// Has index rows made, off the way, so that who asks for a list does not have to.
    pub(crate) fn prepare(&self) {
        let rows = &self.stage.view.rows;
        if rows.is_prepared() || self.shared.is_preparing.swap(true, Ordering::Relaxed) {
            return;
        }
        if self.chores.0.try_send(Chore::Prepare(rows.clone())).is_err() {
            self.shared.is_preparing.store(false, Ordering::Relaxed);
        }
    }

    /// Whether changed rows take too much memory, so that something must be done between this batch and the next.
    pub(crate) fn is_too_much(&self) -> bool {
        let limits = if self.is_checkpointing { MOST_LIMITS } else { 1 };
        self.stage.view.rows.active_bytes() > self.shared.options.rows_in_memory.saturating_mul(limits)
    }

    /// Asks for a checkpoint after a part was rolled or a slow open, and when changed rows take too much memory.
    fn checkpoint_if_due(&mut self) {
        if self.is_checkpointing || !(self.is_too_much() || self.checkpoint_is_due) {
            return;
        }
        if self.dirty_since.is_some() && !self.flush() {
            return;
        }
        self.stage.view.rows.freeze();
        self.show_between();
        self.wake_builder();
        (self.checkpoint_is_due, self.is_checkpointing) = (false, true);
        // A checkpoint holds no parts, and must not keep files that are removed meanwhile.
        let view = Box::new(View { parts: Arc::default(), ..self.stage.view.clone() });
        // Waits where the housekeeper is behind.
        let asked = std::mem::take(&mut self.asked);
        let _ = self.chores.0.send(Chore::Checkpoint { view, epoch: self.epoch, table: None, asked });
    }

    /// Has the builder of indexes look at what is shown now.
    pub(crate) fn wake_builder(&self) {
        // Where it was woken already, it sees this too.
        let _ = self.builder.try_send(());
    }

    /// Shows the same state in another form, or at a later time.
    fn show_between(&mut self) {
        self.show();
        self.begin();
    }

    fn is_over_full(&self) -> bool {
        self.is_checkpointing && self.is_too_much()
    }

    /// Waits while there are too many changed rows in memory and a table is being written.
    pub(crate) fn wait_for_memory(&mut self) {
        while self.is_over_full() && self.stuck.is_none() && !self.is_stopping {
            if self.shared.failed().is_some() || (self.dirty_since.is_some() && !self.flush()) {
                return;
            }
            match self.queue.recv() {
                Ok(message) => self.note(message),
                Err(_) => self.is_stopping = true,
            }
            self.between_batches();
        }
    }

    /// Why something cannot be taken for want of memory: rows cannot be put into tables, and it changes more of them.
    pub(crate) fn no_memory_for(&self, work: &Work) -> Option<CommitError> {
        self.stuck.clone().filter(|_| work.changes_rows() && self.is_over_full())
    }
}
