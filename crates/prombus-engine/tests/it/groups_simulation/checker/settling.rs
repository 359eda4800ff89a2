//! What is said of deliveries, and what follows from the answer or from its lack.

use super::{Checker, End, Fate, Verb, Verdict, broken};
use crate::groups_simulation::history::{EventPosition, Stamped, lease_of};
use prombus_engine::groups::{LeaseToken, Settle};

impl Checker<'_> {
    pub(super) fn said(
        &mut self,
        entry: &Stamped,
        settle: &Settle,
        (answer, moves): (Option<bool>, u64),
    ) -> Verdict {
        let token = lease_of(settle);
        let Some(lease) = self.leases.get_mut(&token) else { return Ok(()) };
        let place = lease.place;
        let valid = lease.end == End::Held && lease.load == entry.load && entry.at < lease.deadline;
        let verb = if matches!(settle, Settle::Ack(_)) { Verb::Ack } else { Verb::Nack };
        let repeated = !matches!(settle, Settle::Extend { .. })
            && lease.load == entry.load
            && (lease.end == End::Settled(verb) || lease.end == End::Unsure(verb));
        match answer {
            Some(true) if !valid && !repeated => {
                return broken(place, format!("{settle:?} was taken, though its lease was over"));
            }
            // Another hub may have taken over, whether it has loaded the group or not.
            Some(false) if self.is_alone && (repeated || (valid && self.plan.stayed(lease.moves, moves))) => {
                return broken(place, format!("{settle:?} was refused, though its lease was valid"));
            }
            // The partition has moved, or the topic. Who loses the topic in the middle of it does not know whether it was
            // written.
            Some(false) if valid => {
                lease.end = End::Void;
                if !self.is_alone {
                    self.may_have_happened(place, settle);
                }
            }
            Some(false) => {}
            Some(true) | None if valid => self.takes_effect(entry, settle, answer.is_some()),
            Some(true) if lease.end == End::Unsure(verb) => self.is_certain(token, verb),
            Some(true) | None => {}
        }
        Ok(())
    }

    /// Something was said of a valid lease; whether it happened is certain only where it was answered.
    fn takes_effect(&mut self, entry: &Stamped, settle: &Settle, certain: bool) {
        let token = lease_of(settle);
        let Some(lease) = self.leases.get_mut(&token) else { return };
        let Some(event) = self.events.get_mut(&lease.place) else { return };
        let verb = if matches!(settle, Settle::Ack(_)) { Verb::Ack } else { Verb::Nack };
        match settle {
            Settle::Extend { by, .. } => {
                lease.deadline = entry.at + by.unwrap_or(self.plan.ack_timeout);
                return;
            }
            Settle::Ack(_) => event.fate = Fate::MaybeAcked(entry.load),
            Settle::Bury { .. } => event.buried = true,
            Settle::Nack { delay, .. } => {
                event.failures.1 += 1;
                let pause = delay.unwrap_or_else(|| self.plan.backoff(event.failures.1));
                event.not_before = Some((entry.load, entry.at + pause));
            }
        }
        lease.end = End::Unsure(verb);
        if certain {
            self.is_certain(token, verb);
        }
    }

    /// What was refused may have been written all the same.
    fn may_have_happened(&mut self, place: EventPosition, settle: &Settle) {
        let Some(event) = self.events.get_mut(&place) else { return };
        match settle {
            Settle::Extend { .. } => {}
            Settle::Ack(_) if event.fate == Fate::Open => event.fate = Fate::MaybeAcked(usize::MAX),
            Settle::Ack(_) => {}
            Settle::Bury { .. } => event.buried = true,
            Settle::Nack { .. } => event.failures.1 += 1,
        }
    }

    fn is_certain(&mut self, token: LeaseToken, verb: Verb) {
        let Some(lease) = self.leases.get_mut(&token) else { return };
        let Some(event) = self.events.get_mut(&lease.place) else { return };
        lease.end = End::Settled(verb);
        if event.last.is_none_or(|(last, _)| last != token) {
            return;
        }
        match verb {
            Verb::Ack => event.fate = Fate::Acked,
            Verb::Nack if event.buried => event.doomed = true,
            Verb::Nack => {
                event.failures.0 = event.failures.1;
                event.doomed = event.failures.0 >= self.plan.max_attempts;
            }
        }
    }

    /// A lost connection counts for the oldest lease that is still open. Where partitions have moved it is not known
    /// from here which one that is, nor where a lease ends just now.
    pub(super) fn gave_back(&mut self, entry: &Stamped, tokens: &[LeaseToken], lost_connection: bool) {
        let mut tokens = tokens.to_vec();
        tokens.sort_unstable_by_key(|token| token.number);
        tokens.retain(|token| {
            self.leases.get(token).is_some_and(|lease| lease.end == End::Held && lease.load == entry.load)
        });
        let ending = tokens.iter().any(|token| self.leases[token].deadline <= entry.at);
        let moved = tokens.iter().any(|token| !self.plan.stayed(self.leases[token].moves, entry.moves));
        let exact = !moved && !ending;
        for (n, token) in tokens.into_iter().enumerate() {
            let Some(lease) = self.leases.get_mut(&token) else { continue };
            let Some(event) = self.events.get_mut(&lease.place) else { continue };
            let counts = lost_connection && n == 0;
            lease.end = End::GivenBack { counted: exact && counts };
            let may_count = if exact { counts } else { lost_connection || lease.deadline <= entry.at };
            event.failures.1 += u32::from(may_count);
        }
    }
}
