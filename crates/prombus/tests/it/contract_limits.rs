//! Limits: how many events, connections and bytes, how slow a client may be, and which pages may call.

use crate::auth_support::jwt::{Signer, all, scopes};
use crate::auth_support::line::{Flow, publish};
use crate::auth_support::{Guarded, SECRET, secret_file, until};
use crate::contract_support::{Answer, Call, Connection};
use crate::ws_support::Socket;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

pub fn limited(limits: &str) -> Guarded {
    Guarded::start(&format!("[limits]\n{limits}\n"))
}

/// A connection that is kept for many calls.
struct Kept(Connection);

impl Kept {
    fn open(hub: &Guarded) -> Self {
        Self(Connection::open(&hub.api.address).unwrap())
    }

    /// Sends a request, and reads the answer to its end.
    #[track_caller]
    fn call(&mut self, method: &str, target: &str, body: &str) -> Answer {
        self.0.call(&Call::json(method, target, body)).unwrap()
    }

    #[track_caller]
    fn publish(&mut self, topic: &str, count: usize) -> Answer {
        let events: Vec<Value> = (0..count).map(|n| json!({"payload": n})).collect();
        self.call("POST", &format!("/v1/topics/{topic}/events"), &json!(events).to_string())
    }
}

/// A refusal for too many events, that names the limit and the time to wait.
#[track_caller]
fn is_rate_limited(answer: &Answer, key: &str) {
    let body = answer.fails(429, "rate_limited");
    let wait: u64 = answer.header("retry-after").unwrap_or_else(|| panic!("{answer:?}")).parse().unwrap();
    assert!(wait >= 1, "{answer:?}");
    assert!(body["message"].as_str().unwrap().contains(key), "{body}");
}

fn events(topic: &str, count: usize) -> Value {
    let events: Vec<Value> = (0..count).map(|n| json!({"payload": n})).collect();
    json!({"op": "PUBLISH", "topic": topic, "events": events})
}

/// More events than a rate of one a second makes good for while a test runs.
const FLOOD: usize = 600;

#[test]
fn a_connection_that_publishes_too_much_is_told_to_wait() {
    let hub = limited("connection_events_per_s = 1");
    let mut kept = Kept::open(&hub);
    kept.publish("t", FLOOD).is(201);
    is_rate_limited(&kept.publish("t", 1), "limits.connection_events_per_s");
    is_rate_limited(&kept.publish("u", 1), "limits.connection_events_per_s");
    is_rate_limited(&kept.call("POST", "/publish/t", "1"), "limits.connection_events_per_s");
    assert_eq!(hub.api.get("/v1/topics/t/events?from=offset&offset=600").is(200)["count"], 0);
}

#[test]
fn a_connection_that_waits_may_still_read_and_ack() {
    let hub = limited("connection_events_per_s = 1");
    let mut kept = Kept::open(&hub);
    kept.publish("t", FLOOD).is(201);
    is_rate_limited(&kept.publish("t", 1), "limits.connection_events_per_s");
    kept.call("GET", "/v1/topics", "").is(200);
    let pull = kept.call("POST", "/v1/topics/t/groups/g/pull", r#"{"from":"earliest","max":1}"#).is(200);
    let ack = json!({"ack": [pull["deliveries"][0]["ctx"]["lease"]]}).to_string();
    kept.call("POST", "/v1/topics/t/groups/g/ack", &ack).is(200);
}

#[test]
fn another_connection_does_not_pay_for_it() {
    let hub = limited("connection_events_per_s = 1");
    let mut kept = Kept::open(&hub);
    kept.publish("t", FLOOD).is(201);
    is_rate_limited(&kept.publish("t", 1), "limits.connection_events_per_s");
    Kept::open(&hub).publish("t", 1).is(201);
    Socket::open(&hub.api).ok(publish("t"));
}

#[test]
fn a_topic_that_gets_too_much_refuses_every_connection() {
    let hub = limited("topic_events_per_s = 1");
    Kept::open(&hub).publish("t", FLOOD).is(201);
    is_rate_limited(&Kept::open(&hub).publish("t", 1), "limits.topic_events_per_s");
    is_rate_limited(&hub.api.publish("t", "1"), "limits.topic_events_per_s");
    let answer = Socket::open(&hub.api).fails(publish("t"), "rate_limited");
    assert!(answer["msg"].as_str().unwrap().contains("limits.topic_events_per_s"), "{answer}");
}

#[test]
fn another_topic_does_not_pay_for_it() {
    let hub = limited("topic_events_per_s = 1");
    let mut kept = Kept::open(&hub);
    kept.publish("t", FLOOD).is(201);
    is_rate_limited(&kept.publish("t", 1), "limits.topic_events_per_s");
    kept.publish("u", 1).is(201);
}

#[test]
fn both_limits_hold_apart() {
    let hub = limited("topic_events_per_s = 1\nconnection_events_per_s = 100000");
    let mut kept = Kept::open(&hub);
    kept.publish("t", FLOOD).is(201);
    is_rate_limited(&kept.publish("t", 1), "limits.topic_events_per_s");
    kept.publish("u", 1).is(201);
    let hub = limited("topic_events_per_s = 100000\nconnection_events_per_s = 1");
    let mut kept = Kept::open(&hub);
    kept.publish("t", FLOOD).is(201);
    is_rate_limited(&kept.publish("u", 1), "limits.connection_events_per_s");
    Kept::open(&hub).publish("t", 1).is(201);
}

#[test]
fn a_socket_that_publishes_too_much_hears_so_and_stays_open() {
    let hub = limited("connection_events_per_s = 1");
    let mut frames = Socket::open(&hub.api);
    frames.ok(events("t", FLOOD));
    for frame in [publish("t"), events("u", 2)] {
        let answer = frames.fails(&frame, "rate_limited");
        assert!(answer["msg"].as_str().unwrap().contains("limits.connection_events_per_s"), "{answer}");
    }
    frames.ok(json!({"op": "SUBSCRIBE", "topic": "t", "group": "g"}));
    Socket::open(&hub.api).ok(publish("t"));
}

#[test]
fn events_a_line_count_like_others() {
    let hub = limited("topic_events_per_s = 1");
    let lines = "{\"payload\":1}\n".repeat(FLOOD);
    hub.api.ndjson("t", lines.as_bytes()).is(201);
    is_rate_limited(&hub.api.publish("t", "1"), "limits.topic_events_per_s");
}

#[test]
fn who_waits_may_publish_again() {
    let hub = limited("connection_events_per_s = 2");
    let mut kept = Kept::open(&hub);
    kept.publish("t", 6).is(201);
    until("a publish after the wait", || {
        let answer = kept.publish("t", 1);
        assert!(matches!(answer.status, 201 | 429), "{answer:?}");
        answer.status == 201
    });
}

#[test]
fn without_a_limit_nothing_is_counted() {
    let hub = limited("connection_events_per_s = 0\ntopic_events_per_s = 0");
    let mut kept = Kept::open(&hub);
    for _ in 0..5 {
        kept.publish("t", FLOOD).is(201);
    }
}

#[test]
fn one_connection_too_many_is_503_until_another_is_closed() {
    let hub = limited("connections = 2");
    let (mut first, mut second) = (Kept::open(&hub), Kept::open(&hub));
    for kept in [&mut first, &mut second] {
        kept.call("GET", "/healthz", "").is(200);
    }
    let answer = hub.api.get("/v1/topics");
    let body = answer.fails(503, "unavailable");
    assert!(body["message"].as_str().unwrap().contains("limits.connections"), "{body}");
    first.call("GET", "/v1/topics", "").is(200);
    drop(second);
    until("a place", || hub.api.get("/v1/topics").status == 200);
    first.call("GET", "/v1/topics", "").is(200);
}

#[test]
fn sockets_count_as_connections() {
    let hub = limited("connections = 2");
    let (mut one, other) = (Socket::open(&hub.api), Socket::open(&hub.api));
    one.ok(publish("t"));
    assert_eq!(hub.api.get("/v1/topics").status, 503);
    drop(other);
    until("a place", || hub.api.get("/v1/topics").status == 200);
    one.ok(publish("t"));
}

#[test]
fn streams_count_as_connections() {
    let hub = limited("connections = 2");
    hub.api.publish("t", "1").is(201);
    let mut flows: Vec<Flow> = Vec::new();
    until("two streams", || {
        // The publish may still hold its place for a moment.
        let mut flow = Flow::open(&hub.api, "t", "");
        if flow.until("HTTP/1.1 ").until("\r\n\r\n").has("200 OK") {
            flows.push(flow);
        }
        flows.len() == 2
    });
    assert_eq!(hub.api.get("/v1/topics").status, 503);
    flows.pop();
    until("a place", || hub.api.get("/v1/topics").status == 200);
}

#[test]
fn who_may_not_publish_uses_up_nothing_of_a_topics_rate() {
    let hub = Guarded::start(&format!("{}[limits]\ntopic_events_per_s = 1\n", secret_file()));
    let flood: Vec<Value> = (0..FLOOD).map(|n| json!({"payload": n})).collect();
    let reader = Signer::secret(SECRET).token(&scopes(&["read:**"]));
    hub.api.events("t", &json!(flood).to_string()).fails(401, "unauthorized");
    hub.caller(&reader).post("/v1/topics/t/events", &json!(flood)).fails(403, "forbidden");
    Socket::authed(&hub.api, &reader).fails(events("t", FLOOD), "forbidden");
    hub.caller(&Signer::secret(SECRET).token(&all())).publish("t").is(201);
}

/// The hub ends this connection by itself.
#[track_caller]
fn is_cut_off(mut line: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match line.read_to_end(&mut bytes) {
        Ok(_) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => bytes,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn headers_that_do_not_come_to_an_end_are_cut_off() {
    let hub = limited("header_timeout_ms = 300");
    for start in ["", "GET /heal", "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-a: "] {
        let mut line = hub.api.connect();
        line.write_all(start.as_bytes()).unwrap();
        let bytes = is_cut_off(line);
        if let Some(answer) = Answer::parse(&bytes, false) {
            assert_eq!(answer.status, 408, "{answer:?}");
        }
    }
    hub.api.get("/healthz").is(200);
}

#[test]
fn headers_that_come_drop_by_drop_are_cut_off_too() {
    let hub = limited("header_timeout_ms = 500");
    let line = hub.api.connect();
    let mut writer = line.try_clone().unwrap();
    writer.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n").unwrap();
    let dripping = std::thread::spawn(move || {
        while writer.write_all(b"x-a: b\r\n").is_ok() {
            // This client is slow, that is the point of it.
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    });
    is_cut_off(line);
    dripping.join().unwrap();
    hub.api.get("/healthz").is(200);
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
    let hub = limited("body_timeout_ms = 300");
    for start in ["", "12345"] {
        let mut line = hub.api.connect();
        let head =
            "POST /publish/t HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 100\r\n\r\n";
        line.write_all(format!("{head}{start}").as_bytes()).unwrap();
        let bytes = is_cut_off(line);
        if let Some(answer) = Answer::parse(&bytes, false) {
            assert!(matches!(answer.status, 400 | 408), "{answer:?}");
            answer.is_error();
            assert!(answer.text().contains("limits.body_timeout_ms"), "{answer:?}");
        }
    }
    hub.api.get("/v1/topics/t").fails(404, "not_found");
}

#[test]
fn a_body_that_is_too_long_is_413_and_names_the_limit() {
    let hub = limited("body_bytes = 1000");
    hub.api.publish("t", &format!("\"{}\"", "x".repeat(900))).is(201);
    let body = hub.api.publish("t", &format!("\"{}\"", "x".repeat(1000))).fails(413, "too_large");
    assert!(body["message"].as_str().unwrap().contains("limits.body_bytes"), "{body}");
    let body = hub.api.events("t", &json!({"payload": "x".repeat(1000)}).to_string()).fails(413, "too_large");
    assert!(body["message"].as_str().unwrap().contains("limits.body_bytes"), "{body}");
    let request = format!(
        "POST /publish/t HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n800\r\n{}\r\n0\r\n\r\n",
        "1".repeat(0x800)
    );
    let answer = Answer::parse(&hub.api.raw(request.as_bytes(), false), false).unwrap();
    let body = answer.fails(413, "too_large");
    assert!(body["message"].as_str().unwrap().contains("limits.body_bytes"), "{body}");
    assert_eq!(hub.api.all("t", "").len(), 1);
}

#[test]
fn an_event_that_is_too_large_is_413_and_names_the_limit() {
    let hub = limited("event_bytes = 1000");
    let large = json!({"payload": "x".repeat(1000)});
    hub.api.publish("t", &format!("\"{}\"", "x".repeat(500))).is(201);
    for answer in
        [hub.api.publish("t", &large["payload"].to_string()), hub.api.events("t", &large.to_string())]
    {
        let body = answer.fails(413, "too_large");
        assert!(body["message"].as_str().unwrap().contains("limits.event_bytes"), "{body}");
    }
    let frame = json!({"op": "PUBLISH", "topic": "t", "payload": large["payload"]});
    let answer = Socket::open(&hub.api).fails(&frame, "too_large");
    assert!(answer["msg"].as_str().unwrap().contains("limits.event_bytes"), "{answer}");
}

#[test]
fn a_commit_that_is_too_large_is_413_and_names_the_limit() {
    let hub = limited("event_bytes = 1000\ncommit_bytes = 2000");
    let many: Vec<Value> = (0..5).map(|_| json!({"payload": "x".repeat(700)})).collect();
    let body = hub.api.events("t", &json!(many).to_string()).fails(413, "too_large");
    assert!(body["message"].as_str().unwrap().contains("limits.commit_bytes"), "{body}");
    let frame = json!({"op": "PUBLISH", "topic": "t", "events": many});
    let answer = Socket::open(&hub.api).fails(&frame, "too_large");
    assert!(answer["msg"].as_str().unwrap().contains("limits.commit_bytes"), "{answer}");
}

const APP: &str = "https://app.example";

fn with_app() -> Guarded {
    Guarded::start(&format!("{}[server]\nallow_origins = [\"{APP}\"]\n", secret_file()))
}

/// One call of a page, with a token.
#[track_caller]
fn page_calls(hub: &Guarded, method: &str, target: &str, origin: &str) -> Answer {
    let token = Signer::secret(SECRET).token(&all());
    hub.caller(&token).call(Call::new(method, target).header("origin", origin).body(b"1"))
}

/// Origins that are neither the hub's own nor on the list.
const STRANGE: [&str; 9] = [
    "https://evil.example",
    "http://app.example",
    "https://app.example:444",
    "https://app.example.evil.example",
    "https://sub.app.example",
    "https://evil.example/https://app.example",
    "null",
    "http://hub.evil.example",
    "file://",
];

#[test]
fn a_page_on_the_list_may_ask_first_without_a_token() {
    let hub = with_app();
    for (target, method) in
        [("/publish/t", "POST"), ("/v1/topics/t", "PUT"), ("/v1/topics/t", "DELETE"), ("/v1/topics", "GET")]
    {
        let call = Call::new("OPTIONS", target)
            .header("origin", APP)
            .header("access-control-request-method", method)
            .header("access-control-request-headers", "authorization,content-type,x-event-a,last-event-id");
        let answer = hub.api.call(&call);
        assert!(matches!(answer.status, 200 | 204), "{answer:?}");
        assert_eq!(answer.header("access-control-allow-origin"), Some(APP), "{answer:?}");
        assert!(answer.header("access-control-allow-methods").unwrap().contains(method), "{answer:?}");
        let allowed = answer.header("access-control-allow-headers").unwrap().to_lowercase();
        for name in ["authorization", "content-type", "x-event-a", "last-event-id"] {
            // A star does not stand for the authorization.
            assert!(
                allowed.contains(name) || (allowed.contains('*') && name != "authorization"),
                "{answer:?}"
            );
        }
    }
}

#[test]
fn a_page_on_the_list_may_read_every_answer() {
    let hub = with_app();
    let answers = [
        page_calls(&hub, "POST", "/publish/t", APP),
        page_calls(&hub, "GET", "/v1/topics", APP),
        page_calls(&hub, "GET", "/v1/topics/missing", APP),
        hub.api.call(&Call::new("GET", "/v1/topics").header("origin", APP)),
    ];
    assert_eq!(answers.each_ref().map(|answer| answer.status), [201, 200, 404, 401]);
    for answer in &answers {
        assert_eq!(answer.header("access-control-allow-origin"), Some(APP), "{answer:?}");
        assert!(answer.header("vary").unwrap().to_lowercase().contains("origin"), "{answer:?}");
    }
}

#[test]
fn a_page_that_is_not_on_the_list_may_change_nothing() {
    let hub = with_app();
    for origin in STRANGE {
        for (method, target) in [
            ("POST", "/publish/t"),
            ("PUT", "/v1/topics/t"),
            ("DELETE", "/v1/topics/t"),
            ("POST", "/v1/topics/t/groups/g/pull"),
        ] {
            let answer = page_calls(&hub, method, target, origin);
            answer.fails(403, "forbidden");
            assert_eq!(answer.header("access-control-allow-origin"), None, "{origin}: {answer:?}");
        }
    }
    page_calls(&hub, "GET", "/v1/topics/t", APP).fails(404, "not_found");
}

#[test]
fn a_page_that_is_not_on_the_list_may_read_no_answer() {
    let hub = with_app();
    for origin in STRANGE {
        let answer = page_calls(&hub, "GET", "/v1/topics", origin);
        assert_eq!(answer.header("access-control-allow-origin"), None, "{origin}: {answer:?}");
        let asked = Call::new("OPTIONS", "/publish/t")
            .header("origin", origin)
            .header("access-control-request-method", "POST");
        let answer = hub.api.call(&asked);
        assert_eq!(answer.header("access-control-allow-origin"), None, "{origin}: {answer:?}");
    }
}

#[test]
fn without_a_list_only_the_hubs_own_pages_may_change_something() {
    for file in [String::new(), secret_file()] {
        let hub = Guarded::start(&file);
        for origin in STRANGE.iter().chain(&[APP]) {
            let answer = page_calls(&hub, "POST", "/publish/t", origin);
            answer.fails(403, "forbidden");
        }
        page_calls(&hub, "POST", "/publish/t", "http://localhost").is(201);
    }
}

/// The answer to a request for a host; headers that make it a WebSocket may go with it.
fn asked_for(hub: &Guarded, target: &str, hosts: &[&str]) -> Answer {
    let hosts: String = hosts.iter().map(|host| format!("host: {host}\r\n")).collect();
    let upgrade =
        "upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    let more = if target == "/ws" {
        format!("{upgrade}connection: upgrade\r\n")
    } else {
        "connection: close\r\n".into()
    };
    let mut line = hub.api.connect();
    line.write_all(format!("GET {target} HTTP/1.1\r\n{hosts}{more}\r\n").as_bytes()).unwrap();
    if target == "/ws" {
        // One that opens stays open.
        let mut head = BufReader::new(line);
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") && head.read_until(b'\n', &mut bytes).unwrap() > 0 {}
        return Answer::parse(&bytes, true).unwrap();
    }
    let mut bytes = Vec::new();
    line.read_to_end(&mut bytes).unwrap();
    Answer::parse(&bytes, false).unwrap()
}

#[test]
fn without_auth_only_the_hubs_own_hosts_are_served() {
    let hub = Guarded::start("[server]\nhosts = [\"hub.internal\"]\n");
    hub.api.call(&Call::new("POST", "/publish/t").body(b"1")).is(201);
    let read = "/v1/topics/t/events";
    for host in [&hub.api.address, "localhost", "LOCALHOST.:1", "[::1]:7070", "10.0.0.1", "Hub.Internal:80"] {
        asked_for(&hub, read, &[host]).is(200);
        assert_eq!(asked_for(&hub, "/ws", &[host]).status, 101, "{host}");
    }
    for hosts in [
        &["evil.example"][..],
        &["evil.example:7070"],
        &["localhost.evil.example"],
        &["localhost", "evil.example"],
    ] {
        for target in [read, "/v1/topics", "/metrics", "/ops", "/nowhere"] {
            asked_for(&hub, target, hosts).fails(403, "forbidden");
        }
        assert_eq!(asked_for(&hub, "/ws", hosts).status, 403, "{hosts:?}");
        // Those who probe may know no name.
        asked_for(&hub, "/healthz", hosts).is(200);
        asked_for(&hub, "/readyz", hosts).is(200);
    }
    let told = asked_for(&hub, read, &["evil.example"]).fails(403, "forbidden");
    assert!(told["message"].as_str().unwrap().contains("server.hosts"), "{told}");
    let absolute = format!("http://evil.example{read}");
    asked_for(&hub, &absolute, &["localhost"]).fails(403, "forbidden");
    asked_for(&hub, &format!("http://localhost{read}"), &["evil.example"]).fails(403, "forbidden");
}

#[test]
fn with_auth_any_host_is_served() {
    let hub = Guarded::start(&secret_file());
    asked_for(&hub, "/v1/topics", &["evil.example"]).fails(401, "unauthorized");
}

/// What a process has taken at most, in bytes.
pub fn peak_memory(hub: &Guarded) -> usize {
    usize::try_from(hub.usage().peak_memory().unwrap()).unwrap()
}

/// A topic and a collection of events and documents of a megabyte each.
pub fn fill(hub: &Guarded, count: usize) {
    let text = "x".repeat(1_000_000);
    for n in 0..count {
        let (target, payload) = (format!("/publish/t?key=k{n}"), format!("\"{text}\""));
        hub.api.call(&Call::new("POST", &target).body(payload.as_bytes())).is(201);
        let write = json!({"collection": "c", "key": format!("k{n}"), "set": {"text": text, "n": n}});
        let (commit, body) = (Call::new("POST", "/v1/commit"), json!({"writes": [write]}).to_string());
        hub.api.call(&commit.header("content-type", "application/json").body(body.as_bytes())).is(200);
    }
}

#[test]
fn clients_that_read_nothing_hold_little_and_are_given_up() {
    const EVENTS: usize = 40;
    const OF_EACH: usize = 12;
    /// A few pieces of a megabyte, and what the hub itself takes. Whole pages would be several times as much.
    const MOST_OF_EACH: usize = 8 << 20;
    let hub = limited(&format!("send_timeout_ms = 2000\nconnections = {}", 5 * OF_EACH));
    fill(&hub, EVENTS);
    let before = peak_memory(&hub);
    let keys: Vec<String> = (0..EVENTS).map(|n| format!("k{n}")).collect();
    let keys = json!({ "keys": keys }).to_string();
    let post = format!(
        "POST /v1/topics/t/keys HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{keys}",
        keys.len()
    );
    let get = |target: &str, accept: &str| {
        format!("GET {target} HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\n\r\n")
    };
    let requests = [
        get("/v1/topics/t/events", "application/x-ndjson"),
        get("/v1/topics/t/events", "application/json"),
        get("/v1/topics/t/events", "text/event-stream"),
        get("/v1/collections/c/list?limit=1000", "*/*"),
        post,
    ];
    let silent: Vec<TcpStream> = requests
        .iter()
        .cycle()
        .take(requests.len() * OF_EACH)
        .map(|request| {
            let mut line = hub.api.connect();
            line.write_all(request.as_bytes()).unwrap();
            line
        })
        .collect();
    // They have all places, until they are abandoned.
    until("a refusal", || hub.api.get("/healthz").status == 503);
    until("a free place", || hub.api.get("/healthz").status == 200);
    let grown = peak_memory(&hub) - before;
    assert!(grown < silent.len() * MOST_OF_EACH, "{} clients took {grown} bytes", silent.len());
}

#[test]
fn a_list_of_large_documents_comes_in_pages_that_have_an_end() {
    const DOCUMENTS: usize = 12;
    let hub = limited("");
    fill(&hub, DOCUMENTS);
    for sort in ["", "&sort=n", "&sort=-text"] {
        let (mut seen, mut next) = (0, json!(0));
        while !next.is_null() {
            let answer = hub.api.get(&format!("/v1/collections/c/list?limit=1000&offset={next}{sort}"));
            assert!(answer.body.len() < 6 << 20, "{} bytes", answer.body.len());
            let page = answer.is(200);
            assert_eq!(page["count"], page["items"].as_array().unwrap().len());
            assert!(page["count"].as_u64() > Some(0), "a page has something where there is more");
            seen += page["items"].as_array().unwrap().len();
            next = page["next"].clone();
        }
        assert_eq!(seen, DOCUMENTS);
    }
}

#[test]
fn a_pull_of_large_events_has_an_end_too() {
    const EVENTS: usize = 12;
    let hub = limited("");
    let put = Call::new("PUT", "/v1/topics/t").header("content-type", "application/json");
    hub.api.call(&put.body(br#"{"partitions": 12}"#)).is(201);
    let text = format!("\"{}\"", "x".repeat(1_000_000));
    for n in 0..EVENTS {
        let target = format!("/publish/t?partition={n}");
        hub.api.call(&Call::new("POST", &target).body(text.as_bytes())).is(201);
    }
    let mut seen = 0;
    while seen < EVENTS {
        let pull = Call::new("POST", "/v1/topics/t/groups/g/pull").header("content-type", "application/json");
        let answer = hub.api.call(&pull.body(br#"{"from": "earliest", "max": 1000}"#));
        assert!(answer.body.len() < 6 << 20, "{} bytes", answer.body.len());
        let count = answer.is(200)["deliveries"].as_array().unwrap().len();
        assert!(count > 0, "there is more");
        seen += count;
    }
}

#[test]
fn bodies_that_come_drop_by_drop_are_cut_off_too() {
    let hub = limited("body_timeout_ms = 500");
    let publish = "POST /publish/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n";
    let lines = "POST /v1/topics/t/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n\
                 content-length: 1000000\r\n\r\n";
    // A body, a line that does not end, and lines in which nothing is.
    for (head, drop) in [(publish, b"1"), (lines, b"1"), (lines, b"\n")] {
        let line = hub.api.connect();
        let mut writer = line.try_clone().unwrap();
        writer.write_all(head.as_bytes()).unwrap();
        let dripping = std::thread::spawn(move || {
            while writer.write_all(drop).is_ok() {
                // This client is slow, that is the point of it.
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        });
        let answer = Answer::parse(&is_cut_off(line), false);
        assert!(answer.is_none_or(|answer| answer.status == 408));
        dripping.join().unwrap();
    }
}

#[test]
fn a_caller_that_is_no_page_is_not_asked_where_it_comes_from() {
    let hub = with_app();
    hub.caller(&Signer::secret(SECRET).token(&all())).publish("t").is(201);
}

#[test]
fn a_socket_from_a_page_that_is_not_on_the_list_is_403() {
    let hub = with_app();
    for origin in STRANGE {
        let Err(answer) = Socket::open_with(&hub.api, &[("origin", origin)]) else {
            panic!("opened for {origin}");
        };
        assert_eq!(answer.status, 403, "{origin}: {answer:?}");
    }
}

#[test]
fn a_socket_from_a_page_on_the_list_or_of_the_hub_opens() {
    let hub = with_app();
    let own = format!("http://{}", hub.api.address);
    for origin in [APP, &own] {
        let mut frames =
            Socket::open_with(&hub.api, &[("origin", origin)]).unwrap_or_else(|answer| panic!("{answer:?}"));
        frames.ok(json!({"op": "AUTH", "token": Signer::secret(SECRET).token(&all())}));
        frames.ok(publish("t"));
    }
}

#[test]
fn without_auth_a_socket_from_a_strange_page_is_403_too() {
    let hub = Guarded::start("");
    for origin in STRANGE {
        let Err(answer) = Socket::open_with(&hub.api, &[("origin", origin)]) else {
            panic!("opened for {origin}");
        };
        assert_eq!(answer.status, 403, "{origin}: {answer:?}");
    }
}
