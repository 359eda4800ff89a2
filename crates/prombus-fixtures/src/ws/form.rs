//! The form of the frames that a hub sends, as the public contract gives it.

use crate::http::CODES;
use serde_json::Value;

/// Checks a frame of the hub as far as that is possible without knowing the request.
#[track_caller]
pub fn looks_right(frame: &Value) {
    match frame["op"].as_str().unwrap_or("") {
        "OK" => assert!(frame["corr"].is_string(), "{frame}"),
        "ERR" => {
            assert!(CODES.contains(&frame["code"].as_str().unwrap_or("")), "{frame}");
            assert!(!frame["msg"].as_str().unwrap_or("").is_empty(), "{frame}");
            assert!(frame.get("corr").is_none_or(Value::is_string), "{frame}");
        }
        "EVENT" => {
            assert_eq!(fields(frame), ["ctx", "event", "group", "op", "topic"], "{frame}");
            is_delivery(frame, &frame["topic"]);
        }
        "EVENTS" => {
            assert_eq!(fields(frame), ["deliveries", "group", "op", "topic"], "{frame}");
            let all = frame["deliveries"].as_array().map(Vec::as_slice).unwrap_or_default();
            assert!(!all.is_empty(), "{frame}");
            for one in all {
                assert_eq!(fields(one), ["ctx", "event"], "{frame}");
                is_delivery(one, &frame["topic"]);
            }
        }
        "ASSIGNED" => assert_eq!(fields(frame), ["group", "op", "partitions", "topic"], "{frame}"),
        _ => panic!("what is {frame}?"),
    }
}

#[track_caller]
fn is_delivery(one: &Value, topic: &Value) {
    let (event, ctx) = (&one["event"], &one["ctx"]);
    for name in ["id", "ts", "partition", "offset", "payload"] {
        assert!(event.get(name).is_some(), "no {name} in {one}");
    }
    assert_eq!(&event["topic"], topic, "{one}");
    assert_eq!(fields(ctx), ["ack_deadline_ms", "attempt", "lease", "maxAttempts"], "{one}");
    assert!(ctx["attempt"].as_u64() >= Some(1) && ctx["maxAttempts"].is_u64(), "{one}");
    assert!(ctx["ack_deadline_ms"].is_u64(), "{one}");
    assert!(ctx["lease"].as_str().is_some_and(|lease| !lease.is_empty()), "{one}");
}

/// The names of an object's fields, sorted.
fn fields(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> =
        value.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names
}
