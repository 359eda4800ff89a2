//! `prombus snapshots`: one collection, passed on as the hub serves it.

use crate::client_support::Spot;
use crate::common::{Hub, PATIENCE, binary};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

/// A process that serves one collection. It is killed when it is dropped.
struct Snapshots {
    child: Child,
    address: String,
}

impl Snapshots {
    fn of(url: &str, args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = binary(folder.path());
        command.args(["snapshots", "--collection", "c", "--listen", ":0", "--url", url]).args(args);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let (mut line, mut seen) = (String::new(), String::new());
        while !line.contains("ready") {
            line.clear();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "it does not start: {seen}");
            seen.push_str(&line);
        }
        // Nobody reads the rest, and it must not wait for that.
        std::thread::spawn(move || stderr.read_to_end(&mut Vec::new()));
        let start = line.find("http://").unwrap() + "http://".len();
        let address = line[start..].split([' ', '"']).next().unwrap().to_owned();
        Self { child, address }
    }

    fn get(&self, path: &str) -> Heard {
        ask(&self.address, "GET", path, "")
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer over HTTP.
#[derive(Debug, PartialEq)]
struct Heard {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Heard {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Without what differs from one answer to the next.
    fn timeless(mut self) -> Self {
        self.headers.remove("date");
        self.headers.remove("connection");
        self
    }
}

/// Asks once, over a connection of its own.
fn ask(address: &str, method: &str, path: &str, headers: &str) -> Heard {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let host = if headers.contains("host: ") { "" } else { "host: localhost\r\n" };
    let request = format!("{method} {path} HTTP/1.1\r\n{host}connection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let header = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_ascii_lowercase(), value.to_owned())
    };
    Heard { status, headers: lines.map(header).collect(), body: body.to_owned() }
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

fn host(url: &str) -> &str {
    url.strip_prefix("http://").unwrap()
}

#[test]
fn only_requests_for_its_own_hosts_are_answered() {
    let hub = hub();
    let snapshots = Snapshots::of(&hub.url, &["--host", "docs.internal"]);
    for (host, status) in [("docs.internal:8091", 200), (&snapshots.address, 200), ("evil.example", 403)] {
        let heard = ask(&snapshots.address, "GET", "/list", &format!("host: {host}\r\n"));
        assert_eq!(heard.status, status, "{host}: {heard:?}");
    }
    let told = ask(&snapshots.address, "GET", "/snap/a", "host: evil.example\r\n").json();
    assert_eq!(told["error"], "forbidden");
    assert!(told["message"].as_str().unwrap().contains("--host"), "{told}");
}

#[test]
fn answers_are_those_of_the_hub() {
    let hub = hub();
    let snapshots = Snapshots::of(&hub.url, &[]);
    let document = snapshots.get("/snap/b");
    assert_eq!((document.status, &document.json()["n"]), (200, &json!(1)));
    let etag = document.headers["etag"].clone();
    let since = document.headers["last-modified"].clone();
    // While its second lasts, a date matches nothing.
    let passed = || snapshots.get("/healthz").headers["date"] != since;
    while !passed() {
        std::thread::yield_now();
    }
    assert_eq!(document.headers["cache-control"], "public, max-age=5");
    for (method, path, headers) in [
        ("GET", "/snap/b", String::new()),
        ("HEAD", "/snap/b", String::new()),
        ("GET", "/snap/x%2Fy%20%C3%B6", String::new()),
        ("GET", "/snap/b", format!("if-none-match: {etag}\r\n")),
        ("HEAD", "/snap/b", format!("if-none-match: \"other\", W/{etag}\r\n")),
        ("GET", "/snap/b", "if-none-match: \"other\"\r\n".into()),
        ("GET", "/snap/b", format!("if-modified-since: {since}\r\n")),
        ("GET", "/snap/nobody", String::new()),
        ("GET", "/snap/b?min_offset=1", String::new()),
        ("GET", "/snap/b?nonsense=1", String::new()),
        ("GET", "/list?even=true&n[gte]=1&sort=-n", String::new()),
        ("GET", "/list?n%5Bin%5D=0,3&limit=1", String::new()),
        ("GET", "/list?limit=1001", String::new()),
    ] {
        let direct = ask(host(&hub.url), method, &format!("/v1/collections/c{path}"), &headers).timeless();
        let passed = ask(&snapshots.address, method, path, &headers).timeless();
        assert_eq!(passed, direct, "{method} {path} {headers}");
    }
    let unchanged = ask(&snapshots.address, "GET", "/snap/b", &format!("if-none-match: {etag}\r\n"));
    assert_eq!((unchanged.status, unchanged.body.as_str(), &unchanged.headers["etag"]), (304, "", &etag));
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
        let heard = ask(&snapshots.address, method, path, "");
        assert_eq!(
            (heard.status, &heard.json()["error"]),
            (405, &json!("method_not_allowed")),
            "{method} {path}"
        );
        assert_eq!(heard.headers["allow"], "GET, HEAD");
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
    assert!(heard.headers.contains_key("retry-after"));
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
    assert_eq!(heard.headers["cache-control"], "private, max-age=30");
    // A caller's own token is nothing to the hub.
    let heard = ask(&snapshots.address, "GET", "/snap/a", "authorization: Bearer nonsense\r\n");
    assert_eq!(heard.status, 200);
    assert_eq!(Snapshots::of(&hub.url, &[]).get("/snap/a").status, 401);
}

#[test]
fn a_signal_ends_it_with_0_also_where_a_connection_is_idle() {
    let hub = hub();
    let mut snapshots = Snapshots::of(&hub.url, &[]);
    let mut idle = TcpStream::connect(&snapshots.address).unwrap();
    idle.write_all(b"GET /snap/a HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    kill_process(Pid::from_child(&snapshots.child), Signal::TERM).unwrap();
    assert!(snapshots.child.wait().unwrap().success());
}
