//! Subscriptions to patterns.

use super::*;
use crate::memory::ConnectionReservation;
use crate::ws::session::subscriptions::SUBSCRIPTION_BYTES;
use prombus_core::TopicNumber;
use prombus_engine::{MAX_PARTITIONS, NumberedTopic};

fn topic(name: &str, number: u32) -> NumberedTopic {
    NumberedTopic { name: TopicName::parse(name).unwrap(), number: TopicNumber(number), partitions: 1 }
}

fn wide(name: &str, number: u32, partitions: u32) -> NumberedTopic {
    NumberedTopic { partitions, ..topic(name, number) }
}

fn key_of(name: &str) -> Key {
    Key { topic: TopicName::parse(name).unwrap(), ..key() }
}

fn on(op: &str, topic: &str) -> Value {
    json!({"op": op, "topic": topic, "group": "g", "corr": "c"})
}

/// What a SUBSCRIBE to `topic` leads to, where the hub has `topics`.
fn subscribe(session: &mut Session, topic: &str, topics: &[NumberedTopic]) -> Vec<Value> {
    let mut out = Vec::new();
    session.frame(&Bytes::from(on("SUBSCRIBE", topic).to_string()), &mut out);
    match out.pop() {
        Some(Effect::List { corr, wanted, call }) => {
            session.listed((corr, wanted, call), Ok(topics), &mut out)
        }
        other => panic!("{other:?}"),
    }
    match out.pop() {
        Some(Effect::Subscribe { corr, wanted, .. }) => {
            session.subscribed(corr, wanted, Ok(()), &mut out);
        }
        other => out.extend(other),
    }
    let mut said = said(out);
    said.sort_by_key(ToString::to_string);
    said
}

fn appeared(session: &mut Session, topics: &[NumberedTopic]) -> Vec<(Key, prombus_engine::From)> {
    let mut out = Vec::new();
    session.appeared(topics, &mut out);
    let each = out.into_iter().map(|effect| match effect {
        Effect::Subscribe { corr: None, mut wanted, call } => (wanted.keys.pop().unwrap(), call.from),
        other => panic!("{other:?}"),
    });
    each.collect()
}

#[test]
fn a_pattern_stands_for_all_topics_that_match_and_may_be_subscribed() {
    let mut session = session();
    let topics = [topic("a.x", 1), topic("b.x", 2), topic("dlq.a.x", 3), topic("a.y", 4), topic("a.y.z", 5)];
    let ok = json!({"op": "OK", "corr": "c"});
    assert_eq!(
        subscribe(&mut session, "a.*", &topics),
        [json!("pull a.x as ws-1"), json!("pull a.y as ws-1"), ok.clone()]
    );
    assert_eq!(code(&mut session, on("SUBSCRIBE", "a.*")), "already_subscribed");
    assert_eq!(code(&mut session, on("SUBSCRIBE", "a.x")), "already_subscribed");
    assert_eq!(subscribe(&mut session, "a.**", &topics), [json!("pull a.y.z as ws-1"), ok.clone()]);
    assert_eq!(subscribe(&mut session, "nothing.*", &topics), [ok]);
    assert_eq!(code(&mut session, on("SUBSCRIBE", "a*")), "bad_request");
    assert_eq!(code(&mut session, on("ACK", "a.*")), "bad_request");
}

#[test]
fn topics_that_are_made_later_start_at_their_beginning() {
    let mut session = session();
    subscribe(&mut session, "a.*", &[topic("a.x", 1)]);
    let made = appeared(&mut session, &[topic("a.y", 2), topic("b.y", 3)]);
    assert_eq!(made, [(key_of("a.y"), prombus_engine::From::Earliest)]);
    assert_eq!(appeared(&mut session, &[topic("a.y", 2)]), [], "once is enough");
    // One that failed is told with its name, and the pattern goes on.
    let mut out = Vec::new();
    let error = ApiError::with_code(ErrorCode::GroupOptions, "no");
    session.subscribed(None, wanted(vec![key_of("a.y")]), Err(error), &mut out);
    let told = said(out);
    assert_eq!((&told[1]["code"], &told[1]["topic"]), (&json!("group_options"), &json!("a.y")));
    assert_eq!(appeared(&mut session, &[topic("a.z", 4)]).len(), 1);
}

#[test]
fn a_successor_takes_the_place_of_a_topic_that_is_gone() {
    let mut session = session();
    subscribe(&mut session, "a.*", &[topic("a.x", 1)]);
    // It may be known before the old one is known to be gone.
    assert_eq!(appeared(&mut session, &[topic("a.x", 2)]), []);
    let mut out = Vec::new();
    session.lost(&key_of("a.x"), &ApiError::not_found("gone"), &mut out);
    let said = said(out);
    assert_eq!(
        (&said[0], &said[1]["code"], &said[2]),
        (&json!("leave a.x with 0"), &json!("not_found"), &json!("subscribe 1"))
    );
    // A group that is deleted does not come back by itself.
    let mut out = Vec::new();
    session.lost(&key_of("a.x"), &ApiError::not_found("gone"), &mut out);
    assert_eq!(out.len(), 2);
}

#[test]
fn frames_with_the_pattern_are_about_all_of_it() {
    let mut session = session();
    let topics = [topic("a.x", 1), topic("b.x", 2), topic("b.y", 3)];
    subscribe(&mut session, "*.x", &topics);
    subscribe(&mut session, "b.*", &topics);
    let ok = json!({"op": "OK", "corr": "c"});
    assert_eq!(frame(&mut session, on("PAUSE", "b.*")), [json!("stop b.y"), ok.clone()]);
    let made = appeared(&mut session, &[topic("b.z", 4)]);
    let mut out = Vec::new();
    session.subscribed(None, wanted(vec![made[0].0.clone()]), Ok(()), &mut out);
    assert!(out.is_empty(), "what comes while it is paused is paused");
    let mut resumed = frame(&mut session, on("RESUME", "b.*"));
    resumed.sort_by_key(ToString::to_string);
    assert_eq!(resumed, [json!("pull b.y as ws-1"), json!("pull b.z as ws-1"), ok.clone()]);
    // What the other pattern stands for as well stays.
    assert_eq!(frame(&mut session, on("UNSUBSCRIBE", "*.x")), [json!("leave a.x with 0"), ok.clone()]);
    let mut left = frame(&mut session, on("UNSUBSCRIBE", "b.*"));
    left.sort_by_key(ToString::to_string);
    assert_eq!(left.len(), 4, "{left:?}");
    assert_eq!(code(&mut session, on("UNSUBSCRIBE", "b.*")), "not_subscribed");
    assert_eq!(appeared(&mut session, &[topic("b.new", 9)]), []);
}

#[test]
fn a_refusal_leaves_nothing_of_a_pattern() {
    let mut session = session();
    let mixed = json!({"op": "SUBSCRIBE", "topics": ["t", "a.*"], "group": "g", "corr": 1});
    let mut out = Vec::new();
    session.frame(&Bytes::from(mixed.to_string()), &mut out);
    let Some(Effect::List { corr, wanted, call }) = out.pop() else { panic!() };
    session.listed((corr, wanted, call), Ok(&[topic("a.x", 1)]), &mut out);
    let Some(Effect::Subscribe { corr, wanted, .. }) = out.pop() else { panic!() };
    assert_eq!(wanted.keys.len(), 2);
    session.subscribed(corr, wanted, Err(ApiError::with_code(ErrorCode::GroupOptions, "no")), &mut out);
    assert_eq!(said(out).last().unwrap()["code"], "group_options");
    assert_eq!(appeared(&mut session, &[topic("a.y", 2)]), []);
    assert_eq!(frame(&mut session, mixed), ["list"]);
}

#[test]
fn patterns_stand_for_so_many_partitions_and_no_more() {
    const MOST: u32 = MAX_PARTITIONS as u32;
    let mut session = session();
    let topics = [wide("a.x", 1, MOST - 10), wide("b.x", 2, 10), wide("b.y", 3, 1)];
    let refused = subscribe(&mut session, "**", &topics).pop().unwrap();
    assert_eq!(refused["code"], "too_large");
    assert!(refused["msg"].as_str().unwrap().contains("20000 partitions"), "{refused}");
    // Nothing of it is left; all patterns count together.
    assert_eq!(subscribe(&mut session, "a.*", &topics).len(), 2);
    assert_eq!(subscribe(&mut session, "b.*", &topics).pop().unwrap()["code"], "too_large");
    assert_eq!(subscribe(&mut session, "*.x", &topics).len(), 2);
    // What comes later and goes beyond it is left out, and the client is told once.
    let mut out = Vec::new();
    session.appeared(&[wide("a.y", 4, 1), wide("a.z", 5, 2)], &mut out);
    let told = said(out);
    assert_eq!((told.len(), &told[0]["code"], &told[0]["topic"]), (1, &json!("too_large"), &json!("a.y")));
    let mut out = Vec::new();
    session.appeared(&[topic("a.w", 6)], &mut out);
    assert!(out.is_empty(), "{out:?}");
    // What is abandoned makes room.
    frame(&mut session, on("UNSUBSCRIBE", "*.x"));
    assert_eq!(appeared(&mut session, &[wide("a.v", 7, 10)]).len(), 1);
}

#[test]
fn what_is_subscribed_to_takes_of_the_memory_that_all_share() {
    let mut session = session();
    let most = (MEMORY / 2 + ConnectionReservation::FREE_BYTES) / SUBSCRIPTION_BYTES;
    let topics: Vec<_> = (0..=most as u32).map(|n| topic(&format!("a.t{n}"), n)).collect();
    let refused = subscribe(&mut session, "a.*", &topics).pop().unwrap();
    assert_eq!(refused["code"], "unavailable");
    assert!(refused["msg"].as_str().unwrap().contains("limits.buffer_bytes"), "{refused}");
    let named: Vec<_> = topics.iter().map(|topic| topic.name.to_string()).collect();
    let named = json!({"op": "SUBSCRIBE", "topics": named, "group": "g", "corr": 1});
    assert_eq!(code(&mut session, named), "unavailable");
    assert_eq!(subscribe(&mut session, "a.*", &topics[1..]).len(), most + 1);
    let mut out = Vec::new();
    session.appeared(&[topic("a.x", 90_000), topic("a.y", 90_001)], &mut out);
    assert_eq!(said(out).iter().map(|told| &told["code"]).collect::<Vec<_>>(), ["unavailable"]);
    frame(&mut session, on("UNSUBSCRIBE", "a.*"));
    assert_eq!(subscribe(&mut session, "a.*", &topics[1..]).len(), most + 1);
}
