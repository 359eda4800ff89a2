//! Commits of a session: sent, and resent, until they are answered.

use super::{Delayed, Request, Session, frames};
use crate::live::command::Committing;
use crate::live::failure::Failure;
use crate::live::settle::Lease;
use crate::{Committed, HubError};
use prombus_wire::ErrorCode;
use std::sync::Arc;
use tokio::time::Instant;

impl Session {
    pub(super) fn commit(&mut self, commit: Committing, now: Instant) {
        for lease in &commit.leases {
            if let Some(number) = self.holder(lease)
                && let Some(fed) = self.feeds.get_mut(&number)
            {
                fed.unanswered += 1;
            }
        }
        let corr = self.requests.next();
        // Written only while connected, and again for every connection.
        let frame = self.connected.then(|| frames::commit(corr, &commit.body));
        self.ask(Request::Commit(commit), now, |_| frame.unwrap_or_default());
    }

    /// The hub says that it is done; `text` is the whole answer.
    pub(super) fn commit_done(&mut self, commit: Committing, text: &str) {
        let odd = |error: serde_json::Error| {
            let message = format!("the commit has happened, but its answer cannot be read: {error}");
            Failure::from(HubError::of_code(ErrorCode::Internal, message))
        };
        // Whatever else the answer says, the leases are spent.
        commit.leases.iter().for_each(|lease| lease.token.settle());
        let committed = serde_json::from_str::<Committed>(text).map_err(odd);
        self.committed(commit, committed);
    }

    /// The hub has refused it. It has an id, so it can be asked for again where the hub only cannot just now.
    pub(super) fn commit_refused(&mut self, mut commit: Committing, error: HubError, now: Instant) {
        if error.is_retryable()
            && let Some(at) = commit.patience.refused(&error, now, self.options.give_up_after)
        {
            self.delayed.push(Delayed { at, request: Request::Commit(commit) });
            return;
        }
        self.committed(commit, Err(error.into()));
    }

    /// The outcome of a commit is known.
    pub(super) fn committed(&mut self, commit: Committing, result: Result<Committed, Failure>) {
        let holders: Vec<u64> = commit.leases.iter().filter_map(|lease| self.holder(lease)).collect();
        commit.answer(result);
        for number in holders {
            self.settled(number, 1);
            self.drained(number);
        }
    }

    /// The subscription of this session that has received the lease, if it is still there.
    fn holder(&self, lease: &Lease) -> Option<u64> {
        let fed = self.feeds.get(&lease.feed.number)?;
        // Another connection may have one of the same number.
        Arc::ptr_eq(&fed.feed, &lease.feed).then_some(lease.feed.number)
    }
}
