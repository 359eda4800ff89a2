//! Reads what everyone saw, and says which promise was broken.
//!
//! What was answered is certain. What was said and not answered, because the hub was killed or the store refused,
//! may have happened or not: then the number of failures lies between two bounds, until the next delivery tells.

mod settling;

use crate::groups_simulation::archive::{GivenUp, How, Logged};
use crate::groups_simulation::history::{Delivered, Entry, EventPosition, Stamped};
use crate::groups_simulation::plan::GroupPlan;
use crate::groups_simulation::run::Outcome;
use prombus_core::Epoch;
use prombus_engine::groups::{LeaseToken, Mode, Ordering};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// A promise that was broken.
pub struct Broken {
    pub group: usize,
    /// Which entry of its history shows it.
    pub at: usize,
    pub event: Option<EventPosition>,
    pub what: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Ack,
    Nack,
}

/// What became of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Nothing yet, as far as its holder knows.
    Held,
    Settled(Verb),
    /// It was said, and not answered.
    Unsure(Verb),
    GivenBack {
        counted: bool,
    },
    Void,
}

#[derive(Debug)]
struct Lease {
    place: EventPosition,
    member: Option<String>,
    load: usize,
    deadline: Duration,
    /// How often partitions had moved when it was given.
    moves: u64,
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Open,
    /// An ack was not answered, in that load of the group.
    MaybeAcked(usize),
    Acked,
}

#[derive(Debug)]
struct EventRecord {
    /// At least and at most so many failures are counted.
    failures: (u32, u32),
    fate: Fate,
    last: Option<(LeaseToken, u32)>,
    /// It has failed for the last time, for certain.
    doomed: bool,
    /// Someone said that trying again is in vain.
    buried: bool,
    /// In this load of the group it is not delivered before.
    not_before: Option<(usize, Duration)>,
    letters: Vec<u32>,
}

struct Checker<'a> {
    plan: &'a GroupPlan,
    log: &'a BTreeMap<EventPosition, Logged>,
    given_up: &'a BTreeMap<EventPosition, GivenUp>,
    before: &'a [Vec<u64>],
    answers: HashMap<usize, (&'a Option<Vec<bool>>, u64)>,
    events: BTreeMap<EventPosition, EventRecord>,
    leases: HashMap<LeaseToken, Lease>,
    /// The latest load of the group.
    load: usize,
    /// The epoch that it was loaded in.
    epoch: Epoch,
    /// Whether there is one hub at a time.
    is_alone: bool,
}

type Verdict = Result<(), (Option<EventPosition>, String)>;

fn broken<T>(place: EventPosition, what: impl Into<String>) -> Result<T, (Option<EventPosition>, String)> {
    Err((Some(place), format!("event {place:?}: {}", what.into())))
}

/// Checks all groups of a run.
pub fn check(outcome: &Outcome) -> Result<(), Broken> {
    for (group, plan) in outcome.plan.groups.iter().enumerate() {
        let history = &outcome.histories[group];
        let mut checker = Checker::new(outcome, plan, history);
        for (at, entry) in history.iter().enumerate() {
            let verdict = checker.see(entry);
            verdict.map_err(|(event, what)| Broken { group, at, event, what })?;
        }
        let end = history.last().map_or(Duration::ZERO, |entry| entry.at);
        let verdict = checker.finish(outcome, end, outcome.lost[group]);
        verdict.map_err(|(event, what)| Broken { group, at: history.len() - 1, event, what })?;
    }
    Ok(())
}

impl<'a> Checker<'a> {
    fn new(outcome: &'a Outcome, plan: &'a GroupPlan, history: &'a [Stamped]) -> Self {
        let known = |place: EventPosition| EventRecord {
            failures: (0, 0),
            fate: Fate::Open,
            last: None,
            doomed: false,
            buried: false,
            not_before: None,
            letters: outcome
                .letters
                .iter()
                .filter(|letter| letter.group == plan.name && letter.place == place)
                .map(|letter| letter.attempts)
                .collect(),
        };
        let wanted = outcome.log.iter().filter(|(_, logged)| plan.wants(logged.number));
        let answers = history.iter().filter_map(|entry| match &entry.entry {
            Entry::Answered { call, results } => Some((*call, (results, entry.moves))),
            _ => None,
        });
        Self {
            plan,
            log: &outcome.log,
            given_up: &outcome.given_up,
            before: &outcome.before,
            answers: answers.collect(),
            events: wanted.map(|(place, _)| (*place, known(*place))).collect(),
            leases: HashMap::new(),
            load: 0,
            epoch: Epoch(0),
            is_alone: outcome.plan.hub_ttl.is_none(),
        }
    }

    fn see(&mut self, entry: &Stamped) -> Verdict {
        match &entry.entry {
            Entry::Delivered(delivered) => self.delivered(entry, delivered),
            Entry::Said { call, settles } => {
                let (results, moves) = self.answers.get(call).copied().unwrap_or((&None, u64::MAX));
                for (n, settle) in settles.iter().enumerate() {
                    self.said(entry, settle, (results.as_ref().map(|results| results[n]), moves))?;
                }
                Ok(())
            }
            Entry::GaveBack { leases, lost_connection } => {
                self.gave_back(entry, leases, *lost_connection);
                Ok(())
            }
            Entry::Loaded(epoch) => {
                // A hub that stalled may show what it had loaded when another hub has long taken over. That one is over, and
                // delivers nothing.
                if *epoch >= self.epoch {
                    (self.load, self.epoch) = (entry.load, *epoch);
                    self.end_others(entry.at, entry.load);
                }
                Ok(())
            }
            Entry::Killed => {
                self.end_others(entry.at, entry.load);
                Ok(())
            }
            Entry::Answered { .. } => Ok(()),
        }
    }

    /// The group has started afresh: the leases of earlier loads are void, and an attempt may have been counted only
    /// where the lease had ended by then.
    fn end_others(&mut self, at: Duration, load: usize) {
        for lease in self.leases.values_mut().filter(|l| l.end == End::Held && l.load != load) {
            lease.end = End::Void;
            if lease.deadline <= at
                && let Some(event) = self.events.get_mut(&lease.place)
            {
                event.failures.1 += 1;
            }
        }
    }

    /// Whether an event needs no more attention, as far as can be known.
    fn is_done(&self, place: EventPosition, at: Duration) -> bool {
        let event = &self.events[&place];
        self.may_be_gone(place, at)
            || event.fate != Fate::Open
            || (!event.letters.is_empty() && self.may_be_dead(event, at))
    }

    /// Whether the event may have been given up by then.
    fn may_be_gone(&self, place: EventPosition, at: Duration) -> bool {
        self.given_up.get(&place).is_some_and(|given_up| given_up.began <= at)
    }

    fn may_be_dead(&self, event: &EventRecord, at: Duration) -> bool {
        let held = event.last.and_then(|(token, _)| self.leases.get(&token)).filter(|l| l.end == End::Held);
        let expired = held.is_some_and(|lease| lease.deadline <= at);
        let failures = event.failures.1 + u32::from(expired);
        event.doomed || event.buried || (failures >= self.plan.max_attempts && (held.is_none() || expired))
    }

    /// Whether the one must be done before the other is delivered.
    fn comes_first(&self, one: EventPosition, other: EventPosition) -> bool {
        if one == other {
            return false;
        }
        let in_partition = self.plan.ordering == Ordering::Partition && one.0 == other.0 && one.1 < other.1;
        let key = |place: &EventPosition| self.log[place].key.as_ref();
        let in_key = self.plan.ordering != Ordering::None
            && one < other
            && key(&one).is_some()
            && key(&one) == key(&other);
        let grown = self.before[other.0 as usize].get(one.0 as usize).is_some_and(|end| one.1 < *end);
        in_partition || in_key || grown
    }

    fn delivered(&mut self, entry: &Stamped, delivered: &Delivered) -> Verdict {
        let place = delivered.place;
        if !self.events.contains_key(&place) {
            return broken(place, "was delivered, though it is not in the log or the filter drops it");
        }
        if self.log[&place].number != delivered.number {
            return broken(place, "was delivered with another payload");
        }
        if entry.load != self.load {
            return broken(
                place,
                "was delivered by a group that had been loaded anew since, here or elsewhere",
            );
        }
        // What another hub gives up is noticed when it is read.
        let is_gone = |given_up: &GivenUp| given_up.done.is_some_and(|done| done < delivered.asked);
        if self.is_alone && self.given_up.get(&place).is_some_and(is_gone) {
            return broken(place, "was delivered to one who asked after it was given up");
        }
        if self.leases.contains_key(&delivered.lease) {
            return broken(place, "was delivered with a token that was there before");
        }
        self.check_last_lease(entry, place)?;
        self.check_attempt(entry, delivered)?;
        self.check_order(entry, place)?;
        self.check_member(entry, delivered)?;
        let lease = Lease {
            place,
            member: delivered.member.clone(),
            load: entry.load,
            deadline: delivered.deadline,
            moves: entry.moves,
            end: End::Held,
        };
        self.leases.insert(delivered.lease, lease);
        Ok(())
    }

    /// The lease before must be over; if it ended by itself, that counts as a failure.
    fn check_last_lease(&mut self, entry: &Stamped, place: EventPosition) -> Verdict {
        let Some((token, _)) = self.events[&place].last else { return Ok(()) };
        let (Some(lease), Some(event)) = (self.leases.get_mut(&token), self.events.get_mut(&place)) else {
            return Ok(());
        };
        match lease.end {
            End::Held if lease.deadline <= entry.at => {
                event.failures.1 += 1;
                event.failures.0 += u32::from(self.plan.stayed(lease.moves, entry.moves));
            }
            End::Held if self.plan.stayed(lease.moves, entry.moves) => {
                return broken(place, "was delivered while another lease on it was valid");
            }
            End::GivenBack { counted: true } if lease.load == entry.load => event.failures.0 += 1,
            _ => {}
        }
        lease.end = if lease.end == End::Held { End::Void } else { lease.end };
        Ok(())
    }

    fn check_attempt(&mut self, entry: &Stamped, delivered: &Delivered) -> Verdict {
        let (place, attempt) = (delivered.place, delivered.attempt);
        let Some(event) = self.events.get_mut(&place) else { return Ok(()) };
        match event.fate {
            Fate::Acked => return broken(place, "was delivered after its ack was answered"),
            Fate::MaybeAcked(load) if load == entry.load => {
                return broken(place, "was delivered after its ack, without a new start in between");
            }
            Fate::MaybeAcked(_) | Fate::Open => event.fate = Fate::Open,
        }
        if event.doomed {
            return broken(place, "was delivered after it had failed for the last time");
        }
        let (least, most) = event.failures;
        if !(least + 1..=most + 1).contains(&attempt) || attempt > self.plan.max_attempts {
            let what = format!("was delivered as attempt {attempt} after {least} to {most} failures");
            return broken(place, what);
        }
        if let Some((load, earliest)) = event.not_before.take()
            && load == entry.load
            && entry.at < earliest
            && self.plan.mode == Mode::Shared
        {
            return broken(place, format!("was delivered before its pause was over at {earliest:?}"));
        }
        event.failures = (attempt - 1, attempt - 1);
        event.buried = false;
        event.last = Some((delivered.lease, attempt));
        Ok(())
    }

    fn check_order(&self, entry: &Stamped, place: EventPosition) -> Verdict {
        for other in self.events.keys().copied() {
            if self.comes_first(other, place) && !self.is_done(other, entry.at) {
                return broken(place, format!("was delivered before {other:?} was settled"));
            }
            if self.comes_first(place, other) && self.events[&other].last.is_some() {
                return broken(place, format!("was delivered again after {other:?}, which comes later"));
            }
        }
        let in_partition = self.events.keys().filter(|other| other.0 == place.0 && other.1 <= place.1);
        // The window is about memory: what was said moves it, before that is durable.
        let moves = |event: &EventRecord| event.fate != Fate::Open || self.may_be_dead(event, entry.at);
        let is_open =
            |other: &EventPosition| !moves(&self.events[other]) && !self.may_be_gone(*other, entry.at);
        let oldest = in_partition.copied().find(is_open);
        if oldest.is_some_and(|oldest| place.1 - oldest.1 >= self.plan.ack_window) {
            return broken(place, format!("was delivered beyond the window from {oldest:?}"));
        }
        Ok(())
    }

    fn check_member(&mut self, entry: &Stamped, delivered: &Delivered) -> Verdict {
        let place = delivered.place;
        let open =
            |lease: &Lease| lease.end == End::Held && lease.load == entry.load && lease.deadline > entry.at;
        if self.plan.mode == Mode::Shared {
            let held = |lease: &&Lease| open(lease) && lease.member == delivered.member;
            let held = self.leases.values().filter(held).count();
            if held >= delivered.max_in_flight {
                return broken(place, format!("was delivered to a member that held {held} already"));
            }
            return Ok(());
        }
        if !delivered.owned {
            return broken(place, "was delivered to a member that does not own its partition");
        }
        // Whoever had the partition before is fenced now.
        let others = self.leases.values_mut().filter(|lease| {
            lease.end == End::Held && lease.place.0 == place.0 && lease.member != delivered.member
        });
        for lease in others {
            lease.end = End::Void;
            if lease.deadline <= entry.at
                && let Some(event) = self.events.get_mut(&lease.place)
            {
                event.failures.1 += 1;
            }
        }
        Ok(())
    }

    fn finish(&self, outcome: &Outcome, at: Duration, lost: Option<u64>) -> Verdict {
        let is_ours = |place: &EventPosition| self.events.contains_key(place);
        let ours = outcome.letters.iter().filter(|letter| letter.group == self.plan.name);
        for letter in ours {
            if !is_ours(&letter.place) {
                return broken(letter.place, "has a dead letter, though the group is not about it");
            }
            if self.log[&letter.place].id != letter.caused_by {
                return broken(letter.place, "has a dead letter that names another cause");
            }
        }
        for (place, event) in &self.events {
            self.check_end(*place, event, at)?;
        }
        match lost {
            None => Err((None, format!("group {} was not done in the end", self.plan.name))),
            Some(lost) => self.check_lost(lost, &outcome.firsts),
        }
    }

    /// Every event that was given up with all before it, and that the group had not settled, is lost, and nothing else is.
    /// What was a hole by then, or dropped by the filter, may have been passed over or not.
    fn check_lost(&self, lost: u64, firsts: &[u64]) -> Verdict {
        let (mut least, mut most) = (0, 0);
        for (place, _) in self.log.iter().filter(|(place, _)| place.1 < firsts[place.0 as usize]) {
            let was_hole = self.given_up.get(place).is_none_or(|given_up| given_up.how == How::Discarded);
            let (is_lost, may_be_lost) = match self.events.get(place) {
                Some(event) if !event.letters.is_empty() => (false, false),
                Some(event) => match event.fate {
                    Fate::Acked => (false, false),
                    Fate::MaybeAcked(_) => (false, true),
                    Fate::Open => (!was_hole, true),
                },
                None => (false, true),
            };
            least += u64::from(is_lost);
            most += u64::from(may_be_lost);
        }
        if !(least..=most).contains(&lost) {
            let what = format!(
                "group {} says that it has lost {lost} events, not {least} to {most}",
                self.plan.name
            );
            return Err((None, what));
        }
        Ok(())
    }

    fn check_end(&self, place: EventPosition, event: &EventRecord, at: Duration) -> Verdict {
        match (event.letters.as_slice(), event.fate) {
            ([], _) if self.given_up.contains_key(&place) => Ok(()),
            ([], Fate::Open) if event.doomed => broken(place, "has no dead letter"),
            ([], Fate::Open) => broken(place, "was never processed"),
            ([], _) => Ok(()),
            ([_, _, ..], _) => broken(place, "has more than one dead letter"),
            (_, Fate::Acked | Fate::MaybeAcked(_)) => broken(place, "was acked, and has a dead letter"),
            ([attempts], Fate::Open) => {
                let last = event.last.map_or(0, |(_, attempt)| attempt);
                let exact = *attempts == last && (event.buried || last == self.plan.max_attempts);
                if !exact || !self.may_be_dead(event, at) {
                    let what = format!("is a dead letter of {attempts} attempts, after {last} deliveries");
                    return broken(place, what);
                }
                Ok(())
            }
        }
    }
}
