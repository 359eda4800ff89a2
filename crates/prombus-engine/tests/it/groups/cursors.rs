//! Groups that are set to another place.

use crate::groups::stage::{Stage, Use, drain, ids};
use prombus_core::{Offset, Partition, ReadError};
use prombus_engine::groups::{GroupError, OptionsPatch};
use prombus_engine::query::{From, QueryError};
use std::time::Duration;
use uuid::Uuid;

fn defaults() -> OptionsPatch {
    OptionsPatch::default()
}

pub async fn a_cursor_can_be_set_anywhere(s: Stage) {
    let topic = s.topic("anywhere", 1).await;
    s.publish_numbers(&topic, None, [0, 1]).await;
    s.clock.advance(1_000);
    let later = s.publish_numbers(&topic, None, [2, 3]).await;
    let group = s.group(&topic, "g", defaults()).await;
    for (place, wanted) in [
        (From::Latest, vec![]),
        (From::Earliest, vec![0, 1, 2, 3]),
        (From::Ts(later[0].ts), vec![2, 3]),
        (From::AfterId(later[0].id), vec![3]),
        (From::Offset(Offset(1)), vec![1, 2, 3]),
        (From::Offset(Offset(4)), vec![]),
    ] {
        group.set_cursor(place, None).await.expect("a cursor can be set");
        assert_eq!(group.status().await.unwrap().partitions[0].lag, wanted.len() as u64, "{place:?}");
        assert_eq!(drain(&group, "m").await, wanted, "{place:?}");
    }
    group.set_cursor(From::Offset(Offset(3)), None).await.unwrap();
    let s = s.restart().await;
    assert_eq!(drain(&s.found(&topic, "g").await, "m").await, [3], "it is durable");
}

pub async fn setting_a_cursor_voids_leases(s: Stage) {
    let topic = s.topic("voided", 2).await;
    for partition in 0..2 {
        s.publish_to(&topic, partition, partition.into()).await;
    }
    let group = s.group(&topic, "g", defaults()).await;
    let mut held = Vec::new();
    while held.len() < 2 {
        held.extend(group.take("m", 2).await);
    }
    group.set_cursor(From::Earliest, None).await.unwrap();
    for delivery in &held {
        assert!(!group.ack(delivery.lease).await, "open leases are void");
        assert!(!group.nack(delivery.lease, None).await);
    }
    let status = group.status().await.unwrap();
    assert!(status.members.iter().all(|member| member.in_flight == 0), "nobody holds anything");
    let mut again = drain(&group, "n").await;
    again.sort_unstable();
    assert_eq!(again, [0, 1]);
}

pub async fn one_partition_can_be_set(s: Stage) {
    let topic = s.topic("one", 2).await;
    for partition in [0, 1, 0, 1] {
        s.publish_to(&topic, partition, partition.into()).await;
    }
    let group = s.group(&topic, "g", defaults()).await;
    assert_eq!(drain(&group, "m").await.len(), 4);
    group.set_cursor(From::Offset(Offset(1)), Some(Partition(1))).await.unwrap();
    assert_eq!(drain(&group, "m").await, [1], "the other partition stays where it was");
}

pub async fn a_cursor_that_makes_no_sense_is_refused(s: Stage) {
    let topic = s.topic("nonsense", 2).await;
    let id = ids(&[s.publish_to(&topic, 1, 7).await])[0];
    let group = s.group(&topic, "g", defaults()).await;
    for place in [From::Offset(Offset(0)), From::AfterId(id)] {
        let refused = group.set_cursor(place, None).await;
        assert!(matches!(refused, Err(GroupError::Query(QueryError::PartitionNeeded { .. }))), "{place:?}");
    }
    let beyond = group.set_cursor(From::Offset(Offset(2)), Some(Partition(1))).await;
    assert!(matches!(beyond, Err(GroupError::BadOption(_))), "beyond the end");
    let missing = group.set_cursor(From::Earliest, Some(Partition(2))).await;
    assert!(
        matches!(missing, Err(GroupError::Query(QueryError::Read(ReadError::NoSuchPartition { .. })))),
        "no such partition"
    );
    for (id, partition) in [(id, 0), (Uuid::from_u128(9), 1)] {
        let unknown = group.set_cursor(From::AfterId(id), Some(Partition(partition))).await;
        assert!(matches!(unknown, Err(GroupError::Query(QueryError::UnknownId(_)))), "not there");
    }
    group.take_just("m", 7, 1).await;
}

pub async fn a_set_cursor_forgets_attempts(s: Stage) {
    let topic = s.topic("forgets", 1).await;
    s.publish_numbers(&topic, Some("k"), [1, 2]).await;
    let group = s.group(&topic, "g", defaults()).await;
    let lease = group.take_just("m", 1, 1).await.lease;
    assert!(group.nack(lease, Some(Duration::from_secs(3_600))).await);
    group.set_cursor(From::Earliest, None).await.unwrap();
    let s = s.restart().await;
    assert_eq!(drain(&s.found(&topic, "g").await, "m").await, [1, 2], "nothing waits for a retry");
}
