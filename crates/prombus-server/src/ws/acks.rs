//! Acks, nacks and extends on their way from a connection to a group. Consecutive frames of one subscription become one
//! call, because most clients ack one event per frame; each frame is still answered with the outcome of its own leases.

use super::session::{Effect, Key, PendingSettle, Session};
use super::source::Source;
use crate::error::ApiError;
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use prombus_engine::groups::{GivenBack, SettleCall, SettleResult};

/// Frames go together up to so many leases. One that names more goes alone.
const MAX_TOGETHER: usize = 1_000;

/// What is said of deliveries of one subscription.
pub(super) struct Settling {
    key: Key,
    /// Absent if there is none yet.
    source: Option<Source>,
    frames: Vec<PendingSettle>,
    call: SettleCall,
}

impl Settling {
    pub fn of(key: Key, source: Option<Source>) -> Self {
        Self { key, source, frames: Vec::new(), call: SettleCall::default() }
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
        let Self { source, frames, call, .. } = self;
        let results: BoxFuture<'static, Results> = match &source {
            Some(Source::Here(group)) => group.settle(call).map(|done| done.map_err(ApiError::from)).boxed(),
            Some(Source::There(remote)) => {
                let mut rest = call.settles.as_slice();
                let each = frames.iter().map(|pending| {
                    let (own, after) = rest.split_at(pending.count.min(rest.len()));
                    rest = after;
                    remote.settle(own)
                });
                join_all(each.collect::<Vec<_>>()).map(together).boxed()
            }
            // Where there is no group yet, there are no leases of it.
            None => std::future::ready(Ok(vec![SettleResult::Expired; call.settles.len()])).boxed(),
        };
        async move { Settled { frames, source, results: results.await } }
    }
}

type Results = Result<Vec<SettleResult>, ApiError>;

fn together(each: Vec<Results>) -> Results {
    let each: Vec<Vec<SettleResult>> = each.into_iter().collect::<Result<_, _>>()?;
    Ok(each.concat())
}

/// The outcome.
pub(super) struct Settled {
    pub frames: Vec<PendingSettle>,
    /// Absent where there was none yet.
    source: Option<Source>,
    results: Results,
}

impl Settled {
    /// Tells the session the outcome of each frame.
    pub fn report(self, session: &mut Session, out: &mut Vec<Effect>) {
        let Self { frames, source, results } = self;
        let mut rest = results.as_deref();
        let mut left = Vec::new();
        for pending in frames {
            let own = rest.map(|all| all.split_at(pending.count.min(all.len())));
            rest = own.map(|(_, rest)| rest);
            left.extend(session.settled(pending, own.map(|(own, _)| own), out));
        }
        if let Some(Source::Here(group)) = source.filter(|_| !left.is_empty()) {
            group.give_back(&left, GivenBack::Unused);
        }
    }
}
