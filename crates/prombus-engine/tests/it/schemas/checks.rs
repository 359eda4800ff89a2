//! What schemas do to events, whichever way they come.

use super::stage::*;
use crate::commits::consumer::{group, take_all};
use prombus_core::*;
use prombus_engine::BusError;
use prombus_engine::commits::{CommitRefused, CommitRequest};
use prombus_engine::groups::{Replay, ReplayTo};
use prombus_engine::schemas::ViolatedVersion;
use serde_json::{Value, json};

pub async fn events_are_held_against_the_latest_version_and_stamped(s: Stage) {
    let t = s.topic("t", 2).await;
    s.publish(&t, [("k", json!("before"))]).await;
    s.registered(&t, &typed("integer")).await;
    s.publish(&t, [("k", json!({"n": 1}))]).await;
    s.registered(&t, &typed("string")).await;
    let refused = s.violation_of(vec![append(&t, Some("k"), &json!({"n": 1}))]).await;
    assert_eq!((refused.index, refused.version), (0, ViolatedVersion::Version(2)));
    let mut with_headers = append(&t, Some("k"), &json!({"n": "a"}));
    with_headers.event.headers = Some(Box::new(Json::from_value(&json!({"x-b": "c"}))));
    s.try_publish(vec![with_headers]).await.expect("it is as it must be");
    let stamps = s.stamps(&t).await;
    assert_eq!(stamps, [(json!("before"), None), (json!({"n": 1}), Some(1)), (json!({"n": "a"}), Some(2))]);
    let last = s.events(&t).await.pop().expect("an event").headers.expect("headers");
    assert_eq!(last.to_value().expect("JSON"), json!({"x-schema-version": "2", "x-b": "c"}));
}

pub async fn an_event_may_name_an_earlier_version(s: Stage) {
    let t = s.topic("t", 1).await;
    s.registered(&t, &typed("integer")).await;
    s.registered(&t, &typed("string")).await;
    s.try_publish(vec![naming(&t, "1", &json!({"n": 1}))]).await.expect("the first version takes it");
    let refused = s.violation_of(vec![naming(&t, "1", &json!({"n": "a"}))]).await;
    assert_eq!(refused.version, ViolatedVersion::Version(1));
    for unknown in ["3", "0", "01", "+1", "latest", "", "99999999999"] {
        let refused = s.violation_of(vec![naming(&t, unknown, &json!({"n": 1}))]).await;
        assert_eq!(refused.version, ViolatedVersion::Unregistered(unknown.into()));
        assert!(refused.places[0].message.contains(&format!("{unknown:?}")), "{refused}");
    }
    let headers = s.events(&t).await.pop().expect("an event").headers.expect("headers");
    assert_eq!(headers.to_value().expect("JSON"), json!({"x-schema-version": "1", "x-a": "b"}), "as it came");
}

pub async fn what_takes_too_long_to_check_is_refused_and_said_to_be_that(s: Stage) {
    let t = s.topic("t", 1).await;
    let patterns: Vec<Value> = (0..2_000).map(|n| json!({"pattern": format!("^[^{n}]*$")})).collect();
    s.registered(&t, &json!({ "allOf": patterns })).await;
    s.publish(&t, [("k", json!("abc"))]).await;
    let refused = s.violation_of(vec![append(&t, Some("k"), &json!("a".repeat(200_000)))]).await;
    assert_eq!(refused.version, ViolatedVersion::Unchecked(1));
    let said = refused.to_string();
    assert!(
        said.starts_with("the payload was not checked against version 1 of the schema of topic t"),
        "{said}"
    );
    assert!(refused.places[0].message.contains("could not be checked"), "{refused}");
}

pub async fn every_failing_place_is_told_and_the_event(s: Stage) {
    let t = s.topic("t", 1).await;
    let schema = json!({"type": "object", "required": ["id"], "properties": {
        "id": {"type": "string"}, "n": {"type": "integer", "minimum": 0},
        "list": {"items": {"type": "string"}},
    }});
    s.registered(&t, &schema).await;
    let bad = json!({"n": -1.5, "list": ["a", 1, "b", 2]});
    let good = json!({"id": "a"});
    let events = [&good, &good, &bad, &json!({})].map(|payload| append(&t, None, payload)).to_vec();
    let refused = s.violation_of(events).await;
    let mut paths: Vec<&str> = refused.places.iter().map(|place| place.path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!((refused.index, paths), (2, vec!["", "/list/1", "/list/3", "/n", "/n"]));
    assert!(refused.to_string().contains("(and 4 more places)"), "{refused}");
    assert!(s.events(&t).await.is_empty(), "all or none");
}

pub async fn what_is_warned_of_is_taken_and_counted(s: Stage) {
    let t = s.topic("t", 1).await;
    s.registered(&t, &typed("integer")).await;
    assert_eq!(s.hub.schemas().violations(), []);
    s.violation_of(vec![append(&t, None, &json!(0))]).await;
    s.set_mode(&t, SchemaMode::Warn).await;
    let events = vec![
        append(&t, None, &json!({"n": 1})),
        append(&t, None, &json!({"n": "a"})),
        naming(&t, "7", &json!({"n": 2})),
    ];
    s.try_publish(events).await.expect("all are taken");
    let stamps = s.stamps(&t).await;
    assert_eq!(
        stamps,
        [(json!({"n": 1}), Some(1)), (json!({"n": "a"}), Some(1)), (json!({"n": 2}), Some(7))]
    );
    assert_eq!(s.hub.schemas().violations(), [(t.clone(), 3)], "those that are refused count, too");
    s.hub.delete_topic(&t).await.expect("it can be deleted");
    assert_eq!(s.hub.schemas().violations(), []);
}

pub async fn nothing_is_looked_at_where_it_is_off(s: Stage) {
    let t = s.topic("t", 1).await;
    s.registered(&t, &typed("integer")).await;
    s.set_mode(&t, SchemaMode::Off).await;
    s.publish(&t, [("k", json!("anything"))]).await;
    assert_eq!(s.stamps(&t).await, [(json!("anything"), None)]);
    s.set_mode(&t, SchemaMode::Enforce).await;
    s.violation_of(vec![append(&t, None, &json!("anything"))]).await;
    assert_eq!(s.hub.schemas().violations(), [(t, 1)]);
}

pub async fn a_tombstone_is_no_document(s: Stage) {
    let t = s.topic("t", 1).await;
    s.registered(&t, &typed("integer")).await;
    s.violation_of(vec![append(&t, Some("k"), &Value::Null)]).await;
    let patch = TopicPatch { compaction: Some(true), ..TopicPatch::default() };
    s.hub.put_topic(&t, patch).await.expect("a topic can be changed");
    s.violation_of(vec![append(&t, None, &Value::Null)]).await;
    s.publish(&t, [("k", Value::Null)]).await;
    assert_eq!(s.stamps(&t).await, [(Value::Null, Some(1))]);
}

pub async fn commits_of_consumers_are_checked(s: Stage) {
    let (t, out) = (s.topic("t", 1).await, topic_name("out"));
    s.registered(&out, &typed("integer")).await;
    s.publish(&t, [("a", json!(0))]).await;
    let group = group(&s, &t, "g").await;
    let lease = take_all(&group, "m", 1).await[0].lease;
    let request = |payload: Value| CommitRequest {
        acks: vec![lease],
        publish: vec![append(&t, None, &json!("free")), append(&out, None, &payload)],
        ..CommitRequest::default()
    };
    match s.hub.commit(request(json!({"n": "a"}))).await {
        Err(CommitRefused::Bus(BusError::SchemaViolation(violation))) => assert_eq!(violation.index, 1),
        other => panic!("{other:?}"),
    }
    assert_eq!(s.events(&t).await.len(), 1, "nothing of it happened");
    s.hub.commit(request(json!({"n": 1}))).await.expect("the lease holds");
    assert_eq!(s.stamps(&out).await, [(json!({"n": 1}), Some(1))]);
}

pub async fn letters_that_go_back_are_checked(s: Stage) {
    let t = s.topic("t", 1).await;
    s.publish(&t, [("a", json!("old")), ("a", json!({"n": 1}))]).await;
    s.put("p", json!({"topic": "t", "collection": "c", "key": "event.payload.name", "retries": 0})).await;
    s.until("p", "it has failed on both", |status| status.errors == 2).await;
    s.hub.projections().delete("p").await.expect("it can be deleted");
    s.registered(&t, &typed("integer")).await;
    let replay = Replay { to: ReplayTo::Topic, ..Replay::default() };
    let foretold = s.hub.replay(&t, Replay { dry_run: true, ..replay.clone() }).await.expect("an answer");
    assert_eq!(s.hub.schemas().violations(), [], "nothing was published");
    let answer = s.hub.replay(&t, replay.clone()).await.expect("an answer");
    assert_eq!((answer.matched, answer.replayed, answer.skipped.len()), (2, 1, 1), "{answer:?}");
    assert!(answer.skipped[0].1.contains("violates version 1"), "{answer:?}");
    assert_eq!(foretold, answer);
    let hidden = Replay { force: true, dry_run: true, hides_events: true, ..replay.clone() };
    let hidden = s.hub.replay(&t, hidden).await.expect("an answer");
    let why = "the topic refuses it; the reason is shown to those who have `read` on t";
    assert_eq!((hidden.replayed, hidden.skipped[0].1.as_str()), (1, why), "{hidden:?}");
    let stamps = s.stamps(&t).await;
    assert_eq!((stamps.len(), &stamps[2]), (3, &(json!({"n": 1}), Some(1))));
    let again = s.hub.replay(&t, replay).await.expect("an answer");
    assert_eq!((again.matched, again.replayed), (2, 0), "what went back is done: {again:?}");
}

pub async fn large_events_are_checked_too(s: Stage) {
    let t = s.topic("t", 1).await;
    s.registered(&t, &json!({"items": {"type": "integer"}})).await;
    let mut numbers: Vec<Value> = (0..60_000).map(Value::from).collect();
    s.publish(&t, [("k", json!(numbers))]).await;
    numbers[59_999] = json!("last");
    let refused = s.violation_of(vec![append(&t, None, &json!(numbers))]).await;
    assert_eq!(refused.places[0].path, "/59999");
}

pub async fn a_topic_of_the_hub_is_not_checked(s: Stage) {
    let t = s.topic("t", 1).await;
    s.registered(&t, &typed("integer")).await;
    s.publish(&t, [("a", json!({"n": 1}))]).await;
    s.put("p", json!({"topic": "t", "collection": "c", "key": "event.payload.name", "retries": 0})).await;
    s.until("p", "it has failed", |status| status.errors == 1).await;
    assert_eq!(s.letters(&t).await.len(), 1, "a dead letter is no event of the topic");
}

pub async fn a_repeated_publish_is_a_duplicate_whatever_was_registered(s: Stage) {
    let t = s.topic("t", 1).await;
    let with_id = |id: u128, payload: Value| {
        let mut append = append(&t, Some("k"), &payload);
        append.event.id = Some(uuid::Uuid::from_u128(id));
        append
    };
    let old = |id: u128| with_id(id, json!({"n": 1}));
    let mut naming_none = naming(&t, "7", &json!({"n": 1}));
    naming_none.event.id = Some(uuid::Uuid::from_u128(7));
    let first = s.try_publish(vec![old(0), naming_none.clone()]).await.unwrap();
    s.registered(&t, &typed("integer")).await;
    s.try_publish(vec![old(1), old(2)]).await.unwrap();
    s.registered(&t, &typed("string")).await;
    let duplicates =
        |receipt: Receipt| -> Vec<bool> { receipt.events.iter().map(|one| one.duplicate).collect() };
    let again = s.try_publish(vec![old(0), naming_none, old(1)]).await.expect("all were taken before");
    assert_eq!(again.events[0].offset, first.events[0].offset);
    assert_eq!(duplicates(again), [true, true, true]);
    let batch = vec![old(2), with_id(3, json!({"n": "text"})), old(1)];
    let batch = s.try_publish(batch).await.expect("each is a repetition or fits the latest version");
    assert_eq!(duplicates(batch), [true, false, true]);

    // What is new has to fit the latest version, and the first that does not is told.
    let mut expecting = old(4);
    expecting.event.key = Some("k".into());
    expecting.expect = Some(Expect { last_id: None });
    for (events, index) in [
        (vec![old(1), old(4)], 1),
        (vec![old(1), with_id(5, json!({"n": true})), old(4)], 1),
        (vec![old(1), append(&t, None, &json!({"n": 1})), old(4)], 1),
        (vec![old(4), append(&t, None, &json!({"n": 1}))], 0),
        (vec![expecting], 0),
    ] {
        let refused = s.violation_of(events).await;
        assert_eq!((refused.index, refused.places[0].path.as_str()), (index, "/n"));
    }
    let conflict = s.try_publish(vec![with_id(1, json!({"n": 2}))]).await;
    assert!(matches!(conflict, Err(BusError::Commit(CommitError::IdConflict { .. }))), "{conflict:?}");

    // An id is remembered without its event.
    s.trim(&t, 3).await;
    let gone = s.try_publish(vec![old(0), old(1)]).await.expect("their ids are remembered");
    assert_eq!(duplicates(gone), [true, true]);
    s.clock.advance(2 * 24 * 3_600_000);
    assert_eq!(s.violation_of(vec![old(1)]).await.index, 0, "an id that is forgotten lets nothing in");
    assert_eq!(s.hub.schemas().violations(), [(t.clone(), 6)], "each refused commit counts once");
    let stamps: Vec<_> = s.stamps(&t).await.into_iter().map(|(_, version)| version).collect();
    assert_eq!(stamps, [Some(1), Some(2)]);
}
