//! Judges the recorded history of a group, after everything was settled: from requests and answers alone, it finds what a
//! hub that keeps its guarantees could not have done.
//!
//! Times are taken before and after calls, so one call certainly preceded another only if it had ended before the other
//! started. If a history leaves open what happened, every possibility is allowed.

mod attempts;
mod fate;
mod lease;
mod order;

use super::history::{Answer, Delivery, Event, EventPosition, History, Letter, Micros, Verb};
use super::spec::Spec;
use super::truth::Events;
use lease::Lease;
use std::collections::{BTreeMap, HashMap};

/// Maximum number of violations that are told; the rest would say the same.
const TOLD: usize = 5;
/// How many lines of a history are told with a violation.
const LINES: usize = 60;

/// All that is known about a group since it was last drained.
pub struct Era<'a> {
    /// The group.
    pub spec: &'a Spec,
    /// What happened with it.
    pub history: &'a History,
    /// The new events of its topic.
    pub events: &'a Events,
    /// The new dead letters of its topic, of all groups.
    pub letters: &'a [Letter],
    /// When each life of the hub had ended; the last one may go on.
    pub deaths: &'a [Micros],
    /// Whether a topic may move to another hub at any time, which nobody outside sees. Its leases are void then.
    pub moves: bool,
}

impl Era<'_> {
    /// Whether a lease may end at any time because others take over.
    fn may_be_taken(&self) -> bool {
        self.moves || self.spec.partitioned
    }
}

/// What was judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many deliveries.
    pub deliveries: u64,
    /// How many of them were not the first.
    pub again: u64,
    /// How many had an attempt that could only be this one.
    pub exact: u64,
    /// How many dead letters.
    pub letters: u64,
    /// How often something was said of a lease.
    pub said: u64,
    /// And how often that was refused.
    pub refused: u64,
}

impl Tally {
    /// Adds what was judged elsewhere.
    pub fn add(&mut self, other: Self) {
        self.deliveries += other.deliveries;
        self.again += other.again;
        self.exact += other.exact;
        self.letters += other.letters;
        self.said += other.said;
        self.refused += other.refused;
    }
}

/// An event and all that happened with it.
pub struct Case<'a> {
    event: &'a Event,
    /// In the order in which they were given, as far as that can be told.
    leases: Vec<Lease<'a>>,
    letters: Vec<&'a Letter>,
}

/// What is wrong, and with which event.
#[derive(Debug)]
pub struct Violation {
    /// What.
    pub what: &'static str,
    /// The event.
    pub spot: EventPosition,
    /// Another one that has to do with it.
    pub other: Option<EventPosition>,
}

impl Violation {
    fn of(spot: EventPosition, what: &'static str) -> Self {
        Self { what, spot, other: None }
    }
}

/// Judges. What is wrong is told with its history.
pub fn judge(era: &Era<'_>) -> Result<Tally, String> {
    let (violations, tally) = violations(era);
    if violations.is_empty() {
        return Ok(tally);
    }
    let Spec { topic, group, .. } = era.spec;
    let count = violations.len();
    let told: String = violations.iter().take(TOLD).map(|violation| tell(era, violation)).collect();
    Err(format!("{count} violations in group {group} of {topic} ({:?}):\n{told}", era.spec))
}

/// Everything that is wrong.
pub fn violations(era: &Era<'_>) -> (Vec<Violation>, Tally) {
    let mut found = Vec::new();
    let mut tally = Tally::default();
    let cases = cases(era, &mut found);
    tally.said = era.history.said.len() as u64;
    tally.refused = era.history.said.iter().filter(|said| said.answer == Answer::Refused).count() as u64;
    for case in cases.values() {
        tally.deliveries += case.leases.len() as u64;
        tally.again += case.leases.len().saturating_sub(1) as u64;
        tally.letters += case.letters.len() as u64;
        if !era.spec.wants(case.event.number) {
            if !case.leases.is_empty() || !case.letters.is_empty() {
                found.push(Violation::of(case.event.spot, "the filter drops it, and it was delivered"));
            }
            continue;
        }
        lease::check(era, case, &mut found);
        fate::check(era, case, &mut found);
    }
    // What can have happened to an event unseen depends on when it could be delivered at all.
    let ready = order::check(era, &cases, &mut found);
    for case in cases.values().filter(|case| era.spec.wants(case.event.number)) {
        let since = ready.get(&case.event.spot).copied().unwrap_or_default().max(case.event.since);
        let checked = attempts::check(era, case, since);
        tally.exact += checked.exact;
        found.extend(checked.wrong.into_iter().map(|what| Violation::of(case.event.spot, what)));
    }
    (found, tally)
}

/// What happened with each event. What cannot be about any event is a violation.
fn cases<'a>(era: &Era<'a>, found: &mut Vec<Violation>) -> BTreeMap<EventPosition, Case<'a>> {
    let mut cases: BTreeMap<EventPosition, Case<'a>> = BTreeMap::new();
    for (spot, event) in era.events {
        cases.insert(*spot, Case { event, leases: Vec::new(), letters: Vec::new() });
    }
    let mut tokens: HashMap<&str, &Delivery> = HashMap::new();
    for delivery in &era.history.deliveries {
        if tokens.insert(&delivery.lease, delivery).is_some() {
            found.push(Violation::of(delivery.spot, "two deliveries have the same token"));
        }
        match cases.get_mut(&delivery.spot) {
            None => found.push(Violation::of(delivery.spot, "it was settled long ago, and delivered again")),
            Some(case) if case.event.id != delivery.id => {
                found.push(Violation::of(delivery.spot, "another event was delivered for it"));
            }
            Some(case) => case.leases.push(Lease::new(delivery)),
        }
    }
    for letter in era.letters.iter().filter(|letter| letter.group == era.spec.group) {
        match cases.get_mut(&letter.spot) {
            Some(case) if case.event.id == letter.id && letter.caused_by == [letter.id] => {
                case.letters.push(letter);
            }
            _ => found.push(Violation::of(letter.spot, "its dead letter is about something else")),
        }
    }
    for said in &era.history.said {
        let given = tokens.get(said.lease.as_str()).map(|delivery| delivery.spot);
        let leases = given.and_then(|spot| cases.get_mut(&spot)).map(|case| &mut case.leases);
        if let Some(lease) = leases.and_then(|l| l.iter_mut().find(|l| l.given.lease == said.lease)) {
            lease.said.push(said);
        }
    }
    for case in cases.values_mut() {
        case.leases.sort_by_key(|l| (l.given.pull.life, l.given.attempt, l.given.pull.end));
        case.leases.iter_mut().for_each(|lease| lease.said.sort_by_key(|said| said.call.start));
        failures_last(&mut case.leases);
    }
    cases
}

/// Puts leases of one attempt, whose pulls overlapped, into the order in which they can have been given.
///
/// A partition that moves to another member takes its events along in the same attempt, and the answer to the old owner may
/// arrive after the one to the new owner. A failure ends the attempt, so the lease that failed was the last one.
fn failures_last(leases: &mut [Lease<'_>]) {
    let failed = |lease: &Lease<'_>| {
        u8::from(lease.maybe(Verb::Nack).is_some()) + u8::from(lease.accepted(Verb::Nack).is_some())
    };
    let can_swap = |one: &Lease<'_>, next: &Lease<'_>| {
        let (one, next) = (one.given, next.given);
        (one.pull.life, one.attempt) == (next.pull.life, next.attempt) && next.pull.start <= one.pull.end
    };
    for end in (1..leases.len()).rev() {
        for next in 1..=end {
            let (one, other) = (&leases[next - 1], &leases[next]);
            if failed(one) > failed(other) && can_swap(one, other) {
                leases.swap(next - 1, next);
            }
        }
    }
}

/// A violation with all that happened with its events.
fn tell(era: &Era<'_>, violation: &Violation) -> String {
    let mut text = format!("- {}: {:?}", violation.what, violation.spot);
    if let Some(other) = violation.other {
        text += &format!(", because of {other:?}");
    }
    text.push('\n');
    for spot in [violation.other, Some(violation.spot)].into_iter().flatten() {
        text += &format!("  {:?}\n", era.events.get(&spot));
        let given = era.history.deliveries.iter().filter(|delivery| delivery.spot == spot);
        let mut lines: Vec<(Micros, String)> = Vec::new();
        for delivery in given {
            lines.push((delivery.pull.start, format!("{delivery:?}")));
            let said = era.history.said.iter().filter(|said| said.lease == delivery.lease);
            lines.extend(said.map(|said| (said.call.start, format!("{said:?}"))));
        }
        lines.sort();
        lines.into_iter().take(LINES).for_each(|(_, line)| text += &format!("    {line}\n"));
        let own = |letter: &&Letter| letter.spot == spot && letter.group == era.spec.group;
        era.letters.iter().filter(own).for_each(|letter| text += &format!("    {letter:?}\n"));
    }
    text + &format!("  lives of the hub ended at {:?}\n", era.deaths)
}

#[cfg(test)]
mod tests;
