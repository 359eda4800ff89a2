//! What is registered.

use super::stage::*;
use prombus_core::*;
use prombus_engine::BusError;
use prombus_engine::collections::CollectionSettings;
use prombus_engine::schemas::{NewSchema, Registered, SchemasError};
use serde_json::json;

pub async fn versions_are_registered_once_and_never_change(s: Stage) {
    let t = s.topic("t", 1).await;
    assert!(matches!(s.hub.schemas().head(&t).await, Err(SchemasError::NotFound(_))));
    s.clock.advance(5);
    let first = s.try_register(&t, None, "backward", &typed("integer")).await;
    assert_eq!(first, Ok(Registered { version: 1, made: true }));
    let again = s.try_register(&t, Some(1), "backward", &typed("integer")).await;
    assert_eq!(again, Ok(Registered { version: 1, made: false }));
    let skipping = s.try_register(&t, Some(4), "backward", &typed("number")).await;
    assert_eq!(skipping, Ok(Registered { version: 4, made: true }));
    for (version, schema) in [(1, typed("number")), (4, typed("integer")), (3, typed("number"))] {
        let refused = s.try_register(&t, Some(version), "none", &schema).await;
        assert!(matches!(refused, Err(SchemasError::VersionConflict { latest: 4, .. })), "{refused:?}");
    }
    assert!(matches!(s.try_register(&t, Some(0), "none", &json!({})).await, Err(SchemasError::Bad(_))));
    let head = s.hub.schemas().head(&t).await.expect("schemas");
    let versions: Vec<u32> = head.versions.iter().map(|known| known.version).collect();
    assert_eq!(versions, [1, 4]);
    assert_eq!(head.versions[0].registered_ts, 1_754_683_200_005);
    for (asked, version, schema) in [(Some(1), 1, typed("integer")), (None, 4, typed("number"))] {
        let found = s.hub.schemas().version(&t, asked).await.expect("a version");
        assert_eq!((found.head.version, found.text), (version, Json::from_value(&schema)));
    }
    let missing = s.hub.schemas().version(&t, Some(2)).await;
    assert!(matches!(missing, Err(SchemasError::NoVersion { version: 2, latest: 4, .. })), "{missing:?}");
}

pub async fn the_same_schema_in_other_words_is_the_same_version(s: Stage) {
    let t = s.topic("t", 1).await;
    let text = |text: &str| NewSchema {
        text: Json::parse(text.to_owned().into()).expect("JSON"),
        ..new_schema(Some(1), "none", &json!(true))
    };
    let first = text(r#"{"type":"object","properties":{"n":{"minimum":1,"type":"integer"}}}"#);
    assert_eq!(s.hub.schemas().register(&t, &first).await, Ok(Registered { version: 1, made: true }));
    let again = text(r#"{ "properties": {"n": {"type": "integer", "minimum": 1.0}}, "type": "object" }"#);
    assert_eq!(s.hub.schemas().register(&t, &again).await, Ok(Registered { version: 1, made: false }));
    let kept = s.hub.schemas().version(&t, Some(1)).await.expect("a version");
    assert_eq!(kept.text, first.text, "it stays as it was given first");
    let other = text(r#"{"type":"object","properties":{"n":{"minimum":1.5,"type":"integer"}}}"#);
    let refused = s.hub.schemas().register(&t, &other).await;
    assert!(matches!(refused, Err(SchemasError::VersionConflict { latest: 1, .. })), "{refused:?}");
}

pub async fn a_version_has_to_follow_the_earlier_ones(s: Stage) {
    let t = s.topic("t", 1).await;
    for schema in [typed("integer"), typed("number")] {
        s.try_register(&t, None, "backward", &schema).await.expect("it takes all that is there");
    }
    let narrower = typed("integer");
    let refused = s.try_register(&t, None, "backward", &narrower).await;
    let Err(SchemasError::Incompatible { version: 2, violations, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(violations[0].path, "/n");
    let shown = violations[0].counterexample.as_ref().expect("a document that shows it");
    assert!(shown["n"].is_number() && !shown["n"].is_i64(), "{shown}");
    let checks = [
        ("none", true),
        ("backward", false),
        ("forward", true),
        ("full", false),
        // The first version takes it, and all that it takes the first one does.
        ("forward_transitive", true),
    ];
    for (compat, compatible) in checks {
        let new = new_schema(None, compat, &narrower);
        let violations = s.hub.schemas().check(&t, &new).await.expect("an answer");
        assert_eq!(violations.is_empty(), compatible, "{compat}: {violations:?}");
    }
    s.registered(&t, &typed("string")).await;
    let new = new_schema(None, "backward", &typed("string"));
    assert_eq!(s.hub.schemas().check(&t, &new).await, Ok(Vec::new()), "only the last counts");
    let new = new_schema(None, "backward_transitive", &typed("string"));
    let violations = s.hub.schemas().check(&t, &new).await.expect("an answer");
    assert!(!violations.is_empty(), "all count");
    assert_eq!(s.hub.schemas().head(&t).await.expect("schemas").latest(), Some(3), "a check changes nothing");
    let bad = s.try_register(&t, None, "none", &json!({"type": "text"})).await;
    assert!(matches!(bad, Err(SchemasError::BadSchema(_))), "{bad:?}");
}

pub async fn a_check_reads_only_so_much_of_earlier_versions(s: Stage) {
    let t = s.topic("t", 1).await;
    let long = |n: usize| json!({"$comment": format!("{n}{}", "x".repeat(1_000_000))});
    for n in 1..=40 {
        s.registered(&t, &long(n)).await;
    }
    let found = |compat: &'static str| {
        let s = &s;
        async move {
            let new = new_schema(None, compat, &json!({}));
            s.hub.schemas().check(&topic_name("t"), &new).await.expect("an answer")
        }
    };
    assert_eq!(found("backward").await, [], "the last version is compared");
    let undecided = found("backward_transitive").await;
    assert_eq!(undecided[0].rule, "undecided", "{undecided:?}");
    // What is wrong with a later version is found all the same.
    s.registered(&t, &json!({"type": "number"})).await;
    let new = new_schema(None, "backward_transitive", &json!({"type": "integer"}));
    let refused = s.hub.schemas().register(&t, &new).await;
    assert!(matches!(refused, Err(SchemasError::Incompatible { version: 41, .. })), "{refused:?}");
}

pub async fn what_is_rehearsed_is_not_registered(s: Stage) {
    let (t, new) = (topic_name("t"), topic_name("new"));
    s.registered(&t, &typed("integer")).await;
    for topic in [&t, &new] {
        let mut rehearsal = s.hub.schemas().rehearse(topic).await.expect("readable");
        for (version, kind, made) in
            [(1, "integer", *topic == new), (2, "number", true), (2, "number", false)]
        {
            let tried = rehearsal.register(&new_schema(Some(version), "backward", &typed(kind))).await;
            assert_eq!(tried, Ok(Registered { version, made }));
        }
        let refused = rehearsal.register(&new_schema(None, "backward", &typed("integer"))).await;
        assert!(matches!(refused, Err(SchemasError::Incompatible { version: 2, .. })), "{refused:?}");
        let refused = rehearsal.register(&new_schema(Some(2), "none", &typed("string"))).await;
        assert!(matches!(refused, Err(SchemasError::VersionConflict { latest: 2, .. })), "{refused:?}");
        let free = NewSchema { compare_from: 3, ..new_schema(None, "full_transitive", &typed("string")) };
        assert_eq!(rehearsal.register(&free).await, Ok(Registered { version: 3, made: true }));
    }
    assert_eq!(s.hub.schemas().head(&t).await.expect("schemas").latest(), Some(1));
    assert_eq!(s.hub.topic(&new).await, Ok(None));
}

pub async fn registering_makes_the_topic(s: Stage) {
    let t = topic_name("t");
    s.try_register(&t, None, "none", &json!({"type": "text"})).await.expect_err("it is no schema");
    assert_eq!(s.hub.topic(&t).await, Ok(None), "what is refused makes nothing");
    s.registered(&t, &typed("integer")).await;
    assert_eq!(s.hub.topic(&t).await.expect("readable").expect("a topic").config, TopicConfig::default());
    s.violation_of(vec![append(&t, None, &json!({}))]).await;
    let own = topic_name("dlq.t");
    let refused = s.try_register(&own, None, "none", &json!({})).await;
    assert_eq!(refused, Err(SchemasError::Bus(BusError::ReservedTopic(own))));
}

pub async fn a_topic_that_is_deleted_takes_its_schemas_along(s: Stage) {
    let t = topic_name("t");
    s.registered(&t, &typed("integer")).await;
    s.registered(&t, &typed("number")).await;
    s.hub.delete_topic(&t).await.expect("it can be deleted");
    assert!(matches!(s.hub.schemas().head(&t).await, Err(SchemasError::NotFound(_))));
    for collection in s.log.collections().await.expect("readable") {
        assert_eq!(collection.documents, 0, "{} is empty", collection.name);
    }
    s.publish(&t, [("k", json!("anything"))]).await;
    assert_eq!(s.stamps(&t).await, [(json!("anything"), None)]);
    assert_eq!(s.registered(&t, &typed("string")).await, 1, "it is another topic");
    s.publish(&t, [("k", json!({"n": "text"}))]).await;
}

pub async fn what_the_hub_publishes_to_has_no_schemas(s: Stage) {
    let (t, fed, plain) = (topic_name("t"), topic_name("fed"), topic_name("plain"));
    let with = |topic: &TopicName| TopicPatch {
        snapshot: Some(Some(SnapshotConfig { topic: topic.clone(), every_ms: 60_000 })),
        ..TopicPatch::default()
    };
    s.hub.put_topic(&t, with(&fed)).await.expect("a topic with snapshots");
    let refused = s.try_register(&fed, None, "none", &json!({})).await;
    assert!(matches!(&refused, Err(SchemasError::Bad(why)) if why.contains("snapshots of t")), "{refused:?}");
    s.registered(&plain, &json!({})).await;
    s.registered(&t, &json!({})).await;
    let refused = s.hub.put_topic(&topic_name("u"), with(&plain)).await;
    assert!(matches!(&refused, Err(BusError::BadConfig(why)) if why.contains("has schemas")), "{refused:?}");

    let feeding = |topic: &TopicName| CollectionSettings {
        changefeed: Some(topic.clone()),
        ..CollectionSettings::default()
    };
    let told = topic_name("told");
    s.hub.collections().put("c", feeding(&told)).await.expect("a collection with a changefeed");
    let refused = s.try_register(&told, None, "none", &json!({})).await;
    assert!(matches!(&refused, Err(SchemasError::Bad(why)) if why.contains("changefeed")), "{refused:?}");
    let refused = s.hub.collections().put("d", feeding(&plain)).await;
    assert!(refused.is_err_and(|why| why.to_string().contains("has schemas")));
}

pub async fn schemas_outlive_the_hub(s: Stage) {
    let t = topic_name("t");
    s.registered(&t, &typed("integer")).await;
    s.registered(&t, &typed("number")).await;
    let s = s.crash().await;
    assert_eq!(s.hub.schemas().head(&t).await.expect("schemas").latest(), Some(2));
    s.violation_of(vec![append(&t, None, &json!({"n": "text"}))]).await;
    s.publish(&t, [("k", json!({"n": 0.5}))]).await;
    assert_eq!(s.stamps(&t).await, [(json!({"n": 0.5}), Some(2))]);
}

pub async fn of_many_who_register_at_once_each_has_a_version(s: Stage) {
    let t = topic_name("t");
    let (t, hub) = (&t, &s.hub);
    let schema = |n: u32| new_schema(None, "none", &json!({"title": n.to_string()}));
    let all = futures::future::join_all((0..6).map(|n| async move {
        hub.schemas().register(t, &schema(n)).await.expect("it is registered, whoever comes first")
    }));
    let mut versions: Vec<u32> = all.await.into_iter().map(|registered| registered.version).collect();
    versions.sort_unstable();
    assert_eq!(versions, [1, 2, 3, 4, 5, 6]);
}
