//! Readers that are in the middle of a part of the journal while it is rewritten or dropped: they get all that is kept, once and
//! in order, nothing that was forgotten before it was sent, and `410` only where what they lack is gone.

use crate::common::{Answer, Served, Setup, start_closed};
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use prombus_core::{Documents, ScanRequest};
use prombus_engine::{Hub, HubOptions, Store};
use prombus_store_disk::{DiskOptions, DiskStore};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Together more than all buffers between hub and client can hold.
const EVENTS: u64 = 2_400;
const EVENT_BYTES: usize = 20_000;
const BATCH: u64 = 100;
/// What readers are ahead of their clients at most, in events. That is less than there is, so that something is left to read.
const AHEAD: u64 = EVENTS * 3 / 4;
/// What every reader has when events go.
const READ: u64 = 100;
/// Each part holds about fifty events.
const PART_BYTES: u64 = 1 << 20;
const SECRET: &str = "forgotten";
const HOT: &str = "superseded";

fn key_of(n: u64) -> String {
    match n % 4 {
        0 => SECRET.to_owned(),
        1 => HOT.to_owned(),
        _ => format!("k{n}"),
    }
}

fn is_kept(n: u64) -> bool {
    key_of(n).starts_with('k') || key_of(n) == HOT && n + 4 >= EVENTS
}

/// A hub on a disk with a topic of many parts.
struct OnDisk {
    served: Served,
    store: Arc<DiskStore>,
    dir: tempfile::TempDir,
}

impl OnDisk {
    async fn filled() -> Self {
        let served = start_closed(Setup::default().gateway).await;
        let dir = tempfile::tempdir().unwrap();
        // So few files are open that those of replaced parts would be closed and opened again.
        let options = DiskOptions { part_bytes: PART_BYTES, open_files: 4, ..DiskOptions::new(dir.path()) };
        let store = DiskStore::open(options).unwrap();
        let hub_options = HubOptions { auto_create: true, ..HubOptions::default() };
        served.gateway.open(Hub::assemble(Store::new(store.clone()), hub_options));
        let on_disk = Self { served, store, dir };
        let text = "x".repeat(EVENT_BYTES);
        for first in (0..EVENTS).step_by(BATCH as usize) {
            let event = |n| json!({"key": key_of(n), "payload": {"n": n, "text": text}});
            let events: Vec<Value> = (first..first + BATCH).map(event).collect();
            on_disk.served.post("/v1/topics/t/events", &json!(events).to_string()).await.is(201);
        }
        on_disk
    }

    fn parts(&self) -> BTreeSet<String> {
        let names = std::fs::read_dir(self.dir.path().join("journal")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".part")).collect()
    }

    async fn open(&self, path: &str, accept: &str) -> Reading {
        let request = self.served.request(Method::GET, path).header("accept", accept);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let what = format!("{accept} of {path}");
        let body = response.bytes_stream().boxed();
        Reading { what, body, rest: Vec::new(), seen: Vec::new(), end: None }
    }

    /// Readers of all kinds, each of which has read something and then waits.
    async fn readers(&self) -> Vec<Reading> {
        let (lines, stream) = ("application/x-ndjson", "text/event-stream");
        let mut all = vec![
            self.open("/v1/topics/t/events", lines).await,
            self.open("/v1/topics/t/events?filter=event.payload.n>%3D0", lines).await,
            self.open("/v1/topics/t/events", stream).await,
            self.open("/v1/events?topics=t&from=earliest", stream).await,
        ];
        for reading in &mut all {
            reading.until(READ).await;
        }
        all
    }

    async fn trim(&self, before: u64) {
        let trim = json!({"partition": 0, "before": before}).to_string();
        self.served.post("/v1/topics/t/trim", &trim).await.is(200);
    }

    /// Forgets the key, leaves the latest of the others only, and has every part rewritten or dropped.
    async fn forget_and_clean(&self) {
        let before = self.parts();
        assert!(before.len() > 20, "{before:?}");
        self.served.delete(&format!("/v1/topics/t/keys/{SECRET}")).await.is(200);
        self.served.put("/v1/topics/t", r#"{"compaction":true}"#).await.is(200);
        self.served.post("/v1/topics/t/clean", "").await.is(200);
        let after = self.parts();
        assert!(before.is_disjoint(&after), "all parts have held the key: {after:?}");
    }

    /// Pulls until there are so many events or none, settles them, and says which these are.
    async fn pull(&self, most: usize) -> Vec<u64> {
        let mut seen = Vec::new();
        loop {
            let max = (most - seen.len()).min(100);
            if max == 0 {
                return seen;
            }
            let pull = json!({"from": "earliest", "ordering": "none", "max": max}).to_string();
            let pulled = self.served.post("/v1/topics/t/groups/g/pull", &pull).await;
            let pulled = pulled.is(200).json();
            let deliveries = pulled["deliveries"].as_array().unwrap();
            if deliveries.is_empty() {
                return seen;
            }
            let leases: Vec<&Value> = deliveries.iter().map(|delivery| &delivery["ctx"]["lease"]).collect();
            let ack = json!({"ack": leases}).to_string();
            let acked = self.served.post("/v1/topics/t/groups/g/ack", &ack).await.is(200).json();
            assert!(
                acked["results"].as_array().unwrap().iter().all(|result| result["ok"] == true),
                "{acked}"
            );
            seen.extend(deliveries.iter().map(|delivery| delivery["event"]["offset"].as_u64().unwrap()));
        }
    }
}

/// An answer of which only as much was taken as was asked for.
struct Reading {
    what: String,
    body: BoxStream<'static, reqwest::Result<Bytes>>,
    rest: Vec<u8>,
    /// The offsets of its events.
    seen: Vec<u64>,
    end: Option<End>,
}

#[derive(Debug, PartialEq)]
enum End {
    /// All was sent.
    Whole,
    /// The connection was closed before.
    BrokenOff,
    /// It says why.
    Error(Value),
}

impl Reading {
    /// Takes the next bytes; whether there were any.
    async fn step(&mut self) -> bool {
        match self.body.next().await {
            None => self.end = self.end.take().or(Some(End::Whole)),
            Some(Err(_)) => self.end = Some(End::BrokenOff),
            Some(Ok(bytes)) => self.rest.extend_from_slice(&bytes),
        }
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let data = line.strip_prefix(b"data: ").unwrap_or(&line);
            if !data.starts_with(b"{") {
                continue;
            }
            let value: Value = serde_json::from_slice(data).unwrap();
            match value["offset"].as_u64() {
                Some(offset) => {
                    assert_eq!(value["payload"]["n"], offset, "{}", self.what);
                    self.seen.push(offset);
                }
                None => self.end = Some(End::Error(value)),
            }
        }
        self.end.is_none()
    }

    /// Reads until there are so many events.
    async fn until(&mut self, count: u64) {
        while (self.seen.len() as u64) < count {
            assert!(self.step().await, "{} ends: {:?}", self.what, self.end);
        }
    }

    /// Reads until it ends, or has the last event.
    async fn read_to_end(&mut self) {
        while self.seen.last() != Some(&(EVENTS - 1)) && self.step().await {}
    }

    fn seen_of(&self, key: &str) -> Vec<u64> {
        self.seen.iter().copied().filter(|n| key_of(*n) == key).collect()
    }
}

/// So many of the first events of a key, and none behind them.
fn are_the_first(seen: &[u64], key: &str, what: &str) {
    let all: Vec<u64> = (0..EVENTS).filter(|n| key_of(*n) == key).collect();
    assert_eq!(seen, &all[..seen.len()], "{what}: {key}");
    assert!(seen.last() < Some(&AHEAD), "{what} was ahead of what went: {key}");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_are_not_overtaken_get_all_that_is_kept() {
    let hub = OnDisk::filled().await;
    let projection =
        json!({"topic": "t", "collection": "c", "key": "event.key", "map": "{'n': event.payload.n}"});
    let mut readers = hub.readers().await;
    let mut pulled = hub.pull(150).await;
    hub.served.put("/v1/projections/p", &projection.to_string()).await.is(201);
    let seen = hub.served.get(&format!("/v1/collections/c/snap/k{}?min_offset={READ}", READ - 1)).await;
    seen.is(200);
    hub.trim(READ).await;
    hub.forget_and_clean().await;
    // What is going on has no part of what was read before.
    let late = hub.served.export("/v1/topics/t/events").await;
    let late: Vec<u64> =
        late.is(200).text.lines().map(|line| json_of(line)["offset"].as_u64().unwrap()).collect();
    let kept: Vec<u64> = (0..EVENTS).filter(|n| is_kept(*n)).collect();
    assert_eq!(late, kept.iter().copied().filter(|n| *n >= READ).collect::<Vec<_>>());
    for reading in &mut readers {
        reading.read_to_end().await;
        let what = reading.what.clone();
        assert!(matches!(reading.end, None | Some(End::Whole)), "{what}: {:?}", reading.end);
        assert!(reading.seen.is_sorted_by(|a, b| a < b), "{what}: {:?}", reading.seen);
        let found: Vec<u64> = reading.seen.iter().copied().filter(|n| is_kept(*n)).collect();
        assert_eq!(found, kept, "{what}");
        are_the_first(&reading.seen_of(SECRET), SECRET, &what);
        let mut hot = reading.seen_of(HOT);
        assert_eq!(hot.pop(), Some(EVENTS - 3), "{what}");
        are_the_first(&hot, HOT, &what);
    }
    let first: Vec<u64> = std::mem::take(&mut pulled);
    assert_eq!(first, (0..150).collect::<Vec<_>>());
    let rest = hub.pull(usize::MAX).await;
    assert_eq!(rest, kept.iter().copied().filter(|n| *n >= 150).collect::<Vec<_>>());
    let status = hub.served.get("/v1/topics/t/groups/g").await.is(200).json();
    assert_eq!((&status["lost"], &status["partitions"][0]["lag"]), (&json!(0), &json!(0)), "{status}");
    hub.served
        .get(&format!("/v1/collections/c/snap/k{}?min_offset={}", EVENTS - 1, EVENTS - 1))
        .await
        .is(200);
    let request = ScanRequest { collection: "c".into(), after: None, limit: usize::MAX };
    let documents = hub.store.scan(request).await.unwrap();
    let mut documents: Vec<u64> =
        documents.iter().map(|document| document.body.to_value().unwrap()["n"].as_u64().unwrap()).collect();
    documents.sort_unstable();
    assert_eq!(documents, kept, "of a projection");
    hub.served.stop().await;
}

fn json_of(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_are_overtaken_are_told_and_get_nothing_else() {
    const FIRST: u64 = EVENTS - 10;
    let hub = OnDisk::filled().await;
    let readers = hub.readers().await;
    assert_eq!(hub.pull(150).await.len(), 150);
    hub.trim(FIRST).await;
    hub.forget_and_clean().await;
    for mut reading in readers {
        reading.read_to_end().await;
        let Reading { what, seen, end, .. } = reading;
        assert!((READ..AHEAD).contains(&(seen.len() as u64)), "{what}: {}", seen.len());
        assert_eq!(seen, (0..seen.len() as u64).collect::<Vec<_>>(), "{what}");
        match end {
            Some(End::BrokenOff) if what.contains("ndjson") => {}
            Some(End::Error(error)) if what.contains("event-stream") => {
                let told = (&error["error"], &error["partition"], &error["first"]);
                assert_eq!(told, (&json!("gone"), &json!(0), &json!(FIRST)), "{what}");
            }
            end => panic!("{what} ends with {end:?}"),
        }
    }
    let kept: Vec<u64> = (FIRST..EVENTS).filter(|n| is_kept(*n)).collect();
    let late: Answer = hub.served.export("/v1/topics/t/events").await;
    let late: Vec<u64> =
        late.is(200).text.lines().map(|line| json_of(line)["offset"].as_u64().unwrap()).collect();
    assert_eq!(late, kept);
    hub.served.get("/v1/topics/t/events?from=offset&offset=200").await.is_error(410, "gone");
    assert_eq!(hub.pull(usize::MAX).await, kept, "of a group");
    let status = hub.served.get("/v1/topics/t/groups/g").await.is(200).json();
    assert_eq!(status["lost"], FIRST - 150, "{status}");
    hub.served.stop().await;
}
