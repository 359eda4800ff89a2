//! Attempts: each delivery counts one more than failed before it, and an event is dead-lettered after exactly the maximum.
//!
//! A nack and an expiry count. What a restart or a move to another member cut short does not. If nobody can tell which of
//! these it was, both are allowed.

use super::lease::Lease;
use super::{Case, Era};
use crate::groups::history::{LostPull, Micros, Verb};

/// How many failures there can have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    least: u32,
    most: u32,
}

/// The outcome of a check.
#[derive(Default)]
pub struct Checked {
    /// How many attempts could only be what they were.
    pub exact: u64,
    /// What is wrong.
    pub wrong: Vec<&'static str>,
}

/// Checks all attempts of an event that could be delivered from `ready` on.
pub fn check(era: &Era<'_>, case: &Case<'_>, ready: Micros) -> Checked {
    let mut checked = Checked::default();
    let mut wrong = |what| checked.wrong.push(what);
    let mut before: Option<&Lease<'_>> = None;
    for lease in &case.leases {
        let now = lease.given.pull.end;
        let (counted, range) = match before {
            None => (0, Range { least: 0, most: unseen(era, ready, now) }),
            Some(last) => {
                let own = failures(era, last, Some(lease));
                if own.most < own.least {
                    wrong("it was delivered while another lease on it held");
                }
                let most = own.most.max(own.least) + unseen(era, last.given.pull.start, now);
                (last.given.attempt, Range { least: own.least, most })
            }
        };
        let base = counted.max(1);
        let delta = i64::from(lease.given.attempt) - i64::from(base);
        if delta < range.least.into() {
            wrong("an attempt that failed was not counted");
        }
        if delta > range.most.into() {
            wrong("an attempt was counted that nobody made");
        }
        checked.exact += u64::from(range.least == range.most);
        before = Some(lease);
    }
    if backwards(case) {
        wrong("attempts went backwards");
    }
    if !case.letters.is_empty() && !can_have_died(era, case, ready) {
        wrong("it is a dead letter before its time");
    }
    checked
}

/// How often a lease has failed before the next one was given: once or not at all.
fn failures(era: &Era<'_>, lease: &Lease<'_>, next: Option<&Lease<'_>>) -> Range {
    if lease.accepted(Verb::Nack).is_some() {
        return Range { least: 1, most: 1 };
    }
    let life = lease.given.pull.life;
    let same_life = next.is_none_or(|next| next.given.pull.life == life);
    let until = match next {
        Some(next) if same_life => next.given.pull.end,
        _ => era.deaths.get(life as usize).copied().unwrap_or(Micros::MAX),
    };
    let expired = until >= lease.holds_until(era.spec, Micros::MAX);
    let most = u32::from(expired || lease.maybe(Verb::Nack).is_some());
    // In a shared group, and while the home lives, nothing else ends a lease.
    Range { least: u32::from(same_life && !era.may_be_taken()), most }
}

/// How many deliveries there can have been, between two times, that nobody saw and that count.
fn unseen(era: &Era<'_>, from: Micros, to: Micros) -> u32 {
    let counts = |lost: &&LostPull| {
        let over = era.deaths.get(lost.pull.life as usize).copied().unwrap_or(Micros::MAX);
        // The hub took those with it that were on their way when it died, if they had not expired by then.
        let can_count = lost.dropped || lost.pull.start + era.spec.lease_us() <= over;
        can_count && lost.pull.start <= to && lost.pull.end >= from
    };
    era.history.lost.iter().filter(counts).count() as u32
}

/// Whether a delivery has a smaller number than one before it.
fn backwards(case: &Case<'_>) -> bool {
    let is_before = |one: &Lease<'_>, other: &Lease<'_>| one.given.pull.end < other.given.pull.start;
    let smaller = |one: &Lease<'_>, other: &Lease<'_>| other.given.attempt < one.given.attempt;
    case.leases.iter().any(|one| case.leases.iter().any(|other| is_before(one, other) && smaller(one, other)))
}

/// Whether there can have been as many failures as the group allows.
fn can_have_died(era: &Era<'_>, case: &Case<'_>, ready: Micros) -> bool {
    let failed = match case.leases.last() {
        None => unseen(era, ready, Micros::MAX),
        Some(last) => {
            let own = failures(era, last, None);
            last.given.attempt - 1 + own.most + unseen(era, last.given.pull.start, Micros::MAX)
        }
    };
    failed >= era.spec.max_attempts
}
