//! kill -9 of either side in the middle of a backup, under load: what is in the folder opens, with all that was answered
//! before the last finished backup began.

use crate::auth_support::until;
use crate::common::{Hub, PATIENCE};
use crate::durability_support::{Answered, Http, array, check};
use rustix::process::Signal;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Small, so that parts are rolled, sealed, dropped and rewritten all the time, and rows are put into tables.
const CONFIG: &str = "\
[store]
part_bytes = 65536
clean_every_ms = 20
[topics.a]
[topics.b]
retention_bytes = 100000
[[projection]]
name = \"counts\"
topic = \"a\"
[[projection.write]]
collection = \"counts\"
key = \"string(event.offset % 50)\"
inc = { seen = \"1\" }
";
/// How often a backup is interrupted.
const INTERRUPTED: u64 = 8;
/// How often that is tried, at most: some are done before.
const MAX_ROUNDS: u64 = 200;

fn hub_on(data: &Path) -> Hub {
    Hub::with_file(CONFIG, &["--data", data.to_str().unwrap()])
}

/// Publishes until it is told to stop or the hub is gone; what was answered in `a`.
fn load(hub: &Hub, name: String, stop: &Arc<AtomicBool>) -> JoinHandle<Answered> {
    let (mut http, stop) = (Http::connect(&hub.url), stop.clone());
    thread::spawn(move || {
        let mut answered = Answered::default();
        for number in 0.. {
            let payloads: Vec<String> = (0..number % 5 + 1)
                .map(|index| format!("{name} {number} {index} {}", "x".repeat(200)))
                .collect();
            for topic in ["a", "b"] {
                let path = format!("/v1/topics/{topic}/events");
                match http.call("POST", &path, &array(&payloads)) {
                    Ok((201, answer)) if topic == "a" => answered.take(&payloads, &answer),
                    Ok((201, _)) => {}
                    _ => return answered,
                }
            }
            if stop.load(Ordering::Relaxed) {
                return answered;
            }
        }
        answered
    })
}

fn backup(hub: &Hub, dir: &Path) -> Child {
    let mut command = hub.command(&["backup", dir.to_str().unwrap()]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// A copy of the folder, as whoever restores it makes one.
fn opened(dir: &Path) -> (Hub, tempfile::TempDir) {
    check(dir).ok();
    let copy = tempfile::tempdir().unwrap();
    let mut cp = std::process::Command::new("cp");
    assert!(cp.arg("-r").arg(dir).arg(copy.path().join("data")).status().unwrap().success());
    (hub_on(&copy.path().join("data")), copy)
}

/// What is in the backup is what the hub had at one moment.
fn is_whole(dir: &Path, answered: &Answered) {
    let (hub, copy) = opened(dir);
    let mut http = Http::connect(&hub.url);
    let events = http.export("a");
    answered.assert_there(&events);
    // Documents and the cursor that they go by are of one moment: each event counts once, in the end.
    until("every event is counted once", || {
        let listed = hub.api().get("/v1/collections/counts/list?limit=100").is(200);
        let documents = listed["items"].as_array().unwrap();
        let seen: u64 = documents.iter().map(|document| document["seen"].as_u64().unwrap()).sum();
        assert!(seen <= events.len() as u64, "{seen} of {} events", events.len());
        seen == events.len() as u64
    });
    assert_eq!(hub.stop().code(), Some(0));
    check(&copy.path().join("data")).ok();
}

/// Who is killed.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Hub,
    Command,
}

fn killed_over_and_over(victim: Victim) {
    let folder = tempfile::tempdir().unwrap();
    let (data, dir) = (folder.path().join("data"), folder.path().join("backup"));
    let mut all = Answered::default();
    let mut hub = hub_on(&data);
    let stop = Arc::new(AtomicBool::new(false));
    all.merge({
        let load = load(&hub, "first".to_owned(), &stop);
        let started = Instant::now();
        while !data.join("journal/0000000004.part").exists() {
            assert!(started.elapsed() < PATIENCE, "the load is no load");
            thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap()
    });
    assert!(backup(&hub, &dir).wait().unwrap().success());
    is_whole(&dir, &all);
    // What was answered before the last finished backup began.
    let mut covered = all.clone();
    let mut interrupted = 0;
    for round in 0.. {
        if interrupted == INTERRUPTED {
            break;
        }
        assert!(round < MAX_ROUNDS, "only {interrupted} backups were interrupted");
        let stop = Arc::new(AtomicBool::new(false));
        let load = load(&hub, format!("{round}"), &stop);
        let mut command = backup(&hub, &dir);
        // As many steps on as the round says: what comes in shows in the folder.
        let steps = round % 5;
        let came = || ["", "journal", "state"].iter().map(|name| count(&dir.join(name))).sum::<u64>();
        let before = came();
        while came() < before + steps && command.try_wait().unwrap().is_none() {
            thread::yield_now();
        }
        match victim {
            Victim::Hub => hub.signal(Signal::KILL),
            Victim::Command => command.kill().unwrap(),
        }
        if command.wait().unwrap().success() {
            covered = all.clone();
        } else {
            interrupted += 1;
        }
        stop.store(true, Ordering::Relaxed);
        let answered = load.join().unwrap();
        is_whole(&dir, &covered);
        all.merge(answered);
        if matches!(victim, Victim::Hub) {
            hub.wait();
            hub.start_again();
        }
    }
    assert!(backup(&hub, &dir).wait().unwrap().success());
    is_whole(&dir, &all);
    assert_eq!(hub.stop().code(), Some(0));
}

/// How many files of an unfinished backup there are.
fn count(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap();
    let is_new = |name: &str| name.contains(".g") || name.ends_with(".tmp");
    entries.filter(|entry| is_new(&entry.as_ref().unwrap().file_name().to_string_lossy())).count() as u64
}

#[test]
fn a_command_that_is_killed_leaves_a_backup() {
    killed_over_and_over(Victim::Command);
}

#[test]
fn a_hub_that_is_killed_leaves_a_backup() {
    killed_over_and_over(Victim::Hub);
}
