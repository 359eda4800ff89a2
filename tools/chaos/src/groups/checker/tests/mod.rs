//! Hand-made histories: valid ones pass, and each kind of invalid one is detected.

mod attempts;
mod leases;
mod order;

use super::*;
use crate::groups::history::{LostPull, Said, Span};
use crate::groups::spec::{Ordering, SPECS};
use uuid::Uuid;

/// A lease holds so long.
const LEASE: u64 = 400_000;

fn spec() -> Spec {
    Spec { ack_timeout_ms: LEASE / 1_000, max_attempts: 3, ..SPECS[0] }
}

/// A history that is told step by step, at times that are named.
struct HistoryBuilder {
    spec: Spec,
    history: History,
    events: Events,
    letters: Vec<Letter>,
    deaths: Vec<Micros>,
    moves: bool,
}

impl HistoryBuilder {
    fn new() -> Self {
        let (history, events, letters) = (History::default(), Events::new(), Vec::new());
        Self { spec: spec(), history, events, letters, deaths: Vec::new(), moves: false }
    }

    /// Events that follow each other in one partition, with these keys.
    fn with(keys: &[&str]) -> Self {
        let mut tale = Self::new();
        for (offset, key) in (0..).zip(keys) {
            tale.event((0, offset), key, offset + 1);
        }
        tale
    }

    fn event(&mut self, spot: EventPosition, key: &str, number: u64) {
        let (key, producer) = (Some(key.to_owned()), "p".to_owned());
        self.events.insert(spot, Event { spot, id: id(spot), key, producer, number, since: 0 });
    }

    fn span(&self, at: Micros) -> Span {
        let life = self.deaths.iter().filter(|death| **death < at).count() as u32;
        Span { life, start: at, end: at + 10 }
    }

    fn give(&mut self, at: Micros, spot: EventPosition, attempt: u32) -> String {
        let lease = format!("lease{}", self.history.deliveries.len());
        let (pull, member) = (self.span(at), "m".to_owned());
        let delivery = Delivery { pull, member, spot, id: id(spot), attempt, lease: lease.clone() };
        self.history.deliveries.push(delivery);
        lease
    }

    fn say(&mut self, at: Micros, lease: &str, verb: Verb, answer: Answer) {
        let (call, lease, reason) = (self.span(at), lease.to_owned(), "why".to_owned());
        self.history.said.push(Said { call, lease, verb, reason, delay_us: None, answer });
    }

    fn ack(&mut self, at: Micros, lease: &str) {
        self.say(at, lease, Verb::Ack, Answer::Ok);
    }

    fn nack(&mut self, at: Micros, lease: &str) {
        self.say(at, lease, Verb::Nack, Answer::Ok);
    }

    fn bury(&mut self, spot: EventPosition, attempts: u32) {
        let (group, caused_by, err) = (self.spec.group.to_owned(), vec![id(spot)], "why".to_owned());
        self.letters.push(Letter { group, spot, id: id(spot), caused_by, attempts, err });
    }

    fn lose_pull(&mut self, at: Micros) {
        let pull = Span { end: at + 1_000, ..self.span(at) };
        self.history.lost.push(LostPull { pull, dropped: true });
    }

    fn found(&self) -> Vec<&'static str> {
        let Self { spec, history, events, letters, deaths, moves } = self;
        let (found, _) = violations(&Era { spec, history, events, letters, deaths, moves: *moves });
        found.into_iter().map(|violation| violation.what).collect()
    }

    fn is_good(&self) {
        assert_eq!(self.found(), Vec::<&str>::new());
    }

    fn is_wrong(&self, what: &str) {
        assert!(self.found().contains(&what), "{what} is not among {:?}", self.found());
    }
}

fn id(spot: EventPosition) -> Uuid {
    Uuid::from_u128(u128::from(spot.0) << 64 | u128::from(spot.1))
}

const A: EventPosition = (0, 0);
const B: EventPosition = (0, 1);

#[test]
fn a_history_as_it_should_be_is_good() {
    let mut tale = HistoryBuilder::with(&["a", "a", "b"]);
    tale.deaths = vec![2_000_000];
    let first = tale.give(100, A, 1);
    tale.nack(200, &first);
    tale.nack(300, &first);
    tale.say(350, &first, Verb::Ack, Answer::Refused);
    let second = tale.give(400, A, 2);
    tale.say(500_000, &second, Verb::Ack, Answer::Refused);
    let third = tale.give(600_000, A, 3);
    tale.say(600_100, &third, Verb::Extend(2 * LEASE), Answer::Ok);
    tale.ack(1_300_000, &third);
    let other = tale.give(1_400_000, B, 1);
    tale.say(2_100_000, &other, Verb::Ack, Answer::Refused);
    let again = tale.give(2_200_000, B, 1);
    tale.say(2_200_100, &again, Verb::Ack, Answer::Unanswered);
    for attempt in 1..=3 {
        let lease = tale.give(2_300_000 + u64::from(attempt) * 100_000, (0, 2), attempt);
        tale.nack(2_300_500 + u64::from(attempt) * 100_000, &lease);
    }
    tale.bury((0, 2), 3);
    tale.is_good();
}

#[test]
fn an_event_that_nobody_settled_is_found() {
    let mut tale = HistoryBuilder::with(&["a"]);
    tale.is_wrong("it was never delivered");
    let lease = tale.give(100, A, 1);
    tale.is_wrong("it was neither acked nor is it a dead letter");
    tale.ack(200, &lease);
    tale.is_good();
}

#[test]
fn an_acked_event_that_comes_again_is_found() {
    let mut tale = HistoryBuilder::with(&["a"]);
    let lease = tale.give(100, A, 1);
    tale.ack(200, &lease);
    let again = tale.give(1_000_000, A, 2);
    tale.is_wrong("it was acked, and delivered again");
    tale.ack(1_000_100, &again);
    tale.is_wrong("it was acked under two leases");
    // Where the ack was not answered, both may be true.
    tale.history.said[0].answer = Answer::Unanswered;
    tale.is_good();
}

#[test]
fn an_event_of_an_earlier_era_is_found() {
    let mut tale = HistoryBuilder::with(&["a"]);
    tale.give(100, (0, 77), 1);
    tale.is_wrong("it was settled long ago, and delivered again");
}

#[test]
fn another_event_in_its_place_is_found() {
    let mut tale = HistoryBuilder::with(&["a"]);
    tale.give(100, A, 1);
    tale.history.deliveries[0].id = Uuid::from_u128(99);
    tale.is_wrong("another event was delivered for it");
}

#[test]
fn dead_letters_that_are_not_exact_are_found() {
    let mut tale = HistoryBuilder::with(&["a"]);
    for attempt in 1..=3 {
        let lease = tale.give(u64::from(attempt) * 100_000, A, attempt);
        tale.nack(u64::from(attempt) * 100_000 + 100, &lease);
    }
    tale.is_wrong("it failed for the last time, and is no dead letter");
    tale.bury(A, 3);
    tale.is_good();
    tale.letters[0].attempts = 2;
    tale.is_wrong("its dead letter counts other attempts than the group allows");
    tale.letters[0].attempts = 3;
    tale.letters[0].err = "something else".to_owned();
    tale.is_wrong("its dead letter tells another reason");
    tale.letters[0].err = "why".to_owned();
    tale.bury(A, 3);
    tale.is_wrong("it has two dead letters");
    tale.letters.pop();
    let after = tale.give(900_000, A, 3);
    tale.is_wrong("it failed for the last time, and was delivered again");
    tale.history.deliveries[3].attempt = 4;
    tale.is_wrong("it was delivered more often than the group allows");
    tale.ack(900_100, &after);
    tale.is_wrong("it was acked, and is a dead letter");
}

#[test]
fn what_a_filter_should_drop_is_found() {
    let mut tale = HistoryBuilder::new();
    tale.event(A, "a", 3);
    tale.spec.filtered = true;
    tale.is_good();
    let lease = tale.give(100, A, 1);
    tale.ack(200, &lease);
    tale.is_wrong("the filter drops it, and it was delivered");
}
