//! Pulls: what is there, or the first that comes.

use crate::groups::stage::{LONG, Stage, Use, drain, numbers};
use prombus_engine::groups::{GroupError, OptionsPatch, Pull};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

fn defaults() -> OptionsPatch {
    OptionsPatch::default()
}

pub async fn a_pull_gives_what_is_there(s: Stage) {
    let topic = s.topic("pulls", 1).await;
    let events = s.publish_numbers(&topic, Some("a"), [0]).await;
    s.publish_numbers(&topic, None, 1..10).await;
    let group = s.group(&topic, "g", defaults()).await;
    let deliveries = group.take("m", 4).await;
    assert_eq!(numbers(&deliveries), [0, 1, 2, 3], "at most as many as asked for, in order");
    let event = &deliveries[0].event;
    assert_eq!((event.id, event.ts, event.offset), (events[0].id, events[0].ts, events[0].offset));
    assert_eq!(event.key.as_deref(), Some("a"), "the event as it was published");
    assert!(deliveries.iter().all(|delivery| delivery.attempt == 1));
    assert_eq!(numbers(&group.take("m", 100).await), [4, 5, 6, 7, 8, 9]);
}

pub async fn names_of_members_do_not_pile_up(s: Stage) {
    const MOST: usize = 16_384;
    let topic = s.topic("names", 1).await;
    let group = s.group(&topic, "g", defaults()).await;
    let pull = |n: usize| Pull { member: Some(format!("m{n}")), max: 1, ..Pull::default() };
    for n in 0..MOST + 100 {
        assert!(group.pull(&pull(n)).await.unwrap().is_empty(), "whoever holds nothing is in nobody's way");
    }
    let listed = group.status().await.unwrap().members.len();
    assert!(listed <= MOST, "{listed}");
    s.publish_numbers(&topic, None, 0..MOST as u64).await;
    for n in 0..MOST {
        assert_eq!(group.pull(&pull(n)).await.unwrap().len(), 1);
    }
    let refused = group.pull(&pull(MOST)).await.unwrap_err();
    assert!(matches!(refused, GroupError::TooManyMembers { limit: MOST }), "{refused:?}");
    assert!(group.pull(&pull(7)).await.unwrap().is_empty(), "those who are there come as often as they like");
}

pub async fn a_pull_waits_for_the_first_event(s: Stage) {
    let topic = s.topic("waiting", 3).await;
    let group = s.group(&topic, "g", defaults()).await;
    for n in 0..20 {
        let waiting = {
            let group = group.clone();
            tokio::spawn(async move { group.take_one("m").await })
        };
        tokio::task::yield_now().await;
        s.publish_numbers(&topic, None, [n]).await;
        let delivery = waiting.await.unwrap();
        group.ack_all(&[delivery]).await;
    }
}

pub async fn a_pull_that_does_not_wait_comes_back_empty(s: Stage) {
    let topic = s.topic("empty", 1).await;
    let group = s.group(&topic, "g", defaults()).await;
    assert!(group.take_now("m", 10).await.is_empty());
    let wait = Duration::from_millis(30);
    let start = tokio::time::Instant::now();
    assert!(group.pull(&Pull { wait, ..Pull::default() }).await.unwrap().is_empty());
    assert!(start.elapsed() >= wait, "it waits as long as it was told to");
}

pub async fn a_pull_that_is_given_up_loses_nothing(s: Stage) {
    let topic = s.topic("given.up", 1).await;
    let group = s.group(&topic, "g", defaults()).await;
    let mut got = Vec::new();
    for n in 0..30 {
        let given_up = timeout(Duration::from_micros(n * 100), group.take("m", 10));
        let (pulled, _) = tokio::join!(given_up, s.publish_numbers(&topic, None, [n]));
        let deliveries = pulled.unwrap_or_default();
        got.extend(numbers(&deliveries));
        group.ack_all(&deliveries).await;
    }
    got.extend(drain(&group, "m").await);
    got.sort_unstable();
    assert_eq!(got, (0..30).collect::<Vec<_>>(), "each event is delivered once");
}

pub async fn many_pulls_share_the_events(s: Stage) {
    let topic = s.topic("shared", 4).await;
    let group = s.group(&topic, "g", defaults()).await;
    let members = (0..6).map(|n| {
        let group = group.clone();
        tokio::spawn(async move {
            let mut got = Vec::new();
            loop {
                let deliveries = group.take(&format!("m{n}"), 7).await;
                group.ack_all(&deliveries).await;
                let numbers = numbers(&deliveries);
                got.extend(numbers.iter().copied().filter(|number| *number < 1_000));
                if numbers.iter().any(|number| *number >= 1_000) {
                    return got;
                }
            }
        })
    });
    let members: Vec<_> = members.collect();
    for n in 0..100 {
        s.publish_numbers(
            &topic,
            Some(&format!("k{}", n % 9)),
            [5 * n, 5 * n + 1, 5 * n + 2, 5 * n + 3, 5 * n + 4],
        )
        .await;
    }
    group
        .until("everything is settled", |status| status.partitions.iter().all(|partition| partition.lag == 0))
        .await;
    // One event at a time tells one member to stop.
    let mut got = Vec::new();
    for (n, member) in members.into_iter().enumerate() {
        let mut member = member;
        loop {
            s.publish_numbers(&topic, None, [1_000 + n as u64]).await;
            if let Ok(ended) = timeout(Duration::from_millis(50), &mut member).await {
                got.extend(ended.unwrap());
                break;
            }
        }
    }
    got.sort_unstable();
    assert_eq!(got, (0..500).collect::<Vec<_>>(), "each event goes to one member");
}

pub async fn a_member_gets_no_more_than_it_may_hold(s: Stage) {
    let topic = s.topic("held", 1).await;
    s.publish_numbers(&topic, None, 0..10).await;
    let group = s.group(&topic, "g", defaults()).await;
    let pull = Pull { member: Some("m".into()), max: 10, max_in_flight: 3, ..Pull::default() };
    let held = group.pull(&Pull { wait: LONG, ..pull.clone() }).await.unwrap();
    assert_eq!(numbers(&held), [0, 1, 2], "as many as it may hold");
    assert!(group.pull(&pull).await.unwrap().is_empty(), "it holds as many as it may");
    assert_eq!(numbers(&group.take("n", 2).await), [3, 4], "that is no other member's matter");
    let waiting = {
        let (group, pull) = (group.clone(), Pull { wait: LONG, ..pull.clone() });
        tokio::spawn(async move { group.pull(&pull).await.unwrap() })
    };
    tokio::task::yield_now().await;
    group.ack_all(&held[1..2]).await;
    assert_eq!(numbers(&waiting.await.unwrap()), [5], "an ack makes room for one");
}

pub async fn pulls_without_a_name_are_one_member(s: Stage) {
    let topic = s.topic("nameless", 1).await;
    s.publish_numbers(&topic, None, 0..4).await;
    let group = s.group(&topic, "g", defaults()).await;
    let pull = Pull { max: 2, max_in_flight: 2, ..Pull::default() };
    assert_eq!(group.pull(&Pull { wait: LONG, ..pull.clone() }).await.unwrap().len(), 2);
    assert!(group.pull(&pull).await.unwrap().is_empty(), "the same member holds two already");
    let status = group.status().await.unwrap();
    assert_eq!(status.members.len(), 1, "{:?}", status.members);
}

pub async fn a_member_that_left_is_counted_for_what_it_holds(s: Stage) {
    let topic = s.topic("left", 1).await;
    s.publish_numbers(&topic, None, 0..6).await;
    let group = s.group(&topic, "g", defaults()).await;
    let pull = Pull { member: Some("m".into()), max: 2, max_in_flight: 2, ..Pull::default() };
    let patient = Pull { wait: LONG, ..pull.clone() };
    let connection = group.enter("m").unwrap();
    let held = connection.pull(&patient).await.unwrap();
    drop(connection);
    assert!(group.pull(&pull).await.unwrap().is_empty(), "it is back, and holds two");
    group.ack_all(&held).await;
    assert_eq!(group.pull(&patient).await.unwrap().len(), 2);
    assert!(group.pull(&pull).await.unwrap().is_empty(), "old acks make room only once");
}

pub async fn connections_of_a_member_share_what_it_may_hold(s: Stage) {
    let topic = s.topic("sharing", 1).await;
    let group = s.group(&topic, "g", defaults()).await;
    let pull = Pull { max: 2, max_in_flight: 2, ..Pull::default() };
    let patient = Pull { wait: LONG, ..pull.clone() };
    let (left, waiting) = (group.enter("m").unwrap(), Arc::new(group.enter("m").unwrap()));
    let waits = tokio::spawn({
        let (waiting, patient) = (waiting.clone(), patient.clone());
        async move { waiting.pull(&patient).await }
    });
    drop(left);
    s.publish_numbers(&topic, None, 0..6).await;
    let held = waits.await.unwrap().unwrap();
    assert!(!held.is_empty());
    let rest = waiting.pull(&pull).await.unwrap();
    assert_eq!(held.len() + rest.len(), 2, "as much as it may hold");
    assert!(waiting.pull(&pull).await.unwrap().is_empty(), "one that left took no count with it");
    group.ack_all(&held).await;
    assert_eq!(waiting.pull(&patient).await.unwrap().len(), held.len());
}

pub async fn closing_ends_the_waiting(s: Stage) {
    let topic = s.topic("closing", 1).await;
    let group = s.group(&topic, "g", defaults()).await;
    let waiting = |group: &Arc<_>| {
        let group: Arc<prombus_engine::groups::Group> = Arc::clone(group);
        tokio::spawn(async move { group.pull(&Pull { wait: LONG, ..Pull::default() }).await })
    };
    let first = waiting(&group);
    group.until("the pull is there", |status| !status.members.is_empty()).await;
    s.hub.groups().stop_waiting();
    assert!(first.await.unwrap().unwrap().is_empty(), "it gets its answer at once");
    let ended = waiting(&group);
    s.hub.groups().close();
    // Either it saw that nobody waits any more, or that the group has ended.
    assert!(ended.await.unwrap().unwrap_or_default().is_empty());
    assert!(group.pull(&Pull::default()).await.is_err(), "a group that has ended says so");
}
