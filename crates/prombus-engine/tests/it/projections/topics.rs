//! Topics that come, grow, lose their history and go.

use crate::projections::stage::*;
use prombus_core::{CommitError, Offset, Partition};
use prombus_engine::projections::{MinOffset, ProjectionError, ProjectionState};
use serde_json::json;

pub async fn a_projection_waits_for_its_topic(s: Stage) {
    s.put("p", changelog("t", "c")).await;
    let waiting = ProjectionState::Waiting(topic_name("t"));
    s.until("p", "it waits", |status| status.state == waiting).await;
    let topic = s.topic("t", 2).await;
    s.publish(&topic, [("a", json!({"n": 1}))]).await;
    assert_eq!(s.caught_up("p").await.state, ProjectionState::Running);
    assert_eq!(s.field("c", "a", "n").await, json!(1));
}

pub async fn order_per_key_survives_growth(s: Stage) {
    let topic = s.topic("t", 1).await;
    let keys: Vec<String> = (0..50).map(|n| format!("k{n}")).collect();
    // The last of a key is what its document is.
    for (round, partitions) in [(0, 2), (1, 5), (2, 8)] {
        for _ in 0..20 {
            s.publish(&topic, keys.iter().map(|key| (key.as_str(), json!({"round": round})))).await;
        }
        s.topic("t", partitions).await;
    }
    s.publish(&topic, keys.iter().map(|key| (key.as_str(), json!({"round": 3})))).await;
    s.put("p", changelog("t", "c")).await;
    s.put("n", json!({"topic": "t", "write": [
        {"collection": "counts", "key": "event.key", "inc": {"n": "1"}, "set": {"round": "event.payload.round"}},
    ]}))
    .await;
    for name in ["p", "n"] {
        assert_eq!(s.caught_up(name).await.partitions.len(), 8);
    }
    for key in &keys {
        assert_eq!(s.field("c", key, "round").await, json!(3), "{key}");
        let counted = (s.field("counts", key, "n").await, s.field("counts", key, "round").await);
        assert_eq!(counted, (json!(61), json!(3)), "{key}");
    }
    // While it runs.
    s.topic("t", 16).await;
    s.publish(&topic, keys.iter().map(|key| (key.as_str(), json!({"round": 4})))).await;
    s.caught_up("p").await;
    for key in &keys {
        assert_eq!(s.field("c", key, "round").await, json!(4), "{key}");
    }
}

pub async fn a_topic_that_is_made_again_is_another_one(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", counter("t", "counts")).await;
    let events = |count: u64| (0..count).map(|_| ("x", json!({"k": "a", "v": 1})));
    s.publish(&topic, events(10)).await;
    s.caught_up("p").await;
    s.hub.delete_topic(&topic).await.expect("a topic can be deleted");
    s.until("p", "it waits", |status| matches!(status.state, ProjectionState::Waiting(_))).await;
    s.topic("t", 1).await;
    s.publish(&topic, events(3)).await;
    let status = s.caught_up("p").await;
    assert_eq!((status.state, status.partitions[0].next), (ProjectionState::Running, Offset(3)));
    assert_eq!(s.field("counts", "a", "n").await, json!(13));
}

pub async fn a_topic_that_is_made_again_at_once_is_noticed(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", changelog("t", "c")).await;
    s.publish(&topic, (0..10).map(|n| ("old", json!({"n": n})))).await;
    s.caught_up("p").await;
    s.log.hold(moves_cursors);
    s.publish(&topic, [("old", json!({"n": 10}))]).await;
    s.log.until_held(1).await;
    s.hub.delete_topic(&topic).await.expect("a topic can be deleted");
    s.topic("t", 1).await;
    s.publish(&topic, [("new", json!({"n": 1}))]).await;
    s.log.release();
    // What was under way was of the topic before, and must not count for this one.
    s.caught_up("p").await;
    assert_eq!(s.field("c", "new", "n").await, json!(1));
    assert_eq!(s.field("c", "old", "n").await, json!(9));
    assert_eq!(s.status("p").await.partitions[0].next, Offset(1));
}

pub async fn a_new_projection_starts_at_what_is_kept(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.publish(&topic, (0..10).map(|n| ("a", json!({"k": "a", "v": n})))).await;
    s.trim(&topic, 6).await;
    s.put("p", counter("t", "counts")).await;
    let status = s.caught_up("p").await;
    assert_eq!((status.state, status.lag), (ProjectionState::Running, 0));
    assert_eq!(s.field("counts", "a", "n").await, json!(4));
}

pub async fn one_that_is_behind_what_is_kept_stops_and_says_so(s: Stage) {
    let topic = s.topic("t", 1).await;
    let events = |count: u64| (0..count).map(|n| ("a", json!({"k": "a", "v": n})));
    s.put("p", counter("t", "counts")).await;
    s.publish(&topic, events(5)).await;
    s.caught_up("p").await;
    // A commit that is held up keeps it where it is.
    s.refuse(moves_cursors, usize::MAX, CommitError::NoRoom);
    s.publish(&topic, events(5)).await;
    s.until("p", "it waits", |status| status.last_error.is_some()).await;
    s.trim(&topic, 8).await;
    s.refuse(moves_cursors, 0, CommitError::NoRoom);
    let stopped =
        s.until("p", "it stops", |status| matches!(status.state, ProjectionState::Stopped(_))).await;
    let ProjectionState::Stopped(reason) = stopped.state else { unreachable!("it has stopped") };
    assert!(reason.contains("5 to 7") && reason.contains("partial"), "{reason}");
    assert_eq!(s.field("counts", "a", "n").await, json!(5));
    let refused = s.hub.projections().rebuild("p", false).await;
    assert!(matches!(refused, Err(ProjectionError::Incomplete { first: Offset(8), .. })), "{refused:?}");
    s.hub.projections().rebuild("p", true).await.expect("a partial rebuild can be begun");
    s.until("p", "it is rebuilt and runs", |status| {
        status.rebuild.is_none() && status.state == ProjectionState::Running
    })
    .await;
    s.publish(&topic, events(1)).await;
    s.caught_up("p").await;
    assert_eq!(s.field("counts", "a", "n").await, json!(3), "what is kept, and what is new");
}

/// What it has seen of the topic before must not keep a rebuild from its end.
pub async fn a_stopped_projection_is_rebuilt_from_a_topic_that_was_made_again(s: Stage) {
    let topic = s.topic("t", 1).await;
    let events = |count: u64| (0..count).map(|n| ("a", json!({"k": "a", "v": n})));
    s.put("p", counter("t", "counts")).await;
    s.publish(&topic, events(20)).await;
    s.caught_up("p").await;
    s.refuse(moves_cursors, usize::MAX, CommitError::NoRoom);
    s.publish(&topic, events(5)).await;
    s.until("p", "it waits", |status| status.last_error.is_some()).await;
    s.trim(&topic, 24).await;
    s.refuse(moves_cursors, 0, CommitError::NoRoom);
    s.until("p", "it stops", |status| matches!(status.state, ProjectionState::Stopped(_))).await;
    s.hub.delete_topic(&topic).await.expect("a topic can be deleted");
    s.topic("t", 1).await;
    s.publish(&topic, events(3)).await;
    s.rebuilt("p").await;
    s.caught_up("p").await;
    assert_eq!(s.field("counts", "a", "n").await, json!(3));
}

pub async fn whoever_waits_for_an_offset_hears_of_it(s: Stage) {
    let topic = s.topic("t", 3).await;
    s.put("p", changelog("t", "c")).await;
    let at = |partition: Option<u32>, offset| MinOffset {
        partition: partition.map(Partition),
        offset: Offset(offset),
    };
    let projections = s.hub.projections().clone();
    let waiter = tokio::spawn(async move { projections.until_seen("c", at(Some(1), 0)).await });
    let mut partitions = std::collections::BTreeSet::new();
    for n in 0..20 {
        let key = format!("k{n}");
        partitions.insert(s.publish(&topic, [(key.as_str(), json!({}))]).await[0].partition);
    }
    assert_eq!(partitions.len(), 3);
    assert!(waiter.await.expect("no panic").expect("an answer"));
    assert!(s.hub.projections().until_seen("c", at(Some(2), 0)).await.expect("an answer"));
    for bad in [at(None, 0), at(Some(3), 0)] {
        let answer = s.hub.projections().until_seen("c", bad).await;
        assert!(matches!(answer, Err(ProjectionError::Bad(_))), "{answer:?}");
    }
    let unowned = s.hub.projections().until_seen("nothing", at(Some(0), 0)).await;
    assert!(matches!(unowned, Err(ProjectionError::Bad(_))), "{unowned:?}");
}
