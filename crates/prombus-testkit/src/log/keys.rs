//! Events by id, and the latest of a key.

use crate::Subject;
use crate::build::{event, moving_keys, numbered, partitions, producer_id};
use crate::subject::assert_is;
use prombus_core::Offset;
use std::collections::HashMap;

/// An event is found by its id, whoever made that, in every partition.
pub async fn an_event_is_found_by_its_id(s: Subject) {
    let topic = s.create("found", partitions(3)).await;
    let drafts = (0..30).map(|n| {
        let draft = numbered(n).in_partition(n as u32 % 3);
        if n % 2 == 0 { draft.id(producer_id(n as u64)) } else { draft }
    });
    for appended in s.published(&topic, drafts).await {
        let found = s.by_id(&topic, appended.id).await;
        assert_is(found.as_ref(), &appended);
        let read = s.all(&topic, appended.partition.0).await;
        assert_eq!(found.as_ref(), read.get(appended.offset.0 as usize), "it is the same that a read gives");
    }
    assert_eq!(s.by_id(&topic, producer_id(1_000)).await, None, "an unknown id is not found");
}

/// The latest of a key is the one that was committed last, whatever its `ts`.
pub async fn the_latest_of_a_key_was_committed_last(s: Subject) {
    let topic = s.create("latest", partitions(1)).await;
    assert_eq!(s.latest(&topic, "a").await, None, "a key without events has no latest");
    s.published(&topic, [event("1").key("a").ts(900), event("2").key("b"), event("3").key("a").ts(100)])
        .await;
    s.published(&topic, [event("4"), event("5").key("c")]).await;
    for (key, offset) in [("a", 2), ("b", 1), ("c", 4)] {
        let latest = s.latest(&topic, key).await.map(|event| event.offset);
        assert_eq!(latest, Some(Offset(offset)), "the latest of {key} was committed last");
    }
    for other in ["A", "aa", "d"] {
        assert_eq!(s.latest(&topic, other).await, None, "{other} is another key");
    }
}

/// A tombstone is an event, and the latest of its key.
pub async fn a_tombstone_is_the_latest_event(s: Subject) {
    let topic = s.create("tombstones", partitions(1)).await;
    let receipt = s.published(&topic, [event("1").key("k"), event("null").key("k")]).await;
    let latest = s.latest(&topic, "k").await;
    assert_is(latest.as_ref(), &receipt[1]);
    assert!(latest.is_some_and(|event| event.payload.is_null()), "a tombstone is an event with null");
    assert_eq!(s.history(&topic, "k", 10).await.len(), 2, "a tombstone is part of the history");
    s.assert_holds(&topic, 0, &["1", "null"]).await;
}

/// When a key was placed elsewhere by growth, its latest is the one committed last in the topic.
pub async fn the_latest_of_a_key_is_the_topics(s: Subject) {
    let topic = s.create("latest.growth", partitions(1)).await;
    let keys: Vec<String> = moving_keys(6).take(4).collect();
    let drafts = |n: usize| keys.iter().map(move |key| numbered(n).key(key));
    // Many before the growth, so that offsets would mislead.
    for n in 0..5 {
        s.published(&topic, drafts(n)).await;
    }
    s.grow(&topic, 6).await;
    for (key, n) in keys.iter().zip(0..) {
        let latest = s.latest(&topic, key).await.map(|event| event.offset);
        assert_eq!(latest, Some(Offset(16 + n)), "growth alone changes nothing");
    }
    let receipt = s.published(&topic, drafts(5)).await;
    for (key, appended) in keys.iter().zip(&receipt) {
        assert!(appended.partition.0 > 0 && appended.offset < Offset(4), "the key goes elsewhere");
        assert_is(s.latest(&topic, key).await.as_ref(), appended);
    }
}

/// The latest of each key agrees with a plain search over all events.
pub async fn the_latest_of_each_key_agrees_with_a_plain_search(s: Subject) {
    let topic = s.create("latest.many", partitions(3)).await;
    let mut rng = fastrand::Rng::with_seed(4);
    let mut latest = HashMap::new();
    for n in 0..40 {
        let keys: Vec<String> = (0..rng.usize(1..8)).map(|_| format!("k{}", rng.u32(0..12))).collect();
        let receipt = s.published(&topic, keys.iter().map(|key| numbered(n).key(key))).await;
        latest.extend(keys.into_iter().zip(receipt));
    }
    for (key, appended) in &latest {
        assert_is(s.latest(&topic, key).await.as_ref(), appended);
    }
}
