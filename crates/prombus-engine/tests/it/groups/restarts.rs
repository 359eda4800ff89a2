//! What outlives the hub, and what a store that fails can and cannot do.

use crate::groups::stage::{LONG, Stage, Use, drain, group_name, numbers};
use prombus_core::{EventLog, TopicName};
use prombus_engine::groups::{
    Delivery, MAX_BATCH, OptionsPatch, Ordering, Pull, Settle, SettleCall, SettleResult,
};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

fn defaults() -> OptionsPatch {
    OptionsPatch::default()
}

pub async fn acks_out_of_order_survive_a_restart(s: Stage) {
    let topic = s.topic("out.of.order", 1).await;
    s.publish_numbers(&topic, None, 0..50).await;
    let group = s.group(&topic, "g", defaults()).await;
    let deliveries = group.take("m", 50).await;
    let even = deliveries.iter().filter(|delivery| delivery.event.offset.0 % 2 == 0);
    let acks = SettleCall::acks(even.map(|delivery| delivery.lease));
    assert!(group.settle(acks).await.unwrap().into_iter().all(SettleResult::is_done));
    assert_eq!(group.status().await.unwrap().partitions[0].lag, 25);
    let s = s.restart().await;
    let group = s.found(&topic, "g").await;
    assert_eq!(group.status().await.unwrap().partitions[0].lag, 25, "it is known without a pull");
    let odd: Vec<u64> = (0..50).filter(|n| n % 2 == 1).collect();
    assert_eq!(drain(&group, "m").await, odd, "just what was not acked");
}

pub async fn a_restart_voids_leases_and_counts_nothing(s: Stage) {
    let topic = s.topic("void", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let lease = s.group(&topic, "g", defaults()).await.take_just("m", 1, 1).await.lease;
    let s = s.restart().await;
    let group = s.found(&topic, "g").await;
    assert!(!group.ack(lease).await, "a lease of the hub before");
    let again = group.take_just("n", 1, 1).await.lease;
    assert!(!group.nack(lease, None).await, "still");
    assert!(group.ack(again).await);
}

pub async fn counted_attempts_survive_a_restart(s: Stage) {
    let topic = s.topic("attempts", 1).await;
    s.publish_numbers(&topic, None, [1, 2]).await;
    let options = OptionsPatch { max_attempts: Some(4), backoff_ms: Some(0), ..defaults() };
    let mut s = s;
    let group = s.group(&topic, "g", options).await;
    let one = group.take_just("m", 1, 1).await;
    group.ack_all(&[group.take_just("m", 2, 1).await]).await;
    let mut lease = one.lease;
    for attempt in 2..=4 {
        let group = s.found(&topic, "g").await;
        assert!(group.nack(lease, None).await, "attempt {}", attempt - 1);
        s = s.restart().await;
        lease = s.found(&topic, "g").await.take_just("m", 1, attempt).await.lease;
    }
    assert!(s.found(&topic, "g").await.nack(lease, None).await);
    assert_eq!(s.letters(&topic).await.len(), 1, "the attempts of all lives together");
}

pub async fn a_pause_survives_a_restart(s: Stage) {
    let topic = s.topic("pauses", 1).await;
    s.publish_numbers(&topic, Some("k"), [1, 2]).await;
    let group = s.group(&topic, "g", defaults()).await;
    let lease = group.take_just("m", 1, 1).await.lease;
    assert!(group.nack(lease, Some(HOUR)).await);
    let s = s.restart().await;
    let group = s.found(&topic, "g").await;
    assert!(group.take_now("m", 5).await.is_empty(), "it waits, and its key with it");
    s.clock.advance(HOUR.as_millis() as u64);
    let s = s.restart().await;
    s.found(&topic, "g").await.take_just("m", 1, 2).await;
}

pub async fn a_pause_is_no_longer_when_the_clock_was_set_back(s: Stage) {
    let topic = s.topic("set.back", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let group = s.group(&topic, "g", defaults()).await;
    let lease = group.take_just("m", 1, 1).await.lease;
    assert!(group.nack(lease, Some(Duration::from_millis(50))).await);
    s.clock.set(1_000_000_000_000);
    let s = s.restart().await;
    s.found(&topic, "g").await.take_just("m", 1, 2).await;
}

pub async fn what_an_ack_writes_goes_by_what_changed(s: Stage) {
    const NACKED: usize = 60_000;
    let topic = s.topic("many.nacks", 1).await;
    for first in (0..NACKED as u64 + 3).step_by(5_000) {
        s.publish_numbers(&topic, None, first..(first + 5_000).min(NACKED as u64 + 3)).await;
    }
    let options = OptionsPatch { ordering: Some(Ordering::None), ..defaults() };
    let group = s.group(&topic, "g", options).await;
    let pull = Pull { max: MAX_BATCH, max_in_flight: 2 * NACKED, wait: LONG, ..Pull::default() };
    let mut nacked = 0;
    while nacked < NACKED {
        let some = group.pull(&Pull { max: (NACKED - nacked).min(MAX_BATCH), ..pull.clone() }).await.unwrap();
        nacked += some.len();
        let nack =
            |delivery: &Delivery| Settle::Nack { lease: delivery.lease, reason: None, delay: Some(HOUR) };
        let settles = some.iter().map(|delivery| Some(nack(delivery))).collect();
        assert!(group.settle(SettleCall { settles }).await.unwrap().into_iter().all(SettleResult::is_done));
    }
    for _ in 0..3 {
        let one = group.pull(&Pull { max: 1, ..pull.clone() }).await.unwrap();
        let before = s.log.cursor_bytes.load(SeqCst);
        group.ack_all(&one).await;
        let written = s.log.cursor_bytes.load(SeqCst) - before;
        assert!(written < 10_000, "{written} bytes for one ack");
    }
    s.clock.advance(HOUR.as_millis() as u64);
    let s = s.restart().await;
    let group = s.found(&topic, "g").await;
    assert_eq!(group.status().await.unwrap().partitions[0].lag, NACKED as u64);
    assert!(group.take("m", 1_000).await.iter().all(|delivery| delivery.attempt == 2));
    s.hub.groups().delete(&topic, &group_name("g")).await.unwrap();
    assert!(s.log.readers(&topic, "").await.unwrap().is_empty(), "nothing is left of a group that is gone");
}

pub async fn the_position_survives_a_restart(s: Stage) {
    let topic = s.topic("position", 2).await;
    let mut s = s;
    s.group(&topic, "g", defaults()).await;
    for round in 0..4 {
        s.publish_numbers(&topic, None, [2 * round, 2 * round + 1]).await;
        let mut got = drain(&s.found(&topic, "g").await, "m").await;
        got.sort_unstable();
        assert_eq!(got, [2 * round, 2 * round + 1], "round {round}");
        s = s.restart().await;
    }
}

async fn nothing_is_lost(s: &Stage, topic: &TopicName) {
    let group = s.found(topic, "g").await;
    let deliveries = group.take("m", 5).await;
    assert_eq!(numbers(&deliveries), [2, 3], "what was acked holds, and the rest comes again");
    assert!(deliveries.iter().all(|delivery| delivery.attempt == 1), "nothing was counted");
    group.ack_all(&deliveries).await;
}

pub async fn a_store_that_refuses_makes_acks_fail_and_nothing_is_lost(s: Stage) {
    let topic = s.topic("refusing", 1).await;
    s.publish_numbers(&topic, None, 1..=3).await;
    let group = s.group(&topic, "g", defaults()).await;
    let deliveries = group.take("m", 3).await;
    group.ack_all(&deliveries[..1]).await;
    s.log.refuse_all(true);
    assert!(group.settle(SettleCall::acks([deliveries[1].lease])).await.is_err(), "it is not durable");
    assert!(
        group.settle(SettleCall::nack(deliveries[2].lease, None, None)).await.is_err(),
        "nor is anything else"
    );
    s.log.refuse_all(false);
    nothing_is_lost(&s, &topic).await;
}

pub async fn a_closed_store_makes_acks_fail_and_nothing_is_lost(s: Stage) {
    let topic = s.topic("closed", 1).await;
    s.publish_numbers(&topic, None, 1..=3).await;
    let group = s.group(&topic, "g", defaults()).await;
    let deliveries = group.take("m", 3).await;
    group.ack_all(&deliveries[..1]).await;
    prombus_core::EventLog::close(&*s.log).await;
    let acks = SettleCall::acks(deliveries[1..].iter().map(|delivery| delivery.lease));
    assert!(group.settle(acks).await.is_err(), "a closed store takes no acks");
    if s.is_durable() {
        let s = s.restart().await;
        nothing_is_lost(&s, &topic).await;
    }
}

pub async fn a_clock_that_steps_changes_nothing(s: Stage) {
    let topic = s.topic("steps", 1).await;
    s.publish_numbers(&topic, None, [1, 2]).await;
    let group = s.group(&topic, "g", defaults()).await;
    let deliveries = group.take("m", 2).await;
    s.clock.advance(48 * 3_600_000);
    assert!(group.nack(deliveries[0].lease, Some(Duration::from_millis(30))).await, "leases don't go by it");
    s.clock.set(1_000_000_000_000);
    assert!(group.ack(deliveries[1].lease).await, "nor when it steps back");
    group.ack_all(&[group.take_just("m", 1, 2).await]).await;
}
