//! Leases: acks, nacks, more time, expiry, and tokens that are good once.

use crate::groups::stage::{LONG, Stage, Use, drain, numbers};
use prombus_core::Epoch;
use prombus_engine::groups::{
    GivenBack, LeaseToken, OptionsPatch, Ordering, Session, Settle, SettleCall, SettleResult,
};
use std::time::Duration;
use tokio::time::Instant;

fn defaults() -> OptionsPatch {
    OptionsPatch::default()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Leases that end soon, often enough not to matter.
fn short_leases() -> OptionsPatch {
    OptionsPatch { ack_timeout_ms: Some(40), max_attempts: Some(1_000_000), ..defaults() }
}

pub async fn an_acked_event_is_never_delivered_again(s: Stage) {
    let topic = s.topic("acked", 2).await;
    s.publish_numbers(&topic, None, 0..20).await;
    let group = s.group(&topic, "g", OptionsPatch { ack_timeout_ms: Some(2_000), ..defaults() }).await;
    assert_eq!(drain(&group, "m").await.len(), 20);
    let s = s.restart().await;
    let group = s.found(&topic, "g").await;
    assert!(drain(&group, "m").await.is_empty());
    let status = group.status().await.unwrap();
    assert!(status.partitions.iter().all(|partition| partition.lag == 0 && partition.next == partition.tail));
}

pub async fn a_nack_gives_an_event_back_at_once_the_first_time(s: Stage) {
    let topic = s.topic("nacked", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let slow = OptionsPatch { backoff_ms: Some(3_600_000), ..defaults() };
    let group = s.group(&topic, "g", slow).await;
    let lease = group.take_just("m", 1, 1).await.lease;
    assert!(group.nack(lease, None).await);
    let lease = group.take_just("n", 1, 2).await.lease;
    assert!(group.nack(lease, None).await);
    assert!(group.take_now("n", 1).await.is_empty(), "the second time it waits");
    let status = group.status().await.unwrap();
    assert_eq!(status.partitions[0].waiting.map(|(why, count)| (why.as_str(), count)), Some(("retry", 1)));
}

pub async fn later_nacks_wait_longer_each_time(s: Stage) {
    let topic = s.topic("backoff", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let group = s.group(&topic, "g", OptionsPatch { backoff_ms: Some(60), ..defaults() }).await;
    for (attempt, pause) in [(1, 0), (2, 60), (3, 120), (4, 240)] {
        let delivery = group.take_just("m", 1, attempt).await;
        let start = Instant::now();
        assert!(group.nack(delivery.lease, None).await);
        let again = group.take_just("m", 1, attempt + 1).await;
        assert!(start.elapsed() >= ms(pause), "after failure {attempt} it comes after {pause} ms at least");
        group.give_back(&[again.lease], GivenBack::Unused);
    }
}

pub async fn a_delay_is_kept(s: Stage) {
    let topic = s.topic("delays", 1).await;
    s.publish_numbers(&topic, None, [1, 2]).await;
    let group = s.group(&topic, "g", defaults()).await;
    let lease = group.take_just("m", 1, 1).await.lease;
    let start = Instant::now();
    assert!(group.nack(lease, Some(ms(150))).await);
    group.take_just("m", 2, 1).await;
    let lease = group.take_just("m", 1, 2).await.lease;
    assert!(start.elapsed() >= ms(150), "it comes after the delay");
    assert!(group.nack(lease, Some(Duration::ZERO)).await);
    group.take_just("m", 1, 3).await;
}

pub async fn an_expired_lease_gives_the_event_to_anyone(s: Stage) {
    let topic = s.topic("expiry", 1).await;
    s.publish_numbers(&topic, Some("k"), [1, 2]).await;
    let group = s.group(&topic, "g", short_leases()).await;
    let start = Instant::now();
    let first = group.take_just("m", 1, 1).await;
    // The pull waits until the lease ends, and nothing else wakes it.
    let second = group.take_just("n", 1, 2).await;
    assert!(second.lease != first.lease && start.elapsed() >= ms(40), "not before the lease is over");
    let counters = group.counters();
    assert_eq!((counters.nacked.get(), counters.redelivered.get()), (0, 1), "nobody has nacked it");
}

pub async fn an_extended_lease_holds_longer(s: Stage) {
    let topic = s.topic("extended", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let group = s.group(&topic, "g", OptionsPatch { ack_timeout_ms: Some(2_000), ..defaults() }).await;
    let lease = group.take_just("m", 1, 1).await.lease;
    assert!(group.say(Settle::Extend { lease, by: Some(LONG * 4) }).await);
    let wait = ms(2_200);
    let pull = prombus_engine::groups::Pull { wait, ..Default::default() };
    assert!(group.pull(&pull).await.unwrap().is_empty(), "the lease holds beyond its first end");
    assert!(group.say(Settle::Extend { lease, by: None }).await, "it can be extended again");
    assert!(group.ack(lease).await);
}

pub async fn a_lease_can_be_made_shorter(s: Stage) {
    let topic = s.topic("shortened", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let group = s.group(&topic, "g", defaults()).await;
    let lease = group.take_just("m", 1, 1).await.lease;
    assert!(group.say(Settle::Extend { lease, by: Some(ms(20)) }).await);
    group.take_just("n", 1, 2).await;
}

pub async fn a_late_ack_never_settles_the_next_attempt(s: Stage) {
    let topic = s.topic("late", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let group = s.group(&topic, "g", short_leases()).await;
    let late = group.take_just("m", 1, 1).await.lease;
    let lease = group.take_just("n", 1, 2).await.lease;
    assert!(group.say(Settle::Extend { lease, by: Some(LONG * 4) }).await, "the second holder works on");
    assert!(!group.ack(late).await, "a late ack");
    assert!(!group.nack(late, None).await, "a late nack");
    assert!(!group.say(Settle::Extend { lease: late, by: None }).await, "late");
    assert_eq!(group.status().await.unwrap().partitions[0].lag, 1, "the event is not settled");
    assert!(group.ack(lease).await, "the second holder settles it");
    assert!(!group.ack(late).await, "and then still no late ack is taken");
}

pub async fn a_verb_can_be_repeated_and_counts_once(s: Stage) {
    let topic = s.topic("repeated", 1).await;
    s.publish_numbers(&topic, None, [1, 2]).await;
    let group = s.group(&topic, "g", OptionsPatch { backoff_ms: Some(0), ..defaults() }).await;
    let lease = group.take_just("m", 1, 1).await.lease;
    assert!(group.ack(lease).await && group.ack(lease).await, "an ack can be repeated");
    assert!(!group.nack(lease, None).await, "and is not taken back");
    assert!(!group.say(Settle::Extend { lease, by: None }).await, "there is nothing left to extend");
    let lease = group.take_just("m", 2, 1).await.lease;
    assert!(group.nack(lease, None).await && group.nack(lease, None).await, "a nack can be repeated");
    assert!(!group.ack(lease).await, "and is not taken back");
    let again = group.take_just("m", 2, 2).await;
    assert!(group.nack(lease, None).await, "the first nack still");
    assert!(group.nack(again.lease, None).await, "the second delivery is not touched by that");
    group.take_just("m", 2, 3).await;
}

pub async fn answers_are_in_the_order_of_what_was_said(s: Stage) {
    let topic = s.topic("answers", 1).await;
    s.publish_numbers(&topic, None, 0..4).await;
    let group = s.group(&topic, "g", defaults()).await;
    let leases: Vec<LeaseToken> = group.take("m", 4).await.iter().map(|d| d.lease).collect();
    let earlier = Session { epoch: Epoch(leases[0].session.epoch.0 - 1), ..leases[0].session };
    let stranger = LeaseToken { session: earlier, ..leases[0] };
    let settles = vec![
        Some(Settle::Ack(leases[3])),
        Some(Settle::Ack(stranger)),
        None,
        Some(Settle::Nack { lease: leases[0], reason: None, delay: None }),
        Some(Settle::Ack(leases[0])),
        Some(Settle::Extend { lease: leases[1], by: None }),
        Some(Settle::Ack(LeaseToken { number: 999, ..leases[0] })),
    ];
    let results = group.settle(SettleCall { settles }).await.unwrap();
    let results: Vec<bool> = results.into_iter().map(SettleResult::is_done).collect();
    assert_eq!(results, [true, false, false, true, false, true, false]);
    assert!(group.settle(SettleCall::default()).await.unwrap().is_empty());
}

pub async fn a_lost_connection_counts_for_the_oldest_only(s: Stage) {
    let topic = s.topic("lost.connection", 1).await;
    s.publish_numbers(&topic, None, 0..4).await;
    let group = s.group(&topic, "g", defaults()).await;
    let held = group.take("m", 4).await;
    assert!(group.ack(held[0].lease).await);
    // It lost what it had already acked, too; the oldest that it still held is the second.
    let leases: Vec<LeaseToken> = held.iter().rev().map(|delivery| delivery.lease).collect();
    group.give_back(&leases, GivenBack::ConnectionLost);
    let mut again = Vec::new();
    while again.len() < 3 {
        again.extend(group.take("n", 3).await);
    }
    let mut attempts: Vec<(u64, u32)> =
        numbers(&again).into_iter().zip(again.iter().map(|d| d.attempt)).collect();
    attempts.sort_unstable();
    assert_eq!(attempts, [(1, 2), (2, 1), (3, 1)], "they are free at once, and only the oldest counts");
    assert!(!group.ack(held[1].lease).await, "what was given back is no longer held");
}

pub async fn what_is_given_back_counts_for_nothing(s: Stage) {
    let topic = s.topic("given.back", 1).await;
    s.publish_numbers(&topic, Some("k"), [1, 2]).await;
    let options = OptionsPatch { ordering: Some(Ordering::Key), max_attempts: Some(1), ..defaults() };
    let group = s.group(&topic, "g", options).await;
    for _ in 0..5 {
        let lease = group.take_just("m", 1, 1).await.lease;
        group.give_back(&[lease, lease], GivenBack::Unused);
    }
    assert_eq!(drain(&group, "n").await, [1, 2], "in order, and without a failure");
    assert!(s.letters(&topic).await.is_empty());
}
