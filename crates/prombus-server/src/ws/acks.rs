//! Acks, nacks and extends on their way from a connection to a group. Consecutive frames of one subscription become one
//! call, because most clients ack one event per frame; each frame is still answered with the outcome of its own leases.

use super::session::{Effect, Key, PendingSettle, Session};
use crate::error::ApiError;
use prombus_engine::groups::{GivenBack, Group, SettleCall, SettleResult};
use std::sync::Arc;

/// Frames go together up to so many leases. One that names more goes alone.
const MAX_TOGETHER: usize = 1_000;

/// What is said of deliveries of one subscription.
pub(super) struct Settling {
    key: Key,
    /// Absent if there is none yet.
    group: Option<Arc<Group>>,
    frames: Vec<PendingSettle>,
    call: SettleCall,
}

impl Settling {
    pub fn of(key: Key, group: Option<Arc<Group>>) -> Self {
        Self { key, group, frames: Vec::new(), call: SettleCall::default() }
    }

    /// Whether a frame may go together with what is here.
    pub fn fits(&self, key: &Key, call: &SettleCall) -> bool {
        self.key == *key && self.call.settles.len() + call.settles.len() <= MAX_TOGETHER
    }

    pub fn add(&mut self, pending: PendingSettle, mut call: SettleCall) {
        self.frames.push(pending);
        self.call.settles.append(&mut call.settles);
    }

    /// Says it to the group: that is so from here on, whatever comes next. The outcome is waited for beside.
    pub fn go(self) -> impl Future<Output = Settled> + Send + 'static {
        let Self { group, frames, call, .. } = self;
        let count = call.settles.len();
        let settling = group.as_ref().map(|group| group.settle(call));
        async move {
            let results = match settling {
                Some(settling) => settling.await.map_err(ApiError::from),
                // Where there is no group yet, there are no leases of it.
                None => Ok(vec![SettleResult::Expired; count]),
            };
            Settled { frames, group, results }
        }
    }
}

/// The outcome.
pub(super) struct Settled {
    pub frames: Vec<PendingSettle>,
    /// Absent where there was none yet.
    group: Option<Arc<Group>>,
    results: Result<Vec<SettleResult>, ApiError>,
}

impl Settled {
    /// Tells the session the outcome of each frame.
    pub fn report(self, session: &mut Session, out: &mut Vec<Effect>) {
        let Self { frames, group, results } = self;
        let mut rest = results.as_deref();
        let mut left = Vec::new();
        for pending in frames {
            let own = rest.map(|all| all.split_at(pending.count.min(all.len())));
            rest = own.map(|(_, rest)| rest);
            left.extend(session.settled(pending, own.map(|(own, _)| own), out));
        }
        if let Some(group) = group.filter(|_| !left.is_empty()) {
            group.give_back(&left, GivenBack::Unused);
        }
    }
}
