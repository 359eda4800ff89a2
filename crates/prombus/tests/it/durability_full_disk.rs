//! A file system that is really full: publishes are refused, everything else goes on, and nothing is lost.
//!
//! The file system is a small one in memory that the test mounts itself, so it needs root. A limit on the size of files is
//! the same to a hub, and needs none.

use crate::client_support::soon;
use crate::common;
use crate::common::Hub;
use crate::durability_support::{Answered, Http, array, check};
use prombus_client::{Client, ConsumeOptions, Delivery};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, prlimit};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The size of the file system.
const SIZE: &str = "24m";
/// How much of it is taken by something else, which goes away later.
const BALLAST_BYTES: usize = 8 << 20;
/// Events of an array, and bytes of an event: large ones fill the disk soon, small ones fill it up.
const LARGE: (usize, usize) = (20, 4_000);
const SMALL: (usize, usize) = (1, 10);
/// More requests than that do not fit, so one of them must have been refused.
const MAX_REQUESTS: usize = 10_000;
/// The disk is full where a new part of the journal would be made, and in the middle of a part.
const SMALL_PARTS: u64 = 2 << 20;
const ONE_PART: u64 = 128 << 20;

/// A hub that has not made room by then never will.
const RESUMES_WITHIN: Duration = Duration::from_secs(60);

/// A mounted file system, unmounted when it is dropped.
struct SmallDisk {
    folder: tempfile::TempDir,
    part_bytes: u64,
}

impl SmallDisk {
    fn mount(part_bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={SIZE}"), "tmpfs"]).arg(folder.path());
        let said = mount.output().unwrap();
        let why = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "a small file system cannot be mounted, which needs root: {why}");
        Self { folder, part_bytes }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn ballast(&self) -> PathBuf {
        self.folder.path().join("ballast")
    }

    /// Takes the ballast away. A process that another test has just forked may still have it open, so that removing it would
    /// give nothing back yet.
    fn make_room(&self) {
        std::fs::OpenOptions::new().write(true).open(self.ballast()).unwrap().set_len(0).unwrap();
        std::fs::remove_file(self.ballast()).unwrap();
    }

    fn hub(&self) -> Hub {
        let config = format!("[store]\npart_bytes = {}\n[topics.a]\n[topics.victim]\n", self.part_bytes);
        Hub::with_file(&config, &["--data", self.data().to_str().unwrap()])
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A file that is still open must not keep it.
        let _ = Command::new("umount").arg("--lazy").arg(self.folder.path()).status();
    }
}

/// Publishes arrays until one is refused.
fn fill(http: &mut Http, answered: &mut Answered, (events, bytes): (usize, usize)) {
    for number in 0..MAX_REQUESTS {
        let payloads: Vec<String> =
            (0..events).map(|index| format!("{number} {index} {}", "x".repeat(bytes))).collect();
        match http.call("POST", "/v1/topics/a/events", &array(&payloads)).unwrap() {
            (201, answer) => answered.take(&payloads, &answer),
            refused => return assert_disk_full(refused),
        }
    }
    panic!("{MAX_REQUESTS} requests fit onto a disk of {SIZE}");
}

fn assert_disk_full((status, body): (u16, String)) {
    assert_eq!(status, 507, "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["error"], "disk_full");
    assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
}

/// While the disk is full: reads, lookups and health go on, and publishes are refused.
fn assert_only_publishes_are_refused(http: &mut Http, answered: &Answered) {
    let events = http.export("a");
    answered.assert_there(&events);
    assert_eq!(events.len(), answered.len(), "a publish that was refused is there");
    let id = events[0]["id"].as_str().unwrap();
    for path in [&format!("/v1/topics/a/events/{id}"), "/healthz", "/readyz", "/metrics", "/v1/topics"] {
        let (status, body) = http.call("GET", path, "").unwrap();
        assert_eq!(status, 200, "{path}: {body}");
    }
    let refused = http.call("POST", "/v1/topics/a/events", &array(&["x".repeat(LARGE.1)])).unwrap();
    assert_disk_full(refused);
}

/// Frees room, and publishes at once.
fn assert_resumes(disk: &SmallDisk, http: &mut Http, answered: &mut Answered) {
    disk.make_room();
    fill_a_little(http, answered);
}

/// Publishes while there is room.
fn fill_a_little(http: &mut Http, answered: &mut Answered) {
    for number in 0..20 {
        let payloads: Vec<String> = (0..10).map(|index| format!("again {number} {index}")).collect();
        let (status, answer) = http.call("POST", "/v1/topics/a/events", &array(&payloads)).unwrap();
        assert_eq!(status, 201, "there is room again, and it is not used: {answer}");
        answered.take(&payloads, &answer);
    }
    answered.assert_there(&http.export("a"));
}

/// A hub on a disk that it has filled.
fn filled(disk: &SmallDisk) -> (Hub, Http, Answered) {
    std::fs::write(disk.ballast(), vec![0; BALLAST_BYTES]).unwrap();
    let hub = disk.hub();
    let mut http = Http::connect(&hub.url);
    let mut answered = Answered::default();
    fill(&mut http, &mut answered, LARGE);
    fill(&mut http, &mut answered, SMALL);
    assert!(answered.len() > 100, "the disk was full from the start");
    (hub, http, answered)
}

fn assert_sound_and_there(disk: &SmallDisk, answered: &Answered) {
    check(&disk.data()).ok();
    let hub = disk.hub();
    answered.assert_there(&Http::connect(&hub.url).export("a"));
    assert_eq!(hub.stop().code(), Some(0));
}

#[test]
fn publishing_resumes_when_there_is_room_for_a_new_part() {
    refuses_and_resumes(SMALL_PARTS);
}

#[test]
fn publishing_resumes_when_there_is_room_for_more_of_a_part() {
    refuses_and_resumes(ONE_PART);
}

fn refuses_and_resumes(part_bytes: u64) {
    let disk = SmallDisk::mount(part_bytes);
    let (hub, mut http, mut answered) = filled(&disk);
    assert_only_publishes_are_refused(&mut http, &answered);
    let (status, body) = http.call("DELETE", "/v1/topics/victim", "").unwrap();
    assert_eq!(status, 204, "topics can be deleted while the disk is full: {body}");
    assert_eq!(http.call("GET", "/v1/topics/victim", "").unwrap().0, 404);
    assert_only_publishes_are_refused(&mut http, &answered);
    assert_resumes(&disk, &mut http, &mut answered);
    drop(http);
    assert_eq!(hub.stop().code(), Some(0));
    assert_sound_and_there(&disk, &answered);
}

#[test]
fn a_hub_ends_in_peace_on_a_full_disk() {
    for part_bytes in [SMALL_PARTS, ONE_PART] {
        ends_in_peace(part_bytes);
    }
}

fn ends_in_peace(part_bytes: u64) {
    let disk = SmallDisk::mount(part_bytes);
    let (hub, http, answered) = filled(&disk);
    drop(http);
    assert_eq!(hub.stop().code(), Some(0));
    check(&disk.data()).ok();
    let hub = disk.hub();
    assert_only_publishes_are_refused(&mut Http::connect(&hub.url), &answered);
    assert_eq!(hub.stop().code(), Some(0));
}

#[test]
fn a_hub_that_was_killed_starts_on_a_full_disk() {
    for part_bytes in [SMALL_PARTS, ONE_PART] {
        is_killed_and_starts(part_bytes);
    }
}

fn is_killed_and_starts(part_bytes: u64) {
    let disk = SmallDisk::mount(part_bytes);
    let (mut hub, _, mut answered) = filled(&disk);
    hub.signal(Signal::KILL);
    hub.wait();
    let hub = disk.hub();
    let mut http = Http::connect(&hub.url);
    assert_only_publishes_are_refused(&mut http, &answered);
    assert_resumes(&disk, &mut http, &mut answered);
    drop(http);
    assert_eq!(hub.stop().code(), Some(0));
    assert_sound_and_there(&disk, &answered);
}

/// Lets no file of a hub grow beyond so many bytes.
fn limit_files(hub: &Hub, bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    prlimit(Some(hub.pid()), Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum }).unwrap();
}

#[test]
fn a_limit_on_the_size_of_files_is_a_full_disk() {
    // Where a part would grow, and where a new one would be made.
    for (part_bytes, limit) in [(ONE_PART, 12 << 20), (SMALL_PARTS, 1 << 20)] {
        has_a_limit(part_bytes, limit);
    }
}

fn has_a_limit(part_bytes: u64, limit: u64) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let config = format!("[store]\npart_bytes = {part_bytes}\n[topics.a]\n");
    let start = || Hub::with_file(&config, &["--data", data.to_str().unwrap()]);
    let mut hub = start();
    let (mut http, mut answered) = (Http::connect(&hub.url), Answered::default());
    limit_files(&hub, Some(limit));
    fill(&mut http, &mut answered, LARGE);
    fill(&mut http, &mut answered, SMALL);
    assert_only_publishes_are_refused(&mut http, &answered);
    hub.signal(Signal::KILL);
    hub.wait();

    let hub = start();
    let mut http = Http::connect(&hub.url);
    answered.assert_there(&http.export("a"));
    limit_files(&hub, Some(limit));
    fill(&mut http, &mut answered, LARGE);
    assert_only_publishes_are_refused(&mut http, &answered);
    limit_files(&hub, None);
    fill_a_little(&mut http, &mut answered);
    drop(http);
    assert_eq!(hub.stop().code(), Some(0));
    check(&data).ok();
}

/// Of each file of the journal something is kept, so it has to be rewritten, for which the disk has no room.
#[test]
fn cleaning_makes_room_where_others_have_taken_the_last_byte() {
    const EVENTS: usize = 2_500;
    let disk = SmallDisk::mount(SMALL_PARTS);
    let hub = disk.hub();
    let mut http = Http::connect(&hub.url);
    for number in 0..EVENTS {
        let topic = if number % 10 == 0 { "victim" } else { "a" };
        let event = array(&[format!("{number} {}", "x".repeat(LARGE.1))]);
        let (status, body) = http.call("POST", &format!("/v1/topics/{topic}/events"), &event).unwrap();
        assert_eq!(status, 201, "{body}");
    }
    fill_completely(&disk.ballast());
    fill(&mut http, &mut Answered::default(), LARGE);
    let trim = json!({"partition": 0, "before": EVENTS / 10 * 9}).to_string();
    let (status, body) = http.call("POST", "/v1/topics/a/trim", &trim).unwrap();
    assert_eq!(status, 200, "{body}");
    let event = array(&["x".repeat(1 << 19)]);
    let start = Instant::now();
    loop {
        match http.call("POST", "/v1/topics/a/events", &event).unwrap() {
            (201, _) => break,
            refused => assert_disk_full(refused),
        }
        assert!(start.elapsed() < RESUMES_WITHIN, "nothing that was removed has made room");
    }
    assert_eq!(http.export("victim").len(), EVENTS / 10);
    drop(http);
    assert_eq!(hub.stop().code(), Some(0));
    check(&disk.data()).ok();
}

#[test]
fn a_folder_is_not_made_half_on_a_full_disk() {
    let disk = SmallDisk::mount(ONE_PART);
    fill_completely(&disk.ballast());
    let config = tempfile::tempdir().unwrap();
    start_or_refuse(config.path(), &disk.data());
    disk.make_room();
    let hub = disk.hub();
    let (status, body) =
        Http::connect(&hub.url).call("POST", "/v1/topics/a/events", &array(&["x".into()])).unwrap();
    assert_eq!(status, 201, "{body}");
    assert_eq!(hub.stop().code(), Some(0));
    check(&disk.data()).ok();
}

#[test]
fn a_folder_that_can_only_be_read_can_be_checked() {
    let disk = SmallDisk::mount(ONE_PART);
    let hub = disk.hub();
    let published = Http::connect(&hub.url).call("POST", "/v1/topics/a/events", &array(&["x".into()]));
    assert_eq!(published.unwrap().0, 201);
    assert_eq!(hub.stop().code(), Some(0));
    // It cannot be made again.
    std::fs::remove_file(disk.data().join("LOCK")).unwrap();
    let mount = Command::new("mount").args(["-o", "remount,ro"]).arg(disk.folder.path()).status();
    assert!(mount.unwrap().success());
    check(&disk.data()).ok();
    let config = tempfile::tempdir().unwrap();
    let mut serve = common::binary(config.path());
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(disk.data());
    let stderr = common::run(serve, b"").fails_with(1);
    assert!(stderr.contains("Read-only file system"), "{stderr}");
}

/// Takes everything, down to the last byte.
fn fill_completely(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    std::io::copy(&mut std::io::repeat(0), &mut file).unwrap_err();
}

/// A hub on a disk without any room may refuse to start, but not in any other way than by saying so.
fn start_or_refuse(folder: &Path, data: &Path) {
    let mut command = common::binary(folder);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    let stderr = common::run(command, b"").fails_with(1);
    assert!(stderr.contains("No space left"), "{stderr}");
}

/// How many events the groups have.
const JOBS: u64 = 10;

/// A group of the topic `jobs`, by hand.
struct Jobs<'a> {
    http: &'a mut Http,
    group: &'static str,
}

impl Jobs<'_> {
    fn call(&mut self, method: &str, rest: &str, body: &Value) -> (u16, String) {
        let path = format!("/v1/topics/jobs/groups/{}{rest}", self.group);
        self.http.call(method, &path, &body.to_string()).unwrap()
    }

    fn make(&mut self, max_attempts: u64) {
        let (status, body) = self.call("PUT", "", &json!({"from": "earliest", "maxAttempts": max_attempts}));
        assert_eq!(status, 201, "{body}");
    }

    /// What a pull delivers: offsets and leases.
    fn pull(&mut self, max: u64, wait_ms: u64) -> Vec<(u64, Value)> {
        let (status, body) = self.call("POST", "/pull", &json!({"max": max, "waitMs": wait_ms}));
        assert_eq!(status, 200, "{body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        let delivery = |one: &Value| (one["event"]["offset"].as_u64().unwrap(), one["ctx"]["lease"].clone());
        body["deliveries"].as_array().unwrap().iter().map(delivery).collect()
    }

    /// Settles, and every lease is accepted.
    fn settle(&mut self, body: &Value) {
        let (status, answer) = self.call("POST", "/ack", body);
        assert_eq!(status, 200, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let results = answer["results"].as_array().unwrap();
        assert!(!results.is_empty() && results.iter().all(|one| one["ok"] == true), "{answer}");
    }

    fn ack(&mut self, deliveries: &[(u64, Value)]) {
        let leases: Vec<&Value> = deliveries.iter().map(|(_, lease)| lease).collect();
        self.settle(&json!({ "ack": leases }));
    }

    fn nack(&mut self, (_, lease): &(u64, Value)) {
        self.settle(&json!({"nack": [{"lease": lease, "reason": "it never works"}]}));
    }

    /// The offsets that ended as dead letters of the group.
    fn dead(&mut self) -> Vec<u64> {
        let path = format!("/v1/dlq/jobs?group={}", self.group);
        let (status, body) = self.http.call("GET", &path, "").unwrap();
        if status == 404 {
            return Vec::new();
        }
        assert_eq!(status, 200, "{body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        let offset = |letter: &Value| letter["payload"]["original"]["offset"].as_u64().unwrap();
        body["events"].as_array().unwrap().iter().map(offset).collect()
    }
}

fn offsets(deliveries: &[(u64, Value)]) -> Vec<u64> {
    deliveries.iter().map(|(offset, _)| *offset).collect()
}

#[test]
fn groups_go_on_while_no_new_part_can_be_made() {
    for end in [Signal::TERM, Signal::KILL] {
        groups_go_on(SMALL_PARTS, end);
    }
}

#[test]
fn groups_go_on_while_a_part_cannot_grow() {
    for end in [Signal::TERM, Signal::KILL] {
        groups_go_on(ONE_PART, end);
    }
}

fn groups_go_on(part_bytes: u64, end: Signal) {
    let disk = SmallDisk::mount(part_bytes);
    let mut hub = disk.hub();
    let mut http = Http::connect(&hub.url);
    let payloads: Vec<String> = (0..JOBS).map(|number| format!("job {number}")).collect();
    assert_eq!(http.call("POST", "/v1/topics/jobs/events", &array(&payloads)).unwrap().0, 201);
    for (group, max_attempts) in [("worker", 5), ("strict", 1), ("doomed", 5)] {
        Jobs { http: &mut http, group }.make(max_attempts);
    }
    std::fs::write(disk.ballast(), vec![0; BALLAST_BYTES]).unwrap();
    let mut answered = Answered::default();
    fill(&mut http, &mut answered, LARGE);
    fill(&mut http, &mut answered, SMALL);

    assert_groups_work_on_a_full_disk(&mut http);
    assert_only_publishes_are_refused(&mut http, &answered);
    drop(http);
    hub.signal(end);
    hub.wait();

    let hub = disk.hub();
    let mut http = Http::connect(&hub.url);
    assert_only_publishes_are_refused(&mut http, &answered);
    assert_acks_are_kept(&mut http);
    disk.make_room();
    assert_dies_once(&mut http);
    drop(http);
    assert_eq!(hub.stop().code(), Some(0));
    assert_sound_and_there(&disk, &answered);
}

/// Pulls, acks, a nack that is the last, and a group that is forgotten.
fn assert_groups_work_on_a_full_disk(http: &mut Http) {
    let mut worker = Jobs { http, group: "worker" };
    let all = worker.pull(JOBS, 0);
    assert_eq!(offsets(&all), (0..JOBS).collect::<Vec<_>>());
    for one in &all[..3] {
        worker.ack(std::slice::from_ref(one));
    }
    worker.ack(&all[3..6]);

    let mut strict = Jobs { http, group: "strict" };
    let first = strict.pull(1, 0);
    assert_eq!(offsets(&first), [0]);
    for _ in 0..2 {
        // The lease stays what it is, so it can be said again.
        let nack = json!({"nack": [{"lease": first[0].1, "reason": "it never works"}]});
        assert_disk_full(strict.call("POST", "/ack", &nack));
    }
    assert_eq!(strict.dead(), [0; 0], "there is no room for a dead letter");
    let second = strict.pull(1, 0);
    assert_eq!(offsets(&second), [1], "the others do not wait for the dead letter");
    let both = json!({"ack": [second[0].1], "nack": [{"lease": first[0].1, "reason": "it never works"}]});
    let (status, body) = strict.call("POST", "/ack", &both);
    assert_eq!(status, 200, "one of them fits: {body}");
    let results: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(results["results"][0], json!({"lease": second[0].1, "ok": true}));
    let refused = &results["results"][1];
    assert_eq!((&refused["lease"], &refused["ok"]), (&first[0].1, &json!(false)));
    assert_eq!(refused["error"], "disk_full");

    let mut doomed = Jobs { http, group: "doomed" };
    let (status, body) = doomed.call("DELETE", "", &Value::Null);
    assert_eq!(status, 204, "{body}");
    let (status, body) = doomed.call("GET", "", &Value::Null);
    assert_eq!(status, 404, "{body}");
}

/// What was acked before the restart does not come again, and everything else does.
fn assert_acks_are_kept(http: &mut Http) {
    let mut worker = Jobs { http, group: "worker" };
    let left = worker.pull(2 * JOBS, 0);
    assert_eq!(offsets(&left), (6..JOBS).collect::<Vec<_>>());
    worker.ack(&left);
    assert_eq!(worker.pull(1, 0), []);
    assert_eq!(Jobs { http, group: "doomed" }.call("GET", "", &Value::Null).0, 404);
}

/// The event of the last nack comes again or becomes a dead letter, and ends as one; the others come once.
fn assert_dies_once(http: &mut Http) {
    let mut strict = Jobs { http, group: "strict" };
    let mut others = Vec::new();
    let start = Instant::now();
    while strict.dead().is_empty() || others.len() < JOBS as usize - 2 {
        assert!(start.elapsed() < common::PATIENCE, "{:?} are dead, {others:?} came", strict.dead());
        for one in strict.pull(JOBS, 100) {
            if one.0 == 0 {
                strict.nack(&one);
            } else {
                strict.ack(std::slice::from_ref(&one));
                others.push(one.0);
            }
        }
    }
    assert_eq!(others, (2..JOBS).collect::<Vec<_>>());
    assert_eq!(strict.dead(), [0]);
}

/// The events that the handler is called for.
const ONCE_EACH: [u64; 2] = [0, 1];

#[tokio::test(flavor = "multi_thread")]
async fn what_a_handler_said_is_said_again_until_there_is_room() {
    let disk = SmallDisk::mount(ONE_PART);
    let hub = disk.hub();
    let mut http = Http::connect(&hub.url);
    let payloads = ["job 0".to_owned(), "job 1".to_owned()];
    assert_eq!(http.call("POST", "/v1/topics/jobs/events", &array(&payloads)).unwrap().0, 201);
    let mut strict = Jobs { http: &mut http, group: "strict" };
    strict.make(1);
    std::fs::write(disk.ballast(), vec![0; BALLAST_BYTES]).unwrap();
    let mut answered = Answered::default();
    fill(strict.http, &mut answered, LARGE);
    fill(strict.http, &mut answered, SMALL);

    let handled = Arc::new(Mutex::new(Vec::new()));
    let calls = handled.clone();
    // The last nack of the first event needs room for a dead letter, the ack of the second does not.
    let handler = move |delivery: Delivery| {
        let offset = delivery.event.offset;
        calls.lock().unwrap().push(offset);
        async move { if offset == 0 { Err("it never works") } else { Ok(()) } }
    };
    let client = Client::new(&hub.url, None).unwrap();
    let live = client.connect().await.unwrap();
    let consumer = live.consume("jobs", "strict", ConsumeOptions::default(), handler).await.unwrap();
    soon("the second is acked, after the first was nacked", async {
        while client.group("jobs", "strict").await.unwrap().unwrap().partitions[0].lag > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(strict.dead(), [0; 0], "there is no room for a dead letter");
    disk.make_room();
    let letters = soon("the first is a dead letter", async {
        loop {
            match client.dead_letters("jobs", &Default::default(), 10).await {
                Ok(letters) if !letters.events.is_empty() => return letters.events,
                _ => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    assert!(letters[0].payload.get().contains("it never works"), "{}", letters[0].payload);
    consumer.stop().await.unwrap();
    assert_eq!(*handled.lock().unwrap(), ONCE_EACH);
    live.close().await;
    drop(http);
    assert_eq!(hub.stop().code(), Some(0));
}
