//! Commits over a connection.

use super::Live;
use super::command::{Command, Committing};
use super::session::RetryState;
use crate::{ClientError, Commit, CommitError, Committed};
use tokio::sync::oneshot;
use uuid::Uuid;

impl Live {
    /// Lets acks, writes and publishes happen together, or not at all: see [`Commit`].
    ///
    /// A commit without an id gets one, so that it can be resent if the connection breaks or the hub is busy, and still
    /// happens once. Leases end with their connection: a commit with acks that had not happened by then fails with
    /// [`CommitError::LeaseExpired`], and its events come again. A handler may then return what it likes: that settles
    /// nothing.
    pub async fn commit(&self, commit: &Commit) -> Result<Committed, CommitError> {
        let body = commit.to_json(Some(&Uuid::now_v7().to_string()))?;
        let (done, answered) = oneshot::channel();
        let leases = commit.held().cloned().collect();
        commit.held().for_each(|lease| lease.token.bind());
        self.send(Command::Commit(Committing { body, leases, patience: RetryState::default(), done }))
            .await
            .map_err(ClientError::from)?;
        let answer = answered.await.unwrap_or_else(|_| Err(self.ended()));
        Ok(answer.map_err(ClientError::from)?)
    }
}
