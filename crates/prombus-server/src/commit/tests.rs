//! What a commit may ask for, and of whom.

use super::*;
use crate::auth::{Auth, AuthOptions, Rules, Secret, StaticToken};
use prombus_core::collection::MAX_KEY_BYTES;
use prombus_core::{Epoch, TopicNumber};
use prombus_engine::groups::Session;
use prombus_wire::parse_object;
use proptest::prelude::*;
use serde_json::json;

const LEASE: &str = "1-1-1-1";

fn asked(text: &str) -> Result<CommitCall, ApiError> {
    let body = Bytes::copy_from_slice(text.as_bytes());
    CommitCall::parse(parse_object(&body)?, &body, 10_000)
}

/// What a write becomes.
fn write(fields: &str) -> Result<DocumentWrite, String> {
    let text = format!(r#"{{"writes":[{{"collection":"c","key":"k",{fields}}}]}}"#);
    asked(&text).map(|asked| asked.request.writes[0].clone()).map_err(|error| error.message().to_owned())
}

fn body_of(op: &WriteOp) -> String {
    match op {
        WriteOp::Set(json) | WriteOp::Merge(json) | WriteOp::Inc(json) => format!("{json:?}"),
        other => panic!("{other:?}"),
    }
}

fn caller(scopes: &[&str]) -> Caller {
    let mut rules = Rules::default();
    scopes.iter().for_each(|scope| rules.add_scope(scope).unwrap());
    let tokens = vec![StaticToken { token: Secret::new("t"), rules }];
    Auth::open(AuthOptions::Tokens(tokens)).unwrap().caller(Some("t")).unwrap()
}

#[test]
fn numbers_are_what_documents_hold() {
    let set = r#""set":{"a":18446744073709551615,"b":9223372036854775807,"c":1.10,"d":12345678901234567890123,"_v":7}"#;
    let set = write(set).unwrap();
    let text = r#"{"a":1.8446744073709552e+19,"b":9223372036854775807,"c":1.1,"d":1.2345678901234568e+22}"#;
    assert_eq!(body_of(&set.op), text);
    assert_eq!(
        body_of(&write(r#""merge":{"a":{"n":1e3},"b":null}"#).unwrap().op),
        r#"{"a":{"n":1000.0},"b":null}"#
    );
    assert_eq!(body_of(&write(r#""inc":{"n":-2,"m":0.5}"#).unwrap().op), r#"{"m":0.5,"n":-2}"#);
    let delete = write(r#""delete":true,"if_version":0"#).unwrap();
    assert_eq!((delete.op, delete.if_version), (WriteOp::Delete, Some(0)));
}

#[test]
fn writes_that_make_no_sense() {
    let deep = format!(r#""set":{{"a":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    for (fields, why) in [
        (r#""if_version":1"#, "exactly one"),
        (r#""set":{},"merge":{}"#, "exactly one"),
        (r#""set":{},"delete":true"#, "exactly one"),
        (r#""set":null"#, "set: it must be an object"),
        (r#""set":[]"#, "set: it must be an object"),
        (r#""merge":1"#, "merge: it must be an object"),
        (r#""inc":"x""#, "inc: it must be an object"),
        (r#""delete":false"#, "delete must be true"),
        (r#""delete":null"#, "delete must be true"),
        (r#""delete":1"#, "delete must be true"),
        (r#""set":{"a":[1e400]}"#, "neither a 64-bit integer nor a double"),
        (r#""inc":{"n":-1e400}"#, "neither a 64-bit integer nor a double"),
        (r#""merge":{"_key":1}"#, "\"_key\" is set by the hub"),
        (r#""merge":{"_ts":null}"#, "\"_ts\" is set by the hub"),
        (r#""inc":{"_v":1}"#, "\"_v\" is set by the hub"),
        (r#""inc":{"n":"1"}"#, "\"n\" is not a number"),
        (r#""inc":{"n":{}}"#, "\"n\" is not a number"),
        (&deep, "nested"),
    ] {
        let error = write(fields).unwrap_err();
        assert!(error.contains(why), "{fields}: {error}");
    }
    assert!(write(r#""merge":{"a":{"_key":1}}"#).is_ok(), "deeper down it is a name like any other");
    let long = "k".repeat(MAX_KEY_BYTES + 1);
    for text in [
        format!(r#"{{"writes":[{{"collection":"c","key":"{long}","delete":true}}]}}"#),
        r#"{"writes":[{"collection":"C","key":"k","delete":true}]}"#.into(),
        r#"{"writes":[{"collection":"a~b","key":"k","delete":true}]}"#.into(),
    ] {
        assert_eq!(asked(&text).unwrap_err().code().as_str(), "bad_request", "{text}");
    }
}

#[test]
fn nothing_is_no_commit() {
    for text in ["{}", r#"{"commit_id":"c"}"#, r#"{"ack":[],"writes":[],"publish":[]}"#] {
        assert_eq!(asked(text).unwrap_err().code().as_str(), "bad_request", "{text}");
    }
}

#[test]
fn leases_that_are_none_are_kept_for_later() {
    let asked = asked(&json!({"ack": [LEASE, "nonsense", "x"]}).to_string()).unwrap();
    let session = Session { topic: TopicNumber(1), epoch: Epoch(1), seat: 1 };
    assert_eq!(asked.request.acks, [LeaseToken { session, number: 1 }]);
    assert_eq!(asked.not_a_lease.as_deref(), Some("nonsense"));
}

#[test]
fn there_are_limits() {
    let leases = vec![LEASE; MAX_SETTLED + 1];
    assert_eq!(asked(&json!({ "ack": leases }).to_string()).unwrap_err().code().as_str(), "too_large");
    let write = json!({"collection": "c", "key": "k", "delete": true});
    let writes = vec![write; MAX_WRITES + 1];
    assert_eq!(asked(&json!({ "writes": writes }).to_string()).unwrap_err().code().as_str(), "too_large");
    let half = "x".repeat(4_990);
    let event = json!({"topic": "t", "payload": half});
    assert!(asked(&json!({ "publish": [event] }).to_string()).is_ok());
    let write = json!({"collection": "c", "key": "k", "set": {"a": half}});
    let both = json!({"publish": [event], "writes": [write]});
    assert_eq!(asked(&both.to_string()).unwrap_err().code().as_str(), "too_large");
}

#[test]
fn events_say_which_of_them_is_wrong() {
    for bad in [r#"{"topic":"T","payload":1}"#, r#"{"topic":"t","payload":1,"id":"x"}"#] {
        let text = format!(r#"{{"publish":[{{"topic":"t","payload":1}},{bad}]}}"#);
        let error = asked(&text).unwrap_err();
        assert_eq!((error.code().as_str(), &error.details()["index"]), ("bad_request", &json!(1)), "{bad}");
    }
}

#[test]
fn every_name_is_asked_for() {
    let text = json!({
        "writes": [{"collection": "a", "key": "k", "delete": true}, {"collection": "b.c", "key": "k", "delete": true}],
        "publish": [{"topic": "t", "payload": 1}],
    });
    let asked_for = asked(&text.to_string()).unwrap();
    let may = |scopes: &[&str]| asked_for.check(&caller(scopes)).is_ok();
    assert!(may(&["publish:a", "publish:b.*", "publish:t"]) && may(&["*:**"]));
    assert!(!may(&["publish:a", "publish:t"]) && !may(&["publish:a", "publish:b.c"]));
    assert!(!may(&["read:**", "admin:**", "subscribe:**"]));
    let acks = asked(&json!({"ack": ["nonsense"]}).to_string()).unwrap();
    assert!(acks.check(&caller(&["publish:**"])).is_err() && acks.check(&caller(&["subscribe:x"])).is_ok());
}

proptest! {
    #[test]
    fn no_document_makes_it_panic(set in r#"[\[\]{}",:0-9ae. -]{0,30}"#, op in "set|merge|inc|delete") {
        let _ = write(&format!(r#""{op}":{set}"#));
    }
}
