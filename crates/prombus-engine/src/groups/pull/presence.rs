//! Whether a member is there: for as long as it calls, or is connected.

use super::super::GroupError;
use super::super::group::Group;
use super::super::state::{Delivery, Take};
use super::{InTurn, Pull, PullTurns};
use std::sync::Arc;
use tokio::time::Instant;

/// How a member is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// One of its calls goes on. It may well come back, so it is not gone when the call ends.
    Call,
    /// It is connected, and says so when it goes.
    Connection,
}

/// Says that a member is there for as long as this is kept. A member may be there several times, and is gone when the
/// last of them is dropped.
#[must_use = "it is there for as long as this is kept"]
pub struct Present {
    group: Arc<Group>,
    member: Arc<str>,
    presence: Presence,
}

impl Present {
    /// Delivers what there is for the member, as [`Group::pull`] does; who asks is known already.
    pub async fn pull(&self, pull: &Pull) -> Result<Vec<Delivery>, GroupError> {
        let take = Take { member: self.member.clone(), ..pull.take()? };
        Ok(self.group.deliver_to(&take, pull.wait, None).await?.0)
    }

    /// The same in turn with others: nothing is read before it has one of `turns`, which comes along with what was
    /// delivered. Who waits for events waits without.
    pub async fn pull_in_turn(&self, pull: &Pull, turns: &PullTurns) -> Result<InTurn, GroupError> {
        let take = Take { member: self.member.clone(), ..pull.take()? };
        let (deliveries, turn) = self.group.deliver_to(&take, pull.wait, Some(turns)).await?;
        Ok(InTurn { deliveries, turn })
    }

    /// The group that the member is there for.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let now = Instant::now();
        match self.presence {
            Presence::Call => self.group.locked().members.end_call(&self.member, now),
            Presence::Connection => {
                let mut state = self.group.locked();
                state.leave(&self.member, now);
                state.trim();
            }
        }
        self.group.wake_keeper();
    }
}

impl Group {
    /// A member calls: it is there for as long as the call goes on, and a while after it.
    pub fn enter_call(self: &Arc<Self>, pull: &Pull) -> Result<Present, GroupError> {
        self.enter_as(Arc::from(pull.member.as_deref().unwrap_or_default()), Presence::Call)
    }

    /// A member connects: it is there, whether it pulls or not.
    pub fn enter(self: &Arc<Self>, member: &str) -> Result<Present, GroupError> {
        self.enter_as(Arc::from(member), Presence::Connection)
    }

    fn enter_as(self: &Arc<Self>, member: Arc<str>, presence: Presence) -> Result<Present, GroupError> {
        let joined = self.locked().join(&member, Instant::now());
        self.wake_keeper();
        joined.map(|()| Present { group: self.clone(), member, presence })
    }
}
