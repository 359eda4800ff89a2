//! One lease: when it can have ended, and whether what was claimed under it was rightly accepted or refused.

use super::{Case, Era, Violation};
use crate::groups::history::{Answer, Delivery, Micros, Said, Verb};
use crate::groups::spec::Spec;

/// Pauses that outlive the hub are kept in whole milliseconds.
const COARSE_US: u64 = 2_000;

/// A delivery and what was said of it, in the order in which that was sent.
pub struct Lease<'a> {
    pub given: &'a Delivery,
    pub said: Vec<&'a Said>,
}

impl<'a> Lease<'a> {
    pub fn new(given: &'a Delivery) -> Self {
        Self { given, said: Vec::new() }
    }

    /// The call that was answered with `ok`.
    pub fn accepted(&self, verb: Verb) -> Option<&'a Said> {
        self.said.iter().copied().find(|said| said.verb == verb && said.answer == Answer::Ok)
    }

    /// The first call that was accepted, or may have been.
    pub fn maybe(&self, verb: Verb) -> Option<&'a Said> {
        self.said.iter().copied().find(|said| said.verb == verb && said.answer != Answer::Refused)
    }

    /// It holds at least until then, as far as was said before `before`.
    pub fn holds_until(&self, spec: &Spec, before: Micros) -> Micros {
        let extends = || self.extends().filter(|(said, _)| said.call.start < before);
        let accepted = extends().filter(|(said, _)| said.answer == Answer::Ok).last();
        let surely = match accepted {
            Some((said, by)) => said.call.start + by,
            None => self.given.pull.start + spec.lease_us(),
        };
        let unanswered = extends().filter(|(said, _)| said.answer == Answer::Unanswered);
        unanswered.map(|(said, by)| said.call.start + by).fold(surely, Micros::min)
    }

    /// It has ended by then, as far as was said before `before`.
    fn ends_by(&self, spec: &Spec, before: Micros) -> Micros {
        let by = |(said, by): (&Said, u64)| match said.answer {
            Answer::Ok => said.call.end + by,
            Answer::Refused => 0,
            Answer::Unanswered => Micros::MAX,
        };
        let extends = self.extends().filter(|(said, _)| said.call.start < before);
        extends.map(by).fold(self.given.pull.end + spec.lease_us(), Micros::max)
    }

    fn extends(&self) -> impl Iterator<Item = (&'a Said, u64)> {
        self.said.iter().filter_map(|said| match said.verb {
            Verb::Extend(by) => Some((*said, by)),
            Verb::Ack | Verb::Nack => None,
        })
    }
}

/// Checks everything that was said of the leases of an event.
pub fn check(era: &Era<'_>, case: &Case<'_>, found: &mut Vec<Violation>) {
    for lease in &case.leases {
        for said in &lease.said {
            let word = Claim { era, case, lease, said };
            let wrong = match said.answer {
                Answer::Ok => word.wrongly_taken(),
                Answer::Refused => word.wrongly_refused(),
                Answer::Unanswered => None,
            };
            found.extend(wrong.map(|what| Violation::of(case.event.spot, what)));
        }
        if lease.accepted(Verb::Ack).is_some() && lease.accepted(Verb::Nack).is_some() {
            found.push(Violation::of(case.event.spot, "a lease was acked and nacked"));
        }
        if came_too_early(case, lease) {
            found.push(Violation::of(case.event.spot, "it was tried again before its time"));
        }
    }
}

/// Whether an event was given out again before the pause was over that a nack asked for.
fn came_too_early(case: &Case<'_>, lease: &Lease<'_>) -> bool {
    let Some(nack) = lease.maybe(Verb::Nack).filter(|_| lease.accepted(Verb::Nack).is_some()) else {
        return false;
    };
    let pause = nack.delay_us.unwrap_or_else(|| Spec::backoff_us(lease.given.attempt));
    let due = (nack.call.start + pause).saturating_sub(COARSE_US);
    let given = lease.given.pull;
    case.leases.iter().any(|o| o.given.pull.start > given.end && o.given.pull.end < due)
}

/// Something that was said, and all that it depends on.
struct Claim<'w> {
    era: &'w Era<'w>,
    case: &'w Case<'w>,
    lease: &'w Lease<'w>,
    said: &'w Said,
}

impl Claim<'_> {
    /// What was said of the lease before.
    fn before(&self) -> impl Iterator<Item = &Said> {
        self.lease.said.iter().copied().filter(|other| other.call.start < self.said.call.start)
    }

    fn is_extend(&self) -> bool {
        matches!(self.said.verb, Verb::Extend(_))
    }

    fn outlived_the_hub(&self) -> bool {
        self.said.call.life != self.lease.given.pull.life
    }

    fn wrongly_taken(&self) -> Option<&'static str> {
        let Self { era, case, lease, said } = self;
        let settles = |other: &Said| !matches!(other.verb, Verb::Extend(_)) && other.answer == Answer::Ok;
        if self.is_extend() && self.before().any(|other| settles(other) && other.call.end < said.call.start) {
            return Some("a lease was extended after it was settled");
        }
        let is_repeat = |other: &Said| other.verb == said.verb && other.answer != Answer::Refused;
        if !self.is_extend() && self.before().any(is_repeat) {
            return None;
        }
        if self.outlived_the_hub() {
            return Some("a lease outlived the hub");
        }
        let given = lease.given.pull;
        let passed_on =
            |other: &Lease<'_>| other.given.pull.start > given.end && other.given.pull.end < said.call.start;
        if case.leases.iter().any(passed_on) {
            return Some("a late word settled what had been passed on");
        }
        let is_over = said.call.start > lease.ends_by(era.spec, said.call.start);
        is_over.then_some("a lease was settled after it had ended")
    }

    fn wrongly_refused(&self) -> Option<&'static str> {
        let Self { era, lease, said, .. } = self;
        if self.outlived_the_hub() {
            return None;
        }
        let was_accepted = |other: &Said| other.verb == said.verb && other.answer == Answer::Ok;
        // A home that is new does not know what was said of leases that it has not given.
        if !era.moves && !self.is_extend() && self.before().any(was_accepted) {
            return Some("a repeated word was refused");
        }
        let may_have_settled = |other: &Said| {
            let settles = !matches!(other.verb, Verb::Extend(_)) && other.verb != said.verb;
            settles && other.answer != Answer::Refused
        };
        // In a partitioned group a partition may have moved at any time, and a topic where there are several hubs.
        let may_have_ended = era.may_be_taken()
            || self.before().any(may_have_settled)
            || said.call.end >= lease.holds_until(era.spec, said.call.start);
        (!may_have_ended).then_some("a lease that held was refused")
    }
}
