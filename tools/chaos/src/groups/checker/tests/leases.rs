//! Histories in which something was wrongly accepted or refused.

use super::*;

#[test]
fn a_late_word_that_is_taken_is_found() {
    let mut tale = HistoryBuilder::with(&["a"]);
    let first = tale.give(100, A, 1);
    let second = tale.give(500_000, A, 2);
    tale.ack(500_100, &second);
    tale.say(600_000, &first, Verb::Nack, Answer::Refused);
    tale.is_good();
    tale.history.said[1].answer = Answer::Ok;
    tale.is_wrong("a late word settled what had been passed on");
    let mut tale = HistoryBuilder::with(&["a"]);
    let lease = tale.give(100, A, 1);
    tale.ack(500_000, &lease);
    tale.is_wrong("a lease was settled after it had ended");
}

#[test]
fn a_lease_that_outlives_the_hub_is_found() {
    let mut tale = HistoryBuilder::with(&["a"]);
    tale.deaths = vec![1_000];
    let lease = tale.give(100, A, 1);
    tale.ack(2_000, &lease);
    tale.is_wrong("a lease outlived the hub");
    tale.say(900, &lease, Verb::Ack, Answer::Unanswered);
    tale.is_good();
}

#[test]
fn a_token_that_is_good_for_two_things_is_found() {
    let mut tale = HistoryBuilder::with(&["a"]);
    let lease = tale.give(100, A, 1);
    tale.ack(200, &lease);
    tale.nack(300, &lease);
    tale.is_wrong("a lease was acked and nacked");
    tale.history.said[1].verb = Verb::Extend(LEASE);
    tale.is_wrong("a lease was extended after it was settled");
    tale.history.said.pop();
    tale.history.deliveries.push(tale.history.deliveries[0].clone());
    tale.is_wrong("two deliveries have the same token");
}

#[test]
fn a_good_word_that_is_refused_is_found() {
    let mut tale = HistoryBuilder::with(&["a"]);
    let lease = tale.give(100, A, 1);
    tale.say(200, &lease, Verb::Ack, Answer::Refused);
    tale.is_wrong("a lease that held was refused");
    tale.ack(300, &lease);
    tale.say(400, &lease, Verb::Ack, Answer::Refused);
    tale.is_wrong("a repeated word was refused");
}

#[test]
fn a_retry_before_its_time_is_found() {
    let mut tale = HistoryBuilder::with(&["a"]);
    let first = tale.give(100, A, 1);
    tale.nack(200, &first);
    let second = tale.give(10_000, A, 2);
    tale.nack(10_100, &second);
    let third = tale.give(30_000, A, 3);
    tale.ack(30_100, &third);
    tale.is_wrong("it was tried again before its time");
    tale.history.said[1].delay_us = Some(5_000);
    tale.is_good();
    tale.history.said[0].delay_us = Some(20_000);
    tale.is_wrong("it was tried again before its time");
}
