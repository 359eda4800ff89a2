//! Events that retention takes before a group gets to them.

use crate::groups::stage::{Stage, Use, begins_to_wait, drain, numbers};
use prombus_engine::commits::CommitRequest;
use prombus_engine::groups::{Group, GroupStatus, OptionsPatch, Pull, Replay, Settle};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

fn defaults() -> OptionsPatch {
    OptionsPatch::default()
}

async fn lost(group: &Arc<Group>) -> u64 {
    group.status().await.unwrap().partitions.iter().map(|partition| partition.lost).sum()
}

fn is_done(status: &GroupStatus) -> bool {
    status.partitions.iter().all(|partition| partition.lag == 0)
}

pub async fn a_group_is_moved_up_and_says_what_it_lost(s: Stage) {
    let topic = s.topic("trimmed", 1).await;
    s.publish_numbers(&topic, None, 0..10).await;
    let group = s.group(&topic, "g", defaults()).await;
    let taken = group.take("m", 5).await;
    group.ack_all(&taken[..2]).await;
    group.ack_all(&taken[4..]).await;
    let s = s.restart().await;
    s.trim(&topic, 7).await;
    let group = s.found(&topic, "g").await;
    assert_eq!(drain(&group, "m").await, [7, 8, 9], "it goes on at what is kept");
    assert_eq!(lost(&group).await, 4, "and says how many it missed, without what it had acked ahead");
    let s = s.restart().await;
    let group = s.found(&topic, "g").await;
    assert!(drain(&group, "m").await.is_empty());
    assert_eq!(lost(&group).await, 4, "that lasts, and they are lost only once");
    s.publish_numbers(&topic, None, 10..12).await;
    s.trim(&topic, 11).await;
    assert_eq!((drain(&group, "m").await, lost(&group).await), (vec![11], 5));
}

pub async fn a_loss_is_told_though_nobody_reads(s: Stage) {
    let topic = s.topic("unread", 1).await;
    s.publish_numbers(&topic, None, 0..10).await;
    s.group(&topic, "g", defaults()).await;
    let s = s.restart().await;
    s.trim_unseen(&topic, 4).await;
    let group = s.found(&topic, "g").await;
    let status = group.status().await.unwrap();
    assert_eq!((status.partitions[0].next, status.partitions[0].lost, status.partitions[0].lag), (4, 4, 6));
    s.trim_unseen(&topic, 6).await;
    let status = group.status().await.unwrap();
    assert_eq!((status.partitions[0].next, status.partitions[0].lost, status.partitions[0].lag), (6, 6, 4));
    assert_eq!(numbers(&group.take("m", 1).await), [6]);
    let s = s.restart().await;
    assert_eq!(lost(&s.found(&topic, "g").await).await, 6);
}

pub async fn what_is_in_flight_can_still_be_settled(s: Stage) {
    let topic = s.topic("flying", 1).await;
    s.publish_numbers(&topic, None, 0..8).await;
    let group = s.group(&topic, "g", defaults()).await;
    let taken = group.take("m", 5).await;
    s.trim(&topic, 6).await;
    assert_eq!(lost(&group).await, 1, "only what nobody has is lost");
    assert!(group.ack(taken[0].lease).await);
    assert!(group.ack(taken[0].lease).await, "and again");
    let acks = vec![taken[1].lease];
    s.hub.commit(CommitRequest { acks, ..CommitRequest::default() }).await.expect("it can be committed");
    assert_eq!(lost(&group).await, 1, "what was acked is not lost");
    assert!(group.nack(taken[2].lease, Some(HOUR)).await);
    assert_eq!((drain(&group, "m").await, lost(&group).await), (vec![6, 7], 2), "what was not, is");
    let s = s.restart().await;
    let group = s.found(&topic, "g").await;
    assert!(drain(&group, "m").await.is_empty());
    assert_eq!(lost(&group).await, 4, "and so is what was held when the hub ended");
    assert!(is_done(&group.status().await.unwrap()));
}

pub async fn a_group_has_a_status_though_all_that_it_holds_is_gone(s: Stage) {
    let topic = s.topic("all.gone", 1).await;
    s.publish_numbers(&topic, None, 0..5).await;
    let group = s.group(&topic, "g", defaults()).await;
    let taken = group.take("m", 2).await;
    s.trim(&topic, 5).await;
    let status = group.status().await.expect("a status");
    assert_eq!((status.partitions[0].lag, status.partitions[0].in_flight), (2, 2));
    assert_eq!(group.lag_ms(&status).await.unwrap(), 0, "how long they wait is not known any more");
    group.ack_all(&taken).await;
    assert!(is_done(&group.status().await.unwrap()));
}

pub async fn an_event_that_is_gone_before_its_retry_is_lost(s: Stage) {
    let topic = s.topic("gone.retry", 1).await;
    s.publish_numbers(&topic, Some("k"), 0..3).await;
    let group = s.group(&topic, "g", defaults()).await;
    let lease = group.take_just("m", 0, 1).await.lease;
    s.trim(&topic, 1).await;
    assert!(group.nack(lease, Some(HOUR)).await, "what is said of a lease is heard");
    assert_eq!(drain(&group, "m").await, [1, 2], "its key does not wait for ever");
    assert_eq!(lost(&group).await, 1);
    assert!(is_done(&group.status().await.unwrap()));
}

pub async fn an_event_that_waits_for_its_retry_is_lost_at_once(s: Stage) {
    let topic = s.topic("gone.pause", 1).await;
    s.publish_numbers(&topic, Some("k"), 0..3).await;
    let group = s.group(&topic, "g", defaults()).await;
    let lease = group.take_just("m", 0, 1).await.lease;
    assert!(group.nack(lease, Some(HOUR)).await);
    let pull = Pull { member: Some("m".into()), wait: crate::groups::stage::LONG, ..Pull::default() };
    let mut waiting = pin!(group.pull(&pull));
    begins_to_wait(waiting.as_mut()).await;
    s.trim(&topic, 2).await;
    assert_eq!(numbers(&waiting.await.unwrap()), [2], "those who wait hear of it");
    assert_eq!(lost(&group).await, 2);
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
    assert_eq!((lost(&group).await, group.counters().dead_lettered.get()), (1, 0));
    let s = s.restart().await;
    assert_eq!(lost(&s.found(&topic, "g").await).await, 1);
}

pub async fn a_group_behind_a_trim_starts_at_what_is_kept(s: Stage) {
    let topic = s.topic("kept", 1).await;
    s.publish_numbers(&topic, None, 0..6).await;
    let ackable = s.group(&topic, "held", defaults()).await;
    let held = ackable.take("m", 3).await;
    s.trim(&topic, 4).await;
    ackable.ack_all(&held).await;
    assert_eq!(drain(&ackable, "m").await, [4, 5], "what was read ahead is not delivered any more");
    assert_eq!(lost(&ackable).await, 1, "and only what nobody had is lost");
    let fresh = s.group(&topic, "fresh", defaults()).await;
    assert_eq!(numbers(&fresh.take("m", 10).await), [4, 5]);
    assert_eq!(lost(&fresh).await, 0, "what was gone before the group was is not its loss");
}

pub async fn what_waits_for_its_key_is_lost_with_the_rest(s: Stage) {
    let topic = s.topic("parked", 1).await;
    s.publish_numbers(&topic, Some("k"), 0..6).await;
    let group = s.group(&topic, "g", defaults()).await;
    let first = group.take_just("m", 0, 1).await;
    assert!(group.take_now("m", 10).await.is_empty(), "the others wait for it");
    s.trim(&topic, 4).await;
    group.ack_all(&[first]).await;
    assert_eq!((drain(&group, "m").await, lost(&group).await), (vec![4, 5], 3));
}

pub async fn a_trim_opens_the_way_to_new_partitions(s: Stage) {
    let topic = s.topic("outgrown", 1).await;
    s.publish_numbers(&topic, None, 0..5).await;
    let group = s.group(&topic, "g", defaults()).await;
    let held = group.take("m", 2).await;
    s.topic("outgrown", 2).await;
    s.publish_to(&topic, 1, 10).await;
    s.trim(&topic, 5).await;
    assert!(group.take_now("m", 10).await.is_empty(), "what is in flight comes first");
    group.ack_all(&held).await;
    assert_eq!((drain(&group, "m").await, lost(&group).await), (vec![10], 3));
}

pub async fn a_replayed_letter_whose_original_is_gone_is_told(s: Stage) {
    let topic = s.topic("dead.gone", 1).await;
    s.publish_numbers(&topic, None, 0..3).await;
    let group = s.group(&topic, "g", OptionsPatch { max_attempts: Some(1), ..defaults() }).await;
    for delivery in group.take("m", 3).await {
        assert!(group.nack(delivery.lease, None).await);
    }
    group.until("they are dead", is_done).await;
    s.discard(&topic, [1]).await;
    let replayed = s.hub.replay(&topic, Replay::default()).await.expect("letters can be replayed");
    assert_eq!((replayed.matched, replayed.replayed, replayed.skipped.len()), (3, 2, 1));
    assert!(replayed.skipped[0].1.contains("replay to the topic"), "{:?}", replayed.skipped);
    s.trim(&topic, 2).await;
    assert_eq!((drain(&group, "m").await, lost(&group).await), (vec![2], 1), "what was open again is lost");
    let forced = Replay { force: true, ..Replay::default() };
    let replayed = s.hub.replay(&topic, forced).await.expect("letters can be replayed");
    assert_eq!((replayed.replayed, replayed.skipped.len()), (1, 2));
}
