//! Upcasters as they are stored.

use super::stage::*;
use prombus_engine::schemas::SchemasError;
use prombus_engine::schemas::upcast::UpcastError;
use serde_json::json;

pub async fn upcasters_are_stored_with_the_schemas(s: Stage) {
    let topic = s.three_versions("stored").await;
    let is_durable = s.is_durable();
    let s = if is_durable { s.crash().await } else { s };
    let stored = s.hub.schemas().upcaster(&topic, 2).await.unwrap();
    assert_eq!((stored.from, stored.to), (2, Some(3)));
    assert_eq!(
        serde_json::to_value(&stored.upcaster).unwrap(),
        json!({"ops": [{"set": {"c": "payload.b * 10"}}]})
    );
    assert_eq!(s.raised(&topic).await.unwrap(), three_raised());
}

pub async fn an_upcaster_needs_the_version_that_it_starts_from(s: Stage) {
    let topic = s.topic("needs", 1).await;
    let refused = s.try_upcast(&topic, 1, json!([])).await.unwrap_err();
    assert_eq!(refused, SchemasError::NotFound(topic.clone()));
    s.version(&topic, &numbers_of(&["a"])).await;
    let refused = s.try_upcast(&topic, 2, json!([])).await.unwrap_err();
    assert!(matches!(refused, SchemasError::NoVersion { version: 2, latest: 1, .. }), "{refused}");
    assert!(s.try_upcast(&topic, 1, json!([])).await.unwrap(), "the next version need not be there yet");
    assert_eq!(s.hub.schemas().upcaster(&topic, 1).await.unwrap().to, None);
}

pub async fn what_does_not_compile_is_not_stored(s: Stage) {
    let topic = s.topic("bad", 1).await;
    s.version(&topic, &numbers_of(&["a"])).await;
    for ops in [json!([{"set": {"a": "payload."}}]), json!([{"rename": ["a", "a"]}])] {
        let refused = s.try_upcast(&topic, 1, ops).await.unwrap_err();
        assert!(
            matches!(
                &refused,
                SchemasError::BadUpcaster(UpcastError::Bad(_) | UpcastError::BadExpression { .. })
            ),
            "{refused}"
        );
    }
    assert!(matches!(
        s.hub.schemas().upcaster(&topic, 1).await,
        Err(SchemasError::NoUpcaster { from: 1, .. })
    ));
}

pub async fn an_upcaster_can_be_changed_and_removed(s: Stage) {
    let topic = s.three_versions("changed").await;
    let ops = json!([{"set": {"c": "7"}}]);
    assert!(!s.try_upcast(&topic, 2, ops.clone()).await.unwrap(), "there was one");
    assert!(!s.try_upcast(&topic, 2, ops).await.unwrap(), "the same again changes nothing");
    assert_eq!(s.raised(&topic).await.unwrap()[1], stamped(json!({"b": 2, "c": 7}), 3));
    s.hub.schemas().delete_upcaster(&topic, 2).await.unwrap();
    let gone = s.hub.schemas().delete_upcaster(&topic, 2).await.unwrap_err();
    assert_eq!(gone, SchemasError::NoUpcaster { topic: topic.clone(), from: 2 });
    assert!(s.raised(&topic).await.is_err());
}

pub async fn upcasters_go_with_their_topic(s: Stage) {
    let topic = s.three_versions("gone").await;
    s.hub.delete_topic(&topic).await.unwrap();
    s.topic("gone", 1).await;
    s.version(&topic, &numbers_of(&["a"])).await;
    assert!(s.hub.schemas().upcaster(&topic, 1).await.is_err());
}
