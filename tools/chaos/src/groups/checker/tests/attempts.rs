//! Histories whose attempts are wrong.

use super::*;

#[test]
fn two_leases_at_once_are_found() {
    let mut tale = HistoryBuilder::with(&["a"]);
    tale.give(100, A, 1);
    let second = tale.give(300_000, A, 2);
    tale.ack(300_100, &second);
    tale.is_wrong("it was delivered while another lease on it held");
    tale.history.deliveries[1].pull = tale.span(500_000);
    tale.history.said[0].call = tale.span(500_100);
    tale.is_good();
    // An extension holds too.
    tale.say(300, "lease0", Verb::Extend(2 * LEASE), Answer::Ok);
    tale.is_wrong("it was delivered while another lease on it held");
}

#[test]
fn attempts_that_are_not_counted_are_found() {
    let mut tale = HistoryBuilder::with(&["a"]);
    tale.deaths = vec![1_000_000];
    let first = tale.give(100, A, 1);
    tale.nack(200, &first);
    let second = tale.give(2_000_000, A, 1);
    tale.ack(2_000_100, &second);
    tale.is_wrong("an attempt that failed was not counted");
    tale.history.deliveries[1].attempt = 2;
    tale.is_good();
    tale.history.deliveries[1].attempt = 3;
    tale.is_wrong("an attempt was counted that nobody made");
}

#[test]
fn an_expiry_at_a_kill_may_count_or_not() {
    for (given, counted, good) in
        [(100, 0, true), (100, 1, true), (900_000, 0, true), (900_000, 1, false), (100, 2, false)]
    {
        let mut tale = HistoryBuilder::with(&["a"]);
        tale.deaths = vec![1_000_000];
        tale.give(given, A, 1);
        let second = tale.give(2_000_000, A, 1 + counted);
        tale.ack(2_000_100, &second);
        assert_eq!(tale.found().is_empty(), good, "{given} {counted}: {:?}", tale.found());
    }
}

#[test]
fn an_expiry_in_a_shared_group_counts() {
    let mut tale = HistoryBuilder::with(&["a"]);
    tale.give(100, A, 1);
    let second = tale.give(500_000, A, 1);
    tale.ack(500_100, &second);
    tale.is_wrong("an attempt that failed was not counted");
    tale.spec.partitioned = true;
    tale.is_good();
}

#[test]
fn a_move_counts_nothing() {
    let mut tale = HistoryBuilder::with(&["a"]);
    tale.spec.partitioned = true;
    tale.give(100, A, 1);
    let second = tale.give(300, A, 2);
    tale.ack(400, &second);
    tale.is_wrong("an attempt was counted that nobody made");
    tale.history.deliveries[1].attempt = 1;
    tale.is_good();
}

#[test]
fn the_old_owner_may_hear_of_its_lease_after_the_new_one() {
    for nack in [Answer::Ok, Answer::Unanswered] {
        let mut tale = HistoryBuilder::with(&["a"]);
        tale.spec.partitioned = true;
        tale.give(100, A, 1);
        let second = tale.give(105, A, 1);
        tale.history.deliveries[0].pull.end = 120;
        tale.say(116, &second, Verb::Nack, nack);
        let third = tale.give(300, A, 2);
        tale.ack(400, &third);
        tale.is_good();
    }
    // A pull that began after the failure is certainly another attempt.
    let mut tale = HistoryBuilder::with(&["a"]);
    tale.spec.partitioned = true;
    let first = tale.give(100, A, 1);
    tale.nack(200, &first);
    let second = tale.give(300, A, 1);
    tale.ack(400, &second);
    tale.is_wrong("an attempt that failed was not counted");
}

#[test]
fn a_first_attempt_that_is_not_the_first_is_found_unless_a_pull_was_lost() {
    let mut tale = HistoryBuilder::with(&["a"]);
    let lease = tale.give(1_000_000, A, 2);
    tale.ack(1_000_100, &lease);
    tale.is_wrong("an attempt was counted that nobody made");
    tale.lose_pull(2_000_000);
    tale.is_wrong("an attempt was counted that nobody made");
    tale.lose_pull(100);
    tale.is_good();
}

#[test]
fn attempts_that_go_backwards_are_found() {
    let mut tale = HistoryBuilder::with(&["a"]);
    tale.spec.partitioned = true;
    tale.lose_pull(50);
    tale.give(100, A, 2);
    let second = tale.give(500_000, A, 1);
    tale.ack(500_100, &second);
    tale.is_wrong("attempts went backwards");
}

#[test]
fn a_death_before_its_time_is_found() {
    let mut tale = HistoryBuilder::with(&["a", "b"]);
    let lease = tale.give(100, A, 1);
    tale.nack(200, &lease);
    tale.bury(A, 3);
    let lease = tale.give(100, B, 1);
    tale.ack(200, &lease);
    tale.is_wrong("it is a dead letter before its time");
    tale.give(1_000, A, 2);
    tale.is_wrong("it is a dead letter before its time");
    tale.give(600_000, A, 3);
    tale.is_good();
    tale.letters[0].caused_by.clear();
    tale.is_wrong("its dead letter is about something else");
}
