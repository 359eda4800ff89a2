//! `prombus snapshots`: one collection, passed on as the hub serves it.

use crate::client_support::Spot;
use crate::common::{Hub, binary};
use crate::contract_support::{Answer, Api, Call};
use serde_json::{Value, json};
use std::io::{Read, Write};

/// A process that serves one collection.
struct Snapshots {
    process: Hub,
    api: Api,
}

impl Snapshots {
    fn of(url: &str, args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = binary(folder.path());
        command.args(["snapshots", "--collection", "c", "--listen", ":0", "--url", url]).args(args);
        let process = Hub::running(command, folder);
        Self { api: process.api(), process }
    }

    fn get(&self, path: &str) -> Answer {
        self.api.get(path)
    }
}

fn ask(api: &Api, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    api.call(&Call { headers: headers.to_vec(), ..Call::new(method, path) })
}

/// Without what differs from one answer to the next.
fn timeless(mut answer: Answer) -> Answer {
    answer.headers.retain(|(name, _)| name != "date" && name != "connection");
    answer.headers.sort();
    answer
}

/// A hub with documents `a` to `d` and one with an odd key in collection `c`, and a secret elsewhere.
fn hub() -> Hub {
    let hub = Hub::start();
    let mut writes: Vec<Value> = ["a", "b", "c", "d"]
        .iter()
        .zip(0..)
        .map(|(key, n)| json!({"collection": "c", "key": key, "set": {"n": n, "even": n % 2 == 0}}))
        .collect();
    writes.push(json!({"collection": "c", "key": "x/y ö", "set": {"n": 9, "even": false}}));
    writes.push(json!({"collection": "secret", "key": "a", "set": {"password": 1}}));
    hub.run_with(&["commit", "-"], &json!({ "writes": writes }).to_string()).ok();
    hub
}

#[test]
fn only_requests_for_its_own_hosts_are_answered() {
    let hub = hub();
    let snapshots = Snapshots::of(&hub.url, &["--host", "docs.internal"]);
    for (host, status) in [("docs.internal:8091", 200), (&snapshots.api.address, 200), ("evil.example", 403)]
    {
        let heard = ask(&snapshots.api, "GET", "/list", &[("host", host)]);
        assert_eq!(heard.status, status, "{host}: {heard:?}");
    }
    let told = ask(&snapshots.api, "GET", "/snap/a", &[("host", "evil.example")]).json();
    assert_eq!(told["error"], "forbidden");
    assert!(told["message"].as_str().unwrap().contains("--host"), "{told}");
}

#[test]
fn a_head_has_a_limit() {
    let hub = hub();
    let snapshots = Snapshots::of(&hub.url, &[]);
    let address = &snapshots.api.address;
    let status = |bytes: usize| {
        let pad = "x".repeat(bytes);
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let head =
            format!("GET /snap/a HTTP/1.1\r\nhost: {address}\r\nx-pad: {pad}\r\nconnection: close\r\n\r\n");
        // It may be refused before all of it is sent, and what is on its way then is lost.
        let _ = stream.write_all(head.as_bytes());
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).map(|()| String::from_utf8_lossy(&answer).into_owned()).ok()
    };
    assert_eq!(status(32 << 10).as_deref(), Some("HTTP/1.1 200"));
    let refused = status(200_000);
    assert!(matches!(refused.as_deref(), None | Some("HTTP/1.1 431")), "{refused:?}");
}

#[test]
fn answers_are_those_of_the_hub() {
    let hub = hub();
    let snapshots = Snapshots::of(&hub.url, &[]);
    let document = snapshots.get("/snap/b");
    assert_eq!((document.status, &document.json()["n"]), (200, &json!(1)));
    let etag = document.header("etag").unwrap();
    let since = document.header("last-modified").unwrap();
    // While its second lasts, a date matches nothing.
    let passed = || snapshots.get("/healthz").header("date") != Some(since);
    while !passed() {
        std::thread::yield_now();
    }
    assert_eq!(document.header("cache-control"), Some("public, max-age=5"));
    let direct_api = hub.api();
    let either = format!("\"other\", W/{etag}");
    for (method, path, header) in [
        ("GET", "/snap/b", None),
        ("HEAD", "/snap/b", None),
        ("GET", "/snap/x%2Fy%20%C3%B6", None),
        ("GET", "/snap/b", Some(("if-none-match", etag))),
        ("HEAD", "/snap/b", Some(("if-none-match", &*either))),
        ("GET", "/snap/b", Some(("if-none-match", "\"other\""))),
        ("GET", "/snap/b", Some(("if-modified-since", since))),
        ("GET", "/snap/nobody", None),
        ("GET", "/snap/b?min_offset=1", None),
        ("GET", "/snap/b?nonsense=1", None),
        ("GET", "/list?even=true&n[gte]=1&sort=-n", None),
        ("GET", "/list?n%5Bin%5D=0,3&limit=1", None),
        ("GET", "/list?limit=1001", None),
    ] {
        let ask = |api, path: &str| timeless(ask(api, method, path, header.as_slice()));
        let direct = ask(&direct_api, &format!("/v1/collections/c{path}"));
        assert_eq!(ask(&snapshots.api, path), direct, "{method} {path} {header:?}");
    }
    let unchanged = ask(&snapshots.api, "GET", "/snap/b", &[("if-none-match", etag)]);
    assert_eq!((unchanged.status, unchanged.text(), unchanged.header("etag")), (304, "", Some(etag)));
    let listed = snapshots.get("/list?even=true&sort=-n").json();
    assert_eq!((&listed["count"], &listed["items"][0]["_key"]), (&json!(2), &json!("c")));
}

#[test]
fn there_is_nothing_but_this_collection() {
    let hub = hub();
    let snapshots = Snapshots::of(&hub.url, &[]);
    for path in ["/", "/snap", "/list/", "/v1/collections", "/snap/../secret/snap/a", "/snap/a/b", "/../list"]
    {
        let heard = snapshots.get(path);
        assert_eq!((heard.status, &heard.json()["error"]), (404, &json!("not_found")), "{path}");
    }
    for key in ["..", ".", "%2e%2e", "%2E."] {
        let heard = snapshots.get(&format!("/snap/{key}"));
        assert_eq!((heard.status, &heard.json()["error"]), (400, &json!("bad_request")), "{key}");
    }
    for key in
        ["..%2F..%2Fsecret%2Fsnap%2Fa", "..\\..\\secret\\snap\\a", "%2e%2e%2f%2e%2e%2fsecret%2fsnap%2fa"]
    {
        assert_eq!(snapshots.get(&format!("/snap/{key}")).status, 404, "{key}");
    }
    assert_eq!(snapshots.get("/snap/%FF").status, 400);
    for (method, path) in [("POST", "/snap/a"), ("PUT", "/list"), ("DELETE", "/snap/a"), ("BREW", "/list")] {
        let heard = ask(&snapshots.api, method, path, &[]);
        assert_eq!(
            (heard.status, &heard.json()["error"]),
            (405, &json!("method_not_allowed")),
            "{method} {path}"
        );
        assert_eq!(heard.header("allow"), Some("GET, HEAD"));
    }
}

#[test]
fn a_hub_that_is_away_is_told_and_one_that_comes_back_is_used() {
    let mut spot = Spot::start();
    let snapshots = Snapshots::of(&spot.url(), &[]);
    assert_eq!(snapshots.get("/snap/a").status, 404);
    spot.kill();
    let heard = snapshots.get("/snap/a");
    assert_eq!((heard.status, &heard.json()["error"]), (503, &json!("unavailable")));
    assert!(heard.json()["message"].as_str().unwrap().contains("hub"), "{heard:?}");
    assert!(heard.header("retry-after").is_some());
    spot.start_again();
    assert_eq!(snapshots.get("/snap/a").status, 404);
}

#[test]
fn it_shows_its_token_and_callers_need_none() {
    let file = "[store]\nmemory = true\n[snapshots]\nmax_age_s = 30\n[auth]\nmode = \"token\"\n\
        tokens = [{ token = \"writer-0123456789\", scopes = [\"*:**\"] }, { token = \"reader-0123456789\", scopes = [\"read:c\"] }]";
    let hub = Hub::with_file(file, &[]);
    let write = json!({"writes": [{"collection": "c", "key": "a", "set": {"n": 1}}]}).to_string();
    hub.run_with(&["commit", "-", "--token", "writer-0123456789"], &write).ok();
    let snapshots = Snapshots::of(&hub.url, &["--token", "reader-0123456789"]);
    let heard = snapshots.get("/snap/a");
    assert_eq!((heard.status, &heard.json()["n"]), (200, &json!(1)));
    assert_eq!(heard.header("cache-control"), Some("private, max-age=30"));
    // A caller's own token is nothing to the hub.
    let heard = ask(&snapshots.api, "GET", "/snap/a", &[("authorization", "Bearer nonsense")]);
    assert_eq!(heard.status, 200);
    assert_eq!(Snapshots::of(&hub.url, &[]).get("/snap/a").status, 401);
}

#[test]
fn a_signal_ends_it_with_0_also_where_a_connection_is_idle() {
    let hub = hub();
    let snapshots = Snapshots::of(&hub.url, &[]);
    let mut idle = snapshots.api.connect();
    idle.write_all(b"GET /snap/a HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    assert!(snapshots.process.stop().success());
}
