//! Given a definition, when an event comes, then these are its writes: without a hub.

use prombus_core::{Event, Json, Offset, Partition, TopicName, Versioning, WriteOp};
use prombus_engine::projections::{Definition, Plan, ProjectionError};
use serde_json::{Value, json};

fn plan(definition: Value) -> Plan {
    compiled(definition).unwrap_or_else(|error| panic!("{error}"))
}

fn compiled(definition: Value) -> Result<Plan, ProjectionError> {
    Plan::compile("p", &serde_json::from_value::<Definition>(definition).expect("a definition"))
}

fn refusal(definition: Value) -> String {
    match compiled(definition) {
        Ok(_) => "nothing".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn event(key: Option<&str>, payload: &str) -> Event {
    Event {
        id: uuid::Uuid::from_u128(7),
        ts: 1_000,
        recorded_ts: 1_001,
        topic: TopicName::parse("t").expect("a name"),
        key: key.map(Into::into),
        partition: Partition(0),
        offset: Offset(0),
        sid: None,
        headers: None,
        payload: Json::parse(payload.to_owned().into()).expect("JSON"),
        caused_by: None,
        tags: None,
    }
}

/// What the one write of an event is: its key, what it does, and its version.
fn written(plan: &Plan, event: &Event) -> Result<(String, String, Versioning), String> {
    let mut writes = plan.apply(event)?;
    assert_eq!(writes.len(), 1);
    let write = writes.remove(0);
    assert_eq!((write.ts, write.cause, write.if_version), (event.ts, Some(event.id), None));
    assert_eq!(write.owner.as_projection(), Some("p"));
    Ok((write.key, told(&write.op), write.versioning))
}

fn told(op: &WriteOp) -> String {
    match op {
        WriteOp::Set(body) => format!("set {body:?}"),
        WriteOp::Merge(body) => format!("merge {body:?}"),
        WriteOp::Inc(body) => format!("inc {body:?}"),
        WriteOp::Update { set, inc } => format!("set {} inc {}", json!(set), json!(inc)),
        WriteOp::Delete => "delete".to_owned(),
        WriteOp::Receipt(_) => "receipt".to_owned(),
    }
}

/// What a changelog with these settings makes of an event.
fn logged(settings: Value, event: &Event) -> Result<(String, String, Versioning), String> {
    let mut definition = json!({"topic": "t", "collection": "c", "key": "event.key"});
    let settings = settings.as_object().expect("settings").clone();
    definition.as_object_mut().expect("an object").extend(settings);
    written(&plan(definition), event)
}

fn done(key: &str, op: &str) -> Result<(String, String, Versioning), String> {
    Ok((key.to_owned(), op.to_owned(), Versioning::None))
}

#[test]
fn a_changelog_keeps_the_payload_under_the_key_of_the_event() {
    let given = event(Some("k"), r#"{"b":1.10,"a":{"x":[1,null]}}"#);
    assert_eq!(logged(json!({}), &given), done("k", r#"set {"a":{"x":[1,null]},"b":1.1}"#));
    assert!(logged(json!({}), &event(None, "{}")).expect_err("no key").contains("the event has no key"));
    assert_eq!(logged(json!({}), &event(Some(""), "{}")), done("", "set {}"));
}

#[test]
fn the_key_is_any_expression_that_gives_a_string() {
    let given = event(Some("k"), r#"{"id":"x","n":3,"ä":"ö"}"#);
    let key = |key: &str| logged(json!({"key": key}), &given).map(|(key, ..)| key);
    assert_eq!(key("event.payload.id"), Ok("x".into()));
    assert_eq!(key("event.key + ':' + string(event.payload.n)"), Ok("k:3".into()));
    assert_eq!(key("event.payload['ä']"), Ok("ö".into()));
    assert!(key("event.payload.n").expect_err("a number").contains("must be a string, not 3"));
    assert!(key("event.payload.nothing").is_err());
    assert!(key("event.payload.id.deeper").is_err());
    assert!(key("event.payload").is_err());
    let long = |bytes: usize| event(Some("k"), &json!({"id": "x".repeat(bytes)}).to_string());
    assert!(logged(json!({"key": "event.payload.id"}), &long(1_024)).is_ok());
    let refused = logged(json!({"key": "event.payload.id"}), &long(1_025)).expect_err("it is too long");
    assert!(refused.contains("1025 bytes"), "{refused}");
}

#[test]
fn fields_that_are_there_are_kept() {
    let given = event(Some("k"), r#"{"a":1,"b":null,"c":{"d":2},"c.d":3,"$x":4}"#);
    let names = json!({"fields": ["b", "a", "c.d", "$x", "none"]});
    assert_eq!(logged(names, &given), done("k", r#"set {"$x":4,"a":1,"b":null,"c.d":3}"#));
    assert!(logged(json!({"fields": ["a"]}), &event(Some("k"), "[1]")).is_err());
    assert_eq!(logged(json!({"fields": []}), &given), done("k", "set {}"));
}

#[test]
fn a_map_makes_the_document() {
    let given = event(Some("k"), r#"{"a":1,"list":[1,2.5,"x",true,null]}"#);
    let map = |map: &str| logged(json!({"map": map}), &given);
    assert_eq!(
        map("{'z': event.payload.a + 1, 'y': event.payload.list, 'at': event.ts, 'k': event.key}"),
        done("k", r#"set {"at":1000,"k":"k","y":[1,2.5,"x",true,null],"z":2}"#)
    );
    assert_eq!(map("{'u': 18446744073709551615u}"), done("k", r#"set {"u":1.8446744073709552e+19}"#));
    for bad in ["event.payload.a", "{1: 2}", "event.payload.none", "{'d': 1.0 / 0.0}", "{'b': b'x'}"] {
        assert!(map(bad).is_err(), "{bad}");
    }
}

#[test]
fn what_is_gone_is_deleted() {
    let tombstone = json!({"key": "event.payload.id", "tombstone": "event.payload.gone"});
    let logged = |payload: &str| logged(tombstone.clone(), &event(Some("k"), payload));
    assert_eq!(logged("null"), done("k", "delete"), "the key of the event");
    assert_eq!(logged(r#"{"id":"x","_deleted":true}"#), done("x", "delete"));
    assert_eq!(logged(r#"{"id":"x","gone":true}"#), done("x", "delete"));
    for stays in
        [r#""gone":false"#, r#""gone":"true""#, r#""gone":1"#, r#""gone":null"#, r#""_deleted":"true""#]
    {
        let (key, op, _) = logged(&format!("{{\"id\":\"x\",{stays}}}")).expect("a write");
        assert_eq!((key.as_str(), op.starts_with("set ")), ("x", true), "{stays}");
    }
    assert_eq!(logged(r#"{"id":"x"}"#), done("x", r#"set {"id":"x"}"#), "a tombstone that fails is none");
    assert!(logged(r#"{"gone":true}"#).is_err(), "nobody knows what is to be deleted");
    let nameless = plan(json!({"topic": "t", "collection": "c", "key": "event.key"}));
    assert_eq!(written(&nameless, &event(None, "null")), Err("the event has neither key nor payload".into()));
}

#[test]
fn versions_are_integers() {
    let version = |payload: &str| {
        logged(json!({"version": "event.payload.rev"}), &event(Some("k"), payload)).map(|(_, op, v)| (op, v))
    };
    assert_eq!(version(r#"{"rev":5}"#), Ok((r#"set {"rev":5}"#.into(), Versioning::Newer(5))));
    assert_eq!(version(r#"{"rev":-5}"#).map(|(_, v)| v), Ok(Versioning::Newer(-5)));
    let max = version(r#"{"rev":9223372036854775807}"#).map(|(_, v)| v);
    assert_eq!(max, Ok(Versioning::Newer(i64::MAX)));
    for bad in [r#"{"rev":1.0}"#, r#"{"rev":"1"}"#, r#"{"rev":null}"#, r#"{"rev":9223372036854775808}"#, "{}"]
    {
        assert!(version(bad).is_err(), "{bad}");
    }
    assert_eq!(version("null"), Ok(("delete".into(), Versioning::None)));
    assert_eq!(version(r#"{"_deleted":true}"#), Ok(("delete".into(), Versioning::None)));
    assert_eq!(version(r#"{"_deleted":true,"rev":2}"#), Ok(("delete".into(), Versioning::Newer(2))));
    assert!(version(r#"{"_deleted":true,"rev":"x"}"#).is_err());
}

#[test]
fn only_objects_are_documents() {
    for payload in ["1", "\"x\"", "[{}]", "true"] {
        let refused = logged(json!({}), &event(Some("k"), payload)).expect_err("no object");
        assert!(refused.contains("must be a JSON object"), "{refused}");
    }
}

#[test]
fn numbers_are_integers_or_doubles() {
    let logged = |payload: &str| logged(json!({}), &event(Some("k"), payload)).map(|(_, op, _)| op);
    let op =
        logged(r#"{"a":9223372036854775807,"b":9223372036854775808,"c":[123456789012345678901234567890]}"#);
    assert_eq!(
        op.expect("a write"),
        r#"set {"a":9223372036854775807,"b":9.223372036854776e+18,"c":[1.2345678901234568e+29]}"#
    );
    assert_eq!(
        logged(r#"{"a":-9223372036854775808,"b":1e2,"c":-0.0}"#),
        Ok(r#"set {"a":-9223372036854775808,"b":100.0,"c":-0.0}"#.into())
    );
    assert!(logged(r#"{"a":1e400}"#).is_err(), "it is no number that a document can hold");
}

#[test]
fn fields_of_the_hub_are_left_to_it() {
    let given = event(Some("k"), r#"{"_key":"x","_ts":1,"_v":2,"_mine":3,"in":{"_key":4}}"#);
    let expected = done("k", r#"set {"_mine":3,"in":{"_key":4}}"#);
    assert_eq!(logged(json!({}), &given), expected);
    assert_eq!(logged(json!({"map": "event.payload"}), &given), expected);
    for name in ["_key", "_ts", "_v"] {
        let fields = refusal(json!({"topic": "t", "collection": "c", "key": "event.key", "fields": [name]}));
        assert!(fields.contains("set by the hub"), "{fields}");
        for verb in ["set", "inc"] {
            let refused = refusal(
                json!({"topic": "t", "write": [{"collection": "c", "key": "'k'", verb: {name: "1"}}]}),
            );
            assert!(refused.contains("set by the hub"), "{refused}");
        }
    }
}

/// What the writes of a transaction do to an event.
fn transacted(writes: Value, payload: &str) -> Result<Vec<(String, String, String)>, String> {
    let plan = plan(json!({"topic": "t", "write": writes}));
    let done = plan.apply(&event(Some("k"), payload))?;
    assert!(done.iter().all(|write| write.versioning == Versioning::None));
    Ok(done.into_iter().map(|write| (write.collection.to_string(), write.key, told(&write.op))).collect())
}

fn one(settings: Value, payload: &str) -> Result<Vec<String>, String> {
    let mut write = json!({"collection": "c", "key": "event.key"});
    write.as_object_mut().expect("an object").extend(settings.as_object().expect("settings").clone());
    Ok(transacted(json!([write]), payload)?.into_iter().map(|(.., op)| op).collect())
}

#[test]
fn a_transaction_writes_to_several_collections() {
    let writes = json!([
        {"collection": "live", "key": "event.payload.id", "set": "event.payload"},
        {"collection": "stats", "key": "event.payload.host", "inc": {"seen": "1"}, "set": {"last": "event.ts"}},
    ]);
    let own = |texts: [&str; 3]| (texts[0].to_owned(), texts[1].to_owned(), texts[2].to_owned());
    assert_eq!(
        transacted(writes.clone(), r#"{"id":"x","host":"h"}"#),
        Ok(vec![
            own(["live", "x", r#"set {"host":"h","id":"x"}"#]),
            own(["stats", "h", r#"set {"last":1000} inc {"seen":1}"#]),
        ])
    );
    assert!(transacted(writes, r#"{"id":"x"}"#).is_err(), "all or none");
}

#[test]
fn each_kind_of_write_does_its_own() {
    let ok = |op: &str| Ok(vec![op.to_owned()]);
    let payload = r#"{"a":1,"b":{"c":null},"yes":true}"#;
    assert_eq!(one(json!({"set": "event.payload.b"}), payload), ok(r#"set {"c":null}"#));
    assert_eq!(
        one(json!({"set": {"x": "event.payload.a", "y": "'t'"}}), payload),
        ok(r#"set {"x":1,"y":"t"} inc {}"#)
    );
    assert_eq!(
        one(json!({"inc": {"n": "event.payload.a", "m": "-0.5"}}), payload),
        ok(r#"set {} inc {"m":-0.5,"n":1}"#)
    );
    assert_eq!(one(json!({"merge": "event.payload.b"}), payload), ok(r#"merge {"c":null}"#));
    assert_eq!(one(json!({"delete": "event.payload.yes"}), payload), ok("delete"));
    assert_eq!(one(json!({"delete": "event.payload.no"}), payload), Ok(vec![]));
    assert_eq!(one(json!({"set": "event.payload", "delete": "true"}), payload), ok("delete"));
    assert_eq!(one(json!({"merge": "event.payload.b", "when": "event.payload.a > 1"}), payload), Ok(vec![]));
    assert_eq!(one(json!({"merge": "event.payload.b", "when": "event.payload.none"}), payload), Ok(vec![]));
    assert_eq!(
        one(json!({"merge": "event.payload.b", "when": "event.payload.yes"}), payload),
        ok(r#"merge {"c":null}"#)
    );
    for bad in
        [json!({"set": "event.payload.a"}), json!({"merge": "[1]"}), json!({"set": {"x": "event.payload.z"}})]
    {
        assert!(one(bad.clone(), payload).is_err(), "{bad}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let write = |write: Value| json!({"topic": "t", "write": [write]});
    let of = |settings: Value| {
        let mut all = json!({"collection": "c", "key": "'k'"});
        all.as_object_mut().expect("an object").extend(settings.as_object().expect("settings").clone());
        write(all)
    };
    let c = |settings: Value| {
        let mut all = json!({"topic": "t", "collection": "c", "key": "event.key"});
        all.as_object_mut().expect("an object").extend(settings.as_object().expect("settings").clone());
        all
    };
    let cases = [
        (json!({"topic": "t"}), "needs a collection"),
        (c(json!({"write": [{"collection": "d", "key": "'k'", "merge": "event.payload"}]})), "not both"),
        (c(json!({"fields": ["a"], "map": "event.payload"})), "fields or a map"),
        (of(json!({})), "does nothing"),
        (of(json!({"set": "event.payload", "inc": {"n": "1"}})), "goes alone"),
        (of(json!({"set": "event.payload", "merge": "event.payload"})), "goes alone"),
        (of(json!({"merge": "event.payload", "inc": {"n": "1"}})), "goes alone"),
        (of(json!({"set": {"a": "1"}, "merge": "event.payload"})), "goes alone"),
        (
            json!({"topic": "t", "key": "'k'", "write": [{"collection": "c", "key": "'k'", "merge": "event.payload"}]}),
            "key goes into each write",
        ),
        (c(json!({"key": "1 +"})), "key"),
        (c(json!({"key": "nothing"})), "not known"),
        (c(json!({"retries": 101})), "retries"),
        (c(json!({"changefeed": "t"})), "feed itself"),
        (c(json!({"changefeed": "dlq.t"})), "hub's own"),
        (c(json!({"indexes": [[]]})), "1 to 8 fields"),
        (c(json!({"indexes": [["a"], ["a"]]})), "twice"),
        (json!({"topic": "t", "collection": "c"}), "needs a key"),
        (json!({"topic": "t", "collection": "No"}), "collection name"),
        (json!({"topic": "t", "collection": "a~b"}), "collection name"),
    ];
    for (definition, expected) in cases {
        let refused = refusal(definition.clone());
        assert!(refused.contains(expected), "{definition}: {refused}");
    }
    let unknown = serde_json::from_value::<Definition>(c(json!({"tombstones": "true"})));
    assert!(unknown.is_err(), "a misspelt field is not ignored");
    let unknown = serde_json::from_value::<Definition>(of(json!({"increment": {}})));
    assert!(unknown.is_err());
}

#[test]
fn several_writes_may_say_the_same_of_a_collection() {
    let write = json!({"collection": "c", "key": "'k'", "merge": "event.payload", "indexes": [["a"], ["b"]]});
    assert!(compiled(json!({"topic": "t", "write": [write, write]})).is_ok());
    let mut other = write.clone();
    other["changefeed"] = json!("c.changed");
    assert!(compiled(json!({"topic": "t", "write": [write, other.clone()]})).is_ok());
    let mut third = write;
    third["changefeed"] = json!("c.other");
    assert!(refusal(json!({"topic": "t", "write": [other, third]})).contains("two changefeeds"));
}

#[test]
fn what_no_document_could_hold_is_not_made_a_tree() {
    const MANY: usize = prombus_core::document::MAX_VALUES;
    let of = |count: usize| format!(r#"{{"a":[{}],"b":1}}"#, vec!["0"; count].join(","));
    let table = |expressions: &[&str]| {
        let write = |source: &&str| json!({"collection": "c", "key": "event.key", "set": {"x": source}});
        plan(json!({"topic": "t", "write": expressions.iter().map(write).collect::<Vec<_>>()}))
    };
    let (few, many) = (event(Some("k"), &of(MANY - 10)), event(Some("k"), &of(MANY + 10)));
    for source in ["event.payload", "event.payload.a", "event.payload.a.map(v, v)"] {
        assert!(table(&[source]).apply(&few).is_ok(), "{source}");
        let refused = table(&[source]).apply(&many).expect_err(source);
        assert!(refused.contains("values"), "{source}: {refused}");
    }
    // What is beside is nobody's business.
    assert!(table(&["event.payload.b"]).apply(&many).is_ok());
    let refused = table(&["event.payload"; 40]).apply(&few).expect_err("it makes too much");
    assert!(refused.contains("more work"), "{refused}");
}

/// A transaction of one write that sets so many fields.
fn setting(fields: usize, expression: impl Fn(usize) -> String) -> Plan {
    let set: serde_json::Map<_, _> =
        (0..fields).map(|n| (format!("f{n}"), Value::from(expression(n)))).collect();
    plan(json!({"topic": "t", "write": [{"collection": "c", "key": "'k'", "set": set}]}))
}

#[test]
fn all_expressions_over_an_event_share_what_they_may_cost() {
    let numbers = event(None, &format!("{:?}", vec![1; 150]));
    let loops = |_| "event.payload.all(a, event.payload.all(b, a <= b))".to_owned();
    assert!(setting(1, loops).apply(&numbers).is_ok());
    let told = setting(100, loops).apply(&numbers).expect_err("a hundred take more than one may");
    assert!(told.contains("more work"), "{told}");
}

#[test]
fn what_an_event_is_read_for_again_is_work_as_well() {
    let payload = event(None, &json!({"list": vec![1; 50_000]}).to_string());
    let same = |n| format!("has(event.payload.list) ? {n} : 0");
    assert!(setting(100, same).apply(&payload).is_ok(), "it is read once for all of them");
    let other = |n| format!("has(event.payload.list) && has(event.payload.f{n})");
    assert!(setting(3, other).apply(&payload).is_ok());
    let told = setting(100, other).apply(&payload).expect_err("each of them has it read again");
    assert!(told.contains("more work"), "{told}");
}

#[test]
fn a_value_that_is_copied_again_and_again_is_work() {
    let large = event(None, &json!({"text": "x".repeat(900_000), "list": vec![1; 50_000]}).to_string());
    let text = |_| "event.payload.text".to_owned();
    assert!(setting(4, text).apply(&large).is_ok());
    assert!(setting(40, text).apply(&large).expect_err("too much").contains("more work"));
    let list = |_| "event.payload.list".to_owned();
    assert!(setting(4, list).apply(&large).is_ok());
    assert!(setting(40, list).apply(&large).expect_err("too much").contains("more work"));
}
