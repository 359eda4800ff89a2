//! Groups are found, listed, looked at and deleted.

use crate::groups::stage::{Stage, Use, drain, group_name};
use prombus_engine::groups::{GroupError, OptionsPatch, Pull};

fn defaults() -> OptionsPatch {
    OptionsPatch::default()
}

pub async fn groups_are_listed_by_name(s: Stage) {
    let topic = s.topic("listed", 1).await;
    let other = s.topic("other", 1).await;
    for name in ["b", "a", "c d"] {
        s.group(&topic, name, defaults()).await;
    }
    s.group(&other, "elsewhere", defaults()).await;
    let s = s.restart().await;
    let state = s.hub.topic(&topic).await.unwrap().unwrap();
    let groups = s.hub.groups().list(&state).await;
    let names: Vec<&str> = groups.iter().map(|group| group.name().as_str()).collect();
    assert_eq!(names, ["a", "b", "c d"], "the groups of a topic, also those that nobody has used yet");
}

pub async fn a_deleted_group_is_forgotten(s: Stage) {
    let topic = s.topic("deleted", 1).await;
    s.publish_numbers(&topic, None, [1, 2]).await;
    let group = s.group(&topic, "g", OptionsPatch { max_attempts: Some(9), ..defaults() }).await;
    let lease = group.take_just("m", 1, 1).await.lease;
    assert!(group.ack(lease).await);
    s.hub.groups().delete(&topic, &group_name("g")).await.expect("a group can be deleted");
    assert!(group.pull(&Pull::default()).await.is_err(), "a group that is gone delivers nothing");
    let gone = s.hub.groups().find(&topic, &group_name("g")).await;
    assert!(matches!(gone, Err(GroupError::NotFound { .. })), "it is not found");
    let again = s.hub.groups().delete(&topic, &group_name("g")).await;
    assert!(matches!(again, Err(GroupError::NotFound { .. })), "it cannot be deleted twice");
    let s = s.restart().await;
    let group = s.group(&topic, "g", OptionsPatch { max_attempts: Some(3), ..defaults() }).await;
    assert_eq!(drain(&group, "m").await, [1, 2], "a group of the same name is another group");
}

pub async fn a_topic_that_is_made_again_has_no_groups(s: Stage) {
    let topic = s.topic("remade", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let group = s.group(&topic, "g", defaults()).await;
    let lease = group.take_just("m", 1, 1).await.lease;
    s.hub.delete_topic(&topic).await.unwrap();
    assert!(group.pull(&Pull::default()).await.is_err(), "the group went with its topic");
    let topic = s.topic("remade", 1).await;
    let gone = s.hub.groups().find(&topic, &group_name("g")).await;
    assert!(matches!(gone, Err(GroupError::NotFound { .. })), "another topic has no old groups");
    s.publish_numbers(&topic, None, [2]).await;
    let group = s.group(&topic, "g", defaults()).await;
    group.take_just("m", 2, 1).await;
    assert!(!group.ack(lease).await, "a lease from another life is void");
}

pub async fn groups_are_apart(s: Stage) {
    let topic = s.topic("apart", 1).await;
    s.publish_numbers(&topic, Some("k"), [1, 2]).await;
    let (one, other) = (s.group(&topic, "one", defaults()).await, s.group(&topic, "other", defaults()).await);
    let lease = one.take_just("m", 1, 1).await.lease;
    assert!(!other.ack(lease).await, "a lease of one group means nothing to another");
    assert_eq!(drain(&other, "m").await, [1, 2], "each group gets every event");
    assert!(one.ack(lease).await);
    one.take_just("m", 2, 1).await;
}

pub async fn a_status_says_how_far_the_group_is(s: Stage) {
    let topic = s.topic("status", 1).await;
    let events = s.publish_numbers(&topic, None, 0..5).await;
    let group = s.group(&topic, "g", defaults()).await;
    let deliveries = group.take("m", 3).await;
    group.ack_all(&deliveries[..1]).await;
    assert!(group.nack(deliveries[1].lease, None).await);
    s.clock.advance(1_234);
    group.take_just("n", 1, 2).await;
    let status = group.status().await.unwrap();
    let partition = &status.partitions[0];
    assert_eq!(
        (partition.next, partition.tail, partition.lag),
        (1, 5, 4),
        "the first unsettled, the end, and how many"
    );
    assert_eq!(partition.last, Some((events[0].id, events[0].ts)), "the event before the first unsettled");
    assert_eq!(partition.lag_ms, 1_234, "how old the oldest unsettled event is");
    assert_eq!(
        (partition.in_flight, partition.redelivered),
        (2, 1),
        "leases, and deliveries that were not the first"
    );
    assert!(partition.oldest_unacked_ms.is_some() && partition.owner.is_none());
    let members: Vec<(&str, u64)> = status.members.iter().map(|m| (&*m.name, m.in_flight)).collect();
    assert_eq!(members, [("m", 1), ("n", 1)], "who holds how much");
    let counters = group.counters();
    let counted = [&counters.delivered, &counters.acked, &counters.nacked, &counters.redelivered];
    assert_eq!(counted.map(|counter| counter.get()), [4, 1, 1, 1]);
}
