//! The rules of a connection, one by one.

mod patterns;

use super::subscriptions::MAX_SUBSCRIPTIONS;
use super::*;
use crate::auth::{AuthOptions, Rules, Secret, StaticToken};
use crate::commit::MAX_SETTLED;
use prombus_core::{Durability, Epoch, Event, Json, Offset, TopicNumber};
use prombus_engine::commits::CommitAnswer;
use prombus_engine::groups::SettleResult::{Done, Expired, NoRoom};
use prombus_engine::groups::{Session as LeaseSession, Settle};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

/// What all connections may take.
const MEMORY: usize = 8 << 20;
const ID: Uuid = Uuid::from_u128(7);

fn session() -> Session {
    session_of(Some(Caller::anyone()), AuthOptions::None)
}

/// What a frame leads to: frames as JSON, and the names of other effects.
fn said(effects: Vec<Effect>) -> Vec<Value> {
    let name = |effect| match effect {
        Effect::Send(frame) => serde_json::from_slice(&frame).unwrap(),
        Effect::Publish { topic, events, .. } => json!(format!("publish {} to {topic}", events.len())),
        Effect::Subscribe { wanted, .. } => json!(format!("subscribe {}", wanted.keys.len())),
        Effect::List { .. } => json!("list"),
        Effect::Pull(key, pull) => json!(format!("pull {} as {}", key.topic, pull.member.unwrap())),
        Effect::Stop(key) => json!(format!("stop {}", key.topic)),
        Effect::Leave(key, leases) => json!(format!("leave {} with {}", key.topic, leases.len())),
        Effect::Commit { asked, .. } => json!(format!("commit of {} bytes", asked.bytes)),
        Effect::Settle { call, .. } => json!(format!("settle {}", call.settles.len())),
    };
    effects.into_iter().map(name).collect()
}

fn frame(session: &mut Session, frame: Value) -> Vec<Value> {
    let mut out = Vec::new();
    session.frame(&Bytes::from(frame.to_string()), &mut out);
    said(out)
}

fn code(session: &mut Session, sent: Value) -> String {
    match &frame(session, sent)[..] {
        [answer] if answer["op"] == "ERR" => answer["code"].as_str().unwrap().to_owned(),
        other => panic!("{other:?}"),
    }
}

fn key() -> Key {
    Key { topic: TopicName::parse("t").unwrap(), group: GroupName::parse("g").unwrap() }
}

fn wanted(keys: Vec<Key>) -> SubscribeTargets {
    SubscribeTargets { keys, patterns: Vec::new() }
}

fn delivery(lease: u64) -> Delivery {
    let event = Event {
        id: ID,
        ts: 1,
        recorded_ts: 1,
        topic: key().topic,
        key: None,
        partition: Partition(0),
        offset: Offset(0),
        sid: None,
        headers: None,
        payload: Json::from_stored("1".into()),
        caused_by: None,
        tags: None,
    };
    let lease = LeaseToken { number: lease, ..LEASE };
    Delivery { event, lease, attempt: 1, deadline: Instant::now() + Duration::from_secs(9) }
}

/// A session with a subscription that was delivered one event.
fn consuming() -> Session {
    let mut session = session();
    assert_eq!(frame(&mut session, json!({"op": "SUBSCRIBE", "topic": "t", "group": "g"})), ["subscribe 1"]);
    let mut out = Vec::new();
    session.subscribed(None, wanted(vec![key()]), Ok(()), &mut out);
    assert_eq!(said(std::mem::take(&mut out)), ["pull t as ws-1"]);
    session.delivered(key(), vec![delivery(1)], 5, &mut out);
    let said = said(out);
    assert_eq!((&said[0]["op"], &said[1]), (&json!("EVENT"), &json!("pull t as ws-1")));
    session
}

#[test]
fn an_id_stands_for_the_lease_that_is_held_now() {
    let mut session = consuming();
    let mut out = Vec::new();
    session.delivered(key(), vec![delivery(2)], 5, &mut out);
    out.clear();
    let ack = json!({"op": "ACK", "topic": "t", "group": "g", "id": ID.to_string()});
    session.frame(&Bytes::from(ack.to_string()), &mut out);
    match &out[..] {
        [Effect::Settle { call, .. }] => {
            let ack = Settle::Ack(LeaseToken { number: 2, ..LEASE });
            assert_eq!(call.settles[..], [Some(ack)]);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(code(&mut session, ack), "unknown_id", "once it is said, it is no longer held");
}

#[test]
fn all_of_a_list_or_none() {
    let mut session = consuming();
    let other = Uuid::from_u128(8).to_string();
    let both = json!({"op": "ACK", "topic": "t", "group": "g", "ids": [ID.to_string(), other]});
    assert_eq!(code(&mut session, both), "unknown_id");
    let late =
        json!({"op": "NACK", "topic": "t", "group": "g", "id": ID.to_string(), "delay_ms": 86_400_001});
    assert_eq!(code(&mut session, late), "bad_request");
    let one = json!({"op": "ACK", "topic": "t", "group": "g", "ids": [ID.to_string()], "corr": 1});
    assert_eq!(frame(&mut session, one), ["settle 1"], "the known one is still held");
}

#[test]
fn fields_go_with_their_verbs() {
    let mut session = consuming();
    for (op, field) in
        [("ACK", "delay_ms"), ("ACK", "extend_ms"), ("NACK", "extend_ms"), ("MODACK", "delay_ms")]
    {
        let mut wrong = json!({"op": op, "topic": "t", "group": "g", "lease": "0"});
        wrong[field] = json!(1);
        assert_eq!(code(&mut session, wrong), "bad_request", "{op} {field}");
    }
}

#[test]
fn what_is_left_is_given_back() {
    let mut session = consuming();
    let unsubscribe = json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "g", "corr": "a"});
    let said_ = frame(&mut session, unsubscribe.clone());
    assert_eq!(said_, [json!("leave t with 1"), json!({"op": "OK", "corr": "a"})]);
    assert_eq!(code(&mut session, unsubscribe), "not_subscribed");
    let mut out = Vec::new();
    session.delivered(key(), vec![delivery(3)], 5, &mut out);
    assert_eq!(said(out), ["leave t with 1"], "what was on its way goes back");
    let ended = consuming().end();
    assert_eq!(ended, [(key(), vec![LEASE])]);
}

#[test]
fn a_failed_subscription_leaves_nothing() {
    let mut session = session();
    let subscribe = json!({"op": "SUBSCRIBE", "topics": ["t", "u"], "group": "g", "corr": 1});
    assert_eq!(frame(&mut session, subscribe.clone()), ["subscribe 2"]);
    let keys = vec![key(), Key { topic: TopicName::parse("u").unwrap(), ..key() }];
    let mut out = Vec::new();
    let error = ApiError::with_code(ErrorCode::GroupOptions, "no");
    session.subscribed(Some("1".into()), wanted(keys), Err(error), &mut out);
    assert_eq!(said(out).last().unwrap()["code"], "group_options");
    assert_eq!(frame(&mut session, subscribe), ["subscribe 2"]);
    let twice = json!({"op": "SUBSCRIBE", "topics": ["v", "v"], "group": "g"});
    assert_eq!(code(&mut session, twice), "already_subscribed");
}

#[test]
fn a_pause_ends_the_pull_and_resume_starts_it() {
    let mut session = consuming();
    let pause = json!({"op": "PAUSE", "topic": "t", "group": "g"});
    assert_eq!(frame(&mut session, pause.clone()), ["stop t"]);
    assert_eq!(frame(&mut session, pause), [""; 0], "once is enough");
    let mut out = Vec::new();
    session.delivered(key(), Vec::new(), 5, &mut out);
    assert!(out.is_empty(), "no pull while it is paused");
    assert_eq!(frame(&mut session, json!({"op": "RESUME", "topic": "t", "group": "g"})), ["pull t as ws-1"]);
}

/// What a frame says of leases, on its way to the group.
fn settle_of(session: &mut Session, frame: &Value) -> PendingSettle {
    let mut out = Vec::new();
    session.frame(&Bytes::from(frame.to_string()), &mut out);
    match out.pop() {
        Some(Effect::Settle { pending, .. }) => pending,
        other => panic!("{other:?}"),
    }
}

#[test]
fn spent_leases_are_told() {
    let mut session = consuming();
    let mut out = Vec::new();
    for (corr, results) in [(None, vec![Done, Done]), (Some(1), vec![Done]), (None, vec![Done, Expired])] {
        let mut extend = json!({"op": "MODACK", "topic": "t", "group": "g", "id": ID.to_string()});
        corr.into_iter().for_each(|corr| extend["corr"] = json!(corr));
        let pending = settle_of(&mut session, &extend);
        session.settled(pending, Ok(&results), &mut out);
    }
    let said = said(out);
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!((&said[0], &said[1]["code"]), (&json!({"op": "OK", "corr": 1}), &json!("lease_expired")));
}

fn no_room() -> ApiError {
    ApiError::with_code(ErrorCode::DiskFull, "there is no room")
}

#[test]
fn a_lease_is_held_as_before_where_there_was_no_room() {
    for op in ["ACK", "NACK"] {
        let mut session = consuming();
        let settle = json!({"op": op, "topic": "t", "group": "g", "id": ID.to_string()});
        let first = settle_of(&mut session, &settle);
        assert_eq!(code(&mut session, settle.clone()), "unknown_id", "the first one is under way");
        let mut out = Vec::new();
        assert_eq!(session.settled(first, Err(&no_room()), &mut out), []);
        assert_eq!(said(out)[0]["code"], "disk_full");
        // It can be said again, and what is not said again is given back.
        let again = settle_of(&mut session, &settle);
        session.settled(again, Err(&no_room()), &mut Vec::new());
        assert_eq!(session.end()[0].1, [delivery(1).lease]);
    }
}

#[test]
fn of_several_leases_those_are_held_that_found_no_room() {
    let mut session = consuming();
    let mut other = delivery(2);
    other.event.id = Uuid::from_u128(8);
    session.delivered(key(), vec![other], 5, &mut Vec::new());
    let leases = [1, 2].map(|number| delivery(number).lease.to_string());
    let pending =
        settle_of(&mut session, &json!({"op": "NACK", "topic": "t", "group": "g", "leases": leases}));
    let mut out = Vec::new();
    session.settled(pending, Ok(&[Done, NoRoom]), &mut out);
    assert_eq!(said(out)[0]["code"], "disk_full");
    assert_eq!(session.end()[0].1, [delivery(2).lease]);
}

#[test]
fn what_failed_otherwise_is_no_longer_held() {
    let mut session = consuming();
    let ack = json!({"op": "ACK", "topic": "t", "group": "g", "id": ID.to_string()});
    let first = settle_of(&mut session, &ack);
    session.settled(first, Err(&ApiError::unavailable("the store failed")), &mut Vec::new());
    assert_eq!(code(&mut session, ack), "unknown_id");
}

#[test]
fn a_refused_lease_of_a_subscription_that_is_gone_is_given_back() {
    let mut session = consuming();
    let ack = json!({"op": "ACK", "topic": "t", "group": "g", "id": ID.to_string()});
    let first = settle_of(&mut session, &ack);
    frame(&mut session, json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "g"}));
    assert_eq!(session.settled(first, Err(&no_room()), &mut Vec::new()), [delivery(1).lease]);
}

#[test]
fn a_refused_lease_does_not_stand_before_a_newer_one() {
    let mut session = consuming();
    let ack = json!({"op": "ACK", "topic": "t", "group": "g", "id": ID.to_string()});
    let first = settle_of(&mut session, &ack);
    session.delivered(key(), vec![delivery(2)], 5, &mut Vec::new());
    session.settled(first, Err(&no_room()), &mut Vec::new());
    assert_eq!(session.end()[0].1, [delivery(2).lease]);
}

#[test]
fn what_is_not_begun_at_the_end_is_held() {
    let mut session = consuming();
    let mut out = Vec::new();
    let ack = json!({"op": "ACK", "topic": "t", "group": "g", "id": ID.to_string()});
    session.frame(&Bytes::from(ack.to_string()), &mut out);
    out.iter_mut().for_each(|effect| session.not_begun(effect));
    assert_eq!(session.end()[0].1, [delivery(1).lease]);
}

#[test]
fn moves_are_told_once() {
    let mut session = consuming();
    let mut out = Vec::new();
    for partitions in [vec![Partition(1)], vec![Partition(1)], Vec::new()] {
        session.assigned(&key(), partitions, &mut out);
    }
    let told: Vec<Value> = said(out).iter().map(|frame| frame["partitions"].clone()).collect();
    assert_eq!(told, [json!([1]), json!([])]);
}

proptest! {
    #[test]
    fn any_frame_is_answered_or_leads_to_something(
        text in r#"\{("(op|corr|topic|topics|payload|opts|events|group|id|ids|lease|PUBLISH|SUBSCRIBE|ACK|t|g)"|[\[\]{}:,"0-9a-z\\ ]){0,30}\}?"#,
    ) {
        let mut out = Vec::new();
        session().frame(&Bytes::from(text), &mut out);
        prop_assert!(!out.is_empty());
    }
}

fn session_of(caller: Option<Caller>, auth: AuthOptions) -> Session {
    let auth = Arc::new(Auth::open(auth).unwrap());
    let allowance = Allowance { publish_bytes: 1 << 20, memory: Memory::new(MEMORY) };
    Session::new("ws-1".into(), Peer { caller, auth, vouched: None }, allowance)
}

/// A connection of a client that has not said who it is. It may be `all`, who may do everything, or `few`, who may
/// publish to `t`.
fn guarded() -> Session {
    let token = |token: &str, scope: &str| {
        let mut rules = Rules::default();
        rules.add_scope(scope).unwrap();
        StaticToken { token: Secret::new(token), rules }
    };
    session_of(None, AuthOptions::Tokens(vec![token("all", "*:**"), token("few", "publish:t")]))
}

fn auth(token: &str) -> Value {
    json!({"op": "AUTH", "token": token, "corr": 1})
}

#[test]
fn without_a_token_nothing_is_taken() {
    let mut session = guarded();
    for sent in [
        json!({"op": "PUBLISH", "topic": "t", "payload": 1}),
        json!({"op": "SUBSCRIBE", "topic": "t", "group": "g"}),
        json!({"op": "ACK", "topic": "t", "group": "g", "id": "x"}),
        json!({"op": "NONSENSE"}),
        json!([1]),
        auth("wrong"),
    ] {
        assert_eq!(code(&mut session, sent.clone()), "unauthorized", "{sent}");
    }
    assert!(session.caller().is_none() && !session.has_new_caller());
    assert_eq!(frame(&mut session, auth("all")), [json!({"op": "OK", "corr": 1})]);
    assert!(session.has_new_caller() && !session.has_new_caller());
    assert_eq!(frame(&mut session, json!({"op": "SUBSCRIBE", "topic": "t", "group": "g"})), ["subscribe 1"]);
}

#[test]
fn a_token_holds_from_its_frame_on() {
    let mut session = guarded();
    frame(&mut session, auth("few"));
    assert_eq!(code(&mut session, json!({"op": "PUBLISH", "topic": "u", "payload": 1})), "forbidden");
    assert_eq!(code(&mut session, json!({"op": "SUBSCRIBE", "topic": "t", "group": "g"})), "forbidden");
    let several = json!({"op": "SUBSCRIBE", "topics": ["t", "u"], "group": "g"});
    assert_eq!(code(&mut session, several), "forbidden");
    frame(&mut session, auth("all"));
    assert_eq!(frame(&mut session, json!({"op": "SUBSCRIBE", "topic": "t", "group": "g"})), ["subscribe 1"]);
    assert_eq!(code(&mut session, auth("wrong")), "unauthorized");
    let pause = json!({"op": "PAUSE", "topic": "t", "group": "g", "corr": 2});
    assert_eq!(frame(&mut session, pause.clone()).last().unwrap()["op"], "OK", "a bad token changes nothing");
    let said = frame(&mut session, auth("few"));
    assert_eq!((&said[0]["op"], &said[1]), (&json!("OK"), &json!("leave t with 0")));
    assert_eq!(said[2]["code"], "forbidden", "what is no longer allowed ends");
    assert_eq!(code(&mut session, pause), "not_subscribed");
}

#[test]
fn no_frame_settles_or_subscribes_without_measure() {
    let mut session = consuming();
    for (op, field) in [("ACK", "ids"), ("NACK", "leases"), ("MODACK", "leases")] {
        let mut settle = json!({"op": op, "topic": "t", "group": "g", "lease": "1-1", "corr": 1});
        settle[field] = json!(vec!["1-1"; MAX_SETTLED]);
        let said = frame(&mut session, settle);
        let message = format!("{op} takes at most {MAX_SETTLED} at a time");
        assert_eq!((&said[0]["code"], &said[0]["msg"]), (&json!("too_large"), &json!(message)));
        assert_eq!(said[0]["limit"], MAX_SETTLED);
    }
    let topics: Vec<String> = (0..=MAX_SUBSCRIPTIONS).map(|n| format!("t{n}")).collect();
    assert_eq!(code(&mut session, json!({"op": "SUBSCRIBE", "topics": topics, "group": "g"})), "too_large");
    let long = "ö".repeat(10_000);
    let nack = json!({"op": "NACK", "topic": "t", "group": "g", "id": ID, "reason": long});
    let mut out = Vec::new();
    session.frame(&Bytes::from(nack.to_string()), &mut out);
    let Some(Effect::Settle { call, .. }) = out.pop() else { panic!("{out:?}") };
    let Some(Some(Settle::Nack { reason: Some(reason), .. })) = call.settles.first() else { panic!() };
    assert!(reason.len() <= 4096 && long.starts_with(&**reason), "{}", reason.len());
}

const LEASE: LeaseToken =
    LeaseToken { session: LeaseSession { topic: TopicNumber(1), epoch: Epoch(1), seat: 1 }, number: 1 };

fn committed() -> CommitOutcome {
    let Key { topic, group } = key();
    let versions = [("c".into(), [("k".to_owned(), 1)].into())].into();
    let answer = CommitAnswer { events: Vec::new(), durability: Durability::Sync, versions, repeated: false };
    let settled = vec![(LeaseOf { topic, group }, LEASE)];
    CommitOutcome { answer: crate::commit::CommittedAnswer::Here(answer), settled, elsewhere: Vec::new() }
}

#[test]
fn a_commit_is_carried_out_and_answered() {
    let mut session = consuming();
    let commit = json!({"op": "COMMIT", "corr": "c", "ack": [LEASE.to_string()],
        "writes": [{"collection": "c", "key": "k", "inc": {"n": 1}}], "publish": [{"topic": "t", "payload": 1}]});
    let said_ = frame(&mut session, commit);
    assert!(said_.len() == 1 && said_[0].as_str().unwrap().starts_with("commit of "), "{said_:?}");
    let mut out = Vec::new();
    session.committed(Some("\"c\"".into()), Ok(committed()), &mut out);
    session.committed(None, Ok(committed()), &mut out);
    let expected = json!({"op": "OK", "corr": "c", "events": [], "versions": {"c": {"k": 1}}});
    assert_eq!(said(out), [expected], "and without corr there is no answer");
}

#[test]
fn what_a_commit_settles_is_no_longer_held() {
    let mut session = consuming();
    let ack = json!({"op": "ACK", "topic": "t", "group": "g", "id": ID.to_string()});
    let mut out = Vec::new();
    session.committed(None, Err(ApiError::with_code(ErrorCode::VersionConflict, "no")), &mut out);
    assert_eq!(said(std::mem::take(&mut out))[0]["code"], "version_conflict");
    assert_eq!(session.known("t", "g").unwrap().1.held.leases(), [LEASE], "one that failed settles nothing");
    session.committed(None, Ok(committed()), &mut out);
    assert_eq!(code(&mut session, ack), "unknown_id");
    assert_eq!(session.end(), [(key(), Vec::new())], "and nothing is left to give back");
}

#[test]
fn commits_are_refused_for_what_they_are() {
    let mut session = consuming();
    let write = |fields: Value| json!({"op": "COMMIT", "corr": 1, "writes": [fields]});
    for (sent, expected) in [
        (json!({"op": "COMMIT"}), "bad_request"),
        (json!({"op": "COMMIT", "acks": ["x"]}), "bad_request"),
        (write(json!({"collection": "c", "key": "k"})), "bad_request"),
        (write(json!({"collection": "c", "key": "k", "set": [], "x": 1})), "bad_request"),
    ] {
        assert_eq!(code(&mut session, sent.clone()), expected, "{sent}");
    }
    let mut session = guarded();
    let commit = |collection: &str, topic: &str| {
        json!({"op": "COMMIT", "writes": [{"collection": collection, "key": "k", "delete": true}],
            "publish": [{"topic": topic, "payload": 1}]})
    };
    assert_eq!(code(&mut session, commit("t", "t")), "unauthorized");
    frame(&mut session, auth("few"));
    assert_eq!(code(&mut session, commit("u", "t")), "forbidden");
    assert_eq!(code(&mut session, commit("t", "u")), "forbidden");
    assert_eq!(code(&mut session, json!({"op": "COMMIT", "ack": ["x"]})), "forbidden");
    assert!(frame(&mut session, commit("t", "t"))[0].is_string());
}

#[test]
fn a_corr_is_not_longer_than_it_may_be() {
    let mut session = session();
    let mut sent = |op: &str, corr: &str| {
        let mut out = Vec::new();
        let text = format!(r#"{{"op":"{op}","corr":{corr},"topic":"t","payload":1}}"#);
        session.frame(&Bytes::from(text), &mut out);
        said(out)
    };
    // Quotation marks are part of it.
    let longest = format!("\"{}\"", "x".repeat(MAX_CORR_BYTES - 2));
    assert_eq!(sent("PUBLISH", &longest), [json!("publish 1 to t")]);
    for op in ["PUBLISH", "ACK", "PAUSE", "NONE"] {
        let said = sent(op, &format!("[{longest}]"));
        assert_eq!((said.len(), &said[0]["op"], &said[0]["code"]), (1, &json!("ERR"), &json!("bad_request")));
        assert!(said[0]["msg"].as_str().unwrap().starts_with("corr takes"), "{op}: {said:?}");
        assert_eq!(said[0].get("corr"), None, "it does not go back");
    }
}
