//! Following a topic as server-sent events: catch up, then live, and on after a break.

use crate::common::{Hub, PATIENCE};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// A stream of events, as a browser has it.
struct Live {
    lines: BufReader<Box<dyn Read>>,
    status: u16,
    head: String,
}

/// A body in chunks, without their framing.
struct Unchunked {
    stream: BufReader<TcpStream>,
    left: usize,
}

impl Read for Unchunked {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            let mut size = String::new();
            while size.trim().is_empty() {
                size.clear();
                if self.stream.read_line(&mut size)? == 0 {
                    return Ok(0);
                }
            }
            self.left = usize::from_str_radix(size.trim(), 16).unwrap();
            if self.left == 0 {
                return Ok(0);
            }
        }
        let wanted = out.len().min(self.left);
        let read = self.stream.read(&mut out[..wanted])?;
        self.left -= read;
        Ok(read)
    }
}

fn follow(hub: &Hub, path: &str, last: Option<&str>) -> Live {
    let address = hub.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let last = last.map(|last| format!("last-event-id: {last}\r\n")).unwrap_or_default();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n{last}\r\n")
        .unwrap();
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut head).unwrap() > 0, "{head}");
    }
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body: Box<dyn Read> =
        if head.contains("chunked") { Box::new(Unchunked { stream, left: 0 }) } else { Box::new(stream) };
    Live { lines: BufReader::new(body), status, head }
}

impl Live {
    /// The fields of the next message; nothing at the end of the stream.
    fn next(&mut self) -> Option<HashMap<String, String>> {
        let mut fields = HashMap::new();
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            let line = line.trim_end_matches('\n');
            match line.split_once(": ") {
                _ if line.is_empty() && fields.contains_key("data") => return Some(fields),
                _ if line.is_empty() => fields.clear(),
                Some((name, value)) => drop(fields.insert(name.to_owned(), value.to_owned())),
                None => panic!("{line:?} is no field"),
            }
        }
    }

    /// The payload of the next event, and the token after it.
    fn event(&mut self) -> (Value, String) {
        let fields = self.next().unwrap();
        let event: Value = serde_json::from_str(&fields["data"]).unwrap();
        (event["payload"].clone(), fields["id"].clone())
    }
}

fn publish(hub: &Hub, topic: &str, payloads: impl IntoIterator<Item = u64>) {
    for payload in payloads {
        hub.run(&["pub", topic, &payload.to_string()]).ok();
    }
}

#[test]
fn it_catches_up_and_then_goes_on_live() {
    let hub = Hub::start();
    publish(&hub, "t", [1, 2]);
    let mut live = follow(&hub, "/v1/topics/t/events", None);
    assert_eq!(live.status, 200);
    assert!(live.head.contains("content-type: text/event-stream"), "{}", live.head);
    assert_eq!([live.event().0, live.event().0], [json!(1), json!(2)]);
    publish(&hub, "t", [3]);
    assert_eq!(live.event().0, json!(3));
}

#[test]
fn it_goes_on_after_the_last_event_id_in_all_partitions() {
    let hub = Hub::start();
    hub.run(&["topics", "create", "t", "--partitions", "3"]).ok();
    publish(&hub, "t", 0..6);
    let mut live = follow(&hub, "/v1/topics/t/events", None);
    let mut seen: Vec<u64> = Vec::new();
    let mut token = String::new();
    for _ in 0..3 {
        let (payload, after) = live.event();
        seen.push(payload.as_u64().unwrap());
        token = after;
    }
    drop(live);
    publish(&hub, "t", 6..9);
    let mut live = follow(&hub, "/v1/topics/t/events", Some(&token));
    seen.extend((0..6).map(|_| live.event().0.as_u64().unwrap()));
    seen.sort_unstable();
    assert_eq!(seen, (0..9).collect::<Vec<_>>(), "each once");
}

#[test]
fn filters_keys_and_places_hold_for_streams_too() {
    let hub = Hub::start();
    for n in 0..4 {
        hub.run(&["pub", "t", &n.to_string(), "--key", if n % 2 == 0 { "even" } else { "odd" }]).ok();
    }
    let mut live = follow(&hub, "/v1/topics/t/events?key=odd", None);
    assert_eq!([live.event().0, live.event().0], [json!(1), json!(3)]);
    let mut live = follow(&hub, "/v1/topics/t/events?filter=event.payload%20%3E%202", None);
    assert_eq!(live.event().0, json!(3));
    let mut live = follow(&hub, "/v1/topics/t/events?from=offset&offset=2", None);
    assert_eq!(live.event().0, json!(2));
    let mut live = follow(&hub, "/v1/topics/t/events?from=latest", None);
    publish(&hub, "t", [9]);
    assert_eq!(live.event().0, json!(9));
}

#[test]
fn what_cannot_be_followed_is_refused_at_once() {
    let hub = Hub::start();
    publish(&hub, "t", [1]);
    for (path, last, status) in [
        ("/v1/topics/none/events?from=offset&offset=0", None, 404),
        ("/v1/topics/t/events?limit=5", None, 400),
        ("/v1/topics/t/events?filter=event.", None, 400),
        ("/v1/topics/t/events", Some("nonsense!"), 400),
    ] {
        assert_eq!(follow(&hub, path, last).status, status, "{path} {last:?}");
    }
    let (_, token) = follow(&hub, "/v1/topics/t/events", None).event();
    hub.run(&["topics", "delete", "t"]).ok();
    publish(&hub, "t", [2]);
    assert_eq!(follow(&hub, "/v1/topics/t/events", Some(&token)).status, 410, "another topic of that name");
}

#[test]
fn it_ends_with_the_topic_and_with_the_hub() {
    let hub = Hub::start();
    publish(&hub, "t", [1]);
    publish(&hub, "u", [1]);
    let mut live = follow(&hub, "/v1/topics/t/events", None);
    live.event();
    hub.run(&["topics", "delete", "t"]).ok();
    let last = live.next().unwrap();
    assert_eq!(last["event"], "error");
    assert!(last["data"].contains("gone"), "{last:?}");
    assert!(live.next().is_none());
    let mut live = follow(&hub, "/v1/topics/u/events", None);
    live.event();
    assert!(hub.stop().success(), "a stream does not keep the hub from ending");
    assert!(live.next().is_none());
}
