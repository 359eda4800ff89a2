//! Thousands of requests that nobody should send. The hub says what is wrong with each, and stays well.

use crate::contract_support;
use crate::contract_support::{Answer, Site, encoded};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use fastrand::Rng;
use serde_json::{Value, json};

/// How many requests each of the four threads sends.
const ROUNDS: usize = 1500;
const METHODS: &[&str] = &["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "G\u{e9}T", "", "get"];
const SEGMENTS: &[&str] = &[
    "",
    "v1",
    "topics",
    "t",
    "events",
    "keys",
    "k",
    "publish",
    "healthz",
    "metrics",
    "readyz",
    "none",
    "T",
    "..",
    ".",
    "%2e%2e",
    "%00",
    "%FF",
    "%C3%28",
    "%",
    "%4",
    "%zz",
    "a.b.v1",
    "dlq.a",
    "system.a",
    "6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60",
    "0",
    "-1",
    "18446744073709551616",
    "ä",
    "*",
    "groups",
    "ops",
    "ws",
    "schemas",
    "+",
    " ",
    "\t",
    "\u{7f}",
    ";",
    "//",
];
const TARGETS: &[&str] = &[
    "/v1/topics",
    "/v1/topics/t",
    "/v1/topics/t/events",
    "/v1/topics/t/keys",
    "/v1/topics/t/keys/k",
    "/v1/topics/t/events/6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60",
    "/publish/t",
    "/publish/new",
    "/healthz",
    "/readyz",
    "/metrics",
    "/v1/topics/u",
    "/v1/schemas",
    "/v1/schemas/t",
    "/v1/schemas/t/versions/latest",
    "/v1/schemas/t/versions/1/example",
];
const NAMES: &[&str] = &[
    "from",
    "ts",
    "afterId",
    "offset",
    "partition",
    "key",
    "toTs",
    "limit",
    "filter",
    "cursor",
    "id",
    "sid",
    "tag",
    "caused_by",
    "x",
    "",
    "%FF",
    "%",
];
const VALUES: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "1.5",
    "1e9",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775807",
    "9223372036854775808",
    "99999999999999999999999999999999999999",
    "4294967295",
    "4294967296",
    "earliest",
    "latest",
    "ts",
    "afterId",
    "offset",
    "%FF",
    "%C3%28",
    "%00",
    "%",
    "%zz",
    "true",
    "null",
    "k",
    "6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60",
    "00000000-0000-0000-0000-000000000000",
    "event",
    "event.payload.a",
    "event.payload%20%3E%201",
    "1%2B",
    "((((",
    "%22",
    "%5B1%5D%5B9%5D",
    "e%00",
    "+",
    "NaN",
    "eyJ0b3BpYyI6MX0",
    "%F0%9F%98%80",
];
const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u",
    "\\ud800",
    "\u{0}",
    "\u{1}",
    "1",
    "-",
    "1e999",
    "1e-999",
    "0x1",
    "null",
    "true",
    "\"payload\"",
    "\"payload\":1",
    "\"key\":\"k\"",
    "\"key\":null",
    "\"key\":\"\"",
    "\"id\":\"6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60\"",
    "\"ts\":-1",
    "\"ts\":1e5",
    "\"ts\":18446744073709551615",
    "\"ts\":9223372036854775807",
    "\"headers\":{\"x-a\":\"1\",\"x-a\":\"2\"}",
    "\"headers\":{\"x-a\":\"\\u0000\"}",
    "\"tags\":[\"\\ud800\"]",
    "\"tags\":[]",
    "\"caused_by\":[\"x\"]",
    "\"partition\":4294967295",
    "\"partition\":0",
    "\"expect\":{\"last_id\":null}",
    "\"expect\":{}",
    "\"expect\":null",
    "\"partitions\":1",
    "\"partitions\":18446744073709551615",
    "\"keys\":[\"k\"]",
    "\"keys\":[]",
    "\"payload\":{\"a\":1,\"a\":2}",
    "\"retention_days\":18446744073709551615",
    "\"dedupe_window_ms\":18446744073709551615",
    "\"snapshot\":{}",
    "\n",
    " ",
    "\u{feff}",
    "ä",
    "😀",
    "\"$serde_json::private::RawValue\":1",
    "\"\\u0070ayload\":1",
    "\"sid\":\"\"",
];
const HEADERS: &[(&str, &str)] = &[
    ("content-type", "application/json"),
    ("content-type", "application/x-ndjson"),
    ("content-type", "text/plain"),
    ("content-type", "\u{e9}"),
    ("accept", "application/x-ndjson"),
    ("accept", "*/*;q=x"),
    ("accept", ",,,;;;"),
    ("x-event-a", "1"),
    ("x-event-", "1"),
    ("x-event-a_b", "1"),
    ("x-event-content-type", "1"),
    ("traceparent", "\u{e9}"),
    ("expect", "100-continue"),
    ("expect", "nonsense"),
    ("range", "bytes=0-1"),
    ("if-none-match", "*"),
    ("authorization", "Bearer x"),
    ("upgrade", "websocket"),
    ("connection", "upgrade"),
    ("content-encoding", "gzip"),
    ("te", "trailers"),
    ("host", "a, b"),
    ("last-event-id", "zzz"),
    ("cookie", "a"),
];

fn one_of<'a>(random: &mut Rng, list: &'a [&'a str]) -> &'a str {
    list[random.usize(..list.len())]
}

fn target(random: &mut Rng) -> String {
    let mut target = if random.u8(..4) > 0 {
        one_of(random, TARGETS).to_owned()
    } else {
        (0..random.usize(1..7)).map(|_| format!("/{}", one_of(random, SEGMENTS))).collect()
    };
    for n in 0..random.usize(..4) {
        let (name, value) = (one_of(random, NAMES), one_of(random, VALUES));
        target += &format!("{}{name}={value}", if n == 0 { '?' } else { '&' });
    }
    if random.u8(..40) == 0 {
        target += &"x".repeat(random.usize(..20_000));
    }
    target
}

fn body(random: &mut Rng) -> Vec<u8> {
    match random.u8(..10) {
        0 => Vec::new(),
        1 => (0..random.usize(..300)).map(|_| random.u8(..)).collect(),
        2 => one_of(random, &["[", "{\"a\":", "[[{\"a\":[", "\"", "("])
            .repeat(random.usize(..30_000))
            .into_bytes(),
        3 => (0..random.usize(..30)).map(|_| one_of(random, PIECES)).collect::<String>().into_bytes(),
        kind => {
            let fields: Vec<&str> = (0..random.usize(..5)).map(|_| one_of(random, PIECES)).collect();
            let object = format!(
                "{{\"payload\":{},{}}}",
                one_of(random, &["1", "null", "{}", "[1]", "1e400", "\"\\ud800\""]),
                fields.join(",")
            );
            let object = if random.bool() { object.replace(",}", "}") } else { object };
            let mut bytes = match kind {
                4 | 5 => object,
                6 => format!("[{object},{object}]"),
                7 => format!("{object}\n{object}\n"),
                _ => format!("{{{}}}", fields.join(",")),
            }
            .into_bytes();
            for _ in 0..random.usize(..3) {
                mutate(random, &mut bytes);
            }
            bytes
        }
    }
}

fn mutate(random: &mut Rng, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let at = random.usize(..bytes.len());
    match random.u8(..4) {
        0 => bytes[at] = random.u8(..),
        1 => bytes.truncate(at),
        2 => drop(bytes.remove(at)),
        _ => bytes.insert(at, random.u8(..)),
    }
}

/// A request, and whether an answer is to be expected as one to a request that is whole.
fn request(random: &mut Rng) -> (Vec<u8>, bool) {
    let body = body(random);
    let method =
        if random.u8(..3) > 0 { one_of(random, &["POST", "GET", "PUT"]) } else { one_of(random, METHODS) };
    let mut head =
        format!("{method} {} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n", target(random));
    for _ in 0..random.usize(..3) {
        let (name, value) = HEADERS[random.usize(..HEADERS.len())];
        head += &format!("{name}: {value}\r\n");
    }
    if random.bool() {
        head +=
            &format!("content-type: {}\r\n", one_of(random, &["application/json", "application/x-ndjson"]));
    }
    let chunked = random.u8(..5) == 0;
    if chunked {
        head += "transfer-encoding: chunked\r\n\r\n";
    } else {
        head += &format!("content-length: {}\r\n\r\n", body.len());
    }
    let mut bytes = head.into_bytes();
    if chunked && !body.is_empty() {
        bytes.extend(format!("{:x}\r\n", body.len()).bytes());
        bytes.extend(&body);
        bytes.extend(b"\r\n");
    } else {
        bytes.extend(&body);
    }
    if chunked {
        bytes.extend(b"0\r\n\r\n");
    }
    let broken = random.u8(..6) == 0;
    if broken {
        for _ in 0..random.usize(1..4) {
            mutate(random, &mut bytes);
        }
    }
    (bytes, !broken)
}

/// Whether the HTTP layer takes the head of this request at all.
fn is_http(bytes: &[u8]) -> bool {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(bytes.len());
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap();
    let method = line.split(|byte| *byte == b' ').next().unwrap();
    let visible = line.iter().all(|byte| (0x20..0x7f).contains(byte));
    let spaces = line.iter().filter(|byte| **byte == b' ').count();
    visible && spaces == 2 && !method.is_empty() && line.len() < 8000 && end < 60_000
}

#[track_caller]
fn judge(bytes: &[u8], whole: bool, answer: &[u8]) {
    let shown = || String::from_utf8_lossy(&bytes[..bytes.len().min(600)]).into_owned();
    let head_only = bytes.starts_with(b"HEAD ");
    let Some(answer) = Answer::parse(answer, head_only) else {
        assert!(
            !whole || !is_http(bytes),
            "no answer to {} but {:?}",
            shown(),
            String::from_utf8_lossy(answer)
        );
        return;
    };
    assert!(answer.status < 500 || answer.status == 505, "{} gave {answer:?}", shown());
    // What is no HTTP at all is refused before there is anyone to write JSON.
    if answer.status >= 400 && !head_only && (!answer.body.is_empty() || (whole && is_http(bytes))) {
        let result = std::panic::catch_unwind(|| answer.is_error());
        assert!(result.is_ok(), "{} gave {answer:?}", shown());
    }
}

fn run(seed: u64) {
    let mut site = Site::start();
    site.api.publish("t?key=k", "{\"a\":1}").is(201);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let api = &site.api;
            scope.spawn(move || {
                let mut random = Rng::with_seed(seed + thread);
                for round in 0..ROUNDS {
                    let (bytes, whole) = request(&mut random);
                    // Only what is broken has to be ended by hanging up.
                    judge(&bytes, whole, &api.raw(&bytes, !whole));
                    if round % 50 == 0 {
                        api.get("/healthz").is(200);
                    }
                }
            });
        }
    });
    site.api.get("/healthz").is(200);
    site.api.get("/readyz").is(200);
    site.api.publish("alive", "1").is(201);
    // What got in can be read, by those who read and after a crash.
    for _ in 0..2 {
        let listed = site.api.get("/v1/topics").is(200);
        for topic in listed["topics"].as_array().unwrap() {
            let name = topic.as_str().or(topic["topic"].as_str()).unwrap();
            let answer = site.api.export(name, "");
            assert_eq!(answer.status, 200, "{name}");
            let filter = encoded("event.payload == 1 || true");
            assert_eq!(site.api.export(name, &format!("filter={filter}")).status, 200, "{name}");
        }
        site.crash();
    }
    site.stop();
}

#[test]
fn random_requests_of_one_seed_do_no_harm() {
    run(1);
}

#[test]
fn random_requests_of_another_seed_do_no_harm() {
    run(1_000_003);
}

#[test]
fn forged_cursors_do_no_harm() {
    let site = Site::start();
    let api = &site.api;
    api.make("t", 2);
    api.ndjson("t", "{\"payload\":1,\"key\":\"k\"}\n".repeat(20).as_bytes()).is(201);
    let mut random = Rng::with_seed(3);
    for query in ["limit=1", "limit=1&key=k", "limit=1&from=ts&ts=1&filter=true&toTs=9999999999999"] {
        let cursor = api.page("t", query).is(200)["next"].as_str().unwrap().to_owned();
        let mut behind: Value = serde_json::from_slice(&BASE64.decode(&cursor).unwrap()).unwrap();
        behind["place"] = json!({"partition": 1, "offset": u64::MAX});
        let behind = BASE64.encode(behind.to_string());
        assert_eq!(api.page("t", &format!("cursor={behind}")).is(200)["events"], json!([]), "{query}");
        for _ in 0..300 {
            let mut bytes = cursor.clone().into_bytes();
            for _ in 0..random.usize(1..5) {
                let at = random.usize(..bytes.len());
                bytes[at] =
                    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_="[random.usize(..65)];
            }
            let forged = String::from_utf8(bytes).unwrap();
            let answer = api.page("t", &format!("cursor={}", encoded(&forged)));
            if answer.status != 200 {
                answer.fails_as(&[400, 404, 410]);
            }
        }
    }
    api.get("/healthz").is(200);
}

#[test]
fn truncated_requests_at_every_byte_do_no_harm() {
    let site = Site::start();
    let body = r#"[{"payload":{"a":1},"key":"k"},{"payload":2}]"#;
    let request = format!(
        "POST /v1/topics/t/events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    for end in 0..request.len() {
        let answer = site.api.raw(&request.as_bytes()[..end], true);
        if let Some(answer) = Answer::parse(&answer, false) {
            assert!((400..500).contains(&answer.status), "{end}: {answer:?}");
        }
    }
    site.api.page("t", "").fails(404, "not_found");
    site.api.raw(request.as_bytes(), false);
    assert_eq!(site.api.all("t", "").len(), 2);
}

#[test]
fn every_flipped_byte_of_a_publish_is_an_error_or_an_event() {
    let site = Site::start();
    let body =
        r#"{"payload":{"a":[1,"\u00e9"]},"key":"k","headers":{"x-a":"1"},"tags":["t"],"ts":1,"sid":"s"}"#;
    let (mut taken, mut random) = (0, Rng::with_seed(5));
    for at in 0..body.len() {
        for kind in ["application/json", "application/x-ndjson"] {
            let mut bytes = body.as_bytes().to_vec();
            bytes[at] = random.u8(..);
            let call =
                contract_support::Call::new("POST", "/v1/topics/t/events").header("content-type", kind);
            let answer = site.api.call(&call.body(&bytes));
            if answer.status == 201 {
                taken += 1;
            } else {
                answer.fails_as(&[400]);
            }
        }
    }
    assert!(site.api.export("t", "").text().lines().count() == taken, "{taken}");
}

#[test]
fn odd_json_in_a_payload_does_not_trouble_a_filter() {
    let site = Site::start();
    for payload in [
        r#""\ud800""#,
        "1e400",
        "-1e400",
        r#"{"a":1,"a":2}"#,
        r#"{"\ud800":1}"#,
        "123456789012345678901234567890",
        r#"{"a":"\u0000"}"#,
    ] {
        let answer = site.api.publish("t", payload);
        if answer.status != 201 {
            answer.fails(400, "bad_json");
        }
    }
    site.api.publish("t", "[[[[[[[[[[1]]]]]]]]]]").is(201);
    for filter in [
        "event.payload == 1",
        "event.payload.a == 2",
        "event.payload > 1.0",
        "size(event.payload) > 0",
        "true",
    ] {
        assert_eq!(site.api.export("t", &format!("filter={}", encoded(filter))).status, 200, "{filter}");
    }
}
