//! Circles that events would go in by way of snapshots.

use super::definitions::{fed, is_circle, store};
use crate::projections::stage::*;
use prombus_core::{SnapshotConfig, SystemClock, TopicConfig, TopicPatch, TopicState};
use prombus_engine::projections::{ProjectionError, ProjectionState};
use prombus_engine::{BusError, Hub, HubOptions, Store};
use prombus_store_memory::MemoryStore;
use serde_json::json;
use std::sync::Arc;

fn to(target: &str) -> SnapshotConfig {
    SnapshotConfig { topic: topic_name(target), every_ms: 1 }
}

async fn try_snapshots(s: &Stage, topic: &str, target: &str) -> Result<TopicState, BusError> {
    let patch = TopicPatch { snapshot: Some(Some(to(target))), ..TopicPatch::default() };
    s.hub.put_topic(&topic_name(topic), patch).await.map(|(state, _)| state)
}

/// Whichever of them comes last.
pub async fn snapshots_are_part_of_a_circle(s: Stage) {
    try_snapshots(&s, "u", "u.snap").await.expect("nobody reads them");
    let way = "topic u.snap, projection \"p\", collection c, topic u, its snapshots, topic u.snap";
    is_circle(s.try_put("p", fed("u.snap", "c", "u")).await, way);
    assert_eq!(s.hub.collections().get("c").await.expect("readable"), None, "nothing was made");
    s.put("p", fed("u.snap", "c", "x")).await;
    let way = "collection d, topic u, its snapshots, topic u.snap, projection \"p\", collection c, topic x";
    is_circle(s.try_put("q", fed("x", "d", "u")).await, way);
    // A topic that is to have snapshots closes one just as well, by dead letters too.
    s.put("r", fed("v.snap", "e", "w")).await;
    s.put("letters", fed("dlq.w", "l", "v")).await;
    s.put("of_w", fed("w", "f", "end")).await;
    let refused = try_snapshots(&s, "v", "v.snap").await;
    let Err(BusError::BadConfig(message)) = refused else { panic!("{refused:?}") };
    let way = "topic v, its snapshots, topic v.snap, projection \"r\", collection e, topic w, projection \"of_w\", dead letters, topic dlq.w, projection \"letters\", collection l, topic v";
    assert!(message.ends_with(way), "{message}");
    assert_eq!(s.hub.topic(&topic_name("v.snap")).await.expect("readable"), None, "nothing was made");
    try_snapshots(&s, "v", "elsewhere").await.expect("they lead to no projection");
    s.hub.projections().delete("r").await.expect("it can be deleted");
    try_snapshots(&s, "v", "v.snap").await.expect("they lead to no projection");
}

pub async fn of_two_that_close_a_circle_at_once_one_is_refused(s: Stage) {
    for round in 0..20 {
        let (topic, target) = (format!("u{round}"), format!("u{round}.snap"));
        let definition = fed(&target, &format!("c{round}"), &topic);
        let name = format!("p{round}");
        let (snapshots, projection) =
            tokio::join!(try_snapshots(&s, &topic, &target), s.try_put(&name, definition));
        assert!(snapshots.is_ok() != projection.is_ok(), "{snapshots:?} {projection:?}");
    }
}

pub async fn a_circle_through_snapshots_that_is_stored_stands_still(s: Stage) {
    let u = s.topic("u", 1).await;
    try_snapshots(&s, "u", "u.snap").await.expect("nobody reads them");
    s.put("p", changelog("u.snap", "c")).await;
    let definition = fed("u.snap", "c", "u");
    store(&s, "p", &json!({"definition": definition, "made": definition})).await;
    let s = s.restart().await;
    let status = s.status("p").await;
    let ProjectionState::Stopped(reason) = &status.state else { panic!("{status:?}") };
    assert!(reason.contains("its snapshots, topic u.snap"), "{reason}");
    s.publish(&u, [("k", json!({"a": 1}))]).await;
    assert_eq!(s.hub.cleaning().snapshot(&u).await.expect("snapshots can be published"), 1);
    assert_eq!((s.events(&u).await.len(), s.status("p").await.lag), (1, 1));
    // The topic can be set otherwise, and once the circle is gone, the projection goes on.
    let other = TopicPatch { compaction: Some(true), ..TopicPatch::default() };
    s.hub.put_topic(&u, other).await.expect("that is no part of the circle");
    let none = TopicPatch { snapshot: Some(None), ..TopicPatch::default() };
    s.hub.put_topic(&u, none).await.expect("snapshots can end");
    s.put("p", definition).await;
    s.caught_up("p").await;
    assert_eq!(s.events(&u).await.len(), 2);
    let refused = try_snapshots(&s, "u", "u.snap").await;
    assert!(matches!(refused, Err(BusError::BadConfig(_))), "{refused:?}");
}

/// A topic that does not exist is made by the configuration as soon as something is published to it.
#[tokio::test]
async fn what_the_configuration_says_of_a_topic_counts_before_it_is_made() {
    let config = TopicConfig { snapshot: Some(to("u.snap")), ..TopicConfig::default() };
    let options = HubOptions { topics: [(topic_name("u"), config)].into(), ..HubOptions::default() };
    let hub = Hub::assemble(Store::new(Arc::new(MemoryStore::new(Arc::new(SystemClock), 1))), options);
    let definition = serde_json::from_value(fed("u.snap", "c", "u")).expect("a definition");
    let refused = hub.projections().put("p", definition).await;
    assert!(matches!(refused, Err(ProjectionError::Bad(_))), "{refused:?}");
    hub.close().await;
}
