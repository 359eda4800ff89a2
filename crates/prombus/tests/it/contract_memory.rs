//! What all connections together may hold, and that it is released.

use crate::auth_support::{Guarded, until};
use crate::contract_limits::{fill, limited, peak_memory};
use crate::contract_support::Call;
use crate::groups_support::metric;
use serde_json::{Map, Value, json};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

const UPGRADE: &[u8] =
    b"GET /ws HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
    sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// As many clients at once, each in its own way bad.
fn clients(hub: &Guarded, count: usize, be_bad: impl Fn(&mut TcpStream) + Sync) -> Vec<TcpStream> {
    std::thread::scope(|scope| {
        let client = || {
            let mut line = hub.api.connect();
            be_bad(&mut line);
            line
        };
        let clients: Vec<_> = (0..count).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    })
}

/// Sends as much as the hub takes, whatever comes of it.
fn send_unfinished(line: &mut TcpStream, head: &[u8], bytes: usize) {
    line.set_write_timeout(Some(std::time::Duration::from_secs(1))).unwrap();
    let _ = line.write_all(head).and_then(|()| line.write_all(&vec![b'1'; bytes]));
}

#[test]
fn what_all_clients_together_hold_is_bounded() {
    const BUFFERS: usize = 64 << 20;
    const CLIENTS: usize = 60;
    const UNFINISHED: usize = 15 << 20;
    static LARGE: [u8; 1_000_000] = [b'1'; 1_000_000];
    /// What the hub takes besides, freed memory that it keeps included. Without a limit it would be several times as much.
    const MOST: usize = BUFFERS + (600 << 20);
    let hub = limited(&format!("buffer_bytes = {BUFFERS}"));
    let set =
        |key: &str, bytes: usize| json!({"collection": "c", "key": key, "set": {"text": "x".repeat(bytes)}});
    let set = json!({"writes": [set("small", 1), set("large", 4_000_000)]});
    let commit = Call::new("POST", "/v1/commit").header("content-type", "application/json");
    hub.api.call(&commit.body(set.to_string().as_bytes())).is(200);
    let before = Cell::new(peak_memory(&hub));
    let holds_little_and_serves = |what: &str, bad: Vec<TcpStream>| {
        // What is small does not wait, and what is large has to until bad ones are abandoned.
        hub.api.get("/v1/collections/c/snap/small").is(200);
        hub.api.call(&Call::new("POST", "/publish/t").body(b"1")).is(201);
        until("a large document", || match hub.api.get("/v1/collections/c/snap/large") {
            answer if answer.status == 503 => false,
            answer => answer.is(200)["_key"] == "large",
        });
        let large = Call::new("POST", "/publish/t").body(&LARGE);
        until("a large body", || match hub.api.call(&large) {
            answer if answer.status == 503 => false,
            answer => answer.is(201)["duplicate"] == false,
        });
        let grown = peak_memory(&hub).saturating_sub(before.get());
        assert!(grown < MOST, "{} {what} took {grown} bytes", bad.len());
        // The next kind is measured from what is taken now.
        hub.usage().forget_peak().unwrap();
        before.set(peak_memory(&hub));
    };
    let get = b"GET /v1/collections/c/snap/large HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let silent = clients(&hub, 4 * CLIENTS, |line| line.write_all(get).unwrap());
    holds_little_and_serves("clients that read nothing", silent);
    let body = b"POST /publish/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 16000000\r\n\r\n";
    let posting = clients(&hub, CLIENTS, |line| send_unfinished(line, body, UNFINISHED));
    holds_little_and_serves("unfinished bodies", posting);
    let frame = [UPGRADE, b"\x81\xff\x00\x00\x00\x00\x00\xf3\x00\x00\x00\x00\x00\x00"].concat();
    let framing = clients(&hub, CLIENTS, |line| send_unfinished(line, &frame, UNFINISHED));
    holds_little_and_serves("unfinished frames", framing);
    until("nothing is held", || buffered(&hub) < REQUEST);
}

#[test]
fn what_is_half_sent_takes_little_more_than_is_counted() {
    const CLIENTS: usize = 200;
    const SENT: usize = 200_000;
    /// What the hub takes for the connections themselves, and for whatever else it begins meanwhile.
    const BESIDES: usize = 16 << 20;
    let body = |target: &str, kind: &str| {
        let head = format!("POST {target} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\n");
        format!("{head}content-length: 16000000\r\n\r\n").into_bytes()
    };
    for (what, head) in [
        ("bodies", body("/publish/t", "application/json")),
        ("lines", body("/v1/topics/t/events", "application/x-ndjson")),
        ("frames", [UPGRADE, b"\x81\xff\x00\x00\x00\x00\x00\xf3\x00\x00\x00\x00\x00\x00"].concat()),
    ] {
        let hub = limited("");
        let before = peak_memory(&hub);
        let halfway = clients(&hub, CLIENTS, |line| send_unfinished(line, &head, SENT));
        until("all of it has come", || buffered(&hub) >= (CLIENTS * SENT) as f64);
        let (counted, grown) = (buffered(&hub) as usize, peak_memory(&hub) - before);
        assert!(
            grown < counted + counted / 4 + BESIDES,
            "{} {what}: {grown} bytes, {counted} counted",
            halfway.len()
        );
    }
}

/// Reads as far as there is something, and no further.
fn read_to(line: &mut TcpStream, there: &[u8]) {
    let (mut read, mut byte) = (Vec::new(), [0]);
    while !read.ends_with(there) && line.read_exact(&mut byte).is_ok() {
        read.extend(byte);
    }
}

#[test]
fn what_subscribers_do_not_read_stays_with_their_groups() {
    const BUFFERS: usize = 64 << 20;
    const EVENTS: usize = 40;
    const GROUPS: usize = 200;
    /// Each has a group of its own, and so more to read than the system takes in its stead.
    const CLIENTS: usize = GROUPS;
    /// What the hub takes besides. Each client would hold some two megabytes.
    const MOST: usize = BUFFERS + (250 << 20);
    let hub = limited(&format!("buffer_bytes = {BUFFERS}"));
    let event = format!("\"{}\"", "x".repeat(900_000));
    for key in 0..EVENTS {
        let target = format!("/publish/big?key=k{key}");
        hub.api.call(&Call::new("POST", &target).body(event.as_bytes())).is(201);
    }
    let options = br#"{"from":"earliest","ordering":"none"}"#;
    for group in 0..GROUPS {
        let target = format!("/v1/topics/big/groups/g{group}");
        let put = Call::new("PUT", &target).header("content-type", "application/json");
        hub.api.call(&put.body(options)).is(201);
    }
    hub.usage().forget_peak().unwrap();
    let (before, next) = (peak_memory(&hub), AtomicUsize::new(0));
    let silent = clients(&hub, CLIENTS, |line| {
        let group = next.fetch_add(1, Ordering::Relaxed) % GROUPS;
        let subscribe = json!({"op": "SUBSCRIBE", "topic": "big", "group": format!("g{group}"), "corr": 1,
            "opts": {"batch": true}});
        let subscribe = subscribe.to_string();
        line.write_all(UPGRADE).unwrap();
        let head = [0x81, 0x80 | subscribe.len() as u8, 0, 0, 0, 0];
        line.write_all(&[&head, subscribe.as_bytes()].concat()).unwrap();
        read_to(line, b"\"OK\"");
    });
    // The metrics of so many groups are large, and may find no room either until some are abandoned.
    until("some are given up", || match hub.api.get("/metrics") {
        answer if answer.status == 503 => false,
        answer => answer.metric("ws_connections").unwrap() < CLIENTS as f64,
    });
    let pull =
        Call::new("POST", "/v1/topics/big/groups/other/pull").header("content-type", "application/json");
    let pull = pull.body(br#"{"max":1,"from":"earliest"}"#);
    until("one that reads gets its event", || match hub.api.call(&pull) {
        answer if answer.status == 503 => false,
        answer => answer.is(200)["deliveries"].as_array().unwrap().len() == 1,
    });
    let grown = peak_memory(&hub).saturating_sub(before);
    assert!(grown < MOST, "{} subscribers took {grown} bytes", silent.len());
}

#[test]
fn reports_that_nobody_reads_do_not_add_up() {
    const CLIENTS: usize = 400;
    /// As much as all of them take is more than twice this.
    const MOST: usize = 160 << 20;
    let hub = limited("buffer_bytes = 67108864");
    let put = |target: &str, body: &[u8]| {
        hub.api.call(&Call::new("PUT", target).header("content-type", "application/json").body(body)).is(201);
    };
    put("/v1/topics/wide", br#"{"partitions":1024}"#);
    (0..4).for_each(|group| put(&format!("/v1/topics/wide/groups/g{group}"), b"{}"));
    let before = peak_memory(&hub);
    let get = b"GET /ops HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let silent = clients(&hub, CLIENTS, |line| {
        line.write_all(get).unwrap();
        read_to(line, b"HTTP/1.1");
    });
    hub.api.call(&Call::new("POST", "/publish/t").body(b"1")).is(201);
    until("a report", || match hub.api.get("/ops?topic=t") {
        answer if answer.status == 503 => false,
        answer => answer.is(200)["topics"][0]["events"] == 1,
    });
    let grown = peak_memory(&hub).saturating_sub(before);
    assert!(grown < MOST, "{} reports took {grown} bytes", silent.len());
}

#[test]
fn a_head_has_a_limit() {
    let hub = limited("");
    let with = |bytes: usize| {
        let mut line = hub.api.connect();
        let (half, rest) = ("a".repeat(bytes / 2), "b".repeat(bytes / 2));
        let head = format!(
            "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-a: {half}\r\nx-b: {rest}\r\n\r\n"
        );
        // The hub may have answered before all of it was sent.
        let _ = line.write_all(head.as_bytes());
        let mut status = [0; 12];
        line.read_exact(&mut status).unwrap();
        String::from_utf8_lossy(&status[9..]).into_owned()
    };
    assert_eq!((with(60_000), with(200_000)), ("200".to_owned(), "431".to_owned()));
}

#[test]
fn white_space_around_events_is_not_kept_for_long() {
    const LINES: usize = 20;
    const LINE: usize = 15 << 20;
    let hub = limited("");
    let line = [" ".repeat(LINE), "{\"payload\":1}\n".to_owned()].concat();
    let before = peak_memory(&hub);
    clients(&hub, 2, |client| {
        let head = format!(
            "POST /v1/topics/t/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n\
             content-length: {}\r\n\r\n",
            LINES * line.len()
        );
        client.write_all(head.as_bytes()).unwrap();
        (0..LINES).for_each(|_| client.write_all(line.as_bytes()).unwrap());
        let mut answer = [0; 12];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 201");
    });
    let grown = peak_memory(&hub) - before;
    assert!(grown < LINES * LINE, "{grown} bytes");
}

#[test]
fn streams_of_many_topics_are_refused_where_they_would_take_too_much() {
    /// All of them would take more than there is for what stands.
    const STREAMS: usize = 200;
    let hub = limited("buffer_bytes = 67108864");
    for n in 0..19 {
        let put = format!("/v1/topics/w.t{n}");
        let put = Call::new("PUT", &put).header("content-type", "application/json");
        hub.api.call(&put.body(br#"{"partitions":1024}"#)).is(201);
    }
    let open = || {
        let mut line = hub.api.connect();
        let get =
            b"GET /v1/events?topics=w.* HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n";
        line.write_all(get).unwrap();
        let mut status = [0; 12];
        line.read_exact(&mut status).unwrap();
        (line, String::from_utf8_lossy(&status[9..]).into_owned())
    };
    let mut streams = Vec::new();
    let refused = (0..STREAMS).find_map(|_| match open() {
        (line, status) if status == "200" => {
            streams.push(line);
            None
        }
        (_, status) => Some(status),
    });
    assert_eq!(refused.as_deref(), Some("503"), "{} streams", streams.len());
    assert!(buffered(&hub) > (30 << 20) as f64, "{} in {} streams", buffered(&hub), streams.len());
    // Others have the rest.
    hub.api.call(&Call::new("POST", "/publish/t").body(&vec![b'1'; 1_000_000])).is(201);
    drop(streams);
    until("there is room again", || open().1 == "200");
    until("nothing is held", || buffered(&hub) < REQUEST);
}

/// What the request takes that asks for it.
const REQUEST: f64 = 4096.0;

/// What the hub says that connections hold.
fn buffered(hub: &Guarded) -> f64 {
    hub.api.metric("connection_buffer_bytes").unwrap()
}

#[test]
fn what_was_dealt_with_is_not_counted_any_more() {
    let hub = limited("");
    fill(&hub, 3);
    for target in
        ["/v1/topics/t/events", "/v1/topics/t/keys/k1", "/v1/collections/c/list", "/v1/collections/c/snap/k1"]
    {
        hub.api.get(target).is(200);
        assert_eq!(hub.api.call(&Call::new("HEAD", target)).status, 200, "{target}");
    }
    until("nothing is held", || buffered(&hub) < REQUEST);
}

#[test]
fn queries_that_sort_much_do_not_add_up() {
    const DOCUMENTS: usize = 40;
    const CLIENTS: usize = 30;
    let hub = limited("");
    fill(&hub, DOCUMENTS);
    hub.usage().forget_peak().unwrap();
    let before = peak_memory(&hub);
    // What is sorted by is a megabyte of each document, and no index has it.
    let list = b"GET /v1/collections/c/list?sort=text&limit=1000 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    clients(&hub, CLIENTS, |line| {
        line.write_all(list).unwrap();
        let mut answer = Vec::new();
        line.read_to_end(&mut answer).unwrap();
        let head = String::from_utf8_lossy(&answer[..12]);
        assert!(["HTTP/1.1 200", "HTTP/1.1 503"].contains(&&*head), "{head}");
    });
    let grown = peak_memory(&hub).saturating_sub(before);
    assert!(grown < CLIENTS * DOCUMENTS * 1_000_000 / 2, "{grown} bytes");
    hub.api.get("/v1/collections/c/list?sort=text&limit=1").is(200);
}

#[test]
fn filters_that_make_much_do_not_add_up() {
    const CLIENTS: usize = 40;
    /// Each of them may make 32 MiB, and as many as there are processors do so at once. All of them together would take
    /// more than a gigabyte.
    const MOST: usize = 500 << 20;
    let hub = limited("");
    let event = json!({"a": (0..100).collect::<Vec<_>>(), "s": "a".repeat(100_000)}).to_string();
    hub.api.call(&Call::new("POST", "/publish/t").body(event.as_bytes())).is(201);
    // The budget ends it, after it has made much.
    let filter = "event.payload.a.map(x,event.payload.s+event.payload.s+event.payload.s).size()>1000";
    let filter = filter.replace('+', "%2B").replace('>', "%3E");
    let before = peak_memory(&hub);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let page = hub.api.get(&format!("/v1/topics/t/events?filter={filter}")).is(200);
                assert_eq!(page["events"], json!([]));
            });
        }
    });
    let grown = peak_memory(&hub).saturating_sub(before);
    assert!(grown < MOST, "{CLIENTS} filters took {grown} bytes");
}

#[test]
fn patterns_of_many_groups_do_not_add_up() {
    const GROUPS: usize = 1_500;
    /// What all compiled patterns may take, and as much again for the groups and the allocator. The patterns of all groups
    /// would take nearly twice as much.
    const MOST: usize = 256 << 20;
    let hub = limited("");
    hub.api.call(&Call::new("POST", "/publish/t").body(br#"{"a":"b"}"#)).is(201);
    let before = peak_memory(&hub);
    for n in 0..GROUPS {
        let filter = format!(r"event.payload.a.matches('\\pL{{6}}z{n}')");
        hub.api.put(&format!("/v1/topics/t/groups/g{n}"), &json!({"filter": filter}).to_string()).is(201);
    }
    let grown = peak_memory(&hub).saturating_sub(before);
    assert!(grown < MOST, "{GROUPS} filters took {grown} bytes");
    // One that was let go is made again.
    let group = "/v1/topics/t/groups/g0";
    hub.api.call(&Call::new("POST", "/publish/t").body(br#"{"a":"abcdefz0"}"#)).is(201);
    let pulled = hub.api.post(&format!("{group}/pull"), r#"{"max":10}"#).is(200);
    assert_eq!(pulled["deliveries"].as_array().unwrap().len(), 1, "{pulled}");
}

#[test]
fn expressions_of_many_groups_do_not_add_up() {
    const GROUPS: usize = 400;
    /// What all compiled expressions may take, and as much again for the groups and the allocator. Those of all groups would
    /// take three times as much: each is a hundred times as large as its text.
    const MOST: usize = 128 << 20;
    let hub = limited("");
    hub.api.call(&Call::new("POST", "/publish/t").body(br#"{"a":1}"#)).is(201);
    let before = peak_memory(&hub);
    let filter = |n: usize| {
        let rounds = vec!["[1].all(x,x>0)"; 450].join("&&");
        format!("event.payload.a == {n} && {rounds}")
    };
    for n in 0..GROUPS {
        let body = json!({"filter": filter(n)}).to_string();
        hub.api.put(&format!("/v1/topics/t/groups/g{n}"), &body).is(201);
    }
    let grown = peak_memory(&hub).saturating_sub(before);
    assert!(grown < MOST, "{GROUPS} filters took {grown} bytes");
    // One that was let go is made again.
    hub.api.call(&Call::new("POST", "/publish/t").body(br#"{"a":0}"#)).is(201);
    let pulled = hub.api.post("/v1/topics/t/groups/g0/pull", r#"{"max":10}"#).is(200);
    assert_eq!(pulled["deliveries"].as_array().unwrap().len(), 1, "{pulled}");
}

#[test]
fn states_that_nobody_reads_hold_little() {
    const CLIENTS: usize = 4;
    /// For each a few pieces of a megabyte. The room in which the keys were found is five times as much.
    const MOST: usize = CLIENTS * (12 << 20);
    // Nobody is disconnected meanwhile for not reading.
    let hub = limited("send_timeout_ms = 600000");
    fill(&hub, 40);
    let get = b"GET /v1/topics/t/state HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let silent = clients(&hub, CLIENTS, |line| {
        line.write_all(get).unwrap();
        read_to(line, b"HTTP/1.1");
    });
    until("the room is given back", || buffered(&hub) < MOST as f64);
    assert_eq!(silent.len(), CLIENTS);
}

#[test]
fn violations_that_are_let_pass_do_not_add_up() {
    const EVENTS: usize = 12_000;
    /// Each event is refused in a hundred ways, and all of them together would take several times as much.
    const MOST: usize = 160 << 20;
    let hub = limited("");
    let none_of = |n: usize| json!({"enum": [format!("{n}{}", "x".repeat(300))]});
    let schema = json!({"items": {"allOf": (0..50).map(none_of).collect::<Vec<_>>()}});
    hub.api.post("/v1/schemas/t", &json!({"schema": schema}).to_string()).is(201);
    hub.api.put("/v1/topics/t", r#"{"schema":"warn"}"#).is(200);
    let events = vec![json!({"payload": [1, 1]}); EVENTS];
    let before = peak_memory(&hub);
    hub.api.post("/v1/topics/t/events", &json!(events).to_string()).is(201);
    let grown = peak_memory(&hub).saturating_sub(before);
    assert!(grown < MOST, "{EVENTS} violations took {grown} bytes");
    let counted = metric(&hub.api, "schema_violations_total", &[("topic", "t")]);
    assert_eq!(counted, Some(EVENTS as f64));
}

#[test]
fn validators_of_many_topics_do_not_add_up() {
    const TOPICS: usize = 30;
    /// Each takes about 20 MB, though its schema is a short text.
    const MOST: usize = 350 << 20;
    let hub = limited("");
    let resource = |level: usize, side: &str| {
        let to = |side: &str| json!({"$ref": format!("{side}{}", (level + 1).min(12))});
        let inside = if level < 12 { json!({"p": to("a"), "q": to("b")}) } else { json!({}) };
        (format!("{side}{level}"), json!({"$id": format!("{side}{level}"), "properties": inside}))
    };
    let resources: Map<String, Value> =
        (0..13).flat_map(|level| ["a", "b"].map(|side| resource(level, side))).collect();
    let schema = json!({"schema": {"$id": "https://example.com/", "$ref": "a0", "$defs": resources}});
    let before = peak_memory(&hub);
    for topic in 0..TOPICS {
        hub.api.post(&format!("/v1/schemas/t{topic}"), &schema.to_string()).is(201);
        hub.api.publish(&format!("t{topic}"), "{}").is(201);
    }
    let grown = peak_memory(&hub).saturating_sub(before);
    assert!(grown < MOST, "{TOPICS} validators took {grown} bytes");
}

#[test]
fn backlogs_of_many_projections_do_not_add_up() {
    const PROJECTIONS: usize = 120;
    /// A few projections at a time hold what they have read. If all of them did, it would be twice as much.
    const MOST: usize = 200 << 20;
    let hub = limited("");
    let body = format!(r#"{{"id":"k","s":"{}"}}"#, "a".repeat(1_000_000));
    for _ in 0..8 {
        hub.api.call(&Call::new("POST", "/publish/t").body(body.as_bytes())).is(201);
    }
    let before = peak_memory(&hub);
    let path = |n: usize| format!("/v1/projections/p{n}");
    for n in 0..PROJECTIONS {
        let definition = json!({"topic": "t", "collection": format!("c{n}"), "key": "event.payload.id",
            "map": "{'found': event.payload.s.contains('zzz')}"});
        hub.api.put(&path(n), &definition.to_string()).is(201);
    }
    let is_done = |n: usize| hub.api.get(&path(n)).is(200)["lag"] == 0;
    (0..PROJECTIONS).for_each(|n| until("a projection has caught up", || is_done(n)));
    let grown = peak_memory(&hub).saturating_sub(before);
    assert!(grown < MOST, "{PROJECTIONS} projections took {grown} bytes");
}
