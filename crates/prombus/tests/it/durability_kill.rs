//! What was answered is there after kill -9 and after SIGTERM in the middle of load.

use crate::common::{Hub, binary, run};
use crate::durability_support::{Answered, Http, array, check};
use rustix::process::Signal;
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// How many connections publish at once.
const CONNECTIONS: usize = 4;
/// Small, so that parts are rolled, sealed and checkpointed all the time.
const CONFIG: &str = "[store]\npart_bytes = 65536\n[topics.a]\n[topics.b]\ndurability = \"interval\"\n";
/// The time that a hub has to end after SIGTERM.
const END_WITHIN: Duration = Duration::from_secs(10);

fn hub_on(data: &Path) -> Hub {
    Hub::with_file(CONFIG, &["--data", data.to_str().unwrap()])
}

/// Publishes arrays to both topics until the hub is gone; says what was answered, and tells of each answer.
fn publish_until_gone(mut http: Http, name: &str, told: &Sender<()>) -> [Answered; 2] {
    let mut answered = [Answered::default(), Answered::default()];
    for number in 0.. {
        let topic = number % 2;
        let count = number % 7 + 1;
        let payloads: Vec<String> = (0..count).map(|index| format!("{name} {number} {index} 1.10")).collect();
        let path = ["/v1/topics/a/events", "/v1/topics/b/events"][topic];
        match http.call("POST", path, &array(&payloads)) {
            Ok((201, answer)) => answered[topic].take(&payloads, &answer),
            // A hub that was asked to end may say so.
            Ok((503, _)) | Err(_) => return answered,
            Ok(other) => panic!("{other:?}"),
        }
        // Whoever counts may have enough.
        let _ = told.send(());
    }
    unreachable!("numbers do not end")
}

/// Lets connections publish, and ends the hub once so many requests were answered.
fn load_and_end(mut hub: Hub, round: usize, (answers, signal): (usize, Signal)) -> [Answered; 2] {
    let (told, heard) = mpsc::channel();
    let load: Vec<_> = (0..CONNECTIONS)
        .map(|connection| {
            let (http, told) = (Http::connect(&hub.url), told.clone());
            thread::spawn(move || publish_until_gone(http, &format!("{round} {connection}"), &told))
        })
        .collect();
    drop(told);
    assert_eq!(heard.iter().take(answers).count(), answers, "the load ended before the hub did");
    hub.signal(signal);
    let asked = Instant::now();
    let code = hub.wait().code();
    if signal == Signal::TERM {
        assert_eq!(code, Some(0));
        assert!(asked.elapsed() < END_WITHIN, "it took {:?}", asked.elapsed());
    }
    let mut all = [Answered::default(), Answered::default()];
    for connection in load {
        let [a, b] = connection.join().unwrap();
        all[0].merge(a);
        all[1].merge(b);
    }
    all
}

/// An unanswered array is there as a whole or not at all: payloads say how long theirs is.
fn assert_no_half_arrays(events: &[serde_json::Value]) {
    let mut last_of = std::collections::HashMap::new();
    for event in events {
        let payload = event["payload"].as_str().unwrap();
        let words: Vec<&str> = payload.split(' ').collect();
        let [round, connection, number, index, _] = words[..] else { panic!("{payload}") };
        let array: usize = number.parse().unwrap();
        let index: usize = index.parse().unwrap();
        let expected = last_of.entry((round, connection, array)).or_insert(0);
        assert_eq!(index, *expected, "{payload}");
        *expected += 1;
    }
    for ((.., number), count) in last_of {
        assert_eq!(count, number % 7 + 1, "half of an array is there");
    }
}

#[test]
fn answered_events_survive_kill_9_and_sigterm_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut all = [Answered::default(), Answered::default()];
    let ends =
        [(1, Signal::KILL), (40, Signal::KILL), (60, Signal::TERM), (200, Signal::KILL), (90, Signal::KILL)];
    for (round, end) in ends.into_iter().enumerate() {
        let [a, b] = load_and_end(hub_on(&data), round, end);
        all[0].merge(a);
        all[1].merge(b);
        let hub = hub_on(&data);
        for (topic, answered) in ["a", "b"].iter().zip(&all) {
            let events = Http::connect(&hub.url).export(topic);
            answered.assert_there(&events);
            assert_no_half_arrays(&events);
        }
        assert_eq!(hub.stop().code(), Some(0));
        check(&data).ok();
    }
    assert!(all.iter().all(|answered| answered.len() > 100), "the load was no load");
}

#[test]
fn a_second_hub_does_not_disturb_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let hub = hub_on(folder.path());
    let mut http = Http::connect(&hub.url);
    let mut answered = Answered::default();
    for number in 0..3 {
        let mut second = binary(folder.path());
        second.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path());
        let stderr = run(second, b"").fails_with(1);
        assert!(stderr.contains("in use by another hub"), "{stderr}");
        let payloads = [format!("0 0 {number} 0 1.10")];
        let (status, answer) = http.call("POST", "/v1/topics/a/events", &array(&payloads)).unwrap();
        assert_eq!(status, 201, "{answer}");
        answered.take(&payloads, &answer);
    }
    answered.assert_there(&http.export("a"));
    assert_eq!(hub.stop().code(), Some(0));
    check(folder.path()).ok();
}

#[test]
fn a_folder_of_a_newer_build_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let format = folder.path().join("FORMAT");
    assert_eq!(hub_on(folder.path()).stop().code(), Some(0));
    let ours = std::fs::read_to_string(&format).unwrap();
    let (text, _) = ours.trim_end().rsplit_once(' ').unwrap();
    let newer = format!("{text} 999\n");
    std::fs::write(&format, &newer).unwrap();
    let mut command = binary(folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path());
    let stderr = run(command, b"").fails_with(1);
    assert!(stderr.contains("999") && stderr.contains("newer"), "{stderr}");
    assert_eq!(std::fs::read_to_string(&format).unwrap(), newer);
    std::fs::write(&format, ours).unwrap();
    assert_eq!(hub_on(folder.path()).stop().code(), Some(0));
    check(folder.path()).ok();
}
