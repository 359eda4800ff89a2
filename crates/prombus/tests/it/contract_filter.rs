//! What a CEL filter sees, what it lets through, and what it says when it is wrong.

use crate::contract_support::{Answer, Api, Site, encoded};
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use serde_json::json;
use std::io::Write;
use std::net::TcpStream;

/// Another thread that compiles would need more than this for its stack. Whatever else a hub does must fit: the standard library
/// aborts where a thread of the runtime cannot be set up.
const LITTLE_ROOM: u64 = 250 << 20;

/// The offsets of the events that a filter lets through.
#[track_caller]
fn matched(api: &Api, filter: &str) -> Vec<i64> {
    let events = api.all("t", &format!("filter={}", encoded(filter)));
    let exported = api.export("t", &format!("filter={}", encoded(filter))).lines();
    assert_eq!(events, exported);
    events.iter().map(|event| event["offset"].as_i64().unwrap()).collect()
}

#[track_caller]
fn filtered(api: &Api, filter: &str) -> Answer {
    api.page("t", &format!("filter={}", encoded(filter)))
}

fn sample() -> Site {
    let site = Site::start();
    let events = json!([
        {"payload": {"cpu_pct": 90, "name": "a"}, "key": "web1", "tags": ["x"], "ts": 1000},
        {"payload": {"cpu_pct": 70.5, "name": "b"}, "key": "web2", "headers": {"x-a": "1"}},
        {"payload": {"cpu_pct": 95, "deep": {"list": [1, 2, {"a": null}]}}, "key": "db1", "sid": "s"},
        {"payload": {"name": "no cpu"}},
        {"payload": null, "key": "web1"},
        {"payload": "text"},
        {"payload": 7, "caused_by": ["6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60"]},
        {"payload": true, "id": "6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60"},
    ]);
    site.api.events("t", &events.to_string()).is(201);
    site
}

#[test]
fn a_filter_sees_every_field_of_the_event() {
    let site = sample();
    let api = &site.api;
    for (filter, expected) in [
        ("event.payload.cpu_pct > 80 && event.key.startsWith(\"web\")", vec![0]),
        ("event.payload.cpu_pct > 80", vec![0, 2]),
        ("event.payload.cpu_pct > 70.0 && event.payload.cpu_pct < 71.0", vec![1]),
        ("event.payload.cpu_pct >= 70.5", vec![0, 1, 2]),
        ("event.key == 'web1'", vec![0, 4]),
        ("has(event.key)", vec![0, 1, 2, 4]),
        ("!has(event.key)", vec![3, 5, 6, 7]),
        ("event.payload == null", vec![4]),
        ("event.payload == 'text'", vec![5]),
        ("event.payload == 7", vec![6]),
        ("event.payload == true", vec![7]),
        ("has(event.payload.name) && event.payload.name == 'b'", vec![1]),
        ("event.payload.deep.list[1] == 2", vec![2]),
        ("event.payload.deep.list[2].a == null", vec![2]),
        ("event.offset >= 6", vec![6, 7]),
        ("event.partition == 0 && event.offset == 3", vec![3]),
        ("event.ts == 1000", vec![0]),
        ("event.topic == 't' && event.offset < 1", vec![0]),
        ("event.headers['x-a'] == '1'", vec![1]),
        ("'x' in event.tags", vec![0]),
        ("event.sid == 's'", vec![2]),
        ("event.id == '6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60'", vec![7]),
        ("'6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60' in event.caused_by", vec![6]),
        ("true", vec![0, 1, 2, 3, 4, 5, 6, 7]),
        ("false", vec![]),
        ("event.payload.name.matches('^no ')", vec![3]),
        ("event.payload.deep.list.exists(x, x == 2)", vec![2]),
        ("event.payload.name.size() == 1", vec![0, 1]),
        ("has(event.recorded_ts) && event.recorded_ts > 1000", vec![0]),
        ("event.key in ['db1', 'web2']", vec![1, 2]),
        ("event.payload.cpu_pct > 80 ? true : false", vec![0, 2]),
        ("event.offset == 3 || event.payload.cpu_pct > 80", vec![0, 2, 3]),
    ] {
        assert_eq!(matched(api, filter), expected, "{filter}");
    }
}

#[test]
fn one_that_fails_on_an_event_does_not_match_it_and_is_counted() {
    let site = sample();
    let failures = |api: &Api| -> f64 {
        api.get("/metrics")
            .text()
            .lines()
            .filter(|line| line.starts_with("filter") && !line.starts_with('#'))
            .filter_map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().ok())
            .sum()
    };
    let before = failures(&site.api);
    filtered(&site.api, "event.payload.cpu_pct > 80").is(200);
    assert!((failures(&site.api) - before - 5.0).abs() < 0.1, "{} {before}", failures(&site.api));
    assert_eq!(matched(&site.api, "event.payload.cpu_pct / 0 == 1"), Vec::<i64>::new());
    assert_eq!(matched(&site.api, "!(event.payload.cpu_pct > 80)"), [1]);
    assert_eq!(matched(&site.api, "event.payload.none.of.this == 1"), Vec::<i64>::new());
    assert_eq!(matched(&site.api, "event.payload + 9223372036854775807 > 0"), Vec::<i64>::new());
    // What is no boolean is no match either.
    let answer = filtered(&site.api, "event.payload");
    assert!(answer.status == 400 || answer.is(200)["count"] == 1, "{answer:?}");
}

#[test]
fn json_integers_that_fit_are_ints_and_other_numbers_doubles() {
    let site = Site::start();
    let api = &site.api;
    for payload in [
        "1",
        "1.0",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "1e2",
        "-0",
        "1e400",
    ] {
        api.publish("t", payload).is(201);
    }
    let is = |kind: &str| matched_text(api, &format!("type(event.payload) == {kind}"));
    // Not every CEL has type(); then the arithmetic tells. Minus zero may be either, and what no double holds too.
    if let (Some(ints), Some(doubles)) = (is("int"), is("double")) {
        assert_eq!(ints.into_iter().filter(|offset| *offset < 6).collect::<Vec<_>>(), [0, 2, 3]);
        assert_eq!(doubles.into_iter().filter(|offset| *offset < 6).collect::<Vec<_>>(), [1, 4, 5]);
    }
    assert_eq!(matched_text(api, "event.payload % 2 == 1"), Some(vec![0, 2]));
    assert_eq!(
        matched_text(api, "event.payload == 9223372036854775807 && event.payload % 10 == 7"),
        Some(vec![2])
    );
    assert_eq!(matched_text(api, "event.payload + 0.5 == 1.5"), Some(vec![1]));
    assert_eq!(matched_text(api, "event.payload == -9223372036854775808"), Some(vec![3]));
    assert_eq!(matched_text(api, "event.payload == 100.0"), Some(vec![5]));
    let huge =
        matched_text(api, "event.payload > 9223372036854775000.0 && event.payload / 2.0 > 1.0").unwrap();
    assert!(huge == [4] || huge == [4, 7], "{huge:?}");
}

/// The offsets in the text of an answer: some payloads here are more than a parser takes.
fn matched_text(api: &Api, filter: &str) -> Option<Vec<i64>> {
    let answer = api.export("t", &format!("filter={}", encoded(filter)));
    (answer.status == 200).then(|| {
        answer
            .text()
            .lines()
            .map(|line| line.split("\"offset\":").nth(1).unwrap().split(',').next().unwrap().parse().unwrap())
            .collect()
    })
}

#[test]
fn one_that_does_not_compile_is_told_where() {
    let site = sample();
    // Where the text breaks off, the end and what was left open are as good as each other.
    for (filter, column, tolerance) in [
        ("event.payload.a >> 3", 18, 0),
        ("event..ts", 7, 0),
        ("event.ts = 1", 10, 0),
        ("event.ts & 1", 10, 0),
        ("@", 1, 0),
        ("99999999999999999999 > 0", 1, 0),
        ("evnt.ts > 1", 1, 0),
        ("true && evnt.ts > 1", 9, 0),
        ("'ä' == 'ä' && event..ts", 21, 0),
        ("'ä' == 'ä' && evnt.ts", 15, 0),
        ("event.payload.a ==", 19, 1),
        ("event.payload.a == 'x", 20, 2),
        ("(event.ts > 1", 14, 1),
        ("event.ts > 1)", 13, 0),
        ("1 +", 4, 1),
        ("event.ts > 1 &&", 16, 1),
    ] {
        let body = filtered(&site.api, filter).fails(400, "bad_filter");
        site.api.export("t", &format!("filter={}", encoded(filter))).fails(400, "bad_filter");
        let told = body["column"].as_i64().unwrap();
        assert!((told - column).abs() <= tolerance && body["line"] == 1, "{filter}: {column} and not {body}");
    }
    let body = filtered(&site.api, "event.ts > 1 &&\n  event..ts").fails(400, "bad_filter");
    assert_eq!(body["line"].as_i64().unwrap_or(2), 2, "{body}");
    filtered(&site.api, "").fails(400, "bad_filter");
}

#[test]
fn a_function_that_does_not_exist_does_not_compile() {
    let site = sample();
    for filter in [
        "foo(event)",
        "event.key.startWith('web')",
        "event.ts > 1 && nope(1)",
        "event.tags.exist(t, t == 'x')",
    ] {
        filtered(&site.api, filter).fails(400, "bad_filter");
    }
}

#[test]
fn a_wrong_filter_is_told_also_where_there_is_nothing_to_filter() {
    let site = Site::start();
    site.api.make("t", 1);
    filtered(&site.api, "event..ts").fails(400, "bad_filter");
    filtered(&site.api, "evnt.ts > 1").fails(400, "bad_filter");
}

#[test]
fn a_page_may_be_empty_and_still_have_a_next_but_all_pages_have_all() {
    let site = Site::start();
    let api = &site.api;
    for part in 0..12_i64 {
        let lines: String = (0..1000).map(|n| format!("{{\"payload\":{}}}\n", part * 1000 + n)).collect();
        api.ndjson("t", lines.as_bytes()).is(201);
    }
    assert_eq!(matched(api, "event.payload == 11999"), [11_999]);
    assert_eq!(matched(api, "event.payload % 4000 == 0"), [0, 4000, 8000]);
    assert_eq!(matched(api, "event.payload < 0"), Vec::<i64>::new());
    // The limit counts what matches.
    let page = api.page("t", &format!("limit=2&filter={}", encoded("event.payload % 10 == 3"))).is(200);
    assert!(page["count"].as_i64().unwrap() <= 2 && page["next"].is_string(), "{page}");
    let query = format!("limit=2&filter={}", encoded("event.payload % 1000 == 3"));
    assert_eq!(api.all("t", &query).len(), 12);
}

#[test]
fn filters_meant_to_hurt_do_not() {
    let site = sample();
    let api = &site.api;
    let mut hostile = vec![
        format!("{}1{} == 1", "(".repeat(2000), ")".repeat(2000)),
        format!("{}true", "!".repeat(3000)),
        format!("{}1 == 1", "-".repeat(3000)),
        format!("{}1{} == []", "[".repeat(2000), "]".repeat(2000)),
        format!("event{}", ".a".repeat(3000)),
        format!("event{}", "[0]".repeat(2600)),
        format!("event{}", "[-1]".repeat(1900)),
        format!("event{}", ".a()".repeat(2000)),
        format!("event.payload{}", ".a.b()".repeat(1200)),
        format!("1{} > 0", "+1".repeat(4000)),
        format!("1{} > 0", " < 1".repeat(2000)),
        format!("true{}", "||true".repeat(1300)),
        format!("true{}", "?true:true".repeat(800)),
        format!("true{}", " && true".repeat(1500)),
        format!("1{} > 0", " + 1".repeat(3000)),
        format!("{}true{}", "true ? ".repeat(1000), " : false".repeat(1000)),
        format!("'{}' == ''", "x".repeat(20_000)),
        "event.payload.matches('((a+)+)+$')".to_owned(),
        format!("'{}'.matches('{}')", "a".repeat(1000), "(a*)*".repeat(100)),
        "'x'.matches('[')".to_owned(),
        "'x'.matches('a{1000}{1000}{1000}')".to_owned(),
        "9223372036854775807 + 1 > 0".to_owned(),
        "-9223372036854775808 / -1 > 0".to_owned(),
        "-(-9223372036854775808) > 0".to_owned(),
        "9223372036854775807 * 2 > 0".to_owned(),
        "1 / 0 == 0 || 1 % 0 == 0".to_owned(),
        "-9223372036854775808 % -1 == 0".to_owned(),
        "99999999999999999999 > 0".to_owned(),
        "1u - 2u > 0u".to_owned(),
        "timestamp('x') > timestamp('y')".to_owned(),
        "timestamp('9999-12-31T23:59:59Z') + duration('999999999h') > timestamp('2000-01-01T00:00:00Z')"
            .to_owned(),
        "duration('99999999999999999999h') > duration('1s')".to_owned(),
        "timestamp(9223372036854775807) > timestamp(0)".to_owned(),
        "int(1e300) > 0".to_owned(),
        "int('x') > 0 || uint(-1) > 0u".to_owned(),
        "string(event) == ''".to_owned(),
        "[1][5] == 1 || [1][-1] == 1 || {'a':1}['b'] == 1".to_owned(),
        "'ä€😀'.size() == 3 && 'ä€😀'[1] == 'x'".to_owned(),
        "b'\\xff' == b'\\xff'".to_owned(),
        "'\\ud800' == ''".to_owned(),
        "'\\U00110000' == ''".to_owned(),
        "event.map(x, x).size() > 0".to_owned(),
        "event == event".to_owned(),
        "\u{0}".to_owned(),
        "ä == 1".to_owned(),
    ];
    let mut doubled = "'xxxxxxxxxx'".to_owned();
    for _ in 0..11 {
        doubled = format!("[{doubled}].map(s, s + s)[0]");
    }
    hostile.push(format!("{doubled} == ''"));
    for filter in &hostile {
        let started = std::time::Instant::now();
        let answer = filtered(api, filter);
        let short: String = filter.chars().take(60).collect();
        match answer.status {
            200 => assert!(answer.json()["count"].is_number(), "{short}"),
            _ => {
                answer.fails_as(&[400, 413, 414, 431]);
            }
        }
        assert!(started.elapsed().as_secs() < 20, "{short} took {:?}", started.elapsed());
        api.get("/healthz").is(200);
    }
}

/// Ten to the power of `levels` steps.
fn long_winded(levels: usize) -> String {
    (0..levels)
        .fold("true".to_owned(), |inner, level| format!("[1,2,3,4,5,6,7,8,9,10].all(x{level}, {inner})"))
}

/// Asks for what a filter lets through, over connections of its own, and does not wait for the answers.
fn ask_eight_times(api: &Api, filter: &str) -> Vec<TcpStream> {
    let target = format!("/v1/topics/t/events?filter={}", encoded(filter));
    let request = format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let ask = |_| {
        let mut stream = api.connect();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    (0..8).map(ask).collect()
}

#[test]
fn an_endless_filter_does_not_stop_the_hub() {
    let mut site = sample();
    let _open = ask_eight_times(&site.api, &long_winded(12));
    let started = std::time::Instant::now();
    for _ in 0..20 {
        site.api.get("/healthz").is(200);
        site.api.publish("t", "1").is(201);
    }
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    let started = std::time::Instant::now();
    site.stop();
    assert!(started.elapsed().as_secs() < 11, "{:?}", started.elapsed());
}

#[test]
fn a_slow_pattern_does_not_stop_the_hub() {
    let site = Site::start();
    for _ in 0..2 {
        let batch = format!("[{}]", vec![r#"{"payload":1}"#; 5000].join(","));
        site.api.events("t", &batch).is(201);
    }
    let _open = ask_eight_times(&site.api, "'x'.matches('a{1000}{1000}{1000}')");
    let started = std::time::Instant::now();
    for _ in 0..20 {
        site.api.get("/healthz").is(200);
    }
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

#[test]
fn a_long_list_in_a_payload_is_filtered_in_time() {
    let mut site = Site::start();
    let numbers: Vec<u32> = (0..10_000).collect();
    site.api.publish("t", &json!({"l": numbers}).to_string()).is(201);
    for filter in [
        "event.payload.l.exists(x, x == 9999)",
        "event.payload.l.filter(x, x > 5).size() > 0",
        "event.payload.l.map(x, x + 1).size() > 0",
        "event.payload.l.map(x, event.payload.l).size() > 0",
    ] {
        let started = std::time::Instant::now();
        let answer = filtered(&site.api, filter);
        // It may match, be too much for the hub, or be refused, but it does not go on and on.
        assert!(matches!(answer.status, 200 | 400), "{answer:?}");
        assert!(started.elapsed().as_secs() < 20, "{filter} took {:?}", started.elapsed());
    }
    let started = std::time::Instant::now();
    site.stop();
    assert!(started.elapsed().as_secs() < 11, "{:?}", started.elapsed());
}

#[test]
fn a_machine_without_room_for_another_thread_goes_on_compiling() {
    let site = sample();
    let api = &site.api;
    assert_eq!(matched(api, "event.payload == 7"), [6]);
    let pid = site.hub().pid();
    let sizes = std::fs::read_to_string(format!("/proc/{}/statm", pid.as_raw_nonzero())).unwrap();
    let pages: u64 = sizes.split_whitespace().next().unwrap().parse().unwrap();
    let current = Some(pages * rustix::param::page_size() as u64 + LITTLE_ROOM);
    prlimit(Some(pid), Resource::As, Rlimit { current, maximum: getrlimit(Resource::As).maximum }).unwrap();
    for n in 10..20 {
        assert_eq!(matched(api, &format!("event.payload == 7 && event.offset != {n}")), [6]);
        filtered(api, &format!("event.payload == {n} +")).fails(400, "bad_filter");
    }
}
