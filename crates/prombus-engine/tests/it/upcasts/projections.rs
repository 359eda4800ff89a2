//! Projections that normalize.

use super::stage::*;
use prombus_core::ReadError;
use prombus_engine::projections::ProjectionError;
use serde_json::{Value, json};

fn counting(topic: &str) -> Value {
    json!({"topic": topic, "normalize": true, "write": [
        {"collection": "sums", "key": "event.key", "inc": {"b": "event.payload.b", "c": "event.payload.c"}},
    ]})
}

pub async fn a_projection_applies_the_latest_version(s: Stage) {
    let topic = s.three_versions("applied").await;
    s.put("p", counting("applied")).await;
    s.caught_up("p").await;
    let sum = s.document("sums", "k").await.unwrap();
    assert_eq!((&sum["b"], &sum["c"]), (&json!(6), &json!(30)));
    s.upcast(&topic, 2, json!([{"set": {"c": "1"}}])).await;
    s.rebuilt("p").await;
    assert_eq!(s.field("sums", "k", "c").await, json!(2), "a rebuild goes by what raises events now");
}

pub async fn a_projection_puts_aside_what_cannot_be_raised(s: Stage) {
    let topic = s.three_versions("aside").await;
    s.upcast(&topic, 2, json!([{"set": {"c": "payload.b == 1 ? payload.missing : 1"}}])).await;
    s.put("p", counting("aside")).await;
    s.caught_up("p").await;
    assert_eq!(s.field("sums", "k", "b").await, json!(5));
    let letters = s.letters(&topic).await;
    let letter = letters[0].payload.to_value().unwrap();
    assert_eq!((letters.len(), &letter["original"]["payload"]), (1, &json!({"a": 1})));
    assert!(letter["err"].as_str().unwrap().starts_with("the event cannot be normalized"), "{letter}");
}

pub async fn a_projection_waits_for_a_missing_step(s: Stage) {
    let topic = s.three_versions("waits").await;
    s.put("p", counting("waits")).await;
    s.caught_up("p").await;
    s.version(&topic, &numbers_of(&["b", "c", "d"])).await;
    match s.try_put("late", counting("waits")).await {
        Err(ProjectionError::Read(ReadError::NoUpcaster { from: 3, .. })) => {}
        other => panic!("a missing step is refused, but: {other:?}"),
    }
    s.publish(&topic, [("k", json!({"b": 1, "c": 1, "d": 1}))]).await;
    s.until("p", "it says why it stands still", |status| {
        status.last_error.as_ref().is_some_and(|why| why.contains("no upcaster from version 3"))
    })
    .await;
    s.upcast(&topic, 3, json!([{"set": {"d": "0"}}])).await;
    s.caught_up("p").await;
    assert_eq!(s.field("sums", "k", "b").await, json!(7));
    assert!(s.letters(&topic).await.is_empty());
}
