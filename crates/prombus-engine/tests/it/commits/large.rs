//! Commits over large documents do not crowd out others.

use crate::commits::consumer::*;
use crate::projections::stage::*;
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, poll};
use prombus_core::{Commit, CommitError, DocumentWrite, Json, WriteOp};
use prombus_engine::commits::{CommitAnswer, CommitRefused, CommitRequest};
use prombus_engine::{BusError, Hub};
use serde_json::{Value, json};
use std::pin::pin;

/// How many large documents there are: together more than may be under way.
const DOCUMENTS: usize = 6;
const LARGE: usize = 3 << 20;

async fn make_large(s: &Stage) {
    let text = "x".repeat(LARGE);
    for n in 0..DOCUMENTS {
        let writes = vec![set("docs", &n.to_string(), json!({"n": 0, "text": text}))];
        s.hub.commit(CommitRequest { writes, ..CommitRequest::default() }).await.expect("a large document");
    }
}

/// A small request that changes all large documents.
fn change_all() -> CommitRequest {
    let inc = |n: usize| {
        DocumentWrite::new("docs", n.to_string(), WriteOp::Inc(Json::from_value(&json!({"n": 1}))))
    };
    CommitRequest { writes: (0..DOCUMENTS).map(inc).collect(), ..CommitRequest::default() }
}

async fn commit(hub: Hub) -> Result<CommitAnswer, CommitRefused> {
    hub.commit(change_all()).await
}

fn changes_all(commit: &Commit) -> bool {
    commit.documents.len() == DOCUMENTS
}

async fn count(s: &Stage) -> Value {
    let document =
        s.hub.collections().document("docs", "0").await.expect("it can be read").expect("it is there");
    document.body.to_value().expect("JSON")["n"].clone()
}

pub async fn one_commit_over_large_documents_is_in_the_log_at_a_time(s: Stage) {
    make_large(&s).await;
    s.log.hold(changes_all);
    let first = tokio::spawn(commit(s.hub.clone()));
    s.log.until_held(1).await;
    let mut second = pin!(s.hub.commit(change_all()));
    assert!(poll!(&mut second).is_pending());
    assert_eq!(s.log.held(), 1, "it has no place in the order yet");
    // Whatever is not as large passes.
    let t = s.topic("t", 1).await;
    publish(&s, &t, "a", 0..3).await;
    let small = CommitRequest { writes: vec![set("docs", "small", json!({}))], ..CommitRequest::default() };
    s.hub.commit(small).await.expect("a small commit");
    s.log.release();
    first.await.expect("no panic").expect("the first one");
    second.await.expect("the second one");
    assert_eq!(count(&s).await, json!(2));
}

pub async fn who_goes_away_leaves_no_room_before_its_commit_is_decided(s: Stage) {
    make_large(&s).await;
    s.log.hold(changes_all);
    let first = tokio::spawn(commit(s.hub.clone()));
    s.log.until_held(1).await;
    first.abort();
    assert!(first.await.is_err(), "it is over for the caller");
    let mut second = pin!(s.hub.commit(change_all()));
    assert!(poll!(&mut second).is_pending());
    assert_eq!(s.log.held(), 1, "the first one is still under way");
    s.log.release();
    second.await.expect("the second one");
    assert_eq!(count(&s).await, json!(2), "the first one has happened");
}

pub async fn what_waits_for_room_is_refused_when_the_hub_ends(s: Stage) {
    make_large(&s).await;
    s.log.hold(changes_all);
    let first = tokio::spawn(commit(s.hub.clone()));
    s.log.until_held(1).await;
    let mut second = pin!(s.hub.commit(change_all()));
    assert!(poll!(&mut second).is_pending());
    s.hub.stop_waiting();
    let is_ending =
        |refused| matches!(refused, CommitRefused::Bus(BusError::Commit(CommitError::Unavailable(_))));
    assert!(is_ending(second.await.expect_err("there is no room any more")));
    let third = s.hub.commit(change_all()).now_or_never().expect("nobody waits any more");
    assert!(is_ending(third.expect_err("there is no room any more")));
    s.log.release();
    first.await.expect("no panic").expect("what had its place is done");
    assert_eq!(count(&s).await, json!(1));
}

/// Sends commits of one write each while nothing of them is decided, and gives how many of them are in the log: `least` at least.
async fn in_the_log_at_once(s: &Stage, least: usize, writes: impl Iterator<Item = DocumentWrite>) -> usize {
    s.log.hold(|commit| !commit.documents.is_empty());
    let request = |write| CommitRequest { writes: vec![write], ..CommitRequest::default() };
    let mut sent: FuturesUnordered<_> = writes.map(|write| s.hub.commit(request(write))).collect();
    let count = sent.len();
    assert!(poll!(sent.next()).is_pending());
    s.log.until_held(least).await;
    // Whatever else is done by now is done before this is.
    let t = s.topic("t", 1).await;
    publish(s, &t, "a", 0..3).await;
    let in_the_log = s.log.held();
    s.log.release();
    let done: Vec<_> = sent.collect().await;
    assert_eq!(done.iter().filter(|done| done.is_ok()).count(), count, "all of them happen");
    in_the_log
}

fn inc() -> DocumentWrite {
    DocumentWrite::new("docs", "0", WriteOp::Inc(Json::from_value(&json!({"n": 1}))))
}

pub async fn what_a_commit_under_way_makes_large_is_large_for_those_behind_it(s: Stage) {
    let large = set("docs", "0", json!({"n": 0, "text": "x".repeat(LARGE)}));
    let writes = std::iter::once(large).chain(std::iter::repeat_with(inc).take(20));
    assert_eq!(in_the_log_at_once(&s, 5, writes).await, 5, "as many as there is room for");
}

pub async fn what_commits_under_way_make_large_together_is_large_for_those_behind_them(s: Stage) {
    let merge = |n: usize| {
        let patch = json!({(n.to_string()): "x".repeat(60 << 10)});
        DocumentWrite::new("docs", "0", WriteOp::Merge(Json::from_value(&patch)))
    };
    let in_the_log = in_the_log_at_once(&s, 20, (0..60).map(merge)).await;
    assert!(in_the_log < 30, "{in_the_log}");
    // Nothing is left of what was decided.
    let gone = DocumentWrite::new("docs", "0", WriteOp::Delete);
    s.hub.commit(CommitRequest { writes: vec![gone], ..CommitRequest::default() }).await.expect("it goes");
    assert_eq!(in_the_log_at_once(&s, 60, std::iter::repeat_with(inc).take(60)).await, 60);
}
