//! Groups come into being, with options that stay.

use crate::groups::stage::{Stage, Use, ids, numbers, topic_name};
use prombus_core::{Offset, ReadError};
use prombus_engine::groups::{
    GroupCall, GroupError, GroupName, MAX_DELAY_MS, Mode, OptionsPatch, Ordering, Pull, Settle, SettleCall,
};
use prombus_engine::query::{From, QueryError};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

fn from(from: From) -> GroupCall {
    GroupCall { from, ..GroupCall::default() }
}

pub async fn a_group_is_made_by_its_first_call(s: Stage) {
    let topic = s.topic("making", 2).await;
    let missing = s.hub.groups().find(&topic, &GroupName::parse("g").unwrap()).await;
    assert!(matches!(missing, Err(GroupError::NotFound { .. })), "nobody has called for it yet");
    let (group, made) = s.made(&topic, "g", GroupCall::default()).await.unwrap();
    assert!(made, "the first call makes it");
    let options = group.options();
    assert_eq!((options.mode, options.ordering), (Mode::Shared, Ordering::Key));
    assert_eq!((options.ack_timeout_ms, options.max_attempts, options.backoff_ms), (30_000, 5, 100));
    assert_eq!((options.ack_window, options.member_ttl_ms), (100_000, 15_000));
    assert_eq!((&options.filter, options.normalize), (&None, false));
    let (again, made) = s.made(&topic, "g", GroupCall::default()).await.unwrap();
    assert!(!made && Arc::ptr_eq(&group, &again), "the second call finds it");
}

pub async fn its_first_call_makes_the_topic(s: Stage) {
    let topic = topic_name("not.there.yet");
    let group = s.group(&topic, "g", OptionsPatch::default()).await;
    assert!(s.hub.topic(&topic).await.unwrap().is_some(), "the topic is there with its first group");
    s.publish_numbers(&topic, None, [1]).await;
    group.take_just("m", 1, 1).await;
    let reserved = s.made(&topic_name("dlq.not.there"), "g", GroupCall::default()).await;
    assert!(
        matches!(reserved, Err(GroupError::Query(QueryError::Read(ReadError::TopicNotFound(_))))),
        "a topic of the hub's own is not made by asking for it"
    );
}

pub async fn of_many_first_calls_one_makes_the_group(s: Stage) {
    let (topic, s) = (topic_name("first.calls"), Arc::new(s));
    let calls = (0..8).map(|_| {
        let (s, topic) = (s.clone(), topic.clone());
        tokio::spawn(async move { s.made(&topic, "g", GroupCall::default()).await.unwrap() })
    });
    let mut made = 0;
    let calls: Vec<_> = calls.collect();
    for call in calls {
        made += usize::from(call.await.unwrap().1);
    }
    assert_eq!(made, 1, "one of them makes it and the others find it");
}

pub async fn options_are_fixed_when_a_group_is_made(s: Stage) {
    let topic = s.topic("fixed", 1).await;
    let options = OptionsPatch {
        max_attempts: Some(7),
        ordering: Some(Ordering::None),
        filter: Some(Some("event.payload.n > 1".into())),
        ..OptionsPatch::default()
    };
    let made = s.group(&topic, "g", options.clone()).await.options();
    let s = s.restart().await;
    s.publish_numbers(&topic, None, [1, 2]).await;
    // Where a group starts matters only when it is made.
    let (group, _) = s.made(&topic, "g", GroupCall { from: From::Latest, options }).await.unwrap();
    assert_eq!(group.options(), made, "the options survive a restart");
    assert_eq!(numbers(&group.take("m", 5).await), [2], "the group did not start anew");
    s.made(&topic, "g", GroupCall::default()).await.expect("options may be left out");
    let other = OptionsPatch { max_attempts: Some(8), mode: Some(Mode::Shared), ..OptionsPatch::default() };
    match s.made(&topic, "g", GroupCall { from: From::Earliest, options: other }).await {
        Err(GroupError::Options { actual }) => {
            assert_eq!(serde_json::Value::Object(actual), serde_json::json!({"maxAttempts": 7}));
        }
        _ => panic!("options that differ are refused with those that the group has"),
    }
    assert_eq!(s.found(&topic, "g").await.options(), made, "a refused call changes nothing");
}

pub async fn what_makes_no_sense_is_refused(s: Stage) {
    let topic = s.topic("senseless", 1).await;
    let none = OptionsPatch::default;
    for options in [
        OptionsPatch { ack_timeout_ms: Some(0), ..none() },
        OptionsPatch { max_attempts: Some(0), ..none() },
        OptionsPatch { ack_window: Some(0), ..none() },
        OptionsPatch { backoff_ms: Some(MAX_DELAY_MS + 1), ..none() },
    ] {
        let refused = s.made(&topic, "g", GroupCall { options, ..GroupCall::default() }).await;
        assert!(matches!(refused, Err(GroupError::BadOption(_))), "an option that makes no sense");
    }
    let options = OptionsPatch { filter: Some(Some("event.payload.".into())), ..none() };
    let refused = s.made(&topic, "g", GroupCall { options, ..GroupCall::default() }).await;
    assert!(matches!(refused, Err(GroupError::BadFilter(_))), "a filter that does not compile");
    let state = s.hub.topic(&topic).await.unwrap().unwrap();
    assert!(s.hub.groups().list(&state).await.is_empty(), "no group was made");

    let group = s.group(&topic, "g", none()).await;
    for pull in [
        Pull { max: 0, ..Pull::default() },
        Pull { wait: Duration::from_secs(31), ..Pull::default() },
        Pull { max_in_flight: 0, ..Pull::default() },
        Pull { member: Some("a/b".into()), ..Pull::default() },
    ] {
        assert!(matches!(group.pull(&pull).await, Err(GroupError::BadOption(_))), "{pull:?}");
    }
    s.publish_numbers(&topic, None, [1]).await;
    let lease = group.take_just("m", 1, 1).await.lease;
    let delay = Some(Duration::from_millis(MAX_DELAY_MS + 1));
    let nack = SettleCall { settles: vec![Some(Settle::Nack { lease, reason: None, delay })] };
    assert!(matches!(group.settle(nack).await, Err(GroupError::BadOption(_))), "more than 24 h");
    assert!(group.ack(lease).await, "what was refused changed nothing");
}

pub async fn a_group_starts_where_it_is_told(s: Stage) {
    let topic = s.topic("starts", 1).await;
    s.publish_numbers(&topic, None, [0]).await;
    s.clock.advance(1_000);
    let ts = s.publish_numbers(&topic, None, [1]).await[0].ts;
    s.publish_numbers(&topic, None, [2]).await;
    for (name, place, wanted) in [
        ("earliest", From::Earliest, vec![0, 1, 2]),
        ("ts", From::Ts(ts), vec![1, 2]),
        ("before", From::Ts(ts - 1), vec![1, 2]),
        ("offset", From::Offset(Offset(2)), vec![2]),
    ] {
        let (group, _) = s.made(&topic, name, from(place)).await.unwrap();
        assert_eq!(numbers(&group.take("m", 5).await), wanted, "from {place:?}");
    }
    let beyond = s.made(&topic, "beyond", from(From::Offset(Offset(4)))).await;
    assert!(matches!(beyond, Err(GroupError::BadOption(_))), "there is nothing beyond the end");
}

pub async fn a_new_group_starts_at_the_end(s: Stage) {
    let topic = s.topic("latest", 2).await;
    s.publish_numbers(&topic, None, [1, 2, 3]).await;
    let (group, _) = s.made(&topic, "g", GroupCall::default()).await.unwrap();
    assert!(group.take_now("m", 5).await.is_empty(), "what was there before is not for it");
    // It is remembered, also where nothing was settled yet.
    let s = s.restart().await;
    s.publish_numbers(&topic, None, [4]).await;
    s.found(&topic, "g").await.take_just("m", 4, 1).await;
}

pub async fn after_an_id_is_after_that_event(s: Stage) {
    let topic = s.topic("after.id", 1).await;
    let ids = ids(&s.publish_numbers(&topic, None, [0, 1, 2]).await);
    let (group, _) = s.made(&topic, "g", from(From::AfterId(ids[1]))).await.unwrap();
    group.take_just("m", 2, 1).await;
    let unknown = s.made(&topic, "unknown", from(From::AfterId(Uuid::from_u128(7)))).await;
    assert!(matches!(unknown, Err(GroupError::Query(QueryError::UnknownId(_)))), "no such event");
}
