//! Reading a topic for somebody who makes other events of what is there: what is read under this turn cannot be given up
//! before what is made of it is committed. On this hub nobody cleans the topic meanwhile, and a commit with the fences of
//! what was read is refused where another hub has given something up.

use super::pass::{Pace, Pass};
use super::{CleanError, Cleaning};
use crate::homes::Home;
use prombus_core::{CursorMove, Epoch, Partition, TopicState};
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

/// A turn at a topic.
pub(crate) struct ReadingTurn<'a> {
    _turn: OwnedMutexGuard<()>,
    pass: Pass<'a>,
}

impl Cleaning {
    /// Waits for a turn.
    pub(crate) async fn reading_turn(&self, topic: &TopicState) -> Result<ReadingTurn<'_>, CleanError> {
        let turn = self.turn(&topic.name).await;
        let pass = Pass::begin(&self.hub, topic, (Pace::Full, self.closing.subscribe())).await?;
        Ok(ReadingTurn { _turn: turn, pass })
    }
}

impl ReadingTurn<'_> {
    /// The home of the topic on this hub, under whose epoch commits are made.
    pub async fn home(&mut self) -> Result<Arc<Home>, CleanError> {
        self.pass.home(Epoch(0)).await
    }

    /// What a commit moves that is made of events of a partition.
    pub fn fence(&self, partition: Partition, epoch: Epoch) -> CursorMove {
        self.pass.fence(partition, epoch)
    }

    /// Takes note that such a commit was made.
    pub fn fenced(&mut self, partition: Partition, epoch: Epoch) {
        self.pass.fenced(partition, epoch);
    }
}
