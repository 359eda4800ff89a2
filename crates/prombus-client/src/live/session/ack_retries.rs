//! Acks and nacks of handlers that the hub refuses for a temporary reason, such as a full disk: they are retried while
//! their leases last, so that the handler need not run again.

use super::{RetryState, Session};
use crate::HubError;
use crate::live::settle::{ExtendPolicy, Settle, SettleKind};
use std::time::Duration;
use tokio::time::Instant;

/// How often something is said again while its lease holds, at least. A lease is extended when half of it is left.
const TRIES_PER_LEASE: u32 = 4;
/// Minimum time between two log messages about them.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// What is to be retried over the current connection. There are no more of them than leases.
#[derive(Default)]
pub(super) struct AckRetries {
    waiting: Vec<Settle>,
    at: Option<Instant>,
    patience: RetryState,
    /// When it was last logged.
    told: Option<Instant>,
}

impl AckRetries {
    /// When it is to be said.
    pub fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Says nothing again.
    pub fn take(&mut self) -> Vec<Settle> {
        self.at = None;
        std::mem::take(&mut self.waiting)
    }

    /// The hub has taken something.
    pub fn is_over(&mut self) {
        self.patience = RetryState::default();
    }

    fn add(&mut self, mut settles: Vec<Settle>, error: &HubError, now: Instant) {
        let times = settles.iter().filter_map(|settle| Some(settle.kept.as_ref()?.lease.time));
        let longest = times.min().unwrap_or_default() / TRIES_PER_LEASE;
        let at = now + self.patience.pause(error, now).min(longest);
        self.at = Some(self.at.map_or(at, |other| other.min(at)));
        self.waiting.append(&mut settles);
    }

    fn is_to_be_told(&mut self, now: Instant) -> bool {
        let is_due = self.told.is_none_or(|told| now.saturating_duration_since(told) >= WARN_EVERY);
        if is_due {
            self.told = Some(now);
        }
        is_due
    }
}

impl Session {
    /// Keeps of what was refused what is to be said again, and lets its leases hold longer. Gives back the rest: what
    /// somebody waits for, and what has no lease any more. Nothing is kept where somebody waits for all answers.
    pub(super) fn say_later(
        &mut self,
        number: u64,
        settles: Vec<Settle>,
        error: &HubError,
        now: Instant,
    ) -> Vec<Settle> {
        let Some(fed) = self.feeds.get_mut(&number).filter(|fed| fed.is_active() && fed.drains.is_empty())
        else {
            return settles;
        };
        let made = fed.made;
        let holds = |settle: &Settle| settle.kept.as_ref().is_some_and(|kept| now < kept.lease.deadline);
        let (mut kept, rest): (Vec<Settle>, Vec<Settle>) =
            settles.into_iter().partition(|settle| settle.made == made && holds(settle));
        if kept.is_empty() {
            return rest;
        }
        if fed.again.is_to_be_told(now) {
            let (topic, group, count) = (&fed.feed.topic, &fed.feed.group, kept.len());
            tracing::warn!(topic, group, count, %error, "acks were refused; they are retried while their leases last");
        }
        let extensions = kept.iter_mut().filter_map(|settle| {
            let kept = settle.kept.as_mut().filter(|kept| now <= kept.until)?;
            kept.lease.extension(&settle.event, ExtendPolicy::HANDLED, now)
        });
        let extensions = extensions.collect();
        fed.again.add(kept, error, now);
        self.extend(number, extensions, now);
        rest
    }

    /// Says again what it is time for.
    pub(super) fn gather_again(&mut self, now: Instant) {
        let due = self.feeds.iter().filter(|(_, fed)| fed.again.at().is_some_and(|at| at <= now));
        let due: Vec<u64> = due.map(|(number, _)| *number).collect();
        due.into_iter().for_each(|number| self.say_again(number, now));
    }

    /// Says again what the hub has refused.
    pub(super) fn say_again(&mut self, number: u64, now: Instant) {
        let Some(fed) = self.feeds.get_mut(&number) else { return };
        let (acks, others): (Vec<Settle>, Vec<Settle>) =
            fed.again.take().into_iter().partition(|settle| settle.kind == SettleKind::Ack);
        self.send_in_frames(number, acks, now);
        others.into_iter().for_each(|settle| self.send_settles(number, vec![settle], now));
    }
}
