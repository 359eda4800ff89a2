//! The final outcome of an event: it is acked once, or it is one dead letter.

use super::lease::Lease;
use super::{Case, Era, Violation};
use crate::groups::history::{Said, Verb};

/// Checks the end of an event.
pub fn check(era: &Era<'_>, case: &Case<'_>, found: &mut Vec<Violation>) {
    let mut wrong = |what| found.push(Violation::of(case.event.spot, what));
    let acks: Vec<&Said> = case.leases.iter().filter_map(|lease| lease.accepted(Verb::Ack)).collect();
    let maybe_acked = case.leases.iter().any(|lease| lease.maybe(Verb::Ack).is_some());
    if acks.len() > 1 {
        wrong("it was acked under two leases");
    }
    if acks.iter().any(|ack| was_given_after(case, ack)) {
        wrong("it was acked, and delivered again");
    }
    if case.letters.len() > 1 {
        wrong("it has two dead letters");
    }
    match case.letters.first() {
        None if case.leases.is_empty() => wrong("it was never delivered"),
        None if !maybe_acked => wrong("it was neither acked nor is it a dead letter"),
        None => {}
        Some(_) if !acks.is_empty() => wrong("it was acked, and is a dead letter"),
        Some(letter) if letter.attempts != era.spec.max_attempts => {
            wrong("its dead letter counts other attempts than the group allows");
        }
        Some(_) => {}
    }
    for (lease, nack) in last_failures(era, case) {
        if was_given_after(case, nack) {
            wrong("it failed for the last time, and was delivered again");
        }
        match case.letters.first() {
            None => wrong("it failed for the last time, and is no dead letter"),
            // What was said twice was said with the same reason.
            Some(letter) if lease.maybe(Verb::Nack).is_some_and(|nack| nack.reason != letter.err) => {
                wrong("its dead letter tells another reason");
            }
            Some(_) => {}
        }
    }
    if case.leases.iter().any(|lease| lease.given.attempt > era.spec.max_attempts) {
        wrong("it was delivered more often than the group allows");
    }
}

/// Nacks of the last attempt that were answered.
fn last_failures<'c, 'a>(
    era: &Era<'_>,
    case: &'c Case<'a>,
) -> impl Iterator<Item = (&'c Lease<'a>, &'a Said)> {
    let max = era.spec.max_attempts;
    let last = case.leases.iter().filter(move |lease| lease.given.attempt == max);
    last.filter_map(|lease| Some((lease, lease.accepted(Verb::Nack)?)))
}

fn was_given_after(case: &Case<'_>, said: &Said) -> bool {
    case.leases.iter().any(|lease| lease.given.pull.start > said.call.end)
}
