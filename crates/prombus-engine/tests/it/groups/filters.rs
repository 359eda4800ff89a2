//! Groups that are about some events only.

use crate::groups::stage::{Stage, Use, drain, group_name};
use prombus_core::{
    Commit, CursorKey, CursorMove, CursorTarget, EventLog, EventLogExt, Partition, TopicName,
};
use prombus_engine::groups::{GroupError, OptionsPatch, Pull};
use serde_json::Value;
use std::sync::Arc;

fn filter(filter: &str) -> OptionsPatch {
    OptionsPatch { filter: Some(Some(filter.into())), ..OptionsPatch::default() }
}

pub async fn what_a_filter_drops_is_settled(s: Stage) {
    let topic = s.topic("filtered", 1).await;
    s.publish_numbers(&topic, Some("k"), 0..300).await;
    let group = s.group(&topic, "g", filter("event.payload.n % 100 == 7")).await;
    assert_eq!(drain(&group, "m").await, [7, 107, 207]);
    let status = group.status().await.unwrap();
    assert_eq!((status.partitions[0].lag, status.partitions[0].next), (0, 300), "what it drops is settled");
    assert_eq!(group.counters().delivered.get(), 3, "and is no delivery");
}

pub async fn a_filter_that_fails_does_not_match(s: Stage) {
    let topic = s.topic("failing", 1).await;
    s.publish_numbers(&topic, None, [1, 2]).await;
    let group = s.group(&topic, "g", filter("event.payload.missing > 1 || event.payload.n == 2")).await;
    // A missing field makes the left side fail, and the right side still decides where it can.
    let got = drain(&group, "m").await;
    assert!(got.is_empty() || got == [2], "{got:?}");
    let group = s.group(&topic, "h", filter("event.key.startsWith('a')")).await;
    assert!(drain(&group, "m").await.is_empty(), "no key, no match");
    s.publish_numbers(&topic, Some("ab"), [3]).await;
    group.take_just("m", 3, 1).await;
    assert_eq!(group.status().await.unwrap().partitions[0].lag, 1, "only the match is open");
}

pub async fn a_filter_survives_a_restart(s: Stage) {
    let topic = s.topic("kept", 1).await;
    let group = s.group(&topic, "g", filter("event.payload.n > 5")).await;
    s.publish_numbers(&topic, None, [1, 6]).await;
    assert_eq!(drain(&group, "m").await, [6]);
    let s = s.restart().await;
    s.publish_numbers(&topic, None, [2, 7]).await;
    assert_eq!(drain(&s.found(&topic, "g").await, "m").await, [7]);
}

pub async fn a_filter_that_fails_is_counted(s: Stage) {
    let topic = s.topic("counted", 1).await;
    s.publish_numbers(&topic, None, 0..7).await;
    let group = s.group(&topic, "g", filter("event.payload.missing == 1")).await;
    assert!(drain(&group, "m").await.is_empty());
    let status = group.status().await.unwrap();
    assert_eq!((status.filter_errors, status.bad_filter, status.partitions[0].lag), (7, None, 0));
}

pub async fn a_filter_that_costs_too_much_does_not_match(s: Stage) {
    let topic = s.topic("costly", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let bomb = format!("size(['aaaaaaaaaaaaaaaa']{}) > 0", ".map(a,a+a)".repeat(29));
    let group = s.group(&topic, "g", filter(&bomb)).await;
    assert!(drain(&group, "m").await.is_empty());
    let s = s.restart().await;
    s.publish_numbers(&topic, None, [2]).await;
    let group = s.found(&topic, "g").await;
    assert!(drain(&group, "m").await.is_empty());
    assert!(group.status().await.unwrap().filter_errors > 0, "since the restart");
    s.hub.groups().delete(&topic, &group_name("g")).await.unwrap();
}

/// Puts something else in the place of the stored options of a group.
pub async fn store_options(s: &Stage, topic: &TopicName, group: &str, change: impl Fn(&[u8]) -> Vec<u8>) {
    let key =
        CursorKey { topic: topic.clone(), reader: format!("group-options:{group}"), partition: Partition(0) };
    let cursor = s.log.cursor(&key).await.unwrap().expect("the group is there");
    let to = Some(CursorTarget { next: cursor.next, detail: change(&cursor.detail).into() });
    let (expect_version, epoch) = (cursor.version, cursor.epoch);
    let cursors = vec![CursorMove { key, incarnation: None, expect_version, epoch, to }];
    s.log.commit(Arc::new(Commit { cursors, ..Commit::default() })).await.unwrap();
}

pub async fn a_filter_that_compiles_no_more_delivers_nothing_and_loses_nothing(s: Stage) {
    let topic = s.topic("old", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    s.group(&topic, "g", filter("event.payload.n > 0")).await;
    store_options(&s, &topic, "g", |options| {
        let mut options: Value = serde_json::from_slice(options).unwrap();
        options["filter"] = "of_an_earlier.build(".into();
        options.to_string().into_bytes()
    })
    .await;
    let s = s.restart().await;
    let group = s.found(&topic, "g").await;
    let pulled = group.pull(&Pull::default()).await;
    assert!(matches!(pulled, Err(GroupError::BadFilter(_))), "{pulled:?}");
    let status = group.status().await.unwrap();
    assert_eq!((status.partitions[0].lag, status.partitions[0].next), (1, 0), "it waits");
    assert!(status.bad_filter.is_some());
    let state = s.log.topic(&topic).await.unwrap().unwrap();
    assert_eq!(s.hub.groups().list(&state).await.len(), 1);
    s.hub.groups().delete(&topic, &group_name("g")).await.unwrap();
    assert_eq!(s.hub.groups().list(&state).await.len(), 0);
}

pub async fn a_group_that_cannot_be_read_can_be_deleted(s: Stage) {
    let topic = s.topic("damaged", 1).await;
    s.group(&topic, "g", OptionsPatch::default()).await;
    store_options(&s, &topic, "g", |_| b"of another build".to_vec()).await;
    let s = s.restart().await;
    assert!(s.hub.groups().find(&topic, &group_name("g")).await.is_err());
    s.hub.groups().delete(&topic, &group_name("g")).await.unwrap();
    let gone = s.hub.groups().find(&topic, &group_name("g")).await;
    assert!(matches!(gone, Err(GroupError::NotFound { .. })));
}
