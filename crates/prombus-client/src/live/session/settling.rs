//! Acks, nacks and extends of a session. Acks that have accumulated are sent in one frame.

use super::{Request, Session, frames};
use crate::HubError;
use crate::live::command::Done;
use crate::live::failure::Failure;
use crate::live::settle::{Settle, SettleKind, Settled};
use tokio::time::Instant;

/// The most acks of one frame.
const MAX_ACKS: usize = 500;

impl Session {
    pub(super) fn settle(&mut self, number: u64, settle: Settle, now: Instant) {
        let Some(fed) = self.feeds.get_mut(&number) else {
            return settle.answer(Err(Failure::ended("the subscription was closed")));
        };
        fed.unanswered += 1;
        if settle.made != fed.made || !self.connected || !fed.is_active() {
            return self.settles_lost(number, vec![settle], now);
        }
        if settle.kind == SettleKind::Ack {
            fed.acks.push(settle);
            self.settling.push(number);
        } else {
            // Acks that were said before are sent before.
            self.send_acks(number, now);
            self.send_settles(number, vec![settle], now);
        }
    }

    /// Lets leases hold longer, many of them in one frame.
    pub(super) fn extend(&mut self, number: u64, mut extensions: Vec<Settle>, now: Instant) {
        let Some(fed) = self.feeds.get_mut(&number).filter(|fed| fed.is_active()) else { return };
        // Those of an earlier connection are void anyway.
        extensions.retain(|extension| extension.made == fed.made);
        if !extensions.is_empty() {
            fed.unanswered += extensions.len();
            self.send_in_frames(number, extensions, now);
        }
    }

    pub(super) fn gather_acks(&mut self, now: Instant) {
        for number in std::mem::take(&mut self.settling) {
            self.send_acks(number, now);
        }
    }

    pub(super) fn send_acks(&mut self, number: u64, now: Instant) {
        let Some(fed) = self.feeds.get_mut(&number) else { return };
        let acks = std::mem::take(&mut fed.acks);
        self.send_in_frames(number, acks, now);
    }

    /// Sends settles of one kind, as many a frame as it may have.
    pub(super) fn send_in_frames(&mut self, number: u64, mut settles: Vec<Settle>, now: Instant) {
        while settles.len() > MAX_ACKS {
            let rest = settles.split_off(MAX_ACKS);
            self.send_settles(number, std::mem::replace(&mut settles, rest), now);
        }
        if !settles.is_empty() {
            self.send_settles(number, settles, now);
        }
    }

    /// Sends settles of one kind in a frame.
    pub(super) fn send_settles(&mut self, number: u64, settles: Vec<Settle>, now: Instant) {
        let (Some(fed), Some(first)) = (self.feeds.get(&number), settles.first()) else { return };
        let (feed, kind) = (fed.feed.clone(), first.kind.clone());
        let corr = self.requests.next();
        let leases = settles.iter().map(|settle| settle.token.text());
        let frame = frames::settle(corr, &feed, &kind, leases);
        self.ask(Request::Settle { feed: number, settles }, now, |_| frame);
    }

    /// The hub has accepted settles.
    pub(super) fn settles_done(&mut self, number: u64, settles: Vec<Settle>) {
        if let Some(fed) = self.feeds.get_mut(&number)
            && settles.iter().any(|settle| settle.kept.is_some())
        {
            fed.again.is_over();
        }
        self.settled(number, settles.len());
        settles.into_iter().for_each(|settle| settle.answer(Ok(Settled::Confirmed)));
        self.drained(number);
    }

    /// Notes that `count` settles of a feed are answered.
    pub(super) fn settled(&mut self, number: u64, count: usize) {
        if let Some(fed) = self.feeds.get_mut(&number) {
            fed.unanswered -= count;
        }
    }

    /// Tells those who wait for all settles to be answered, if they are.
    pub(super) fn drained(&mut self, number: u64) {
        if let Some(fed) = self.feeds.get_mut(&number)
            && fed.unanswered == 0
        {
            fed.drains.drain(..).for_each(|done| drop(done.send(Ok(()))));
        }
    }

    pub(super) fn drain(&mut self, number: u64, done: Done, now: Instant) {
        match self.feeds.get_mut(&number) {
            Some(fed) if fed.unanswered > 0 => fed.drains.push(done),
            _ => return drop(done.send(Ok(()))),
        }
        // What was refused has one more chance.
        self.say_again(number, now);
    }

    /// Nobody knows whether the hub has heard of them. An event whose ack a commit was to be is not remembered as done:
    /// what was done depends on that commit.
    pub(super) fn settles_lost(&mut self, number: u64, settles: Vec<Settle>, now: Instant) {
        self.settled(number, settles.len());
        for mut settle in settles {
            if settle.kind == SettleKind::Ack
                && !settle.token.is_bound()
                && let Some(fed) = self.feeds.get_mut(&number)
            {
                fed.done.remember(std::mem::take(&mut settle.event), now);
            }
            settle.answer(Ok(Settled::Unconfirmed));
        }
        self.drained(number);
    }

    /// An answer to several does not say which of them were refused, so each is asked for by itself. Those that were
    /// accepted are accepted again.
    pub(super) fn settles_refused(
        &mut self,
        number: u64,
        settles: Vec<Settle>,
        error: HubError,
        now: Instant,
    ) {
        let some_expired = error.is_lease_expired() && settles.len() > 1;
        if some_expired && self.feeds.contains_key(&number) {
            for settle in settles {
                self.send_settles(number, vec![settle], now);
            }
            return;
        }
        let settles =
            if error.is_temporary() { self.say_later(number, settles, &error, now) } else { settles };
        self.settled(number, settles.len());
        if let Some(fed) = self.feeds.get(&number)
            && error.is_lease_expired()
        {
            // The group was moved, say. Whoever got such a delivery would work for nothing, beside whoever has it now.
            let is_extension = |settle: &&Settle| matches!(settle.kind, SettleKind::Extend { .. });
            settles.iter().filter(is_extension).for_each(|settle| fed.feed.forget(&settle.token));
        }
        let failure = Failure::from(error);
        settles.into_iter().for_each(|settle| settle.answer(Err(failure.clone())));
        self.drained(number);
    }
}
