//! What consumers say of deliveries, and what comes of each.

use super::GroupError;
use super::durable::Span;
use super::group::Group;
use super::lease::LeaseToken;
use super::options::{MAX_ACK_TIMEOUT_MS, MAX_DELAY_MS};
use super::state::{Settle, SettleEffect};
use crate::bus::BusError;
use prombus_core::{CommitError, HomesError};
use std::sync::Arc;
use std::time::Duration;

/// What a consumer says of several deliveries.
#[derive(Debug, Clone, Default)]
pub struct SettleCall {
    /// In order; a lease that is not even one is `None`.
    pub settles: Vec<Option<Settle>>,
}

impl SettleCall {
    /// Acks of these leases.
    pub fn acks(leases: impl IntoIterator<Item = LeaseToken>) -> Self {
        Self { settles: leases.into_iter().map(|lease| Some(Settle::Ack(lease))).collect() }
    }

    /// One nack.
    pub fn nack(lease: LeaseToken, reason: Option<String>, delay: Option<Duration>) -> Self {
        let reason = reason.map(Arc::from);
        Self { settles: vec![Some(Settle::Nack { lease, reason, delay })] }
    }

    /// Refuses what makes no sense.
    pub fn check(&self) -> Result<(), GroupError> {
        let beyond = |given: Option<Duration>, max: u64| given.is_some_and(|d| d.as_millis() > max.into());
        for settle in self.settles.iter().flatten() {
            match settle {
                Settle::Nack { delay, .. } if beyond(*delay, MAX_DELAY_MS) => {
                    return Err(GroupError::BadOption(format!("delayMs must be at most {MAX_DELAY_MS}")));
                }
                Settle::Extend { by, .. } if beyond(*by, MAX_ACK_TIMEOUT_MS) => {
                    let message = format!("extend_ms must be at most {MAX_ACK_TIMEOUT_MS}");
                    return Err(GroupError::BadOption(message));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// What came of something that was said of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleResult {
    /// It is so, and durable.
    Done,
    /// The lease has expired or passed on.
    Expired,
    /// There was no room to write it. The lease is as it was, and it can be said again.
    NoRoom,
}

impl SettleResult {
    /// Whether it is so.
    pub fn is_done(self) -> bool {
        self == Self::Done
    }
}

impl Group {
    /// Does what a consumer says of deliveries: that is so when this has returned, for whatever is said after it. Awaited,
    /// it waits until that is as durable as the topic is. Where there was no room for anything of it, that is an error.
    pub fn settle(
        self: &Arc<Self>,
        call: SettleCall,
    ) -> impl Future<Output = Result<Vec<SettleResult>, GroupError>> + Send + use<> {
        let (group, heard) = (self.clone(), call.check().map(|()| self.hear(call)));
        async move {
            let (heard, open) = heard?;
            // A verb that is repeated may still be on its way to the disk, so it waits like the first one.
            let is_written =
                heard.iter().any(|one| matches!(one, SettleEffect::Change(_) | SettleEffect::Repeat));
            // What is not written is true only while the topic is at home here.
            let is_only_said = heard.contains(&SettleEffect::Extended);
            let done = async {
                if is_written {
                    group.durable.until_decided(open.upto).await?;
                }
                if is_only_said { group.check_home().await } else { Ok(()) }
            };
            match done.await {
                // Leases went with the topic, but for what was on its way to the store already: that may have come in time.
                Err(GroupError::Home(HomesError::Lost(_))) => {
                    group.until_keeper_ended().await;
                    return match group.durable.failure() {
                        Some(error) if !matches!(error, GroupError::Home(HomesError::Lost(_))) => Err(error),
                        _ => Ok(group.durable.results_so_far(&heard, open)),
                    };
                }
                done => done?,
            }
            let results = group.durable.results(&heard, open);
            if !results.is_empty() && results.iter().all(|one| *one == SettleResult::NoRoom) {
                return Err(BusError::Commit(CommitError::NoRoom).into());
            }
            Ok(results)
        }
    }

    /// Takes note of what is said, and of what is not decided yet then.
    fn hear(self: &Arc<Self>, call: SettleCall) -> (Vec<SettleEffect>, Span) {
        let now = self.now();
        let heard = {
            let mut state = self.state.lock();
            state.tick(now);
            let settles = call.settles.into_iter();
            let heard: Vec<SettleEffect> =
                settles.map(|one| one.map_or(SettleEffect::Expired, |one| state.hear(one, now))).collect();
            state.flush_times();
            (heard, state.undecided())
        };
        self.wake_keeper();
        heard
    }
}
