//! When the writer sets changed rows apart for a table, takes over tables, and waits because memory is full.
//!
//! Rows are set apart only when everything that was written is flushed: a table must never hold what the journal
//! might lose.

use crate::housekeeper::Chore;
use crate::writer::{Handover, Message, Writer};
use prombus_core::{Commit, CommitError};

/// Rows may be changed up to so many times the limit while the last ones are being written to a table.
const MOST_LIMITS: usize = 2;

impl Writer {
    /// Takes note of a message. What it means for the state waits for the end of the batch.
    pub(crate) fn note(&mut self, message: Message) {
        match message {
            Message::Commit(job) => self.arrived.push_back(job),
            Message::Tables(new) => {
                let has_frozen = new.has_frozen || self.handover.as_ref().is_some_and(|old| old.has_frozen);
                self.handover = Some(Handover { has_frozen, ..new });
            }
            Message::Stuck(why) => self.stuck = Some(why),
            Message::Stop => self.is_stopping = true,
        }
    }

    /// Between two batches: takes over tables, and sets rows apart where that is due.
    pub(crate) fn between_batches(&mut self) {
        if self.shared.failed().is_some() {
            return;
        }
        if let Some(Handover { tables, has_frozen }) = self.handover.take() {
            let rows = &mut self.stage.view.rows;
            let mut forgotten = None;
            if has_frozen {
                forgotten = Some(rows.replace_frozen(tables));
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
        self.checkpoint_if_due();
    }

    /// Asks for a checkpoint after a part was rolled, and when changed rows take too much memory.
    fn checkpoint_if_due(&mut self) {
        let is_full = self.stage.view.rows.active_bytes() > self.shared.options.rows_in_memory;
        if self.is_checkpointing || !(is_full || self.has_rolled) {
            return;
        }
        if self.dirty_since.is_some() && !self.flush() {
            return;
        }
        self.stage.view.rows.freeze();
        self.show_between();
        (self.has_rolled, self.is_checkpointing) = (false, true);
        let view = self.stage.view.clone();
        // Waits where the housekeeper is behind.
        let _ = self.chores.0.send(Chore::Checkpoint { view, epoch: self.epoch, table: None });
    }

    /// Shows the same state in another form.
    fn show_between(&mut self) {
        self.shared.show(self.stage.view.clone());
        self.begin();
    }

    fn is_over_full(&self) -> bool {
        let limit = self.shared.options.rows_in_memory.saturating_mul(MOST_LIMITS);
        self.is_checkpointing && self.stage.view.rows.active_bytes() > limit
    }

    /// Waits as long as there are too many changed rows in memory, and someone works on it.
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

    /// Why a commit cannot be taken for want of memory: rows cannot be put into tables, and it changes more of them.
    pub(crate) fn no_memory_for(&self, commit: &Commit) -> Option<CommitError> {
        self.stuck.clone().filter(|_| !commit.documents.is_empty() && self.is_over_full())
    }
}
