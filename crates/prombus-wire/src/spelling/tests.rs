//! Every field of every request has both spellings.

use super::*;
use crate::object::parse_object;
use crate::*;
use serde::Deserialize;
use serde::de::value::Error as ValueError;
use serde_json::{Value, json};
use std::fmt::Debug;

/// Tells the fields of a type, which it hands to whoever it is parsed by.
struct Fields;

impl<'de> Deserializer<'de> for Fields {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, ValueError> {
        Err(ValueError::custom("no struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, ValueError> {
        Err(ValueError::custom(fields.join(" ")))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

fn fields_of<'a, T: Deserialize<'a>>() -> Vec<String> {
    let told = T::deserialize(Fields).err().expect("nothing comes of names alone").to_string();
    told.split(' ').map(str::to_owned).collect()
}

/// Every field of the sample in its other spelling, one at a time, and whether it is understood all the same.
fn check<T: for<'a> Deserialize<'a> + Debug>(name: &str, sample: Value) {
    let parse = |body: &Value| parse_object::<T>(body.to_string().as_bytes()).map(|it| format!("{it:?}"));
    let fields = fields_of::<T>();
    let given: Vec<&str> = sample.as_object().expect("an object").keys().map(String::as_str).collect();
    for field in &fields {
        assert!(given.contains(&field.as_str()), "the sample of {name} lacks {field}: every field is tried");
    }
    let whole = parse(&sample).unwrap_or_else(|error| panic!("{name} {sample}: {error}"));
    for (at, field) in fields.iter().filter_map(|field| Some((field, other_spelling(field)?))) {
        let mut other = sample.clone();
        let value = other.as_object_mut().and_then(|object| object.remove(at)).expect("it is there");
        other[&field] = value.clone();
        assert_eq!(parse(&other).map_err(|e| e.to_string()), Ok(whole.clone()), "{name}: {field} for {at}");
        other[at] = value;
        let error = parse(&other).expect_err("both spellings at once").to_string();
        assert!(error.contains(at) && error.contains(&field), "{name}: {error}");
    }
}

/// Requests borrow from their text, so each is checked through one that owns it.
macro_rules! check_all {
    ($($type:ident $sample:tt;)*) => {
        $({
            #[derive(Debug)]
            #[expect(dead_code, reason = "it is compared by what it shows")]
            struct Owned(String);
            impl<'de> Deserialize<'de> for Owned {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    <$type>::deserialize(deserializer).map(|it| Self(format!("{it:?}")))
                }
            }
            check::<Owned>(stringify!($type), json!($sample));
        })*
    };
}

#[test]
fn every_field_of_every_request_has_both_spellings() {
    check_all! {
        EventRequest {"payload": 1, "key": "k", "id": "i", "ts": 1, "sid": "s", "headers": {}, "tags": [],
            "caused_by": ["a"], "partition": 0, "expect": {"last_id": null}};
        ExpectRequest {"last_id": "a"};
        KeysRequest {"keys": []};
        PullRequest {"max": 1, "waitMs": 1, "member": "m", "batchSize": 1, "maxInFlight": 1, "from": "latest", "ts": 1,
            "afterId": "a", "mode": "shared", "ordering": "key", "ackTimeoutMs": 1, "maxAttempts": 1, "backoffMs": 1,
            "filter": "f", "normalize": true, "ackWindow": 1, "memberTtlMs": 1};
        GroupOptionsRequest {"from": "latest", "ts": 1, "afterId": "a", "mode": "shared", "ordering": "key",
            "ackTimeoutMs": 1, "maxAttempts": 1, "backoffMs": 1, "filter": "f", "normalize": true, "ackWindow": 1,
            "memberTtlMs": 1};
        GroupChangeRequest {"ackTimeoutMs": 1, "maxAttempts": 1, "backoffMs": 1, "filter": null, "normalize": true,
            "ackWindow": 1, "memberTtlMs": 1};
        AckRequest {"ack": ["a"], "nack": [{"lease": "b", "delayMs": 5}],
            "extend": [{"lease": "c", "extend_ms": 7}]};
        NackRequest {"lease": "b", "reason": "r", "delayMs": 5};
        ExtendRequest {"lease": "c", "extend_ms": 7};
        CursorRequest {"from": "ts", "ts": 1, "afterId": "a", "offset": 1, "partition": 0, "dry_run": true};
        SkipRequest {"partition": 0, "offset": 1};
        ReplayRequest {"to": "group", "ids": [], "group": "g", "projection": "p", "filter": "f", "limit": 1,
            "dry_run": true, "force": true};
        CommitRequest {"commit_id": "c", "ack": [], "writes": [], "publish": []};
        WriteRequest {"collection": "c", "key": "k", "set": {}, "merge": {}, "inc": {}, "delete": true,
            "if_version": 1};
        CommitEventRequest {"topic": "t", "payload": 1, "key": "k", "id": "i", "ts": 1, "sid": "s", "headers": {},
            "tags": [], "caused_by": [], "partition": 0, "expect": {"last_id": "a"}};
        CollectionRequest {"indexes": [], "changefeed": "t"};
        FullIndexRequest {"fields": [], "unique": true};
        RebuildRequest {"partial": true};
        AuthFrame {"op": "AUTH", "corr": 1, "token": "t"};
        PublishFrame {"op": "PUBLISH", "corr": 1, "topic": "t", "payload": 1, "opts": {"caused_by": []},
            "events": []};
        PublishOptions {"id": "i", "ts": 1, "key": "k", "headers": {}, "tags": [], "caused_by": [], "sid": "s",
            "partition": 0, "expect": {"last_id": "a"}};
        SubscribeFrame {"op": "SUBSCRIBE", "corr": 1, "topic": "t", "topics": [], "group": "g", "opts": {}};
        SubscribeOptions {"batch": true, "member": "m", "batchSize": 1, "maxInFlight": 1, "from": "latest", "ts": 1,
            "afterId": "a", "mode": "shared", "ordering": "key", "ackTimeoutMs": 1, "maxAttempts": 1, "backoffMs": 1,
            "filter": "f", "normalize": true, "ackWindow": 1, "memberTtlMs": 1};
        SubscriptionFrame {"op": "PAUSE", "corr": 1, "topic": "t", "group": "g"};
        SettleFrame {"op": "NACK", "corr": 1, "topic": "t", "group": "g", "id": "i", "ids": [], "lease": "l",
            "leases": [], "reason": "r", "delay_ms": 1, "extend_ms": 1};
        CommitFrame {"op": "COMMIT", "corr": 1, "commit_id": "c", "ack": [], "writes": [], "publish": []};
    }
}

#[test]
fn objects_inside_have_both_spellings_too() {
    let text = r#"{"nack":[{"lease":"a","delay_ms":5}],"extend":[{"lease":"b","extendMs":7}]}"#;
    let request: AckRequest<'_> = parse_object(text.as_bytes()).unwrap();
    assert_eq!((request.nack[0].delay_ms, request.extend[0].extend_ms), (Some(5), Some(7)));
    let text = r#"{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"max_in_flight":5}}"#;
    let frame: SubscribeFrame<'_> = parse_object(text.as_bytes()).unwrap();
    assert_eq!(frame.opts.unwrap().0.max_in_flight, Some(5));
    let text = r#"{"payload":1,"expect":{"lastId":null}}"#;
    assert!(parse_object::<EventRequest<'_>>(text.as_bytes()).unwrap().expect.is_some());
    for both in [
        r#"{"nack":[{"lease":"a","delay_ms":5,"delayMs":5}]}"#,
        r#"{"nack":[{"lease":"a","delayMs":5,"delay_ms":null}]}"#,
    ] {
        let error = parse_object::<AckRequest<'_>>(both.as_bytes()).unwrap_err();
        assert!(error.is_data() && error.to_string().contains("delayMs and delay_ms"), "{error}");
    }
    assert!(parse_object::<AckRequest<'_>>(br#"{"nack":[["a",null,5]]}"#).is_err(), "an array is no object");
}

#[test]
fn only_the_two_spellings_are_understood() {
    for bad in ["wait_Ms", "WaitMs", "wait__ms", "waitms", "wait-ms", "_wait_ms", "waitMS", "wait_ms_"] {
        let error = parse_object::<PullRequest>(format!("{{\"{bad}\":1}}").as_bytes()).unwrap_err();
        assert!(error.to_string().contains(&format!("unknown field `{bad}`")), "{error}");
    }
    let error = parse_object::<PullRequest>(br#"{"wait_ms":1,"wait_ms":2}"#).unwrap_err();
    assert!(error.to_string().contains("duplicate field"), "{error}");
}

#[test]
fn names_that_are_data_stay_as_they_are() {
    let payload = r#"{"delay_ms":1,"delayMs":2,"caused_by":3}"#;
    let text = format!(r#"{{"payload":{payload},"headers":{{"x-a":"1"}},"causedBy":["e"]}}"#);
    let event: EventRequest<'_> = parse_object(text.as_bytes()).unwrap();
    assert_eq!((event.payload.get(), event.caused_by.map(|raw| raw.get())), (payload, Some(r#"["e"]"#)));
    let text = format!(r#"{{"collection":"c","key":"k","set":{payload},"ifVersion":3}}"#);
    let write: WriteRequest<'_> = parse_object(text.as_bytes()).unwrap();
    assert_eq!((write.set.map(|raw| raw.get()), write.if_version), (Some(payload), Some(3)));
}

#[test]
fn spellings_of_a_name() {
    for (snake, camel) in [
        ("delay_ms", "delayMs"),
        ("if_version", "ifVersion"),
        ("min_compaction_lag_ms", "minCompactionLagMs"),
    ] {
        assert_eq!(other_spelling(snake).as_deref(), Some(camel));
        assert_eq!(other_spelling(camel).as_deref(), Some(snake));
        assert!(is_other_spelling(snake, camel) && is_other_spelling(camel, snake));
        assert!(!is_other_spelling(snake, snake));
    }
    assert_eq!(other_spelling("topic"), None);
}
