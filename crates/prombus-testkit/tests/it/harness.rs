//! The harness from end to end: a heartbeat goes in, the state and the snapshot with its ETag come out.

use prombus_client::{GetOptions, Lookup, NewEvent};
use prombus_core::Sequence;
use prombus_core::Watched;
use prombus_process::{Projector, ProjectorOptions, STATES, Status, process_at, set_up};
use prombus_testkit::{Given, Harness};
use serde_json::{Value, json};
use std::time::Duration;

const KEY: &str = "web1:stt:4242";

/// A projector that does not wait long for beats.
fn impatient() -> ProjectorOptions {
    ProjectorOptions { stale_after: Duration::from_millis(50), look_every: Duration::from_millis(10) }
}

async fn beat(harness: &Harness) {
    let beat = json!({"host": "web1", "name": "stt", "pid": 4242, "cpu_pct": 3.5, "mem_mb": 64});
    let event = NewEvent::of(&beat).unwrap().with_key(KEY);
    harness.client.publish("heartbeat.received", &event).await.unwrap();
}

/// The process, once it has this status.
async fn until_status(harness: &Harness, status: &str) -> Value {
    let mut seen = Sequence(0);
    loop {
        let found = harness.client.get("processes", KEY).await.unwrap();
        if let Some(process) = found.map(|process| process.parse::<Value>().unwrap())
            && process["status"] == status
        {
            return process;
        }
        seen = harness.hub.changed(&Watched::Everything, seen).await;
    }
}

#[tokio::test]
async fn a_heartbeat_becomes_state_and_a_snapshot_with_its_etag() {
    let harness = Harness::start().await.unwrap();
    beat(&harness).await;
    let process = harness.document("processes", KEY).await.unwrap();
    assert_eq!((&process["status"], &process["_key"]), (&json!("alive"), &json!(KEY)));
    let Lookup::Found(found) =
        harness.client.get_with("processes", KEY, &GetOptions::default()).await.unwrap()
    else {
        panic!("the process is there");
    };
    let unless = GetOptions::default().unless(found.etag);
    let again = harness.client.get_with("processes", KEY, &unless).await.unwrap();
    assert!(matches!(again, Lookup::Unchanged), "{again:?}");
    let stats = harness.document("host_stats", "web1").await.unwrap();
    assert_eq!(stats["seen"], 1, "the state was told once: {stats}");
    assert_eq!(harness.document("proc_live", KEY).await.unwrap()["cpu_pct"], 3.5);
    harness.stop().await;
}

#[tokio::test]
async fn a_silent_process_is_stale_and_a_beat_revives_it() {
    let harness = Harness::start_with(impatient()).await.unwrap();
    beat(&harness).await;
    let stale = until_status(&harness, "stale").await;
    assert_eq!(stale["cpu_pct"], 3.5, "what was known of it stays");
    beat(&harness).await;
    until_status(&harness, "alive").await;
    harness.stop().await;
}

#[tokio::test]
async fn a_projector_that_starts_again_has_forgotten_nothing() {
    let harness = Harness::start_bare().await.unwrap();
    set_up(&harness.client).await.unwrap();
    let patient = Projector::new(harness.client.clone(), ProjectorOptions::default());
    let first = tokio::spawn(async move { patient.run(std::future::pending()).await });
    beat(&harness).await;
    until_status(&harness, "alive").await;
    first.abort();
    let second = Projector::new(harness.client.clone(), impatient());
    let second = tokio::spawn(async move { second.run(std::future::pending()).await });
    until_status(&harness, "stale").await;
    second.abort();
    harness.stop().await;
}

#[tokio::test]
async fn a_process_is_known_as_it_was() {
    let harness = Harness::start_bare().await.unwrap();
    // Yesterday at 14:03, and around it.
    let then = 1_754_661_780_000;
    for (ts, status) in [(then - 60_000, "alive"), (then + 1, "stale"), (then + 60_000, "alive")] {
        let state = json!({"processId": KEY, "host": "web1", "name": "stt", "pid": 4242, "status": status,
            "last_seen_ts": ts});
        let event = NewEvent { ts: Some(ts), ..NewEvent::of(&state).unwrap().with_key(KEY) };
        harness.client.publish(STATES, &event).await.unwrap();
    }
    let status = async |at| {
        let process = process_at(&harness.client, KEY, at).await.unwrap();
        process.map(|process| (process.status, process.last_seen_ts))
    };
    assert_eq!(status(then).await, Some((Status::Alive, then - 60_000)));
    assert_eq!(status(then + 1).await, Some((Status::Stale, then + 1)));
    assert_eq!(status(u64::MAX).await, Some((Status::Alive, then + 60_000)));
    assert_eq!(status(then - 60_001).await, None);
    assert!(process_at(&harness.client, "web2:stt:1", then).await.unwrap().is_none());
    harness.stop().await;
}

#[test]
fn the_projections_of_the_example_do_what_they_say() {
    let [(_, processes), (_, live)] = prombus_process::projections();
    let state = |cpu: f64| json!({"processId": KEY, "host": "web1", "cpu_pct": cpu, "other": 1});
    Given::projection(processes)
        .event(KEY, state(1.0))
        .event(KEY, state(2.0))
        .then("processes", KEY, json!({"processId": KEY, "host": "web1", "cpu_pct": 2.0}))
        .event(KEY, json!({"processId": KEY, "gone": true}))
        .then_none("processes", KEY)
        .when_fails(KEY, json!({"no": "id"}));
    Given::projection(live)
        .event(KEY, state(1.0))
        .event(KEY, state(2.0))
        .then("proc_live", KEY, state(2.0))
        .then("host_stats", "web1", json!({"seen": 2, "last_ts": 1}));
}

#[tokio::test]
async fn a_document_that_does_not_come_is_an_error_that_says_what_is_there() {
    let harness = Harness::start().await.unwrap();
    beat(&harness).await;
    harness.document("processes", KEY).await.unwrap();
    let (other, nowhere) =
        tokio::join!(harness.document("processes", "web1"), harness.document("proceses", KEY));
    let error = other.unwrap_err().to_string();
    assert!(error.contains(KEY) && error.contains("0 events behind"), "{error}");
    let error = nowhere.unwrap_err().to_string();
    assert!(error.contains("no such collection") && error.contains("processes"), "{error}");
    harness.stop().await;
}

prombus_engine::projection! {
    /// Keeps the longest pause between two beats.
    struct LongestPause;
    async fn apply(event, tx) {
        let beat: Value = event.payload.parse()?;
        let Some(at) = beat["at"].as_u64() else { return Err("a beat without a time".into()) };
        let key = event.key.as_deref().unwrap_or_default();
        let before: Value = tx.get("pauses", key).await?.unwrap_or_default();
        let pause = before["last"].as_u64().map_or(0, |last| at.saturating_sub(last));
        let longest = pause.max(before["longest"].as_u64().unwrap_or(0));
        tx.put("pauses", key, &json!({"last": at, "longest": longest})).await?;
        if pause > 100 { tx.delete("pauses", key).await } else { Ok(()) }
    }
}

#[test]
fn a_projection_in_rust_is_tried_without_a_hub() {
    Given::code("beats", &["pauses"], LongestPause)
        .event("web1", json!({"at": 10}))
        .event("web1", json!({"at": 40}))
        .event("web1", json!({"at": 50}))
        .event("web2", json!({"at": 7}))
        .then("pauses", "web1", json!({"last": 50, "longest": 30}))
        .then("pauses", "web2", json!({"last": 7, "longest": 0}))
        .when_fails("web1", json!({"no": "time"}))
        .then("pauses", "web1", json!({"last": 50, "longest": 30}))
        .event("web1", json!({"at": 500}))
        .then_none("pauses", "web1");
}

#[test]
#[should_panic(expected = "does not write a collection \"proceses\"; it writes processes")]
fn nothing_is_expected_of_a_collection_that_a_projection_does_not_write() {
    let [(_, processes), _] = prombus_process::projections();
    Given::projection(processes).then_none("proceses", KEY);
}

#[test]
#[should_panic(expected = "counts has no document \"web2\"; it has web0, web1")]
fn a_key_that_is_not_there_is_told_those_that_are() {
    let write = json!([{"collection": "counts", "key": "event.key", "inc": {"seen": "1"}}]);
    Given::projection(json!({"topic": "beats", "write": write}))
        .event("web1", json!({}))
        .event("web0", json!({}))
        .then("counts", "web2", json!({"seen": 1}));
}

#[test]
#[should_panic(expected = "does not write a collection \"pause\"; it writes others, pauses")]
fn nothing_is_expected_of_a_collection_that_a_projection_in_rust_does_not_write() {
    Given::code("beats", &["pauses", "others"], LongestPause).then_none("pause", "web1");
}

#[test]
#[should_panic(expected = "does not belong to this projection")]
fn a_projection_in_rust_writes_only_its_own_collections() {
    drop(Given::code("beats", &["others"], LongestPause).event("web1", json!({"at": 10})));
}
