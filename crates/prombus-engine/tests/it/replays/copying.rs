//! What is copied, and as what.

use super::stage::*;
use prombus_core::*;
use prombus_engine::query::From;
use prombus_engine::replays::{Definition, ReplayState, ReplaysError, Source};
use serde_json::{Value, json};

pub async fn a_range_is_copied_in_order(s: Stage) {
    let topic = s.topic("from", 3).await;
    s.publish_numbered(&topic, 0..3_000).await;
    let mut odd =
        NewEvent::new(Json::from_stored(r#"{"big":123456789012345678901234567890,"d":1.10}"#.into()));
    odd.ts = Some(1_000);
    odd.key = Some("odd".into());
    odd.headers = Some(Box::new(Json::from_stored(r#"{"x-a":"b"}"#.into())));
    odd.tags = Some(Box::new(Json::from_stored(r##"["#t"]"##.into())));
    s.hub.publish(vec![Append::new(topic.clone(), odd)]).await.expect("it can be published");
    let begun = s.begin("r", all("from", "to")).await;
    assert_eq!((begun.state, begun.left), (ReplayState::Running, 3_001));
    let done = s.done("r").await;
    assert_eq!((done.counts.read, done.counts.copied, done.counts.errors, done.left), (3_001, 3_001, 0, 0));
    let (originals, copies) = (s.events(&topic).await, s.events(&topic_name("to")).await);
    let key = |event: &Event| event.key.as_deref().unwrap_or_default().to_owned();
    for name in (0..7).map(|n| format!("k{n}")).chain(["odd".to_owned()]) {
        let of = |events: &[Event]| -> Vec<(u64, Json)> {
            let of_key = events.iter().filter(|event| key(event) == name);
            of_key.map(|event| (event.ts, event.payload.clone())).collect()
        };
        assert_eq!(of(&originals), of(&copies), "{name}");
    }
    let find =
        |events: &[Event]| events.iter().find(|event| key(event) == "odd").cloned().expect("it is there");
    let (odd, copy) = (find(&originals), find(&copies));
    assert_eq!(copy.headers.expect("headers").to_value().unwrap(), json!({"x-a": "b", "x-replay": "r"}));
    assert_eq!(copy.caused_by.expect("a cause").to_value().unwrap(), json!([odd.id.to_string()]));
    assert_eq!((copy.tags, copy.ts), (odd.tags, 1_000));
    assert_ne!(copy.id, odd.id);
}

pub async fn copies_are_what_expressions_make_of_events(s: Stage) {
    let topic = s.topic("from", 1).await;
    s.publish_numbered(&topic, 0..1_000).await;
    let map = "{'twice': event.payload.n * 2, 'of': event.key}";
    let definition = mapped(Some("event.payload.n % 10 == 3"), Some(map), Some("string(event.payload.n)"));
    let range = Source { from: From::Offset(Offset(100)), ..definition.source.clone() };
    s.begin("r", Definition { source: range, ..definition }).await;
    let done = s.done("r").await;
    assert_eq!((done.counts.read, done.counts.copied), (900, 90));
    let copies = s.events(&topic_name("to")).await;
    let expected: Vec<(String, Value)> = (100..1_000)
        .filter(|n| n % 10 == 3)
        .map(|n| (n.to_string(), json!({"twice": 2 * n, "of": format!("k{}", n % 7)})))
        .collect();
    let copied: Vec<_> = copies
        .iter()
        .map(|event| (event.key.as_deref().unwrap_or_default().to_owned(), event.payload.to_value().unwrap()))
        .collect();
    assert_eq!(copied, expected);
}

pub async fn what_cannot_be_copied_is_counted_and_told(s: Stage) {
    let topic = s.topic("from", 1).await;
    s.publish_numbered(&topic, 0..100).await;
    // A key that is too long is refused by the hub, and one that is no string is none.
    let key = "event.payload.n == 5 ? 'x'.size() : event.payload.n == 6 ? event.payload.missing : event.key";
    s.begin("r", mapped(None, None, Some(key))).await;
    let done = s.done("r").await;
    assert_eq!((done.counts.copied, done.counts.errors), (98, 2));
    let told: Vec<u64> = done.last_errors.iter().map(|error| error.offset.0).collect();
    assert_eq!(told, [5, 6], "{:?}", done.last_errors);
    let long = format!("event.payload.n < 3 ? '{}' : event.key", "x".repeat(1_100));
    s.begin("long", mapped(None, None, Some(&long))).await;
    let done = s.done("long").await;
    assert_eq!((done.counts.copied, done.counts.errors), (97, 3));
    assert!(done.last_errors[0].error.contains("1100 bytes"), "{:?}", done.last_errors);
}

pub async fn a_replay_into_its_own_topic_ends(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.publish_numbered(&topic, 0..5_000).await;
    s.begin("r", all("t", "t")).await;
    assert_eq!(s.done("r").await.counts.copied, 5_000);
    let payloads = s.payloads(&topic).await;
    assert_eq!(payloads[..5_000], payloads[5_000..]);
}

pub async fn a_dry_run_changes_nothing(s: Stage) {
    let topic = s.topic("from", 1).await;
    s.publish_numbered(&topic, 0..10_000).await;
    let definition = mapped(Some("event.payload.n < 10"), None, None);
    let status = s.hub.replays().rehearse("r", definition).await.expect("it can be tried");
    assert_eq!((status.counts.read, status.counts.copied), (10_000, 10));
    assert!(matches!(s.hub.replays().get("r").await, Err(ReplaysError::NotFound(_))));
    assert!(s.hub.topic(&topic_name("to")).await.expect("the store can be read").is_none());
}

pub async fn events_that_go_before_they_are_read_are_counted(s: Stage) {
    let topic = s.topic("from", 1).await;
    s.publish_numbered(&topic, 0..100).await;
    s.log.hold(|commit| !commit.documents.is_empty() && !commit.events.is_empty());
    let slow = Definition { rate_per_s: Some(100), ..all("from", "to") };
    s.begin("r", slow).await;
    s.log.until_held(1).await;
    s.trim_unseen(&topic, 50).await;
    s.log.release();
    let done = s.done("r").await;
    assert_eq!((done.counts.lost, done.counts.copied), (40, 60));
}

pub async fn a_rate_is_kept_to(s: Stage) {
    let topic = s.topic("from", 1).await;
    s.publish_numbered(&topic, 0..60).await;
    let began = std::time::Instant::now();
    s.begin("r", Definition { rate_per_s: Some(100), ..all("from", "to") }).await;
    assert_eq!(s.done("r").await.counts.copied, 60);
    // Nothing is waited for behind the last step.
    assert!(began.elapsed() >= std::time::Duration::from_millis(500), "{:?}", began.elapsed());
}

pub async fn what_makes_no_sense_is_refused(s: Stage) {
    let topic = s.topic("from", 2).await;
    s.publish_numbered(&topic, 0..10).await;
    let offset = Source { from: From::Offset(Offset(1)), ..all("from", "to").source };
    for (what, definition) in [
        ("an offset needs a partition", Definition { source: offset, ..all("from", "to") }),
        ("there is no such topic", all("nothing", "to")),
        ("the target is the hub's own", all("from", "system.x")),
        ("the filter does not compile", mapped(Some("event."), None, None)),
        ("the map does not compile", mapped(None, Some("{"), None)),
        ("nothing is ever copied", Definition { rate_per_s: Some(0), ..all("from", "to") }),
    ] {
        assert!(s.hub.replays().begin("r", definition).await.is_err(), "{what}");
    }
    for name in ["", "a\nb"] {
        assert!(s.hub.replays().begin(name, all("from", "to")).await.is_err(), "{name:?}");
    }
}
