//! A store that has no room: what it refuses has not happened, and concerns nobody but the one who said it.

use crate::groups::stage::{Stage, Use, begins_to_wait, drain, numbers};
use crate::support::switch::{Refusal, Which};
use prombus_core::CommitError;
use prombus_engine::BusError;
use prombus_engine::groups::{GroupError, OptionsPatch, Settle, SettleCall, SettleResult};

use std::pin::pin;

fn attempts(max: u32) -> OptionsPatch {
    OptionsPatch { max_attempts: Some(max), backoff_ms: Some(0), ..OptionsPatch::default() }
}

/// From here on there is no room for these commits.
fn fill(s: &Stage, which: Which) {
    let error = CommitError::NoRoom;
    s.log.refuse(Refusal { which, after: 0, times: usize::MAX, error, happens: false });
}

/// From here on there is room.
fn clear(s: &Stage) {
    s.log.refuse_all(false);
}

fn assert_full(answer: Result<Vec<SettleResult>, GroupError>) {
    let is_full = matches!(answer, Err(GroupError::Bus(BusError::Commit(CommitError::NoRoom))));
    assert!(is_full, "{answer:?}");
}

pub async fn an_ack_without_room_fails_alone(s: Stage) {
    let topic = s.topic("alone", 1).await;
    s.publish_numbers(&topic, None, 1..=4).await;
    let group = s.group(&topic, "g", attempts(5)).await;
    let (one, other) = (group.take("one", 2).await, group.take("other", 2).await);
    fill(&s, |_| true);
    assert_full(group.settle(SettleCall::acks([one[0].lease])).await);
    assert_full(group.settle(SettleCall::acks([one[0].lease, other[1].lease])).await);
    let extend = Settle::Extend { lease: other[0].lease, by: None };
    assert!(group.say(extend).await, "a lease can be extended, which takes no room");
    assert!(group.take_now("one", 4).await.is_empty(), "nothing comes again");
    clear(&s);
    group.ack_all(&other).await;
    group.ack_all(&one[1..]).await;
    let status = group.status().await.unwrap();
    assert_eq!(
        (status.partitions[0].lag, status.partitions[0].in_flight),
        (1, 1),
        "what was refused is not done"
    );
    group.ack_all(&one).await;
    let s = s.restart().await;
    assert!(drain(&s.found(&topic, "g").await, "m").await.is_empty(), "all was acked");
}

pub async fn a_refused_lease_is_as_it_was(s: Stage) {
    let topic = s.topic("as.it.was", 1).await;
    s.publish_numbers(&topic, Some("k"), [1, 2]).await;
    s.publish_numbers(&topic, None, [3]).await;
    let group = s.group(&topic, "g", attempts(5)).await;
    let deliveries = group.take("m", 3).await;
    assert_eq!(numbers(&deliveries), [1, 3]);
    fill(&s, |_| true);
    assert_full(group.settle(SettleCall::acks([deliveries[0].lease])).await);
    assert_full(group.settle(SettleCall::nack(deliveries[1].lease, None, None)).await);
    assert!(group.take_now("m", 3).await.is_empty(), "the key is not free");
    clear(&s);
    // The other verb is as good as the first.
    assert!(group.nack(deliveries[0].lease, None).await);
    assert!(group.ack(deliveries[1].lease).await);
    let again = group.take_just("m", 1, 2).await;
    assert!(group.ack(again.lease).await);
    let s = s.restart().await;
    assert_eq!(drain(&s.found(&topic, "g").await, "m").await, [2]);
}

pub async fn a_lease_that_ends_without_room_is_counted_later(s: Stage) {
    let topic = s.topic("later", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let options = OptionsPatch { ack_timeout_ms: Some(30), ..attempts(5) };
    let group = s.group(&topic, "g", options).await;
    let lost = group.take_just("m", 1, 1).await;
    fill(&s, |_| true);
    group.until("the lease ends", |status| status.partitions[0].in_flight == 0).await;
    let late = group.settle(SettleCall::acks([lost.lease])).await;
    assert!(matches!(late.as_deref(), Ok([SettleResult::Expired])), "{late:?}");
    clear(&s);
    group.take_just("m", 1, 2).await;
}

pub async fn a_last_nack_without_room_for_its_letter_fails_alone(s: Stage) {
    let topic = s.topic("last", 1).await;
    s.publish_numbers(&topic, None, 1..=3).await;
    let group = s.group(&topic, "g", attempts(2)).await;
    let first = group.take("m", 3).await;
    assert!(group.nack(first[0].lease, None).await);
    let last = group.take_just("m", 1, 2).await.lease;
    fill(&s, |commit| !commit.events.is_empty());
    assert_full(group.settle(SettleCall::nack(last, None, None)).await);
    assert!(group.ack(first[1].lease).await, "acks need less room");
    assert_full(group.settle(SettleCall::nack(last, None, None)).await);
    assert!(group.take_now("m", 3).await.is_empty(), "it does not come again");
    assert!(s.letters(&topic).await.is_empty());
    clear(&s);
    assert!(group.nack(last, None).await);
    let letters = s.letters(&topic).await;
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].payload.to_value().unwrap()["attempts"], 2, "attempts are kept");
    assert!(group.ack(first[2].lease).await);
    let s = s.restart().await;
    assert!(drain(&s.found(&topic, "g").await, "m").await.is_empty());
}

pub async fn what_dies_without_room_waits_for_its_letter(s: Stage) {
    let topic = s.topic("waits", 1).await;
    s.publish_numbers(&topic, Some("k"), [1, 2]).await;
    let options = OptionsPatch { ack_timeout_ms: Some(30), ..attempts(1) };
    let group = s.group(&topic, "g", options).await;
    group.take_just("m", 1, 1).await;
    fill(&s, |commit| !commit.events.is_empty());
    group.until("the lease ends", |status| status.partitions[0].in_flight == 0).await;
    let extended = OptionsPatch { ack_timeout_ms: Some(60_000), ..attempts(1) };
    let other = s.group(&topic, "other", extended).await;
    assert!(other.ack(other.take_just("m", 1, 1).await.lease).await, "acks go on");
    assert!(group.take_now("m", 2).await.is_empty(), "it is not delivered beyond its attempts");
    clear(&s);
    let next = group.take("m", 2).await;
    assert_eq!(numbers(&next), [2], "its key is free once the letter is there");
    let letters = s.letters(&topic).await;
    assert_eq!(letters[0].payload.to_value().unwrap()["attempts"], 1);
}

pub async fn a_repeated_ack_is_refused_with_the_first(s: Stage) {
    let topic = s.topic("repeated", 1).await;
    s.publish_numbers(&topic, None, [1, 2]).await;
    let group = s.group(&topic, "g", attempts(5)).await;
    let taken = group.take("m", 2).await;
    s.log.hold(|_| true);
    let error = CommitError::NoRoom;
    s.log.refuse(Refusal { which: |_| true, after: 0, times: 1, error, happens: false });
    let mut first = pin!(group.settle(SettleCall::acks([taken[1].lease])));
    begins_to_wait(first.as_mut()).await;
    s.log.until_held(1).await;
    let mut both = pin!(group.settle(SettleCall::acks([taken[1].lease, taken[0].lease])));
    begins_to_wait(both.as_mut()).await;
    s.log.release();
    assert_full(first.await);
    let answer = both.await;
    assert_eq!(answer.unwrap(), [SettleResult::NoRoom, SettleResult::Done]);
    group.ack_all(&taken).await;
    let s = s.restart().await;
    assert!(drain(&s.found(&topic, "g").await, "m").await.is_empty(), "all was acked");
}

pub async fn what_finds_no_room_is_told_apart(s: Stage) {
    let topic = s.topic("apart", 1).await;
    s.publish_numbers(&topic, None, 1..=3).await;
    let group = s.group(&topic, "g", attempts(1)).await;
    let [ack, nack, more] = group.take("m", 3).await.try_into().unwrap();
    fill(&s, |commit| !commit.events.is_empty());
    let settles = vec![
        Some(Settle::Ack(ack.lease)),
        Some(Settle::Nack { lease: nack.lease, reason: None, delay: None }),
        Some(Settle::Extend { lease: more.lease, by: None }),
        None,
    ];
    use SettleResult::{Done, Expired, NoRoom};
    let results = group.settle(SettleCall { settles }).await.unwrap();
    assert_eq!(results, [Done, NoRoom, Done, Expired]);
    clear(&s);
    assert!(group.nack(nack.lease, None).await, "it can be said again");
    assert!(s.letters(&topic).await.len() == 1 && group.ack(more.lease).await);
    let s = s.restart().await;
    assert!(drain(&s.found(&topic, "g").await, "m").await.is_empty());
}
