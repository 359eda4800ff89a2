//! Events that are given up before a projection has seen them.

use crate::projections::stage::*;
use prombus_core::{Commit, Offset, Partition};
use prombus_engine::projections::{MinOffset, ProjectionState, ProjectionStatus};
use serde_json::{Value, json};

/// More than are applied at once, several times.
const MANY: u64 = 9_000;

/// Whether a commit writes to what is made anew.
fn builds(commit: &Commit) -> bool {
    commit.documents.iter().any(|write| write.collection.ends_with("~rebuild"))
}

fn events(count: u64) -> impl Iterator<Item = (&'static str, Value)> {
    (0..count).map(|_| ("a", json!({"k": "a", "v": 1})))
}

/// A projection that is being rebuilt, and whose topic is given up before that gets to it. Gives what came of it.
async fn overtaken(s: &Stage, partial: bool) -> (ProjectionStatus, u64) {
    let topic = s.topic("t", 1).await;
    s.put("p", counter("t", "counts")).await;
    s.publish(&topic, events(MANY)).await;
    s.caught_up("p").await;
    s.log.hold(builds);
    s.hub.projections().rebuild("p", partial).await.expect("it can be begun");
    s.log.until_held(1).await;
    s.trim(&topic, MANY - 5).await;
    s.log.release();
    let status = s.until("p", "the rebuild ends", |status| status.rebuild.is_none()).await;
    let counted = s.field("counts", "a", "n").await.as_u64().expect("a number");
    s.publish(&topic, events(1)).await;
    assert_eq!(s.caught_up("p").await.state, ProjectionState::Running);
    assert_eq!(s.field("counts", "a", "n").await, json!(counted + 1), "and it goes on");
    (status, counted)
}

pub async fn a_rebuild_that_is_overtaken_is_given_up(s: Stage) {
    let (status, counted) = overtaken(&s, false).await;
    let why = status.rebuild_error.expect("it was given up");
    assert!(why.contains("partial"), "{why}");
    assert_eq!(counted, MANY, "what was there stays");
}

pub async fn a_partial_rebuild_goes_on_at_what_is_kept(s: Stage) {
    let (status, counted) = overtaken(&s, true).await;
    assert_eq!(status.rebuild_error, None);
    assert!((5..MANY).contains(&counted), "some were gone before it saw them: {counted}");
}

pub async fn a_partial_rebuild_stays_one_across_a_restart(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", counter("t", "counts")).await;
    s.publish(&topic, events(MANY)).await;
    s.caught_up("p").await;
    s.trim(&topic, 5).await;
    s.log.hold(builds);
    s.hub.projections().rebuild("p", true).await.expect("it can be begun");
    s.log.until_held(1).await;
    let s = s.crash().await;
    let status = s.until("p", "the rebuild ends", |status| status.rebuild.is_none()).await;
    assert_eq!((status.rebuild_error, s.field("counts", "a", "n").await), (None, json!(MANY - 5)));
}

pub async fn holes_are_passed_over_in_all_partitions(s: Stage) {
    let topic = s.topic("t", 2).await;
    let all = (0..400).map(|n| {
        s.clock.advance(1);
        append(&topic, Some(&format!("k{n}")), &json!({"k": "a", "v": n}))
    });
    s.hub.publish(all.collect()).await.expect("events can be published");
    s.put("early", counter("t", "early")).await;
    s.caught_up("early").await;
    let tail = s.status("early").await.partitions[0].tail.0;
    // All but two, and the last ones too.
    s.discard(&topic, (0..tail).filter(|offset| ![3, 70].contains(offset))).await;
    let kept = 400 - (tail - 2);
    s.put("late", counter("t", "late")).await;
    let status = s.caught_up("late").await;
    assert_eq!((status.state, status.lag), (ProjectionState::Running, 0));
    assert_eq!(s.field("late", "a", "n").await, json!(kept));
    let seen = MinOffset { partition: Some(Partition(0)), offset: Offset(tail - 1) };
    assert!(s.hub.projections().until_seen("late", seen).await.expect("a place"), "a hole counts as seen");
    assert_eq!(s.field("early", "a", "n").await, json!(400), "what was applied stays");
    let status = s.rebuilt("early").await;
    assert_eq!((status.rebuild_error, s.field("early", "a", "n").await), (None, json!(kept)));
    assert_eq!(s.all("early").await.len(), s.all("late").await.len());
}
