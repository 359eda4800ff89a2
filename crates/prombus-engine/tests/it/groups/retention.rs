//! Events that are given up before a group gets to them.

use crate::groups::stage::{Stage, Use, drain, numbers};
use prombus_engine::groups::{OptionsPatch, Settle};
use std::time::Duration;

fn defaults() -> OptionsPatch {
    OptionsPatch::default()
}

pub async fn a_group_is_moved_up_and_says_what_it_lost(s: Stage) {
    let topic = s.topic("trimmed", 1).await;
    s.publish_numbers(&topic, None, 0..10).await;
    let group = s.group(&topic, "g", defaults()).await;
    group.ack_all(&group.take("m", 2).await).await;
    s.trim(&topic, 7).await;
    let s = s.restart().await;
    let group = s.found(&topic, "g").await;
    assert_eq!(drain(&group, "m").await, [7, 8, 9], "it goes on at what is kept");
    assert_eq!(group.counters().lost.get(), 5, "and says how many it missed");
    assert_eq!(group.status().await.unwrap().partitions[0].lag, 0);
    let s = s.restart().await;
    assert!(drain(&s.found(&topic, "g").await, "m").await.is_empty());
    assert_eq!(s.found(&topic, "g").await.counters().lost.get(), 0, "they are lost only once");
}

pub async fn an_event_that_is_gone_before_its_retry_is_lost(s: Stage) {
    let topic = s.topic("gone.retry", 1).await;
    s.publish_numbers(&topic, Some("k"), 0..3).await;
    let group = s.group(&topic, "g", defaults()).await;
    let lease = group.take_just("m", 0, 1).await.lease;
    s.trim(&topic, 1).await;
    assert!(group.nack(lease, Some(Duration::ZERO)).await, "the hub cannot know yet");
    assert_eq!(drain(&group, "m").await, [1, 2], "its key does not wait for ever");
    assert_eq!(group.counters().lost.get(), 1);
    assert_eq!(group.status().await.unwrap().partitions[0].lag, 0);
}

pub async fn an_event_that_is_gone_before_its_death_has_no_letter(s: Stage) {
    let topic = s.topic("gone.death", 1).await;
    s.publish_numbers(&topic, Some("k"), 0..2).await;
    let group = s.group(&topic, "g", OptionsPatch { max_attempts: Some(1), ..defaults() }).await;
    let lease = group.take_just("m", 0, 1).await.lease;
    s.trim(&topic, 1).await;
    assert!(group.say(Settle::Nack { lease, reason: None, delay: None }).await);
    assert_eq!(drain(&group, "m").await, [1]);
    assert!(s.letters(&topic).await.is_empty(), "there is nothing left to put into a letter");
    assert_eq!((group.counters().lost.get(), group.counters().dead_lettered.get()), (1, 0));
}

pub async fn a_group_behind_a_trim_starts_at_what_is_kept(s: Stage) {
    let topic = s.topic("kept", 1).await;
    s.publish_numbers(&topic, None, 0..6).await;
    let ackable = s.group(&topic, "held", defaults()).await;
    let held = ackable.take("m", 3).await;
    s.trim(&topic, 4).await;
    ackable.ack_all(&held).await;
    // What was read before it was given up may still be delivered.
    let rest = drain(&ackable, "m").await;
    assert!(rest == [4, 5] || rest == [3, 4, 5], "what was in flight could still be acked: {rest:?}");
    assert_eq!(ackable.counters().lost.get() + rest.len() as u64, 3, "and only what nobody had is lost");
    let fresh = s.group(&topic, "fresh", defaults()).await;
    assert_eq!(numbers(&fresh.take("m", 10).await), [4, 5]);
    assert_eq!(fresh.counters().lost.get(), 0, "what was gone before the group was is not its loss");
}
