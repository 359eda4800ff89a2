//! Projections of a topic that stand still while events are taken back that they may be in the middle of.

use super::Projections;
use crate::projections::actor::Command;
use crate::projections::stored::{self, failures_of, shadow};
use prombus_core::{DocumentWrite, Owner, ReadError, TopicName, WriteOp};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{MutexGuard, mpsc, oneshot};

/// How long to wait at most until projections have finished what they have under way.
const MAX_HOLD_WAIT: Duration = Duration::from_secs(30);

/// A while in which a projection does nothing, and has read nothing.
pub(in crate::projections) struct Hold {
    /// Who is told that it has begun.
    pub tell: oneshot::Sender<()>,
    /// It is over when the other end of this is gone.
    pub until: oneshot::Receiver<()>,
}

impl Hold {
    /// Until it is over.
    pub async fn stand_still(self) {
        // Whoever no longer waits has let go of the other end, too.
        let _ = self.tell.send(());
        let _ = self.until.await;
    }
}

/// Projections that stand still until this is dropped. None is made, changed or deleted meanwhile.
pub(crate) struct Held<'a> {
    projections: &'a Projections,
    names: Vec<String>,
    /// They go on when these are gone.
    _released: Vec<oneshot::Sender<()>>,
    _turn: MutexGuard<'a, bool>,
}

impl Projections {
    /// Has all projections of a topic stand still: they have nothing under way, and nothing that they have read.
    pub(crate) async fn hold(&self, topic: &TopicName) -> Result<Held<'_>, ReadError> {
        let busy = || {
            let why = format!("a projection of topic {topic} is busy with an event for too long; try again");
            ReadError::Unavailable(why)
        };
        let turn = self.turn().await.map_err(|_| ReadError::Unavailable("the hub is closing".into()))?;
        let readers: Vec<(String, mpsc::Sender<Command>)> = {
            let running = self.running.lock();
            let readers =
                running.iter().filter(|(_, handle)| handle.record.borrow().definition.topic == *topic);
            readers.map(|(name, handle)| (name.clone(), handle.commands.clone())).collect()
        };
        let (mut names, mut released) = (Vec::new(), Vec::new());
        let all = async {
            let mut still = Vec::new();
            for (name, commands) in readers {
                let (tell, told) = oneshot::channel();
                let (release, until) = oneshot::channel();
                // One that has ended reads nothing.
                if commands.send(Command::Hold(Hold { tell, until })).await.is_ok() {
                    still.push(told);
                }
                released.push(release);
                names.push(name);
            }
            for told in still {
                // The same.
                let _ = told.await;
            }
        };
        tokio::time::timeout(MAX_HOLD_WAIT, all).await.map_err(|_| busy())?;
        Ok(Held { projections: self, names, _released: released, _turn: turn })
    }
}

impl Held<'_> {
    /// What deletes the documents of a key in all collections that these projections fill, those that are being made anew
    /// included. What is not there is not mentioned.
    pub async fn deletions(&self, key: &str) -> Result<Vec<DocumentWrite>, ReadError> {
        let hub = &self.projections.hub;
        let mut deletions = Vec::new();
        for name in &self.names {
            let notes = failures_of(name);
            let is_note = |collection: &Arc<str>| *collection == notes || *collection == shadow(&notes);
            let owned = stored::owned_by(&*hub.documents, name).await?.into_iter();
            for collection in owned.filter(|collection| !is_note(collection)) {
                if hub.documents.document(&collection, key).await?.is_some() {
                    deletions.push(DocumentWrite {
                        owner: Owner::projection(name),
                        ts: hub.clock.now_ms(),
                        ..DocumentWrite::new(&collection, key, WriteOp::Delete)
                    });
                }
            }
        }
        Ok(deletions)
    }
}
