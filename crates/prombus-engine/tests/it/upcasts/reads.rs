//! Reads that normalize.

use super::stage::*;
use crate::support::switch::Look;
use prombus_core::*;
use prombus_engine::Filter;
use prombus_engine::query::{From, Query, QueryError, Token};
use serde_json::json;

fn refusal<T>(answer: Result<T, QueryError>) -> ReadError {
    match answer {
        Err(QueryError::Read(error)) => error,
        Err(error) => panic!("it is refused for another reason: {error}"),
        Ok(_) => panic!("it must be refused"),
    }
}

pub async fn every_read_gives_the_latest_version(s: Stage) {
    let topic = s.three_versions("reads").await;
    assert_eq!(s.raised(&topic).await.unwrap(), three_raised(), "pages");
    let stored = s.events(&topic).await;
    let shown_as_is: Vec<_> = stored.iter().map(shown).collect();
    assert_eq!(
        shown_as_is[0],
        stamped(json!({"a": 1}), 1),
        "who does not ask for it gets what was published"
    );
    let (hub, of) = (s.hub.normalized(), TopicRef::from(&topic));
    for (event, raised) in stored.iter().zip(three_raised()) {
        let found = hub.by_id(&topic, event.id).await.unwrap().unwrap();
        assert_eq!(shown(&found), raised, "by id");
        assert_eq!((found.id, found.offset, found.ts), (event.id, event.offset, event.ts));
    }
    let latest = hub.latest_by_key(&of, "k").await.unwrap().unwrap();
    assert_eq!(shown(&latest), three_raised()[2], "by key");
    let of_key = Query { key: Some("k".into()), ..normalized() };
    let page = s.hub.read(&topic, of_key).await.unwrap().next_page(10).await.unwrap();
    assert_eq!(page.events.iter().map(shown).collect::<Vec<_>>(), three_raised(), "all of a key");
}

pub async fn a_cursor_goes_on_as_it_began(s: Stage) {
    let topic = s.three_versions("cursor").await;
    let mut reader = s.hub.read(&topic, normalized()).await.unwrap();
    let first = reader.next_page(1).await.unwrap();
    let token = Token::encode(reader.topic(), reader.query(), first.next.expect("there is more"));
    let rest = s.hub.resume(&topic, &token).await.unwrap().next_page(10).await.unwrap();
    assert_eq!(rest.events.iter().map(shown).collect::<Vec<_>>(), three_raised()[1..]);
}

pub async fn a_filter_sees_what_is_read(s: Stage) {
    let topic = s.three_versions("filtered").await;
    let filter = Filter::compile_in_turn("event.payload.c >= 10").await.unwrap();
    let query = Query { filter: Some(filter), ..normalized() };
    let page = s.hub.read(&topic, query).await.unwrap().next_page(10).await.unwrap();
    assert_eq!(page.events.iter().map(shown).collect::<Vec<_>>(), three_raised()[..2]);
}

pub async fn an_event_without_a_version_is_of_the_first(s: Stage) {
    let topic = s.topic("before", 1).await;
    s.publish(&topic, [("k", json!({"a": 5}))]).await;
    s.version(&topic, &numbers_of(&["a"])).await;
    s.version(&topic, &numbers_of(&["b"])).await;
    s.upcast(&topic, 1, json!([{"rename": ["a", "b"]}])).await;
    assert_eq!(s.raised(&topic).await.unwrap(), [stamped(json!({"b": 5}), 2)]);
}

pub async fn a_missing_step_is_refused_when_it_is_asked_for(s: Stage) {
    let topic = s.three_versions("missing").await;
    s.version(&topic, &numbers_of(&["d"])).await;
    let missing = ReadError::NoUpcaster { topic: topic.clone(), from: 3 };
    assert_eq!(refusal(s.hub.read(&topic, normalized()).await), missing);
    assert_eq!(refusal(s.hub.follow(&topic, normalized(), None).await), missing);
    let of = TopicRef::from(&topic);
    assert_eq!(s.hub.normalized().latest_by_key(&of, "k").await.unwrap_err(), missing);
    s.upcast(&topic, 3, json!([{"rename": ["b", "d"]}])).await;
    assert_eq!(s.raised(&topic).await.unwrap()[0], stamped(json!({"d": 1, "c": 10}), 4));
}

pub async fn an_event_that_cannot_be_raised_is_named(s: Stage) {
    let topic = s.three_versions("unfit").await;
    for (ops, reason) in [
        (json!([{"set": {"c": "payload.missing"}}]), "no such field"),
        (json!([{"set": {"c": "'text'"}}]), "it violates version 3: /c: "),
    ] {
        s.upcast(&topic, 2, ops).await;
        let first = &s.events(&topic).await[0];
        match refusal(s.raised(&topic).await) {
            ReadError::NotRaised { partition, offset, id, why, .. } => {
                assert_eq!((partition, offset, id), (first.partition, first.offset, first.id));
                assert!(why.contains(reason), "{why}");
            }
            other => panic!("it names the event, but: {other}"),
        }
    }
    s.upcast(&topic, 2, json!([{"set": {"c": "payload.b == 2 ? payload.missing : 1"}}])).await;
    let mut reader = s.hub.read(&topic, normalized()).await.unwrap();
    let page = reader.next_page(10).await.unwrap();
    assert_eq!(page.events.iter().map(shown).collect::<Vec<_>>(), [stamped(json!({"b": 1, "c": 1}), 3)]);
    assert!(page.next.is_some(), "what is before it is handed out, and it goes on there");
    let refused = refusal(reader.next_page(10).await);
    assert!(matches!(refused, ReadError::NotRaised { offset: Offset(1), .. }), "{refused}");
}

pub async fn a_topic_without_schemas_is_read_as_it_is(s: Stage) {
    let topic = s.topic("plain", 1).await;
    s.publish(&topic, [("k", json!([1]))]).await;
    assert_eq!(s.raised(&topic).await.unwrap(), [(json!([1]), None)]);
}

pub async fn a_function_raises_events(s: Stage) {
    let topic = s.three_versions("function").await;
    let doubled = |payload: &Json| -> Result<Json, String> {
        let mut value = payload.to_value().map_err(|error| error.to_string())?;
        value["c"] = json!(value["b"].as_f64().ok_or("b is no number")? * 2.0);
        Ok(Json::from_value(&value))
    };
    s.hub.schemas().upcast_with(&topic, 2, doubled);
    let raised = s.raised(&topic).await.unwrap();
    assert_eq!(raised[..2], [stamped(json!({"b": 1, "c": 2.0}), 3), stamped(json!({"b": 2, "c": 4.0}), 3)]);
    s.hub.schemas().upcast_with(&topic, 2, |_| panic!("it gives up"));
    assert!(matches!(refusal(s.raised(&topic).await), ReadError::NotRaised { .. }));
}

pub async fn a_follower_raises_what_comes(s: Stage) {
    let topic = s.three_versions("followed").await;
    let mut follower = s.hub.follow(&topic, normalized(), None).await.unwrap();
    let mut all = Vec::new();
    while all.len() < 3 {
        all.extend(follower.next_events().await.unwrap().expect("there is more"));
    }
    assert_eq!(all.iter().map(shown).collect::<Vec<_>>(), three_raised());
    let event = append(&topic, Some("k"), &json!({"b": 4}));
    let headers = Json::from_value(&json!({"x-schema-version": "2", "x-a": "b"}));
    let event = Append { event: NewEvent { headers: Some(headers.into()), ..event.event }, ..event };
    s.hub.publish(vec![event]).await.unwrap();
    follower.changed().await.unwrap();
    let next = follower.next_events().await.unwrap().expect("there is more");
    assert_eq!(shown(&next[0]), stamped(json!({"b": 4, "c": 40}), 3));
    let headers = next[0].headers.as_ref().unwrap().to_value().unwrap();
    assert_eq!(headers, json!({"x-schema-version": "3", "x-a": "b"}), "other headers stay");
}

pub async fn a_tombstone_stays_one(s: Stage) {
    let topic = s.three_versions("ended").await;
    let patch = TopicPatch { compaction: Some(true), ..TopicPatch::default() };
    s.hub.put_topic(&topic, patch).await.unwrap();
    s.publish(&topic, [("k", json!(null))]).await;
    assert_eq!(s.raised(&topic).await.unwrap()[3], stamped(json!(null), 3));
}

/// A version that is registered while events are read, and an event of it among those.
pub async fn a_read_knows_the_version_of_what_it_read(s: Stage) {
    for (look, key) in [(Look::Read, None), (Look::History, Some("k4"))] {
        let topic = s.three_versions(&format!("meanwhile-{}", key.is_some())).await;
        let query = Query { key: key.map(Into::into), ..normalized() };
        let mut reader = s.hub.read(&topic, query).await.unwrap();
        s.log.hold_looks(look);
        let reading = tokio::spawn(async move { reader.next_page(10).await });
        s.log.until_held(1).await;
        s.fourth_version(&topic, json!({"d": 7})).await;
        s.log.release();
        let page = reading.await.unwrap().unwrap();
        assert_eq!(page.events.last().map(shown), Some(stamped(json!({"d": 7}), 4)), "{look:?}");
    }
}

pub async fn a_key_is_read_from_a_place_behind_what_cannot_be_raised(s: Stage) {
    let topic = s.three_versions("behind").await;
    s.upcast(&topic, 2, json!([{"set": {"c": "payload.b == 1 ? payload.missing : 1"}}])).await;
    let stored = s.events(&topic).await;
    let of_key = |from| Query { key: Some("k".into()), partition: Some(Partition(0)), from, ..normalized() };
    for from in [From::Offset(Offset(1)), From::AfterId(stored[0].id)] {
        let page = s.hub.read(&topic, of_key(from)).await.unwrap().next_page(10).await.unwrap();
        let all: Vec<_> = page.events.iter().map(shown).collect();
        assert_eq!(
            all,
            [stamped(json!({"b": 2, "c": 1}), 3), stamped(json!({"b": 3, "c": 0}), 3)],
            "{from:?}"
        );
    }
    let refused = refusal(s.hub.read(&topic, of_key(From::Earliest)).await.unwrap().next_page(10).await);
    assert!(matches!(refused, ReadError::NotRaised { offset: Offset(0), .. }), "{refused}");
}
