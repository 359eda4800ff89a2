//! Histories that are out of order.

use super::*;

#[test]
fn a_later_event_of_a_key_that_does_not_wait_is_found() {
    let mut tale = HistoryBuilder::with(&["a", "a"]);
    let (first, second) = (tale.give(100, A, 1), tale.give(100, B, 1));
    tale.ack(200, &first);
    tale.ack(200, &second);
    tale.is_wrong("it was delivered before an earlier one was settled");
    tale.spec.ordering = Ordering::None;
    tale.is_good();
    tale.spec.ordering = Ordering::Partition;
    tale.is_wrong("it was delivered before an earlier one was settled");
    tale.event(B, "b", 2);
    tale.is_wrong("it was delivered before an earlier one was settled");
    tale.spec.ordering = Ordering::Key;
    tale.is_good();
}

#[test]
fn an_earlier_event_after_a_later_one_is_found() {
    let mut tale = HistoryBuilder::with(&["a", "a"]);
    tale.deaths = vec![1_000];
    let first = tale.give(100, A, 1);
    tale.say(200, &first, Verb::Ack, Answer::Unanswered);
    let second = tale.give(300, B, 1);
    tale.ack(400, &second);
    tale.is_good();
    // The hub forgot an ack that it had acted upon.
    let again = tale.give(2_000, A, 1);
    tale.ack(2_100, &again);
    tale.is_wrong("an earlier one was delivered after it");
}

#[test]
fn a_new_partition_that_does_not_wait_is_found() {
    for ordering in [Ordering::None, Ordering::Key, Ordering::Partition] {
        let mut tale = HistoryBuilder::with(&["a"]);
        tale.spec.ordering = ordering;
        tale.event((1, 0), "a", 2);
        let (first, second) = (tale.give(100, A, 1), tale.give(100, (1, 0), 1));
        tale.ack(200, &first);
        tale.ack(200, &second);
        tale.is_wrong("it was delivered before an earlier one was settled");
    }
}
