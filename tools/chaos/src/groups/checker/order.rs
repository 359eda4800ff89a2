//! Ordering: an event is delivered only after everything that it has to wait for was settled, and that is not delivered
//! after it.

use super::{Case, Era, Violation};
use crate::groups::history::{EventPosition, Micros, Verb};
use crate::groups::spec::Ordering;
use std::collections::{BTreeMap, HashMap};

/// Checks the order, and says from when on each event that had to wait could be delivered.
pub fn check(
    era: &Era<'_>,
    cases: &BTreeMap<EventPosition, Case<'_>>,
    found: &mut Vec<Violation>,
) -> HashMap<EventPosition, Micros> {
    let mut chains: BTreeMap<String, Vec<&Case<'_>>> = BTreeMap::new();
    for case in cases.values().filter(|case| era.spec.wants(case.event.number)) {
        // Offsets follow each other, and a key moves to later partitions only: so this is the order of a key.
        if let Some(key) = &case.event.key {
            chains.entry(format!("key {key}")).or_default().push(case);
        }
        if era.spec.ordering == Ordering::Partition {
            chains.entry(format!("partition {}", case.event.spot.0)).or_default().push(case);
        }
    }
    let mut ready = HashMap::new();
    for chain in chains.values() {
        for (spot, from) in check_chain(era, chain, found) {
            let ready: &mut Micros = ready.entry(spot).or_default();
            *ready = from.max(*ready);
        }
    }
    ready
}

/// What the events before one in its chain say about it.
#[derive(Clone, Copy, Default)]
struct Before {
    /// They were not all settled earlier than this, and which of them was not.
    settled_from: (Micros, EventPosition),
    /// The last of their deliveries started then, and whose it was.
    given: (Micros, EventPosition),
}

impl Before {
    fn add(&mut self, era: &Era<'_>, case: &Case<'_>) {
        let spot = case.event.spot;
        self.settled_from = self.settled_from.max((settled_from(era, case), spot));
        let given = case.leases.iter().map(|lease| lease.given.pull.start).max();
        self.given = self.given.max((given.unwrap_or(0), spot));
    }
}

fn check_chain(
    era: &Era<'_>,
    chain: &[&Case<'_>],
    found: &mut Vec<Violation>,
) -> Vec<(EventPosition, Micros)> {
    let (mut all, mut other_partitions) = (Before::default(), Before::default());
    let mut partition = None;
    let mut ready = Vec::new();
    for case in chain {
        let spot = case.event.spot;
        if partition.replace(spot.0) != Some(spot.0) {
            other_partitions = all;
        }
        // Even where nothing has to wait, a new partition does: until what was there before it is settled.
        let before = if era.spec.ordering == Ordering::None { other_partitions } else { all };
        ready.push((spot, before.settled_from.0));
        let first = case.leases.iter().map(|lease| lease.given.pull.end).min();
        let mut wrong = |what, other| found.push(Violation { what, spot, other: Some(other) });
        if first.is_some_and(|first| first < before.settled_from.0) {
            wrong("it was delivered before an earlier one was settled", before.settled_from.1);
        }
        if first.is_some_and(|first| first < before.given.0) {
            wrong("an earlier one was delivered after it", before.given.1);
        }
        all.add(era, case);
    }
    ready
}

/// The earliest time at which an event can have been settled.
fn settled_from(era: &Era<'_>, case: &Case<'_>) -> Micros {
    let acks = case.leases.iter().filter_map(|lease| lease.maybe(Verb::Ack)).map(|ack| ack.call.start);
    let acked = acks.min().unwrap_or(Micros::MAX);
    if case.letters.is_empty() {
        return acked;
    }
    let last = case.leases.iter().filter(|lease| lease.given.attempt >= era.spec.max_attempts);
    let died = last.map(|lease| {
        let nack = lease.maybe(Verb::Nack).map_or(Micros::MAX, |nack| nack.call.start);
        nack.min(lease.holds_until(era.spec, Micros::MAX))
    });
    // Nobody saw its last delivery where none of those that were seen is.
    died.min().unwrap_or(0).min(acked)
}
