//! What upcasters make of payloads, whatever those hold.

use super::*;
use crate::filter::wait;
use prombus_core::Json;
use proptest::prelude::*;
use serde_json::{Value, json};

const ROOM: usize = 1 << 20;

fn upcaster(ops: Value) -> Upcaster {
    serde_json::from_value(json!({ "ops": ops })).unwrap()
}

fn hop(ops: Value) -> Hop {
    wait(Hop::compile(&upcaster(ops))).unwrap()
}

fn payload(text: &str) -> Json {
    Json::parse(text.to_owned().into()).unwrap()
}

fn text(json: &Json) -> String {
    let text = String::from_utf8(json.as_bytes().to_vec()).unwrap();
    assert_eq!(payload(&text), *json, "what is made is compact and valid");
    text
}

fn raised_within(most: usize, ops: Value, before: &str) -> Result<String, String> {
    let chain = Chain::new(vec![(1, hop(ops))], most);
    chain.raise(1, &payload(before)).map(|json| text(&json)).map_err(|error| error.to_string())
}

fn raised(ops: Value, before: &str) -> Result<String, String> {
    raised_within(ROOM, ops, before)
}

fn refused(ops: Value) -> String {
    match wait(Hop::compile(&upcaster(ops))) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it must be refused"),
    }
}

#[test]
fn the_example_of_the_contract() {
    let ops = json!([{"rename": ["mem_mb", "mem_mib"]}, {"set": {"unit": "'MiB'"}}, {"remove": ["old"]}]);
    assert_eq!(
        raised(ops.clone(), r#"{"old":1,"mem_mb":12.50,"host":"a"}"#).unwrap(),
        r#"{"mem_mib":12.50,"host":"a","unit":"MiB"}"#
    );
    assert_eq!(serde_json::to_value(upcaster(ops.clone())).unwrap(), json!({ "ops": ops }));
}

#[test]
fn what_nothing_names_stays_byte_for_byte() {
    let beside = r#""n":12345678901234567890123,"x":1.10,"e":-0.0e+1,"s":"\ud800\u00e9","\ud800":[1e400,{"a":"\"}"}],"d":1,"d":2"#;
    for (ops, before, after) in [
        (json!([{"rename": ["a", "b"]}]), r#""a":{"k":1e999}"#, r#""b":{"k":1e999}"#),
        (json!([{"set": {"a": "2"}}]), r#""a":1"#, r#""a":2"#),
        (
            json!([{"set": {"a": "payload.a.b"}}]),
            r#""a":{"b":123456789012345678901.50}"#,
            r#""a":123456789012345678901.50"#,
        ),
        (json!([{"remove": ["q.r"]}]), r#""q":{"r":1,"s":1E5}"#, r#""q":{"s":1E5}"#),
        (json!([]), r#""q":1"#, r#""q":1"#),
    ] {
        let (before, after) = (format!("{{{beside},{before}}}"), format!("{{{beside},{after}}}"));
        assert_eq!(raised(ops, &before).unwrap(), after);
    }
}

#[test]
fn renames_keep_their_place_or_move() {
    for (ops, before, after) in [
        (json!([{"rename": ["a", "b"]}]), r#"{"a":1,"c":2}"#, r#"{"b":1,"c":2}"#),
        (json!([{"rename": ["a", "b"]}]), r#"{"c":2}"#, r#"{"c":2}"#),
        (json!([{"rename": ["a", "b"]}]), "[1]", "[1]"),
        (json!([{"rename": ["a.x", "a.y"]}]), r#"{"a":{"x":1}}"#, r#"{"a":{"y":1}}"#),
        (
            json!([{"rename": ["a.x", "b.c.x"]}]),
            r#"{"a":{"x":[1],"z":2}}"#,
            r#"{"a":{"z":2},"b":{"c":{"x":[1]}}}"#,
        ),
        (json!([{"rename": ["a.x", "x"]}]), r#"{"a":{"x":1}}"#, r#"{"a":{},"x":1}"#),
        (
            json!([{"rename": ["i[].a", "i[].b"]}]),
            r#"{"i":[{"a":1},{"b":2},3,{"a":[]}]}"#,
            r#"{"i":[{"b":1},{"b":2},3,{"b":[]}]}"#,
        ),
        (json!([{"rename": ["i.*.a", "i.*.o.b"]}]), r#"{"i":[{"a":1},{}]}"#, r#"{"i":[{"o":{"b":1}},{}]}"#),
        (json!([{"rename": ["*.a", "*.b"]}]), r#"[{"a":1}]"#, r#"[{"b":1}]"#),
        (json!([{"rename": ["a", "b"]}, {"rename": ["b", "c"]}]), r#"{"a":1}"#, r#"{"c":1}"#),
        (
            json!([{"rename": ["a", "t"]}, {"rename": ["b", "a"]}, {"rename": ["t", "b"]}]),
            r#"{"a":1,"b":2}"#,
            r#"{"b":1,"a":2}"#,
        ),
        // Names are compared as what they are, not as they are written.
        (json!([{"rename": ["é", "\"\n"]}]), r#"{"\u00e9":1}"#, r#"{"\"\n":1}"#),
    ] {
        assert_eq!(raised(ops.clone(), before).unwrap(), after, "{ops}");
    }
    for (ops, before) in [
        (json!([{"rename": ["a", "b"]}]), r#"{"a":1,"b":2}"#),
        (json!([{"rename": ["a", "o.b"]}]), r#"{"a":1,"o":{"b":2}}"#),
        (json!([{"rename": ["a", "o.b"]}]), r#"{"a":1,"o":7}"#),
    ] {
        assert!(raised(ops, before).unwrap_err().contains("rename"));
    }
}

#[test]
fn sets_see_the_payload_as_it_was_before_them() {
    for (ops, before, after) in [
        (json!([{"set": {"a": "payload.b", "b": "payload.a"}}]), r#"{"a":1,"b":2}"#, r#"{"a":2,"b":1}"#),
        (json!([{"set": {"c": "payload.a + payload.b"}}]), r#"{"a":1,"b":2}"#, r#"{"a":1,"b":2,"c":3}"#),
        (
            json!([{"set": {"c": "payload.a + 1"}}, {"set": {"d": "payload.c + 1"}}]),
            r#"{"a":1}"#,
            r#"{"a":1,"c":2,"d":3}"#,
        ),
        (json!([{"set": {"o.p.q": "true"}}]), "{}", r#"{"o":{"p":{"q":true}}}"#),
        (json!([{"set": {"o.p": "null"}}]), r#"{"o":{"x":1}}"#, r#"{"o":{"x":1,"p":null}}"#),
        (json!([{"set": {"i[].u": "'x'"}}]), r#"{"i":[{},{"u":1}]}"#, r#"{"i":[{"u":"x"},{"u":"x"}]}"#),
        (json!([{"set": {"i[].u": "'x'"}}]), r#"{"j":1}"#, r#"{"j":1}"#),
        (json!([{"set": {"i[]": "0"}}]), r#"{"i":[{},"a"]}"#, r#"{"i":[0,0]}"#),
        (
            json!([{"set": {"m": "payload.i.map(x, x.n * 2)"}}]),
            r#"{"i":[{"n":1},{"n":2}]}"#,
            r#"{"i":[{"n":1},{"n":2}],"m":[2,4]}"#,
        ),
        (json!([{"set": {"n": "has(payload.n) ? payload.n : 7"}}]), "{}", r#"{"n":7}"#),
        (json!([{"set": {"all": "payload"}}]), r#"{"a":1.0}"#, r#"{"a":1.0,"all":{"a":1.0}}"#),
        (json!([{"set": {"a\\.b": "1"}}]), r#"{"a":{"b":0}}"#, r#"{"a":{"b":0},"a.b":1}"#),
        (json!([{"set": {"__proto__.constructor": "1"}}]), "{}", r#"{"__proto__":{"constructor":1}}"#),
    ] {
        assert_eq!(raised(ops.clone(), before).unwrap(), after, "{ops}");
    }
    for (ops, before, why) in [
        (json!([{"set": {"c": "payload.missing"}}]), "{}", "ops[0]: set c: payload.missing: no such field"),
        (json!([{"set": {"c": "payload.a / 0"}}]), r#"{"a":1}"#, "division by zero"),
        (
            json!([{"set": {"a.b": "1"}}]),
            r#"{"a":"text"}"#,
            "there is a string where an object with \"b\" is expected",
        ),
        (json!([{"set": {"a[].b": "1"}}]), r#"{"a":{}}"#, "there is an object where an array is expected"),
        (
            json!([{"set": {"b": "payload.a + 1.0"}}]),
            r#"{"a":1e400}"#,
            "neither a 64-bit integer nor a double",
        ),
    ] {
        let error = raised(ops.clone(), before).unwrap_err();
        assert!(
            error.contains(why) && error.starts_with("it cannot be upgraded from version 1: "),
            "{error}"
        );
    }
}

#[test]
fn of_a_name_that_comes_twice_the_last_one_counts() {
    let twice = r#"{"a":1,"b":0,"a":{"c":2},"a":{"c":3}}"#;
    for (ops, after) in [
        (json!([{"rename": ["a", "z"]}]), r#"{"b":0,"z":{"c":3}}"#),
        (json!([{"remove": ["a"]}]), r#"{"b":0}"#),
        (json!([{"remove": ["a.c"]}]), r#"{"a":1,"b":0,"a":{},"a":{}}"#),
        (json!([{"set": {"a": "1"}}]), r#"{"b":0,"a":1}"#),
        (json!([{"set": {"b": "payload.a.c"}}]), r#"{"b":3,"a":{"c":3}}"#),
    ] {
        assert_eq!(raised(ops.clone(), twice).unwrap(), after, "{ops}");
    }
}

#[test]
fn removing_what_is_not_there_does_nothing() {
    let ops = json!([{"remove": ["a", "b.c", "i[].x", "j[]", "s.t"]}]);
    assert_eq!(
        raised(ops.clone(), r#"{"s":"t","j":[1,2],"i":[{"x":1,"y":2},5],"b":{"c":1}}"#).unwrap(),
        r#"{"s":"t","j":[],"i":[{"y":2},5],"b":{}}"#
    );
    for odd in ["null", "1", r#""a""#, "[]", "{}"] {
        assert_eq!(raised(ops.clone(), odd).unwrap(), odd);
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (ops, why) in [
        (json!([{"rename": ["a", "a"]}]), "ops[0].rename: a and a are parts of each other, or the same"),
        (json!([{"rename": ["a", "a.b"]}]), "parts of each other"),
        (json!([{"rename": ["a.b", "a"]}]), "parts of each other"),
        (json!([{"rename": ["a[].b", "b"]}]), "must go through the same arrays"),
        (json!([{"rename": ["b", "a[].b"]}]), "must go through the same arrays"),
        (json!([{"rename": ["a[].b", "c[].b"]}]), "must go through the same arrays"),
        (json!([{"rename": ["a[]", "b[]"]}]), "must go through the same arrays"),
        (json!([{"remove": []}, {"remove": ["a..b"]}]), "ops[1].remove: \"a..b\" is not a path"),
        (json!([{"set": {"a": "1", "a.b": "2"}}]), "ops[0].set: a and a.b are parts of each other"),
        (json!([{"set": {"a": "payload."}}]), "ops[0].set.a: the filter does not compile"),
        (
            json!([{"set": {"a": "event.key"}}]),
            "\"event\" is not known; the payload's fields are reached as payload.name",
        ),
        (json!([{"set": {"a": "1 / 0"}}]), "ops[0].set.a: division by zero"),
        (json!(vec![json!({"remove": ["a"]}); 201]), "at most 200 operations"),
        (json!([{"remove": vec!["a"; 1_001]}]), "at most 1000 paths"),
    ] {
        let error = refused(ops);
        assert!(error.contains(why), "{error}");
    }
    let read = |text: &str| serde_json::from_str::<Upcaster>(text).map_err(|error| error.to_string());
    for bad in [
        "{}",
        r#"{"ops":[{"drop":["a"]}]}"#,
        r#"{"ops":[{"rename":["a"]}]}"#,
        r#"{"ops":[{"rename":["a","b","c"]}]}"#,
        r#"{"ops":[{"set":{"a":1}}]}"#,
        r#"{"ops":[{"set":{"a":"1","a":"2"}}]}"#,
        r#"{"ops":[{"remove":["a"],"set":{}}]}"#,
        r#"{"ops":[],"more":1}"#,
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
}

#[test]
fn many_assignments_are_refused_before_they_are_compared() {
    let values: Vec<String> = (0..300_000).map(|n| format!("\"f{n}\":\"1\"")).collect();
    let text = format!("{{\"ops\":[{{\"set\":{{{}}}}}]}}", values.join(","));
    let error = serde_json::from_str::<Upcaster>(&text).unwrap_err().to_string();
    assert!(error.contains("at most 1000 paths"), "{error}");
}

#[test]
fn what_is_made_is_bounded() {
    let many = format!("[{}]", vec!["{}"; 10_000].join(","));
    let long = "x".repeat(1_000);
    for ops in
        [json!([{"set": {"[].a": format!("'{long}'")}}]), json!([{"set": {(format!("[].{long}")): "1"}}])]
    {
        assert!(raised(ops, &many).unwrap_err().contains("too large"));
    }
    let doubled: Vec<_> = (0..60).map(|_| json!({"set": {"a": "payload", "b": "payload"}})).collect();
    assert!(raised(json!(doubled), r#"{"a":1,"b":2}"#).unwrap_err().contains("too large"));
    let grown = json!([{"set": {"a": "payload.a + payload.a"}}]);
    let chain = Chain::new((1..40).map(|from| (from, hop(grown.clone()))).collect(), ROOM);
    let error = chain.raise(1, &payload(r#"{"a":"xxxxxxxx"}"#)).unwrap_err();
    assert!(error.from > 10, "{error}");
    assert_eq!(
        raised_within(10, json!([]), r#"{"a":123456}"#).unwrap_err().split(": ").nth(1),
        Some("its payload would take 12 bytes, more than 10")
    );
    let loops = json!([{"set": {"a": "payload.map(x, payload.map(y, payload.map(z, 1)))"}}]);
    assert!(raised(loops, &format!("[{}]", vec!["1"; 1_000].join(","))).unwrap_err().contains("more work"));
}

#[test]
fn what_is_made_is_not_too_deep() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let deep = format!(r#"{{"a":{}}}"#, nested(127));
    for ops in [
        json!([{"set": {"b.c": "payload.a"}}]),
        json!([{"rename": ["a", "b.c"]}]),
        json!([{"set": {"b": "[payload.a]"}}]),
    ] {
        assert!(raised(ops, &deep).unwrap_err().contains("deep"));
    }
    assert!(raised(json!([{"rename": ["a", "b"]}]), &deep).is_ok());
    let long = vec!["x"; 31].join(".");
    assert!(raised(json!([{"set": {(long.clone()): "1"}}]), "{}").is_ok());
    let into = json!([{"set": {(format!("{long}.y")): "payload.a"}}]);
    assert!(raised(into.clone(), &format!(r#"{{"a":{}}}"#, nested(96))).is_ok());
    assert!(raised(into, &format!(r#"{{"a":{}}}"#, nested(97))).is_err());
}

#[test]
fn hops_follow_each_other_and_functions_are_hops() {
    let add = |by: i64| {
        Hop::function(move |payload: &Json| {
            let value = payload.to_value().map_err(|error| error.to_string())?;
            let n = value["n"].as_i64().ok_or("there is no n")?;
            Ok(Json::from_value(&json!({ "n": n + by })))
        })
    };
    let chain = Chain::new(
        vec![
            (1, hop(json!([{"rename": ["m", "n"]}]))),
            (2, add(10)),
            (3, hop(json!([{"set": {"n": "payload.n * 2"}}]))),
            (4, hop(json!([{"set": {"o": "payload.n"}}]))),
        ],
        ROOM,
    );
    let raise = |from, before: &str| chain.raise(from, &payload(before)).map(|json| text(&json));
    assert_eq!(raise(1, r#"{"m":1}"#).unwrap(), r#"{"n":22,"o":22}"#);
    assert_eq!(raise(3, r#"{"n":1}"#).unwrap(), r#"{"n":2,"o":2}"#);
    assert_eq!(raise(5, r#"{"n":1}"#).unwrap(), r#"{"n":1}"#);
    assert_eq!(raise(2, "{}").unwrap_err(), NotRaised { from: 2, why: "there is no n".into() });
    let panics = Chain::new(vec![(1, Hop::function(|_| panic!("no")))], ROOM);
    assert_eq!(panics.raise(1, &payload("1")).unwrap_err().why, "the function panicked");
    let huge = Hop::function(|_| Ok(Json::from_value(&json!("x".repeat(ROOM)))));
    assert!(Chain::new(vec![(1, huge)], ROOM).raise(1, &payload("1")).is_err());
}

#[test]
fn a_whole_chain_shares_what_it_may_cost() {
    let chain = |hops: u32, ops: Value| {
        Chain::new((1..=hops).map(|from| (from, hop(ops.clone()))).collect(), 1 << 30)
    };
    let numbers = json!({"n": vec![1; 150]}).to_string();
    let loops = json!([{"set": {"a": "payload.n.all(a, payload.n.all(b, a <= b))"}}]);
    assert!(chain(1, loops.clone()).raise(1, &payload(&numbers)).is_ok());
    let error = chain(100, loops).raise(1, &payload(&numbers)).unwrap_err();
    assert!(error.from > 1 && error.why.contains("more work"), "{error}");
    // Nothing that is done to all elements of a long array is free, and neither is a text that is written for each formula.
    let long = format!("[{}]", vec![r#"{"a":1}"#; 20_000].join(","));
    let there_and_back = |n: usize| match n % 2 {
        0 => json!({"rename": ["[].a", "[].b"]}),
        _ => json!({"rename": ["[].b", "[].a"]}),
    };
    let set = |n: usize| json!({"set": {"[].a": n.to_string()}});
    let removed = |_: usize| json!({"remove": ["[].x"]});
    let formula = |_: usize| json!({"set": {"[].a": "size(payload) > 1 ? 1 : 2"}});
    let ops: [&dyn Fn(usize) -> Value; 4] = [&there_and_back, &set, &removed, &formula];
    for op in ops {
        let many = |count: usize| json!((0..count).map(op).collect::<Vec<_>>());
        assert!(chain(1, many(4)).raise(1, &payload(&long)).is_ok(), "{}", op(0));
        let error = chain(30, many(100)).raise(1, &payload(&long)).unwrap_err();
        assert!(error.why.contains("more work"), "{}: {error}", op(0));
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map("[abc]", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn any_op() -> impl Strategy<Value = Value> {
    let path = || {
        prop::collection::vec(prop_oneof!["[abc]", Just("*".to_owned())], 1..4)
            .prop_map(|steps| steps.join("."))
    };
    prop_oneof![
        (path(), path()).prop_map(|(from, to)| json!({ "rename": [from, to] })),
        (path(), prop_oneof![Just("1"), Just("payload.a"), Just("payload.b.c"), Just("[payload.a, 'x']")])
            .prop_map(|(path, source)| json!({"set": {(path): source}})),
        path().prop_map(|path| json!({ "remove": [path] })),
    ]
}

proptest! {
    /// Whatever is asked of whatever payload, the result is a payload, and what is removed is gone.
    #[test]
    fn any_payload_is_raised_or_not(value in any_json(), ops in prop::collection::vec(any_op(), 1..5)) {
        let before = Json::from_value(&value);
        if let Ok(hop) = wait(Hop::compile(&upcaster(json!(ops)))) {
            let chain = Chain::new(vec![(1, hop)], ROOM);
            if let Ok(after) = chain.raise(1, &before) {
                text(&after);
            }
        }
    }

    /// What an operation removes is not found afterwards, and the rest is as it was.
    #[test]
    fn a_field_that_is_removed_is_gone_and_nothing_else(value in any_json(), name in "[abc]") {
        let after = raised(json!([{"remove": [name.clone()]}]), &value.to_string()).unwrap();
        let mut expected = value;
        if let Some(fields) = expected.as_object_mut() {
            fields.remove(&name);
        }
        prop_assert_eq!(serde_json::from_str::<Value>(&after).unwrap(), expected);
    }
}
