//! Single events that are given up, as compaction does it: groups pass over them and miss nothing else.

use crate::groups::stage::{LONG, Stage, Use, begins_to_wait, drain, numbers};
use prombus_core::{Offset, Partition};
use prombus_engine::groups::{Group, GroupStatus, OptionsPatch, Pull, Settle};
use prombus_engine::query::From;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

fn defaults() -> OptionsPatch {
    OptionsPatch::default()
}

/// Everything is settled, and nothing is said to be lost.
fn is_done(status: &GroupStatus) -> bool {
    status.partitions.iter().all(|partition| (partition.lag, partition.lost) == (0, 0))
}

async fn assert_done(group: &Arc<Group>) {
    let status = group.status().await.unwrap();
    assert!(is_done(&status), "{:#?}", status.partitions);
}

pub async fn holes_are_passed_over(s: Stage) {
    let topic = s.topic("holes", 1).await;
    s.publish_numbers(&topic, None, 0..400).await;
    let group = s.group(&topic, "g", defaults()).await;
    s.discard(&topic, (0..400).filter(|n| n % 100 != 7)).await;
    assert_eq!(group.status().await.unwrap().partitions[0].lag, 400, "lag counts offsets");
    assert_eq!(drain(&group, "m").await, [7, 107, 207, 307]);
    assert_done(&group).await;
    let pull = Pull { member: Some("m".into()), wait: LONG, ..Pull::default() };
    let mut waiting = pin!(group.pull(&pull));
    begins_to_wait(waiting.as_mut()).await;
    let (_, delivered) = tokio::join!(s.publish_numbers(&topic, None, [400]), waiting);
    let delivered = delivered.unwrap();
    assert_eq!(numbers(&delivered), [400], "it does not hang behind them");
    s.publish_numbers(&topic, None, 401..404).await;
    s.discard(&topic, 400..404).await;
    group.ack_all(&delivered).await;
    assert!(drain(&group, "m").await.is_empty(), "nor before them");
    assert_done(&group).await;
}

pub async fn what_was_read_ahead_is_not_delivered_once_it_is_given_up(s: Stage) {
    let topic = s.topic("ahead", 1).await;
    s.publish_numbers(&topic, Some("k"), 0..4).await;
    s.publish_numbers(&topic, None, 4..8).await;
    let group = s.group(&topic, "g", defaults()).await;
    let first = group.take_just("m", 0, 1).await;
    let second = group.take_just("m", 4, 1).await;
    s.discard(&topic, [1, 2, 5]).await;
    group.ack_all(&[first, second]).await;
    let mut rest = drain(&group, "m").await;
    rest.sort_unstable();
    assert_eq!(rest, [3, 6, 7]);
    assert_done(&group).await;
}

pub async fn what_is_in_flight_can_still_be_settled_in_a_hole(s: Stage) {
    let topic = s.topic("held", 1).await;
    s.publish_numbers(&topic, None, 0..4).await;
    let group = s.group(&topic, "g", OptionsPatch { max_attempts: Some(2), ..defaults() }).await;
    let taken = group.take("m", 4).await;
    s.discard(&topic, 0..4).await;
    assert!(group.ack(taken[0].lease).await);
    assert!(group.nack(taken[1].lease, None).await);
    assert!(group.nack(taken[2].lease, Some(Duration::from_secs(3_600))).await);
    assert!(group.say(Settle::Bury { lease: taken[3].lease, reason: "in vain".into() }).await);
    assert!(group.take_now("m", 10).await.is_empty(), "there is nothing left to deliver");
    // The pause of the third is not over, and nobody waits for it.
    assert!(s.letters(&topic).await.is_empty(), "nor to put into a letter");
    s.discard(&topic, [2]).await;
    assert!(group.take_now("m", 10).await.is_empty());
    assert_done(&group).await;
}

pub async fn a_retry_that_is_given_up_holds_up_nobody(s: Stage) {
    let topic = s.topic("retry", 1).await;
    s.publish_numbers(&topic, Some("k"), 0..3).await;
    let group = s.group(&topic, "g", defaults()).await;
    let lease = group.take_just("m", 0, 1).await.lease;
    assert!(group.nack(lease, Some(Duration::from_secs(3_600))).await);
    let pull = Pull { member: Some("m".into()), wait: LONG, ..Pull::default() };
    let mut waiting = pin!(group.pull(&pull));
    begins_to_wait(waiting.as_mut()).await;
    s.discard(&topic, [0, 1]).await;
    let delivered = waiting.await.unwrap();
    assert_eq!(numbers(&delivered), [2]);
    group.ack_all(&delivered).await;
    assert_done(&group).await;
}

pub async fn growth_is_not_held_up_by_holes(s: Stage) {
    let topic = s.topic("grown", 1).await;
    s.publish_numbers(&topic, None, 0..5).await;
    let group = s.group(&topic, "g", defaults()).await;
    s.discard(&topic, [3, 4]).await;
    s.topic("grown", 2).await;
    s.publish_to(&topic, 1, 10).await;
    let old = group.take("m", 10).await;
    assert_eq!(numbers(&old), [0, 1, 2], "the new partition waits for what the old one held");
    group.ack_all(&old).await;
    assert_eq!(drain(&group, "m").await, [10], "but not for what is gone");
    assert_done(&group).await;
}

pub async fn a_cursor_can_be_set_into_a_hole(s: Stage) {
    let topic = s.topic("set", 1).await;
    s.publish_numbers(&topic, None, 0..10).await;
    let group = s.group(&topic, "g", defaults()).await;
    s.discard(&topic, [2, 3, 4, 9]).await;
    for (from, rest) in
        [(From::Earliest, vec![0, 1, 5, 6, 7, 8]), (From::Offset(Offset(3)), vec![5, 6, 7, 8])]
    {
        let preview = group.preview_cursor(from, None).await.unwrap();
        assert_eq!((preview.partitions[0].events, preview.exact), (rest.len() as u64, true), "{from:?}");
        group.set_cursor(from, None).await.unwrap();
        assert_eq!(drain(&group, "m").await, rest, "{from:?}");
        assert_done(&group).await;
    }
    group.set_cursor(From::Earliest, None).await.unwrap();
    group.skip(Partition(0), 3).await.unwrap();
    assert!(group.skip(Partition(0), 5).await.unwrap());
    s.trim(&topic, 1).await;
    assert!(!group.skip(Partition(0), 0).await.unwrap(), "what is lost cannot be skipped");
    assert_eq!(drain(&group, "m").await, [1, 6, 7, 8]);
}
