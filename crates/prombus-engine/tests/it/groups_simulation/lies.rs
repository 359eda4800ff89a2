//! A checker is worth what it notices: histories that were changed afterwards must be refused.

use crate::groups_simulation::archive::{GivenUp, How};
use crate::groups_simulation::checker::check;
use crate::groups_simulation::history::{Delivered, Entry, EventPosition, Stamped};
use crate::groups_simulation::run::{Outcome, run};
use prombus_engine::groups::{LeaseToken, Mode, Ordering, Settle};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// How many runs are looked at for a place where a lie can be told.
const RUNS: u64 = 40;
/// In so many of them there must be one.
const ENOUGH: usize = 5;

/// Tells a lie in many runs, wherever `lie` finds a place for it, and demands that each is noticed.
fn is_noticed(lie: impl Fn(&mut Outcome) -> Option<()>) {
    let mut told = 0;
    for seed in 0..RUNS {
        let mut outcome = run(seed);
        if lie(&mut outcome).is_some() {
            told += 1;
            assert!(check(&outcome).is_err(), "seed {seed}: the lie was not noticed");
        }
    }
    assert!(told >= ENOUGH, "there was room for only {told} lies");
}

fn delivered(entry: &Stamped) -> Option<&Delivered> {
    match &entry.entry {
        Entry::Delivered(delivered) => Some(delivered),
        _ => None,
    }
}

/// The same delivery once more, with a lease of its own.
fn again(entry: &Stamped) -> Option<Stamped> {
    let mut copy = delivered(entry)?.clone();
    copy.lease.number += 1_000_000;
    Some(Stamped { entry: Entry::Delivered(copy), ..entry.clone() })
}

/// The leases whose acks were taken.
fn acked(history: &[Stamped]) -> HashSet<LeaseToken> {
    let said: HashMap<usize, &Vec<Settle>> = history
        .iter()
        .filter_map(|entry| match &entry.entry {
            Entry::Said { call, settles } => Some((*call, settles)),
            _ => None,
        })
        .collect();
    let answered = history.iter().filter_map(|entry| match &entry.entry {
        Entry::Answered { call, results: Some(results) } => Some((said.get(call)?, results)),
        _ => None,
    });
    let taken = answered.flat_map(|(settles, results)| settles.iter().zip(results));
    taken
        .filter_map(|(settle, taken)| match settle {
            Settle::Ack(lease) if *taken => Some(*lease),
            _ => None,
        })
        .collect()
}

/// The groups of a mode, by number.
fn of_mode(outcome: &Outcome, mode: Mode) -> Option<usize> {
    outcome.plan.groups.iter().position(|group| group.mode == mode)
}

#[test]
fn an_acked_event_that_comes_again() {
    is_noticed(|outcome| {
        let history = &mut outcome.histories[0];
        let acked = acked(history);
        let last =
            history.iter().rposition(|entry| delivered(entry).is_some_and(|d| acked.contains(&d.lease)))?;
        let copy = again(&history[last])?;
        let at = history.last()?.at;
        history.push(Stamped { at, ..copy });
        Some(())
    });
}

#[test]
fn an_attempt_that_is_miscounted() {
    is_noticed(|outcome| {
        let history = &mut outcome.histories[0];
        let middle = history.len() / 2;
        let entry = history[middle..].iter_mut().find(|entry| delivered(entry).is_some())?;
        if let Entry::Delivered(delivered) = &mut entry.entry {
            delivered.attempt += 1;
        }
        Some(())
    });
}

#[test]
fn a_letter_that_is_missing_or_there_twice() {
    is_noticed(|outcome| {
        // Of what is gone there may be none.
        let kept =
            outcome.letters.iter().rposition(|letter| !outcome.given_up.contains_key(&letter.place))?;
        outcome.letters.remove(kept);
        Some(())
    });
    is_noticed(|outcome| {
        let letter = outcome.letters.last()?.clone();
        outcome.letters.push(letter);
        Some(())
    });
    is_noticed(|outcome| {
        outcome.letters.last_mut()?.attempts += 1;
        Some(())
    });
}

#[test]
fn an_event_that_nobody_got() {
    is_noticed(|outcome| {
        let history = &mut outcome.histories[0];
        let is_kept = |delivered: &&Delivered| !outcome.given_up.contains_key(&delivered.place);
        let place = history.iter().rev().filter_map(delivered).find(is_kept)?.place;
        history.retain(|entry| delivered(entry).is_none_or(|delivered| delivered.place != place));
        Some(())
    });
}

#[test]
fn two_leases_at_once() {
    is_noticed(|outcome| {
        let group = of_mode(outcome, Mode::Shared)?;
        let history = &mut outcome.histories[group];
        let at = history.iter().position(|entry| delivered(entry).is_some())?;
        let copy = again(&history[at])?;
        history.insert(at + 1, copy);
        Some(())
    });
}

#[test]
fn a_late_ack_that_was_taken() {
    is_noticed(|outcome| {
        let group = of_mode(outcome, Mode::Shared)?;
        let history = &mut outcome.histories[group];
        let acks: Vec<usize> = history
            .iter()
            .filter_map(|entry| match &entry.entry {
                Entry::Said { call, settles } if matches!(settles[..], [Settle::Ack(_)]) => Some(*call),
                _ => None,
            })
            .collect();
        let refused = history.iter_mut().find_map(|entry| match &mut entry.entry {
            Entry::Answered { call, results: Some(results) } if acks.contains(call) && !results[0] => {
                Some(results)
            }
            _ => None,
        })?;
        refused[0] = true;
        Some(())
    });
}

#[test]
fn a_valid_ack_that_was_refused() {
    is_noticed(|outcome| {
        // Where there are two hubs, one of them may have lost the topic.
        let group = of_mode(outcome, Mode::Shared).filter(|_| outcome.plan.hub_ttl.is_none())?;
        let taken = outcome.histories[group].iter_mut().rev().find_map(|entry| match &mut entry.entry {
            Entry::Answered { results: Some(results), .. } if results.contains(&true) => Some(results),
            _ => None,
        })?;
        taken.iter_mut().for_each(|taken| *taken = false);
        Some(())
    });
}

#[test]
fn a_key_out_of_order() {
    is_noticed(|outcome| {
        let group = outcome.plan.groups.iter().position(|group| group.ordering == Ordering::Key)?;
        let keys: Vec<(usize, &str)> = outcome.histories[group]
            .iter()
            .enumerate()
            .filter_map(|(at, entry)| Some((at, outcome.log[&delivered(entry)?.place].key.as_deref()?)))
            .collect();
        let place = |at: usize| delivered(&outcome.histories[group][at]).map(|delivered| delivered.place);
        let (one, other) = keys.iter().enumerate().find_map(|(n, (one, key))| {
            let later = keys[n + 1..].iter().find(|(at, other)| other == key && place(*at) != place(*one))?;
            Some((*one, later.0))
        })?;
        // The later event came just before the earlier one.
        let entry = outcome.histories[group].remove(other);
        outcome.histories[group].insert(one, entry);
        Some(())
    });
}

#[test]
fn a_member_that_gets_what_it_does_not_own() {
    is_noticed(|outcome| {
        let group = of_mode(outcome, Mode::Partitioned)?;
        let entry = outcome.histories[group].iter_mut().find(|entry| delivered(entry).is_some())?;
        if let Entry::Delivered(delivered) = &mut entry.entry {
            delivered.owned = false;
        }
        Some(())
    });
}

#[test]
fn an_event_that_comes_after_it_was_given_up() {
    is_noticed(|outcome| {
        // Where there are two hubs, one of them may not know yet.
        if outcome.plan.hub_ttl.is_some() {
            return None;
        }
        let history = &mut outcome.histories[0];
        let done = |delivered: &Delivered| outcome.given_up.get(&delivered.place)?.done;
        let entry = history.iter_mut().find(|entry| delivered(entry).is_some_and(|d| done(d).is_some()))?;
        if let Entry::Delivered(delivered) = &mut entry.entry {
            delivered.asked = done(delivered)? + Duration::from_millis(1);
        }
        Some(())
    });
}

#[test]
fn a_loss_that_is_miscounted() {
    is_noticed(|outcome| {
        // With a filter it is not known from outside what was passed over.
        let group = outcome.plan.groups.iter().position(|group| !group.filters)?;
        let lost = outcome.lost[group].as_mut()?;
        *lost += outcome.log.len() as u64;
        Some(())
    });
    is_noticed(|outcome| {
        let got: HashSet<_> = outcome.histories[0].iter().filter_map(delivered).map(|d| d.place).collect();
        let is_lost = |(place, given_up): (&EventPosition, &GivenUp)| {
            let is_wanted = outcome.plan.groups[0].wants(outcome.log[place].number);
            given_up.how == How::Trimmed && is_wanted && !got.contains(place)
        };
        outcome.given_up.iter().any(is_lost).then_some(())?;
        outcome.lost[0] = Some(0);
        Some(())
    });
}
