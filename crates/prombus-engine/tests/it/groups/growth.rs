//! Topics that grow while groups read them.

use crate::groups::stage::{Stage, Use, drain, topic_name};
use prombus_core::TopicName;
use prombus_engine::groups::{GroupCall, GroupStatus, Mode, OptionsPatch, Ordering};
use prombus_testkit::build::{moving_keys, staying_keys};

fn moving() -> String {
    moving_keys(4).next().expect("there are such keys")
}

fn waits_for_growth(status: &GroupStatus) -> bool {
    status
        .partitions
        .iter()
        .any(|partition| partition.waiting.is_some_and(|(why, _)| why.as_str() == "growth"))
}

fn settled(status: &GroupStatus) -> bool {
    status.partitions.iter().all(|partition| partition.lag == 0)
}

/// A topic whose key has moved to another partition: 1 and 2 are in the old one, 3 in the new one.
async fn grown(s: &Stage, name: &str) -> TopicName {
    let topic = s.topic(name, 1).await;
    s.publish_numbers(&topic, Some(&moving()), [1, 2]).await;
    s.topic(name, 4).await;
    let placed = s.publish_numbers(&topic, Some(&moving()), [3]).await;
    assert_ne!(placed[0].partition.0, 0, "the key has moved");
    topic
}

pub async fn order_per_key_survives_growth(s: Stage) {
    for (n, ordering) in [Ordering::Key, Ordering::Partition, Ordering::None].into_iter().enumerate() {
        let name = format!("grown{n}");
        let topic = topic_name(&name);
        s.topic(&name, 1).await;
        let group =
            s.group(&topic, "g", OptionsPatch { ordering: Some(ordering), ..Default::default() }).await;
        grown(&s, &name).await;
        let first = group.take("m", 1).await;
        s.publish_numbers(&topic, staying_keys(4).next().as_deref(), [4]).await;
        let mut held = group.take_now("m", 10).await;
        held.extend(first);
        let new = held.iter().any(|delivery| delivery.event.partition.0 > 0);
        assert!(!new, "a new partition waits until the old one is past where it was ({ordering:?})");
        assert!(waits_for_growth(&group.status().await.unwrap()), "and the status says so");
        group.ack_all(&held).await;
        let mut rest = drain(&group, "m").await;
        while !settled(&group.status().await.unwrap()) {
            rest.extend(drain(&group, "m").await);
        }
        assert!(rest.contains(&3), "then it flows ({ordering:?}): {rest:?}");
    }
}

pub async fn growth_waits_for_what_is_durable_across_a_restart(s: Stage) {
    let topic = s.topic("regrown", 1).await;
    s.group(&topic, "g", OptionsPatch::default()).await;
    let s = s.restart().await;
    grown(&s, "regrown").await;
    let s = s.restart().await;
    let group = s.found(&topic, "g").await;
    let one = group.take_just("m", 1, 1).await;
    assert!(group.take_now("m", 5).await.is_empty(), "the hub knows of the growth from the log");
    group.ack_all(&[one]).await;
    let two = group.take_just("m", 2, 1).await;
    assert!(group.take_now("m", 5).await.is_empty());
    assert!(group.nack(two.lease, None).await);
    group.ack_all(&[group.take_just("m", 2, 2).await]).await;
    group.take_just("m", 3, 1).await;
}

pub async fn growth_is_not_held_up_by_what_a_filter_drops(s: Stage) {
    let topic = s.topic("dropped", 1).await;
    let options = OptionsPatch { filter: Some(Some("event.payload.n > 2".into())), ..Default::default() };
    let group = s.group(&topic, "g", options).await;
    grown(&s, "dropped").await;
    group.take_just("m", 3, 1).await;
}

pub async fn growth_is_not_held_up_by_what_was_dropped_before(s: Stage) {
    let topic = s.topic("dropped.before", 1).await;
    let options = OptionsPatch { filter: Some(Some("event.payload.n > 2".into())), ..Default::default() };
    let group = s.group(&topic, "g", options).await;
    s.publish_numbers(&topic, Some(&moving()), [1, 2]).await;
    assert!(group.take_now("m", 5).await.is_empty());
    s.topic("dropped.before", 4).await;
    s.publish_numbers(&topic, Some(&moving()), [3]).await;
    group.take_just("m", 3, 1).await;
}

pub async fn a_group_at_the_end_reads_new_partitions_from_their_start(s: Stage) {
    let topic = s.topic("latest", 1).await;
    s.publish_numbers(&topic, Some(&moving()), [1, 2]).await;
    let (group, _) = s.made(&topic, "g", GroupCall::default()).await.unwrap();
    s.topic("latest", 4).await;
    s.publish_numbers(&topic, Some(&moving()), [3]).await;
    group.take_just("m", 3, 1).await;
    // One that is made after the growth has nothing to wait for.
    let (late, _) = s.made(&topic, "late", GroupCall::default()).await.unwrap();
    s.publish_numbers(&topic, Some(&moving()), [4]).await;
    late.take_just("m", 4, 1).await;
}

pub async fn new_partitions_get_owners(s: Stage) {
    let topic = s.topic("owners", 1).await;
    let options = OptionsPatch {
        mode: Some(Mode::Partitioned),
        member_ttl_ms: Some(3_600_000),
        ..OptionsPatch::default()
    };
    let group = s.group(&topic, "g", options).await;
    for member in ["a", "b"] {
        group.take_now(member, 1).await;
    }
    let mut moves = group.assignments();
    s.topic("owners", 16).await;
    for partition in 0..16 {
        s.publish_to(&topic, partition, partition.into()).await;
    }
    let mut got = Vec::new();
    while got.len() < 16 {
        for member in ["a", "b"] {
            let deliveries = group.take_now(member, 100).await;
            let owned = group.owned_by(member);
            for delivery in &deliveries {
                assert!(owned.contains(&delivery.event.partition), "{member} gets only what it owns");
                got.push(delivery.event.partition);
            }
            group.ack_all(&deliveries).await;
        }
    }
    assert!(moves.has_changed().unwrap(), "those who ask are told of new partitions");
    moves.mark_unchanged();
    assert!(!group.owned_by("a").is_empty() && !group.owned_by("b").is_empty());
}
