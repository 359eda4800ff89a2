//! A commit with an id happens once, and is answered as it was first.

use crate::commits::consumer::*;
use crate::projections::stage::*;
use prombus_core::{Clock, Commit, CommitError, DocumentWrite, EventLogExt, Json, ScanRequest, WriteOp};
use prombus_engine::commits::{CommitRefused, CommitRequest};
use prombus_engine::groups::OptionsPatch;
use serde_json::json;

const DAY_MS: u64 = 24 * 3_600 * 1_000;

fn named(id: &str, request: CommitRequest) -> CommitRequest {
    CommitRequest { commit_id: Some(id.into()), ..request }
}

pub async fn a_commit_with_an_id_happens_once(s: Stage) {
    let t = s.topic("t", 1).await;
    publish(&s, &t, "a", 0..2).await;
    let group = group(&s, &t, "g").await;
    let acks = leases(&take_all(&group, "m", 1).await);
    let first = s.hub.commit(named("x", request(&acks))).await.expect("a commit");
    assert_eq!(version(&first, "done", "all"), Some(1));
    assert_eq!(first.versions.len(), 1, "nothing of the hub's own");
    assert_eq!(first.events[0].0.as_str(), "out");
    let again = s.hub.commit(named("x", request(&acks))).await.expect("with leases that it has spent");
    assert_eq!((told(&again), first.published().len()), (told(&first), 1));
    assert!(again.repeated && again.published().is_empty() && !first.repeated, "nothing is counted twice");
    let s = s.restart().await;
    let again = s.hub.commit(named("x", request(&acks))).await.expect("after a restart");
    assert_eq!(told(&again), told(&first));
    assert_eq!(outcome(&s).await, (1, 1));
    let group = group_with(&s, &t, "g", OptionsPatch::default()).await;
    assert_eq!(numbers(&take_all(&group, "m", 1).await), [1]);
}

pub async fn the_same_commit_at_once_happens_once(s: Stage) {
    let t = s.topic("t", 1).await;
    for round in 0..5 {
        publish(&s, &t, "a", round..round + 1).await;
        let group = group(&s, &t, "g").await;
        let acks = leases(&take_all(&group, "m", 1).await);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..10 {
            let (hub, acks) = (s.hub.clone(), if round % 2 == 0 { acks.clone() } else { Vec::new() });
            let request =
                CommitRequest { writes: vec![inc("done", "all", json!({"n": 1}))], ..request(&acks) };
            tasks.spawn(async move { hub.commit(named(&format!("r{round}"), request)).await });
        }
        let mut answers = Vec::new();
        while let Some(answer) = tasks.join_next().await {
            answers.push(answer.expect("no panic").expect("all are answered"));
        }
        assert!(answers.iter().all(|answer| told(answer) == told(&answers[0])), "{answers:?}");
        assert_eq!(answers.iter().filter(|answer| !answer.repeated).count(), 1, "{answers:?}");
        // In every other round the commit has left it to others.
        ack(&group, &acks).await;
        assert_eq!(outcome(&s).await, (round + 1, round as usize + 1));
    }
}

pub async fn a_commit_that_failed_can_be_made_again(s: Stage) {
    let bad = CommitRequest { writes: vec![inc("done", "all", json!({"n": "x"}))], ..request(&[]) };
    s.hub.commit(named("x", bad)).await.expect_err("nothing can be added to a text");
    s.hub.commit(named("x", request(&[]))).await.expect("nothing was remembered");
    assert_eq!(outcome(&s).await, (0, 1));
}

pub async fn a_lost_answer_is_found_again(s: Stage) {
    let error = CommitError::Unknown("the answer was lost".into());
    let which = |commit: &prombus_core::Commit| !commit.events.is_empty();
    s.log.refuse(crate::support::switch::Refusal { which, after: 0, times: 1, error, happens: true });
    s.hub.commit(named("x", request(&[]))).await.expect("it has happened, and is remembered");
    assert_eq!(outcome(&s).await, (0, 1));
    s.hub.commit(named("x", request(&[]))).await.expect("the same");
    assert_eq!(outcome(&s).await, (0, 1));
}

pub async fn an_id_is_forgotten_after_a_day(s: Stage) {
    let counted =
        || CommitRequest { writes: vec![inc("done", "all", json!({"n": 1}))], ..CommitRequest::default() };
    let first = s.hub.commit(named("x", counted())).await.expect("a commit");
    s.clock.advance(DAY_MS - 1);
    let again = s.hub.commit(named("x", counted())).await.expect("it is remembered");
    assert_eq!(told(&again), told(&first));
    s.clock.advance(1);
    let second = s.hub.commit(named("x", counted())).await.expect("it is another one");
    assert_eq!(version(&second, "done", "all"), Some(2));
    let again = s.hub.commit(named("x", counted())).await.expect("and is remembered");
    assert_eq!(told(&again), told(&second));
    // What is forgotten is also removed, sooner or later.
    for n in 0..20 {
        s.hub.commit(named(&format!("n{n}"), counted())).await.expect("a commit");
    }
    s.clock.advance(2 * DAY_MS);
    s.hub.commit(named("last", counted())).await.expect("a commit");
    let old_are_gone = async {
        while remembered(&s).await > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, old_are_gone).await.expect("old ones are removed");
    assert!(s.hub.commit(named("last", counted())).await.expect("the last one is known").repeated);
}

/// How many commits are remembered.
async fn remembered(s: &Stage) -> usize {
    let request = ScanRequest { collection: "hub~commits".into(), after: None, limit: 1_000 };
    prombus_core::Documents::scan(&*s.log, request).await.expect("readable").len()
}

pub async fn an_id_stands_for_one_request(s: Stage) {
    let write = |body| CommitRequest { writes: vec![set("c", "k", body)], ..CommitRequest::default() };
    let first = s.hub.commit(named("x", write(json!({"a": 1})))).await.expect("a commit");
    for other in [write(json!({"a": 2})), request(&[])] {
        let refused = s.hub.commit(named("x", other)).await;
        assert!(matches!(&refused, Err(CommitRefused::IdConflict(id)) if id == "x"), "{refused:?}");
    }
    assert_eq!((s.field("c", "k", "a").await, outcome(&s).await), (json!(1), (0, 0)));
    let again = s.hub.commit(named("x", write(json!({"a": 1})))).await.expect("the first one is known");
    assert_eq!(told(&again), told(&first));
}

pub async fn of_different_requests_with_one_id_at_once_one_happens(s: Stage) {
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..10 {
        let (hub, write) = (s.hub.clone(), inc("done", "all", json!({"n": n + 1})));
        let request = CommitRequest { writes: vec![write], ..CommitRequest::default() };
        tasks.spawn(async move { (n, hub.commit(named("x", request)).await) });
    }
    let mut done = Vec::new();
    while let Some(answer) = tasks.join_next().await {
        match answer.expect("no panic") {
            (n, Ok(_)) => done.push(n),
            (_, Err(error)) => assert!(matches!(error, CommitRefused::IdConflict(_)), "{error}"),
        }
    }
    assert_eq!((done.len(), s.field("done", "all", "n").await), (1, json!(done[0] + 1)));
}

pub async fn callers_do_not_share_ids(s: Stage) {
    for caller in [None, Some("a"), Some("b")] {
        let request = CommitRequest { caller: caller.map(str::to_owned), ..named("x", request(&[])) };
        assert!(!s.hub.commit(request.clone()).await.expect("a commit of its own").repeated, "{caller:?}");
        assert!(s.hub.commit(request).await.expect("the same one").repeated, "{caller:?}");
    }
    assert_eq!(outcome(&s).await, (0, 3));
}

pub async fn a_clock_that_is_set_forgets_no_id(s: Stage) {
    let start = s.clock.now_ms();
    for n in 0..20 {
        s.hub.commit(named(&format!("n{n}"), request(&[]))).await.expect("a commit");
    }
    // Ahead by a week and back, with a restart in between, and back by a week.
    let mut s = s;
    for (round, set) in [start + 7 * DAY_MS, start, start - 7 * DAY_MS, start].into_iter().enumerate() {
        s.clock.set(set);
        // Long enough for old ones to be looked for.
        s.clock.advance(2 * 60_000);
        s.hub.commit(named(&format!("round{round}"), request(&[]))).await.expect("a commit");
        s = s.restart().await;
        s.hub.commit(named(&format!("after{round}"), request(&[]))).await.expect("a commit");
        for n in 0..20 {
            let again = s.hub.commit(named(&format!("n{n}"), request(&[]))).await.expect("it is known");
            assert!(again.repeated, "{n} in round {round}");
        }
    }
    assert_eq!((remembered(&s).await, outcome(&s).await), (28, (0, 28)));
    s.clock.advance(DAY_MS);
    assert!(!s.hub.commit(named("n0", request(&[]))).await.expect("a day has passed").repeated);
}

pub async fn an_id_with_which_something_else_is_kept_is_a_conflict(s: Stage) {
    let other = WriteOp::Set(Json::from_value(&json!({"events": [], "versions": {}})));
    let write = DocumentWrite { ts: s.clock.now_ms(), ..DocumentWrite::new("hub~commits", "0:y", other) };
    let commit = Commit { documents: vec![write], ..Commit::default() };
    s.log.commit(std::sync::Arc::new(commit)).await.expect("a document");
    let refused = s.hub.commit(named("y", request(&[]))).await;
    assert!(matches!(refused, Err(CommitRefused::IdConflict(_))), "{refused:?}");
    assert_eq!(outcome(&s).await, (0, 0));
}

pub async fn an_id_that_reads_like_the_name_of_another_commit_is_its_own(s: Stage) {
    s.hub.commit(named("x", request(&[]))).await.expect("a commit");
    assert!(!s.hub.commit(named("0:x", request(&[]))).await.expect("another commit").repeated);
    assert_eq!(outcome(&s).await, (0, 2));
}

pub async fn a_commit_of_very_many_events_has_an_id_too(s: Stage) {
    const EVENTS: usize = 70_000;
    let event = || append(&topic_name("out"), None, &json!(1));
    let many =
        || CommitRequest { publish: (0..EVENTS).map(|_| event()).collect(), ..CommitRequest::default() };
    let first = s.hub.commit(named("x", many())).await.expect("a commit");
    assert_eq!(first.events.len(), EVENTS);
    let again = s.hub.commit(named("x", many())).await.expect("the same one");
    assert!(again.repeated && told(&again) == told(&first));
}

pub async fn a_commit_without_acks_needs_no_group(s: Stage) {
    let write = CommitRequest { writes: vec![set("c", "k", json!({"a": 1}))], ..CommitRequest::default() };
    for version in 1..4 {
        let answer = s.hub.commit(write.clone()).await.expect("a commit");
        assert_eq!((self::version(&answer, "c", "k"), answer.events.len()), (Some(version), 0));
        assert_eq!(s.field("c", "k", "_v").await, json!(version));
    }
    let stale = CommitRequest {
        writes: vec![DocumentWrite { if_version: Some(2), ..set("c", "k", json!({})) }],
        ..CommitRequest::default()
    };
    let refused = s.hub.commit(stale).await;
    assert!(matches!(refused, Err(CommitRefused::Bus(_))), "{refused:?}");
}
