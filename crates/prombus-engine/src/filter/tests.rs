//! What filters say, and what they refuse.

use super::*;
use prombus_core::{Json, TopicName};
use proptest::prelude::*;

fn event(payload: &str) -> Event {
    Event {
        id: uuid::Uuid::nil(),
        ts: 1,
        recorded_ts: 1,
        topic: TopicName::parse("t").unwrap(),
        key: Some("web1:a".into()),
        partition: Partition(0),
        offset: Offset(0),
        sid: None,
        headers: None,
        payload: Json::parse(payload.to_owned().into()).unwrap(),
        caused_by: None,
        tags: None,
    }
}

fn refused(source: &str) -> BadFilter {
    match Filter::compile(source) {
        Err(FilterError::Bad(bad)) => bad,
        other => panic!("{source}: {:?}", other.err()),
    }
}

fn matches(filter: &str, payload: &str) -> bool {
    Filter::compile(filter).unwrap().matches(&event(payload))
}

#[test]
fn the_example_of_the_guide() {
    let filter = r#"event.payload.cpu_pct > 80 && event.key.startsWith("web")"#;
    assert!(matches(filter, r#"{"cpu_pct":81}"#));
    assert!(!matches(filter, r#"{"cpu_pct":80}"#));
}

#[test]
fn numbers_are_ints_where_they_fit() {
    assert!(matches("event.payload == 9223372036854775807", "9223372036854775807"));
    assert!(matches("event.payload > 9.2e18", "9223372036854775808"));
    assert!(matches("event.payload == 1.5", "1.5"));
}

#[test]
fn a_failure_does_not_match_and_is_counted() {
    let filter = Filter::compile("event.payload.missing == 1").unwrap();
    assert!(!filter.matches(&event("{}")));
    assert!(!filter.matches(&event("3")));
    assert!(!Filter::compile("1 + 1").unwrap().matches(&event("3")));
    assert_eq!(filter.failures(), 2);
}

#[test]
fn loops_work_and_come_to_an_end() {
    assert!(matches("event.payload.exists(x, x == 3)", "[1,2,3]"));
    assert!(matches("event.payload.all(i, i.tags.exists(t, t == event.key))", r#"[{"tags":["web1:a"]}]"#));
    assert!(matches("event.payload.map(x, x * 2).filter(y, y > 2) == [4]", "[1,2]"));
    let ten = "[1,2,3,4,5,6,7,8,9,10]";
    let nested = (0..9).fold("true".to_owned(), |inner, i| format!("{ten}.all(x{i}, {inner})"));
    let filter = Filter::compile(&nested).unwrap();
    assert!(!filter.matches(&event("1")));
    assert_eq!(filter.failures(), 1, "it was given up");
    let long = format!("[{}1]", "1,".repeat(100_000));
    let filter = Filter::compile("event.payload.all(x, x in event.payload)").unwrap();
    assert!(!filter.matches(&event(&long)));
    let shorter = format!("[{}1]", "1,".repeat(40_000));
    assert!(matches("event.payload.all(x, x == 1)", &shorter), "a loop over much is fine");
}

/// The library goes over the fields of an object in another order each time.
#[test]
fn loops_over_objects_go_by_the_order_of_names() {
    let names = ["z", "a", "ü", "m", "B", "aa", ""];
    let fields: Vec<String> = names.iter().map(|name| format!("{name:?}:1")).collect();
    let payload = format!("{{{}}}", fields.join(","));
    for _ in 0..10 {
        assert!(matches("event.payload.map(k, k) == ['', 'B', 'a', 'aa', 'm', 'z', 'ü']", &payload));
        assert!(matches("event.payload.filter(k, k > 'B')[0] == 'a'", &payload));
        assert!(matches("{2: 'b', 1: 'a'}.map(k, k) == [1, 2]", "1"));
    }
    assert!(matches("event.payload.all(k, event.payload[k] == 1)", &payload));
    let filter =
        Filter::compile("[event.payload].all(x, [1,2,3,4,5].all(a, [1,2,3,4,5].all(b, x.exists(k, true))))")
            .unwrap();
    let object = |count| {
        let fields: Vec<String> = (0..count).map(|n| format!("\"k{n}\":1")).collect();
        event(&format!("{{{}}}", fields.join(",")))
    };
    assert!(filter.matches(&object(1_000)));
    assert!(!filter.matches(&object(50_000)), "putting names in order is work");
}

/// Each would take gigabytes or hours.
#[test]
fn bombs_are_given_up() {
    let chained = |start: &str, link: &str, times| format!("size({start}{}) > 0", link.repeat(times));
    let text = "'aaaaaaaaaaaaaaaa'";
    let doubled = (0..9).fold(text.to_owned(), |inner, _| format!("(true ? [{inner}] : [])[0]"));
    let nested = |inner: &str| {
        format!("event.payload.n.exists(a, event.payload.n.exists(b, event.payload.n.exists(c, {inner})))")
    };
    let bombs = [
        chained(&format!("[{text}]"), ".map(a,a+a)", 29),
        chained(&format!("[b{text}]"), ".map(a,a+a)", 29),
        chained("[1]", ".map(a,[a,a])", 29),
        chained("[[1]]", ".map(a,a+a)", 29),
        chained("[1]", ".map(a,{1:a,2:a})", 29),
        chained(&format!("[{text}]"), ".map(a,bytes(a)+bytes(a)).map(a,string(a))", 24),
        chained(&format!("[{text}]"), ".map(a,string(a)+string(a))", 29),
        chained(&format!("[{text}]"), ".map(a,true?a+a:a)", 29),
        chained(&format!("[{doubled}]"), ".map(a,a+a)", 23),
        chained("[event]", ".map(a,[a,a,a,a,a,a,a,a])", 20),
        chained("[event.payload]", ".filter(a,true).map(a,[a,a,a,a])", 14),
        nested("a > b && b > c && c > a"),
        nested("a == b && event.payload.big == event.payload.big + 'x'"),
        nested("event.payload.big < event.payload.big"),
        nested("event.payload < 1"),
        nested("event - 1 == 0"),
        nested("event.payload.n[0.5] == 1"),
        nested("event.payload.n[event.payload.big] == 1"),
        nested("event.payload.big in event.payload.n"),
        nested("event.payload.big in event.payload"),
        nested("[event.payload] == [event.payload, 1]"),
        nested("event.payload.big.contains('b')"),
        nested("event.payload.big.startsWith(event.payload.big + 'b')"),
        nested("size(event.payload.big) == a"),
        nested("bytes(event.payload.big) == b'a'"),
        nested("{event.payload.big: a} == {'a': a}"),
        nested("int(event.payload.big) == a"),
        nested("event.payload.big.matches('^a*b')"),
        nested("timestamp(event.payload.big) > timestamp(0)"),
        "event.payload.n.exists(a, 'x'.matches('a{500}' + string(a)))".to_owned(),
        "event.payload.big.matches('[ab]*a[ab]{1000}$')".to_owned(),
        "event.payload.n.map(a, event).size() > 0".to_owned(),
        "event.payload.n.map(a, event.payload.n).size() > 0".to_owned(),
        "event.payload.n.map(a, event.payload).exists(x, x.n.exists(y, y > x.n.size()))".to_owned(),
        "[event.payload.n].map(x, x.map(y, x)).exists(x, x.exists(y, y == 1))".to_owned(),
        format!("event.payload.n.map(a, '{}').size() > 0", "x".repeat(7_000)),
        format!("event.payload.n.exists(a, [{}].size() == 0)", vec!["event.payload.big"; 300].join(",")),
    ];
    let numbers: Vec<String> = (0..40_000).map(|n| n.to_string()).collect();
    let event = event(&format!(r#"{{"n":[{}],"big":"{}"}}"#, numbers.join(","), "a".repeat(800_000)));
    for bomb in &bombs {
        let filter = Filter::compile(bomb).unwrap_or_else(|error| panic!("{bomb}: {error}"));
        let value = filter.value_of(&Subject::event(&event));
        assert!(matches!(value, Err(Failure::Unknown(_))), "{bomb}: {value:?}");
        let survivor = Filter::compile(&format!("({bomb}) || true")).unwrap_or(filter);
        assert!(!survivor.matches(&event) && survivor.failures() == 1, "{bomb} is passed over");
    }
}

#[test]
fn what_may_take_long_is_costly() {
    let few = "event.payload.a > 1 && event.key.startsWith('web') || 'x' in event.tags";
    let many = ["event.payload.a > 1"; 20].join(" || ");
    let costly = [many.as_str(), "event.tags.exists(t, t == 'x')", "event.key.matches('^web[0-9]+$')"];
    assert!(!Filter::compile(few).unwrap().is_costly());
    for source in costly {
        assert!(Filter::compile(source).unwrap().is_costly(), "{source}");
    }
}

#[test]
fn patterns_are_compiled_with_the_expression() {
    assert!(matches("event.key.matches('^web[0-9]+:') && matches(event.payload, 'a.c')", "\"abc\""));
    assert!(matches("['^a', 'c$', '^a'].all(p, event.payload.matches(p))", "\"abc\""), "made on the way");
    for (source, message) in [
        ("true && event.key.matches('(')", "not a valid"),
        ("true && event.key.matches('(a{1000}){1000}')", "this is more"),
        ("matches(event.key, '[z-a]')", "not a valid"),
    ] {
        let error = refused(source);
        assert!(error.message.contains(message), "{source}: {error}");
        let place = source.find(['(', '[']).unwrap();
        assert!(error.line == 1 && error.column > place, "{source}: {error}");
    }
    for source in ["event.key.matches('(' + event.key)", "event.key.matches('web') && event.key.matches(0)"] {
        let filter = Filter::compile(source).unwrap();
        assert!(!filter.matches(&event("1")) && filter.failures() == 1, "{source}");
    }
}

#[test]
fn ordinary_work_on_large_events_is_done() {
    let items: Vec<String> = (0..10_000).map(|n| format!(r#"{{"id":{n},"name":"item {n}"}}"#)).collect();
    let payload = format!(r#"{{"items":[{}],"log":"{}ERROR"}}"#, items.join(","), "x".repeat(500_000));
    for filter in [
        "event.payload.items.exists(i, i.id == 9999 && i.name.endsWith('9'))",
        "event.payload.items.filter(i, i.id > 10).map(i, i.name).size() == 9989",
        "event.payload.items.exists_one(i, i.name == 'item 77')",
        "event.payload.log.matches('ERROR$') && event.payload.log.contains('xE')",
        "event.payload.log.size() + 1 > 500000 && event.payload.log + '!' != ''",
        "[event.payload, event.payload][1].items[3].id == 3",
    ] {
        assert!(matches(filter, &payload), "{filter}");
    }
}

#[test]
fn what_has_no_value_is_absent() {
    for bad in ["1e400", "-1e999", r#""\ud800""#, "[1,1e400]", "[[[1e400]]]"] {
        let payload =
            format!(r#"{{"a":1,"bad":{bad},"o":{{"b":2,"bad":{bad}}},"l":[{{"c":3,"bad":{bad}}}]}}"#);
        for filter in [
            "event.payload.a == 1",
            "event.payload.o.b == 2",
            "event.payload['o']['b'] == 2 && event.payload.l[0].c == 3",
            "!has(event.payload.bad) && !has(event.payload.o.bad)",
            "event.payload.map(k, k) == ['a', 'l', 'o']",
            "!('bad' in event.payload) && size(event.payload) == 3",
            "event.payload.l.all(x, x == {'c': 3})",
            "has(event.payload.bad) || true",
        ] {
            assert!(matches(filter, &payload), "{filter} with {bad}");
        }
        let filter = Filter::compile("event.payload.bad != 1").unwrap();
        assert!(!filter.matches(&event(&payload)) && filter.failures() == 1, "{bad}");
    }
    assert!(matches("event.payload.a == 1", r#"{"\ud800":2,"a":1}"#));
    assert!(matches("event.payload.map(k, k) == ['a']", r#"{"\ud800":2,"a":1}"#));
    assert!(matches("event.payload.a == 1", r#"{"a":1e400,"a":1}"#), "the last one counts");
    assert!(matches("!has(event.payload.a)", r#"{"a":1,"a":1e400}"#));
    assert!(matches("event.key == 'web1:a' && !has(event.payload)", "[1e400]"));
}

/// Deep expressions go down the stack of a thread of the runtime.
#[test]
fn the_deepest_expression_and_event_fit_a_stack() {
    let nested = |depth: usize| {
        (0..depth).fold("event.payload".to_owned(), |inner, n| format!("[{inner}].map(x{n}, [x{n}])[0]"))
    };
    let deepest = (1..MAX_DEPTH).rev().find_map(|depth| Filter::compile(&nested(depth)).ok()).unwrap();
    let payload = format!("{}1{}", "[".repeat(128), "]".repeat(128));
    let event = event(&payload);
    std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(move || {
            assert!(!deepest.matches(&event));
            assert!(deepest.value_of(&Subject::event(&event)).is_ok());
            assert!(Filter::compile("event.payload == event.payload + []").unwrap().matches(&event));
        })
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn expressions_that_are_too_deep_are_refused() {
    for (start, link, end) in
        [("event", "[0]", ""), ("1", "+1", " > 0"), ("event", ".a", ""), ("event.key", ".size()", "")]
    {
        let long = format!("{start}{}{end}", link.repeat(1_500));
        let error = refused(&long[..long.len().min(MAX_SOURCE_BYTES)]);
        assert!(error.message.contains("deep"), "{link}: {error}");
    }
    let alternatives = vec!["event.payload == 7"; 60].join(" || ");
    assert!(matches(&alternatives, "7"), "many alternatives are not deep");
}

#[test]
fn unknown_names_are_refused() {
    for (source, column) in
        [("foo(1)", 1), ("event.key.startWith('web')", 1), ("y == 1", 1), ("[1].all(x, y)", 12)]
    {
        let error = refused(source);
        assert!(error.message.contains("not known"), "{error}");
        assert!(error.line == 1 && error.column >= column, "{source}: {error}");
    }
    for source in [
        "size(event.payload) > 0",
        "event.key.matches('a+')",
        "int(event.ts) > 0",
        "has(event.payload.a)",
        "timestamp('2026-01-01T00:00:00Z') < timestamp(event.payload)",
        "type(event.ts) == int",
        "'a' in event.payload",
    ] {
        assert!(Filter::compile(source).is_ok(), "{source}: {:?}", Filter::compile(source).err());
    }
}

#[test]
fn a_mistake_is_told_with_its_place() {
    let error = refused("event.payload.a ==");
    assert_eq!(error.line, 1);
    assert!(error.column >= 17, "{error}");
    let error = refused("true &&\n payload.a == 1");
    assert_eq!((error.line, error.column), (2, 2), "{error}");
}

fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|bool| bool.to_string()),
        any::<i64>().prop_map(|int| int.to_string()),
        any::<u64>().prop_map(|int| int.to_string()),
        any::<f64>()
            .prop_filter("a number", |double| double.is_finite())
            .prop_map(|double| format!("{double:e}")),
        Just("-0".to_owned()),
        "\\PC{0,8}".prop_map(|text| serde_json::Value::from(text).to_string()),
        "[a-z\\\\n\"]{0,4}".prop_map(|text| serde_json::Value::from(text).to_string()),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(("[ab\\\\\"]{0,2}", inner), 0..4).prop_map(|fields| {
                let field =
                    |(name, value): (String, String)| format!("{}:{value}", serde_json::Value::from(name));
                format!("{{{}}}", fields.into_iter().map(field).collect::<Vec<_>>().join(","))
            }),
        ]
    })
}

/// JSON as a value of CEL, by way of a tree.
fn by_tree(json: serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(bool) => Value::Bool(bool),
        serde_json::Value::Number(n) => match n.as_i64() {
            Some(int) => Value::Int(int),
            None => Value::Float(n.as_f64().unwrap()),
        },
        serde_json::Value::String(text) => text.into(),
        serde_json::Value::Array(items) => items.into_iter().map(by_tree).collect::<Vec<_>>().into(),
        serde_json::Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, by_tree(value)));
            fields.collect::<std::collections::HashMap<_, _>>().into()
        }
    }
}

proptest! {
    /// What an expression sees is what the event is written as.
    #[test]
    fn an_event_is_read_as_it_is_written(payload in json(), headers in json(), ts: u64, key in proptest::option::of("\\PC{0,8}")) {
        let mut event = event(&payload);
        (event.ts, event.key) = (ts, key.map(Into::into));
        event.headers = Some(Json::parse(headers.into()).unwrap().into());
        let mut text = Vec::new();
        event.write_json(&mut text);
        let whole = by_tree(Json::from_stored(text.into()).to_value().unwrap());
        let seen = |source: &str| Filter::compile(source).unwrap().value_of(&Subject::event(&event));
        prop_assert_eq!(seen("event"), Ok(whole.clone()));
        for path in ["payload", "headers", "payload.a", "payload.b.a"] {
            let mut expected = Some(&whole);
            for name in path.split('.') {
                expected = match expected {
                    Some(Value::Map(map)) => map.get(&cel::objects::Key::from(name)),
                    _ => None,
                };
            }
            let found = seen(&format!("event.{path}")).ok();
            prop_assert_eq!(found.as_ref(), expected, "{}", path);
        }
    }

    #[test]
    fn compiling_never_panics(source in "\\PC{0,40}") {
        let _ = Filter::compile(&source);
    }
}
