//! The keeper of a group: one task, there only while there is something to do, that writes what has changed and
//! does what is due. All changes that come while a commit is under way go into the next one together.

use super::dead::{self, DeadLetterWrite};
use super::durable::Span;
use super::group::Group;
use super::state::{Batch, ChunkMove, FinalFailure, PartitionMove};
use super::{GroupError, stored};
use crate::bus::BusError;
use crate::retry;
use bytes::Bytes;
use prombus_core::error::Retry;
use prombus_core::{Commit, CursorMove, CursorTarget, Offset};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Far enough not to matter: the keeper has nothing to wait for.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3_600);

impl Group {
    /// Sees to it that the keeper does what there is to do.
    pub(super) fn wake_keeper(self: &Arc<Self>) {
        let (stirred, moved, now, next) = {
            let mut state = self.state.lock();
            (state.was_stirred(), state.was_moved(), state.needs_commit(), state.next_tick())
        };
        if moved {
            self.assignments.send_modify(|count| *count += 1);
        }
        if stirred {
            self.more.notify_waiters();
        }
        if !now && next.is_none() {
            return;
        }
        let wake = if now { Instant::now() } else { next.unwrap_or_else(|| Instant::now() + NEVER) };
        // A pull may be dropped when there is no runtime any more.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut keeper = self.keeper.lock();
        match *keeper {
            None => {
                *keeper = Some(wake);
                let group = self.clone();
                runtime.spawn(async move { group.run_keeper().await });
            }
            Some(wakes) if now || wake < wakes => self.kick.notify_one(),
            Some(_) => {}
        }
    }

    async fn run_keeper(self: Arc<Self>) {
        while !self.has_failed() {
            let now = self.now();
            let (stirred, moved, commit) = {
                let mut state = self.state.lock();
                state.tick(now);
                (state.was_stirred(), state.was_moved(), state.needs_commit())
            };
            if moved {
                self.assignments.send_modify(|count| *count += 1);
            }
            if stirred {
                self.more.notify_waiters();
            }
            if commit {
                if let Err(error) = self.write().await {
                    tracing::warn!(topic = %self.topic.name, group = %self.name, %error,
                        "failed to store changes of a group; waiting calls fail, and the group continues from its stored state");
                    self.fail_for(error);
                }
                continue;
            }
            let next = {
                // Both locks, so that whoever has something to do after this look kicks or starts a keeper.
                let mut keeper = self.keeper.lock();
                let state = self.state.lock();
                if state.needs_commit() {
                    continue;
                }
                *keeper = state.next_tick();
                *keeper
            };
            let Some(next) = next else {
                // It is written down already that there is no keeper, and another may be there by now.
                self.keeper_ended.notify_waiters();
                return;
            };
            tokio::select! {
                // Any order will do; a fixed one lets a simulation be repeated.
                biased;
                // This is when something is due.
                () = tokio::time::sleep_until(next) => {}
                () = self.kick.notified() => {}
            }
        }
        *self.keeper.lock() = None;
        self.keeper_ended.notify_waiters();
    }

    /// Waits until the last commit of a group that has failed is over.
    pub(super) async fn until_keeper_ended(&self) {
        loop {
            let mut keeper_ended = pin!(self.keeper_ended.notified());
            // From here on the end is not missed.
            keeper_ended.as_mut().enable();
            if self.keeper.lock().is_none() {
                return;
            }
            keeper_ended.await;
        }
    }

    /// Writes everything that has changed, in one commit.
    async fn write(self: &Arc<Self>) -> Result<(), GroupError> {
        let _writing = self.writing.lock().await;
        if self.has_failed() {
            // It was deleted while this waited.
            return Ok(());
        }
        self.check_home().await?;
        let dying = self.state.lock().dying(dead::MAX_AT_ONCE);
        let burials = dead::prepare(self, dying).await?;
        let (batch, buried) = {
            let mut state = self.state.lock();
            state.begin(burials.iter().map(|burial| burial.dying.clone()).collect())
        };
        let is_buried = |burial: &DeadLetterWrite| {
            buried
                .iter()
                .any(|dying| (dying.partition, dying.offset) == (burial.dying.partition, burial.dying.offset))
        };
        let events: Vec<_> =
            burials.into_iter().filter(is_buried).filter_map(|burial| burial.letter).collect();
        let letters = events.len() as u64;
        let commit = Arc::new(Commit { events, cursors: self.cursor_moves(&batch), ..Commit::by_hub() });
        match self.commit(commit).await {
            Ok(()) => {}
            // What others wanted to have happen with it must not take the acks with it.
            Err(error) if error.retry() == Retry::Anew && !batch.extras.is_empty() && letters == 0 => {
                tracing::warn!(%error, "replaying dead letters without recording that they were replayed");
                let mut batch = batch;
                batch.extras.clear();
                let commit = Commit { cursors: self.cursor_moves(&batch), ..Commit::by_hub() };
                self.commit(Arc::new(commit)).await?;
                self.done(batch);
                return Ok(());
            }
            Err(error) if error.retry() == Retry::WithRoom && (letters > 0 || batch.can_be_refused()) => {
                return self.write_without_letters(batch, &buried).await;
            }
            Err(error) => return Err(error.into()),
        }
        self.counters.dead_lettered.add(letters);
        self.done(batch);
        Ok(())
    }

    /// There is no room, and nothing has happened. Dead letters need more of it than acks: those are tried alone, and
    /// whoever said what cannot be written is told, and may say it again. Nobody else's lease is touched.
    async fn write_without_letters(
        self: &Arc<Self>,
        mut batch: Batch,
        dying: &[FinalFailure],
    ) -> Result<(), GroupError> {
        if !dying.is_empty() {
            let refused = self.state.lock().exhume(&mut batch, dying, self.now());
            self.durable.refuse(refused);
            if batch.is_needed() {
                let commit = Commit { cursors: self.cursor_moves(&batch), ..Commit::by_hub() };
                match self.commit(Arc::new(commit)).await {
                    Ok(()) => {
                        self.done(batch);
                        return Ok(());
                    }
                    Err(error) if error.retry() == Retry::WithRoom && batch.can_be_refused() => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let (refused, decided) = self.state.lock().refused(batch, self.now());
        tracing::debug!(topic = %self.topic.name, group = %self.name, changes = refused.len(),
            "refusing changes of a group: the disk is full");
        self.durable.refuse(refused);
        self.durable.reached(decided);
        Ok(())
    }

    pub(super) async fn commit(&self, mut commit: Arc<Commit>) -> Result<(), BusError> {
        retry::commit(&*self.hub.bus, &mut commit).await.map(drop)
    }

    fn done(&self, batch: Batch) {
        let version = self.state.lock().committed(batch, self.now());
        self.durable.reached(version);
    }

    fn cursor_moves(&self, batch: &Batch) -> Vec<CursorMove> {
        let moves = batch.moves.iter().flat_map(|step| self.partition_moves(step));
        moves.chain(batch.extras.iter().cloned()).collect()
    }

    /// What writes the cursors of a partition: its own first, which tells whether someone else has moved any of them.
    pub(super) fn partition_moves(&self, step: &PartitionMove) -> Vec<CursorMove> {
        let (topic, partition) = (&self.topic.name, step.partition as u32);
        let moved = |key, expect_version, to: Option<&Bytes>| CursorMove {
            key,
            incarnation: Some(self.topic.number),
            expect_version,
            epoch: self.epoch,
            to: to.map(|detail| CursorTarget { next: Offset(step.next), detail: detail.clone() }),
        };
        let own =
            moved(stored::cursor_key(topic, &self.name, partition), step.expect_version, Some(&step.detail));
        let chunks = step.chunks.iter().map(|ChunkMove { chunk, expect_version, to }| {
            moved(stored::chunk_key(topic, &self.name, partition, *chunk), *expect_version, to.as_ref())
        });
        [own].into_iter().chain(chunks).collect()
    }

    /// Waits until changes are durable.
    pub(super) async fn until_durable(&self, span: Span) -> Result<(), GroupError> {
        self.durable.until(span).await
    }
}
