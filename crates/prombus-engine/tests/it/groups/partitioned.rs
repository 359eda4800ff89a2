//! Partitioned groups: each partition has one member.

use crate::groups::stage::{LONG, Stage, Use, number, numbers};
use prombus_core::hashing::owner_of;
use prombus_core::{Partition, TopicName};
use prombus_engine::groups::{Delivery, GivenBack, Group, GroupError, Mode, OptionsPatch, Pull};
use prombus_engine::query::From;
use std::sync::Arc;
use std::time::Duration;

fn partitioned() -> OptionsPatch {
    OptionsPatch { mode: Some(Mode::Partitioned), member_ttl_ms: Some(3_600_000), ..OptionsPatch::default() }
}

async fn owners(group: &Arc<Group>) -> Vec<Option<String>> {
    let partitions = group.status().await.unwrap().partitions;
    partitions.into_iter().map(|partition| partition.owner.map(|owner| owner.to_string())).collect()
}

/// One event in each partition, its number the partition's.
async fn one_each(s: &Stage, topic: &TopicName, partitions: u32) {
    for partition in 0..partitions {
        s.publish_to(topic, partition, partition.into()).await;
    }
}

pub async fn each_partition_has_one_member(s: Stage) {
    let topic = s.topic("owned", 16).await;
    let group = s.group(&topic, "g", partitioned()).await;
    assert_eq!(owners(&group).await, vec![None; 16], "nobody is there yet");
    let members = ["a", "b", "c"];
    for member in members {
        assert!(group.take_now(member, 10).await.is_empty(), "a pull is how a member joins");
    }
    let rendezvous = |partition| owner_of(Partition(partition), &members).map(str::to_owned);
    let wanted: Vec<Option<String>> = (0..16).map(rendezvous).collect();
    assert_eq!(owners(&group).await, wanted, "owners are found by rendezvous hashing");
    one_each(&s, &topic, 16).await;
    for member in members {
        let owned: Vec<u64> = group.owned_by(member).iter().map(|partition| partition.0.into()).collect();
        let mut got = Vec::new();
        while got.len() < owned.len() {
            got.extend(numbers(&group.take(member, 100).await));
        }
        got.extend(numbers(&group.take_now(member, 100).await));
        got.sort_unstable();
        assert_eq!(got, owned, "{member} gets what it owns and nothing else");
    }
    let status = group.status().await.unwrap();
    for member in &status.members {
        assert_eq!(member.partitions, group.owned_by(&member.name), "{}", member.name);
    }
}

pub async fn a_join_moves_only_what_it_must(s: Stage) {
    let topic = s.topic("joins", 32).await;
    let group = s.group(&topic, "g", partitioned()).await;
    for member in ["a", "b", "c"] {
        group.take_now(member, 1).await;
    }
    let before = owners(&group).await;
    let mut moves = group.assignments();
    let d = group.enter("d").unwrap();
    assert!(moves.has_changed().unwrap(), "those who ask are told");
    moves.mark_unchanged();
    let after = owners(&group).await;
    for (before, after) in before.iter().zip(&after) {
        assert!(before == after || after.as_deref() == Some("d"), "a join only takes: {before:?} {after:?}");
    }
    assert_ne!(before, after);
    d.pull(&Pull::default()).await.unwrap();
    assert!(!moves.has_changed().unwrap(), "a pull of one that is there is no join");
    drop(d);
    assert_eq!(owners(&group).await, before, "and when it leaves only that comes back");
}

pub async fn a_group_has_no_more_members_than_could_own_something(s: Stage) {
    const MOST: usize = prombus_core::topic::MAX_PARTITIONS as usize;
    let topic = s.topic("crowd", 4).await;
    let group = s.group(&topic, "g", partitioned()).await;
    let mut there: Vec<_> = (0..MOST).map(|n| group.enter(&format!("m{n}")).unwrap()).collect();
    let refused = group.enter("one.more").err();
    assert!(matches!(refused, Some(GroupError::TooManyMembers { limit: MOST })), "{refused:?}");
    let pull = Pull { member: Some("one.more".into()), ..Pull::default() };
    assert!(matches!(group.pull(&pull).await, Err(GroupError::TooManyMembers { .. })));
    assert_eq!(group.status().await.unwrap().members.len(), MOST);
    let _again = group.enter("m1").expect("those who are there come as often as they like");
    drop(there.pop());
    assert!(group.pull(&pull).await.unwrap().is_empty(), "there is a place again");
    let shared = s.group(&topic, "shared", OptionsPatch::default()).await;
    let all: Vec<_> = (0..=MOST).map(|n| shared.enter(&format!("m{n}")).unwrap()).collect();
    assert_eq!(all.len(), MOST + 1, "all members of a shared group have something to do");
}

pub async fn a_silent_member_is_dropped(s: Stage) {
    let topic = s.topic("silent", 8).await;
    let options = OptionsPatch { member_ttl_ms: Some(100), ..partitioned() };
    let group = s.group(&topic, "g", options).await;
    one_each(&s, &topic, 8).await;
    let held = group.take("quiet", 100).await;
    assert_eq!(held.len(), 8, "it is alone");
    // A pull that waits is a sign of life, so only the other one falls silent.
    let mut got = Vec::new();
    while got.len() < 8 {
        let deliveries = group.take("lively", 100).await;
        assert!(deliveries.iter().all(|delivery| delivery.attempt == 1), "no attempt is counted");
        group.ack_all(&deliveries).await;
        got.extend(numbers(&deliveries));
    }
    assert_eq!(group.counters().redelivered.get(), 8, "and yet no delivery of these was the first");
    assert!(!group.ack(held[0].lease).await, "the old owner is fenced");
    let status = group.status().await.unwrap();
    assert!(status.partitions.iter().all(|partition| partition.lag == 0));
}

pub async fn a_member_that_waits_is_not_silent(s: Stage) {
    let topic = s.topic("waiting", 4).await;
    let options = OptionsPatch { member_ttl_ms: Some(50), ..partitioned() };
    let group = s.group(&topic, "g", options).await;
    let wait = Duration::from_millis(400);
    let pull = Pull { member: Some("m".into()), wait, ..Pull::default() };
    let mut moves = group.assignments();
    let pulling = group.pull(&pull);
    let watching = async {
        moves.changed().await.expect("the group is there");
        tokio::time::timeout(wait / 2, moves.changed()).await
    };
    let (pulled, moved) = tokio::join!(pulling, watching);
    assert!(pulled.unwrap().is_empty());
    assert!(moved.is_err(), "it keeps its partitions as long as it waits");
}

pub async fn a_member_that_is_there_is_not_silent(s: Stage) {
    let topic = s.topic("present", 4).await;
    let ttl = 50;
    let options = OptionsPatch { member_ttl_ms: Some(ttl), ..partitioned() };
    let group = s.group(&topic, "g", options).await;
    let mut moves = group.assignments();
    let present = group.enter("m").unwrap();
    assert_eq!(group.owned_by("m").len(), 4);
    moves.mark_unchanged();
    let quiet = tokio::time::timeout(Duration::from_millis(4 * ttl), moves.changed()).await;
    assert!(quiet.is_err(), "it keeps its partitions without a pull");
    drop(present);
    assert!(moves.has_changed().unwrap(), "it is gone at once");
    assert!(group.owned_by("m").is_empty());
}

pub async fn a_member_is_there_as_long_as_one_of_its_connections_is(s: Stage) {
    let topic = s.topic("connections", 4).await;
    one_each(&s, &topic, 4).await;
    let group = s.group(&topic, "g", partitioned()).await;
    let pull = Pull { max: 1, wait: LONG, ..Pull::default() };
    let (old, new) = (group.enter("m").unwrap(), group.enter("m").unwrap());
    let before = owners(&group).await;
    let (lost, kept) = (old.pull(&pull).await.unwrap(), new.pull(&pull).await.unwrap());
    let mut moves = group.assignments();
    moves.mark_unchanged();
    group.give_back(&[lost[0].lease], GivenBack::ConnectionLost);
    drop(old);
    assert!(!moves.has_changed().unwrap(), "the other connection is the same member");
    assert_eq!(owners(&group).await, before);
    assert!(!group.ack(lost[0].lease).await, "what the lost one held is free");
    assert!(group.ack(kept[0].lease).await, "what the other one holds is not");
    let mut rest = Vec::new();
    while rest.len() < 3 {
        rest.extend(new.pull(&Pull { wait: LONG, ..Pull::default() }).await.unwrap());
    }
    assert!(numbers(&rest).contains(&number(&lost[0].event)), "and comes again at once");
    drop(new);
    assert_eq!(owners(&group).await, vec![None; 4], "it is gone with its last connection");
    assert!(!group.ack(rest[0].lease).await);
}

pub async fn a_connection_that_ends_leaves_a_member_that_pulls(s: Stage) {
    let topic = s.topic("both-ways", 4).await;
    let group = s.group(&topic, "g", partitioned()).await;
    let connection = group.enter("m").unwrap();
    group.take_now("m", 1).await;
    let before = owners(&group).await;
    drop(connection);
    assert_eq!(owners(&group).await, before, "a pull counts until its member is silent for too long");
}

pub async fn a_move_fences_the_old_owner_and_counts_nothing(s: Stage) {
    let topic = s.topic("moves", 8).await;
    one_each(&s, &topic, 8).await;
    let group = s.group(&topic, "g", partitioned()).await;
    let a = group.enter("a").unwrap();
    let held = a.pull(&Pull { wait: LONG, ..Pull::default() }).await.unwrap();
    assert_eq!(held.len(), 8);
    let acked = &held[0];
    assert!(group.ack(acked.lease).await);
    let seen = |delivery: &Delivery| (number(&delivery.event), delivery.attempt);
    let mut again: Vec<(u64, u32)> = group.take_now("b", 1).await.iter().map(seen).collect();
    let moved = group.owned_by("b");
    assert!(!moved.is_empty() && moved.len() < 8);
    for delivery in &held[1..] {
        let fenced = moved.contains(&delivery.event.partition);
        assert_eq!(group.nack(delivery.lease, None).await, !fenced, "only what moved is fenced");
    }
    drop(a);
    while again.len() < 7 {
        again.extend(group.take("b", 100).await.iter().map(seen));
    }
    for (partition, attempt) in again {
        assert_ne!(partition, number(&acked.event), "what was acked stays acked");
        let nacked = !moved.contains(&Partition(partition as u32));
        assert_eq!(attempt, if nacked { 2 } else { 1 }, "partition {partition}: only nacks count");
    }
}

pub async fn epochs_grow_and_survive_a_restart(s: Stage) {
    let topic = s.topic("epochs", 1).await;
    let group = s.group(&topic, "g", partitioned()).await;
    let epoch = async |group: &Arc<Group>| group.status().await.unwrap().partitions[0].epoch;
    let a = group.enter("a").unwrap();
    let first = epoch(&group).await;
    drop(a);
    group.take_now("b", 1).await;
    let second = epoch(&group).await;
    assert!(second > first, "another owner, another epoch");
    s.publish_numbers(&topic, None, [1]).await;
    group.ack_all(&[group.take_just("b", 1, 1).await]).await;
    let s = s.restart().await;
    let group = s.found(&topic, "g").await;
    group.take_now("b", 1).await;
    assert!(epoch(&group).await > second, "also when it is the same member, after a restart");
}

pub async fn in_a_shared_group_everyone_may_get_everything(s: Stage) {
    let topic = s.topic("shared", 4).await;
    one_each(&s, &topic, 4).await;
    let group = s.group(&topic, "g", OptionsPatch::default()).await;
    for member in ["a", "b"] {
        let mut seen = Vec::new();
        while seen.len() < 4 {
            seen.extend(numbers(&group.take(member, 1).await));
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3], "{member} can get the events of every partition");
        // The next member starts from the same place.
        group.set_cursor(From::Earliest, None).await.unwrap();
    }
    assert_eq!(owners(&group).await, vec![None; 4], "nobody owns anything");
}
