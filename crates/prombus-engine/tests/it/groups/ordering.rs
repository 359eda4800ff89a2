//! What waits for what, and how far a group may run ahead.

use crate::groups::stage::{Stage, Use, drain, numbers};
use prombus_core::Partition;
use prombus_engine::groups::{GroupError, GroupStatus, OptionsPatch, Ordering};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

fn ordering(ordering: Ordering) -> OptionsPatch {
    OptionsPatch { ordering: Some(ordering), ..OptionsPatch::default() }
}

fn waiting(status: &GroupStatus) -> Option<(&'static str, u64)> {
    status.partitions[0].waiting.map(|(why, count)| (why.as_str(), count))
}

pub async fn later_events_of_a_key_wait(s: Stage) {
    let topic = s.topic("keys", 1).await;
    s.publish_numbers(&topic, Some("a"), [1, 2, 3]).await;
    s.publish_numbers(&topic, Some("b"), [11, 12]).await;
    let group = s.group(&topic, "g", ordering(Ordering::Key)).await;
    let first = group.take("m", 10).await;
    assert_eq!(numbers(&first), [1, 11], "the first of each key");
    assert!(group.take_now("n", 10).await.is_empty(), "the others wait");
    assert_eq!(waiting(&group.status().await.unwrap()), Some(("ordering", 3)), "and the status says so");
    group.ack_all(&first[..1]).await;
    let second = group.take_just("n", 2, 1).await;
    assert!(group.nack(second.lease, None).await);
    group.take_just("m", 2, 2).await;
    assert!(group.take_now("n", 10).await.is_empty(), "the next of b still waits");
    group.ack_all(&first[1..]).await;
    group.take_just("n", 12, 1).await;
}

pub async fn a_key_waits_for_a_retry(s: Stage) {
    let topic = s.topic("retries", 1).await;
    s.publish_numbers(&topic, Some("a"), [1, 2]).await;
    let group = s.group(&topic, "g", ordering(Ordering::Key)).await;
    let lease = group.take_just("m", 1, 1).await.lease;
    assert!(group.nack(lease, Some(HOUR)).await);
    s.publish_numbers(&topic, Some("b"), [3]).await;
    group.take_just("m", 3, 1).await;
    assert!(group.take_now("m", 10).await.is_empty(), "the key waits for the retry");
    let s = s.restart().await;
    let group = s.found(&topic, "g").await;
    assert_eq!(numbers(&group.take("m", 10).await), [3], "also after a restart");
}

pub async fn events_without_a_key_wait_for_nothing(s: Stage) {
    let topic = s.topic("keyless", 1).await;
    s.publish_numbers(&topic, None, 0..5).await;
    let group = s.group(&topic, "g", ordering(Ordering::Key)).await;
    assert_eq!(numbers(&group.take("m", 10).await), [0, 1, 2, 3, 4]);
}

pub async fn without_order_nothing_waits(s: Stage) {
    let topic = s.topic("unordered", 1).await;
    s.publish_numbers(&topic, Some("a"), 0..5).await;
    let group = s.group(&topic, "g", ordering(Ordering::None)).await;
    let all = group.take("m", 10).await;
    assert_eq!(numbers(&all), [0, 1, 2, 3, 4]);
    assert!(group.nack(all[0].lease, Some(HOUR)).await);
    s.publish_numbers(&topic, Some("a"), [5]).await;
    group.take_just("m", 5, 1).await;
}

pub async fn a_partition_in_order_is_one_after_another(s: Stage) {
    let topic = s.topic("one.by.one", 2).await;
    for n in 0..6 {
        s.publish_to(&topic, n % 2, n.into()).await;
    }
    let group = s.group(&topic, "g", ordering(Ordering::Partition)).await;
    for round in 0..3 {
        let mut pair = group.take("m", 10).await;
        while pair.len() < 2 {
            pair.extend(group.take("m", 10).await);
        }
        pair.sort_by_key(|delivery| delivery.event.partition);
        assert_eq!(numbers(&pair), [2 * round, 2 * round + 1], "one of each partition");
        assert!(group.take_now("n", 10).await.is_empty(), "the rest waits");
        assert!(group.nack(pair[0].lease, None).await);
        group.ack_all(&[group.take_just("n", 2 * round, 2).await]).await;
        group.ack_all(&pair[1..]).await;
    }
}

pub async fn a_group_stays_within_its_window(s: Stage) {
    let topic = s.topic("window", 1).await;
    s.publish_numbers(&topic, None, 0..10).await;
    let options = OptionsPatch { ack_window: Some(3), ..OptionsPatch::default() };
    let group = s.group(&topic, "g", options).await;
    let first = group.take("m", 10).await;
    assert_eq!(numbers(&first), [0, 1, 2], "no more than the window");
    group.ack_all(&first[1..]).await;
    assert!(group.take_now("n", 10).await.is_empty(), "the oldest is still unsettled");
    assert_eq!(waiting(&group.status().await.unwrap()).map(|(why, _)| why), Some("ack_window"));
    let s = s.restart().await;
    let group = s.found(&topic, "g").await;
    let oldest = group.take("m", 10).await;
    assert_eq!(numbers(&oldest), [0], "also after a restart");
    group.ack_all(&oldest).await;
    assert_eq!(numbers(&group.take("n", 10).await), [3, 4, 5], "the window has moved");
}

pub async fn a_hot_key_holds_up_no_other(s: Stage) {
    let topic = s.topic("hot", 1).await;
    s.publish_numbers(&topic, Some("hot"), 0..2_000).await;
    s.publish_numbers(&topic, Some("cold"), [5_000, 5_001]).await;
    let group = s.group(&topic, "g", ordering(Ordering::Key)).await;
    let stuck = group.take_just("m", 0, 1).await;
    assert_eq!(drain(&group, "n").await, [5_000, 5_001], "other keys flow");
    assert_eq!(waiting(&group.status().await.unwrap()), Some(("ordering", 1_999)));
    group.ack_all(&[stuck]).await;
    assert_eq!(drain(&group, "n").await, (1..2_000).collect::<Vec<_>>(), "then the key goes on, in order");
}

pub async fn a_stuck_event_can_be_skipped(s: Stage) {
    let topic = s.topic("stuck", 1).await;
    s.publish_numbers(&topic, Some("a"), [0, 1]).await;
    let group = s.group(&topic, "g", ordering(Ordering::Key)).await;
    let lease = group.take_just("m", 0, 1).await.lease;
    assert!(group.nack(lease, Some(HOUR)).await);
    assert!(group.skip(Partition(0), 0).await.unwrap(), "it waits for its retry, and is settled");
    group.take_just("m", 1, 1).await;
    assert!(!group.skip(Partition(0), 0).await.unwrap(), "it was settled already");
    let beyond = group.skip(Partition(0), 2).await;
    assert!(matches!(beyond, Err(GroupError::BadOption(_))), "there is nothing to skip");
    assert!(group.skip(Partition(1), 0).await.is_err(), "there is no such partition");
    let s = s.restart().await;
    s.found(&topic, "g").await.take_just("m", 1, 1).await;
    assert!(s.letters(&topic).await.is_empty(), "a skipped event is no dead letter");
}

pub async fn an_event_in_flight_can_be_skipped(s: Stage) {
    let topic = s.topic("skipped", 1).await;
    s.publish_numbers(&topic, Some("a"), [0, 1, 2]).await;
    let group = s.group(&topic, "g", ordering(Ordering::Key)).await;
    let held = group.take_just("m", 0, 1).await;
    assert!(group.skip(Partition(0), 1).await.unwrap(), "one that was not delivered yet");
    assert!(group.skip(Partition(0), 0).await.unwrap(), "one that somebody has");
    group.take_just("n", 2, 1).await;
    assert!(!group.ack(held.lease).await, "whoever had it is told");
}
