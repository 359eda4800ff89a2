//! Events that a projection has failed, applied once more when someone asks for it.
//!
//! What failed has a document of the hub's own, written with its dead letter. It is there for as long as the collections
//! lack what the event does, so it says whether there is anything to make up for: a rebuild has one of its own, and
//! takes over with it. An event is applied, its document removed and its letter marked as replayed in one commit.

use super::actor::Command;
use super::batch::Batch;
use super::registry::Projections;
use super::runner::{PageOutcome, Runner, page};
use super::stored::{failed_key, failures_of};
use super::{ProjectionError, merged_partitions::PageRequest};
use crate::groups::{Failure, Reader, letter_of};
use crate::retry;
use prombus_core::{
    Commit, CursorMove, Document, DocumentWrite, Event, Origin, Owner, ReadError, TopicName, WriteOp,
};
use serde::Deserialize;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::oneshot;
use uuid::Uuid;

/// An event that is to be applied once more.
#[derive(Debug, Clone)]
pub(crate) struct EventToReplay {
    /// The topic that it is of.
    pub topic: TopicName,
    /// Its partition.
    pub partition: u32,
    /// Its offset.
    pub offset: u64,
    /// Its id.
    pub id: Uuid,
    /// How often it came back from the dead letters, this time included.
    pub replays: u32,
    /// What is to happen with it; where absent, it is only checked whether it could.
    pub note: Option<CursorMove>,
}

/// What came of an event that was to be applied once more.
pub(crate) enum Outcome {
    /// It was applied, or could be where it was only looked.
    Applied,
    /// It has a new dead letter, for this reason.
    FailedAgain(String),
    /// Nothing has happened, for this reason.
    Refused(String),
}

/// What is known of an event that failed.
#[derive(Deserialize)]
struct Failed {
    id: Uuid,
    /// The incarnation of the topic that it is in.
    topic: u32,
}

impl Projections {
    /// Has a projection apply an event once more that it has failed. It comes after everything that was applied since;
    /// where it fails again, it has a new dead letter.
    pub(crate) async fn apply_again(
        &self,
        name: &str,
        replay: EventToReplay,
    ) -> Result<Outcome, ProjectionError> {
        self.until_started(name).await?;
        let Some(commands) = self.commands(name) else {
            return Ok(Outcome::Refused(format!("there is no projection {name:?}")));
        };
        let ended =
            |_| ProjectionError::Read(ReadError::Unavailable(format!("projection {name:?} has ended")));
        let (answer, answered) = oneshot::channel();
        commands.send(Command::Replay(replay, answer)).await.map_err(|_| ended(()))?;
        answered.await.map_err(|_| ended(()))?
    }
}

impl Runner {
    /// Applies an event once more that has failed, out of turn. Nothing else may be under way.
    pub async fn apply_again(&mut self, replay: EventToReplay) -> Result<Outcome, ProjectionError> {
        if let Some(reason) = self.projector.halted() {
            return Ok(Outcome::Refused(format!("the projection is stopped: {reason}; redefine it first")));
        }
        if replay.topic != self.topic_name {
            return Ok(Outcome::Refused(format!("the projection reads topic {} now", self.topic_name)));
        }
        let Some(failed) = self.failed(&replay).await? else {
            let why = "the projection has applied the original since, or was recreated";
            return Ok(Outcome::Refused(why.into()));
        };
        let Some(event) = self.original(&replay).await? else {
            return Ok(Outcome::Refused("the topic no longer has the original; replay to the topic".into()));
        };
        if replay.note.is_none() {
            return Ok(Outcome::Applied);
        }
        let applied = self.batch_of(&mut VecDeque::from([event])).await;
        let mut batch = applied.map_err(|stop| ReadError::Unavailable(stop.reason))?;
        loop {
            let commit = self.commit_again(&batch, &replay, &failed);
            let Err(error) = retry::commit(&*self.hub.bus, &mut Arc::new(commit)).await else {
                self.count_failures(&batch);
                let failure = batch.applied.iter().find_map(|applied| applied.failure.as_ref());
                return Ok(match failure {
                    None => Outcome::Applied,
                    Some((reason, _)) => Outcome::FailedAgain(reason.clone()),
                });
            };
            let is_to_blame = self.culprit(&batch, &error).is_some();
            if !is_to_blame || !batch.blame_first(&error.to_string(), self.projector.retries()) {
                return Err(error.into());
            }
        }
    }

    /// What is known of the event, if the collections still lack it.
    async fn failed(&self, replay: &EventToReplay) -> Result<Option<Document>, ReadError> {
        let key = failed_key(replay.partition, replay.offset);
        let failed = self.hub.documents.document(&failures_of(&self.name), &key).await?;
        let Some(topic) = self.hub.log.topic(&self.topic_name).await? else { return Ok(None) };
        let is_same = |document: &Document| {
            let failed = serde_json::from_slice(document.body.as_bytes());
            failed.is_ok_and(|failed: Failed| (failed.id, failed.topic) == (replay.id, topic.number.0))
        };
        Ok(failed.filter(is_same))
    }

    async fn original(&self, replay: &EventToReplay) -> Result<Option<Event>, ReadError> {
        let EventToReplay { partition, offset, .. } = *replay;
        let wanted = PageRequest { partition, from: offset, limit: 1, max_bytes: usize::MAX };
        let events = match page(&*self.hub.log, &(&self.topic_name).into(), wanted).await {
            Ok(PageOutcome::Page(page)) => page.events,
            // It was removed meanwhile.
            Ok(PageOutcome::Nothing | PageOutcome::Gone(_)) => Vec::new(),
            Err(stop) if stop.pause.is_none() => Vec::new(),
            Err(stop) => return Err(ReadError::Unavailable(stop.reason)),
        };
        Ok(events.into_iter().next().filter(|event| (event.offset.0, event.id) == (offset, replay.id)))
    }

    /// What the event does, or its new dead letter, with what is to happen with it.
    fn commit_again(&self, batch: &Batch, replay: &EventToReplay, failed: &Document) -> Commit {
        let (mut events, mut documents) = (batch.publishes.clone(), batch.writes.clone());
        for applied in &batch.applied {
            match &applied.failure {
                None => documents.push(DocumentWrite {
                    owner: Owner::projection(&self.name),
                    if_version: Some(failed.version),
                    ..DocumentWrite::new(&failures_of(&self.name), failed.key.clone(), WriteOp::Delete)
                }),
                Some((reason, attempts)) => {
                    let failure = Failure {
                        reader: Reader::Projection(&self.name),
                        reason,
                        attempts: *attempts,
                        replays: replay.replays,
                        now_ms: self.hub.clock.now_ms(),
                    };
                    events.extend(letter_of(&applied.event, &failure));
                }
            }
        }
        Commit {
            events,
            documents,
            cursors: replay.note.iter().cloned().collect(),
            origin: Origin::Derived,
            ..Commit::default()
        }
    }
}
