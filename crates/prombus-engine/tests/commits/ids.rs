//! A commit with an id happens once, and is answered as it was first.

use crate::consumer::*;
use crate::stage::*;
use prombus_core::{CommitError, ScanRequest};
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
    let value = first.to_value().expect("JSON");
    assert_eq!(value["versions"], json!({"done": {"all": 1}}), "nothing of the hub's own");
    assert_eq!(value["events"][0]["topic"], json!("out"));
    let again = s.hub.commit(named("x", request(&acks))).await.expect("with leases that it has spent");
    assert_eq!(again, first);
    let other = CommitRequest { writes: vec![set("other", "k", json!({}))], ..CommitRequest::default() };
    assert_eq!(s.hub.commit(named("x", other)).await.expect("whatever is in it"), first);
    assert_eq!((outcome(&s).await, s.document("other", "k").await), ((1, 1), None));
    let s = s.restart().await;
    assert_eq!(s.hub.commit(named("x", request(&acks))).await.expect("after a restart"), first);
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
        for n in 0..10 {
            let (hub, acks) = (s.hub.clone(), if n % 2 == 0 { acks.clone() } else { Vec::new() });
            let request =
                CommitRequest { writes: vec![inc("done", "all", json!({"n": 1}))], ..request(&acks) };
            tasks.spawn(async move { hub.commit(named(&format!("r{round}"), request)).await });
        }
        let mut answers = Vec::new();
        while let Some(answer) = tasks.join_next().await {
            answers.push(answer.expect("no panic").expect("all are answered"));
        }
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        // One without the ack may have been the first.
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
    assert_eq!(s.hub.commit(named("x", counted())).await.expect("it is remembered"), first);
    s.clock.advance(1);
    let second = s.hub.commit(named("x", counted())).await.expect("it is another one");
    assert_eq!(second.to_value().expect("JSON")["versions"]["done"]["all"], json!(2));
    assert_eq!(s.hub.commit(named("x", counted())).await.expect("and is remembered"), second);
    // What is forgotten is also removed, sooner or later.
    for n in 0..20 {
        s.hub.commit(named(&format!("n{n}"), counted())).await.expect("a commit");
    }
    s.clock.advance(2 * DAY_MS);
    s.hub.commit(named("last", counted())).await.expect("a commit");
    let kept = async {
        loop {
            let request = ScanRequest { collection: "hub~commits".into(), after: None, limit: 100 };
            let kept = prombus_core::Documents::scan(&*s.log, request).await.expect("readable");
            if kept.len() == 1 {
                return kept[0].key.clone();
            }
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(tokio::time::timeout(LONG, kept).await.expect("old ones are removed"), "last");
}

pub async fn a_commit_without_acks_needs_no_group(s: Stage) {
    let write = CommitRequest { writes: vec![set("c", "k", json!({"a": 1}))], ..CommitRequest::default() };
    for version in 1..4 {
        let answer = s.hub.commit(write.clone()).await.expect("a commit").to_value().expect("JSON");
        assert_eq!(answer, json!({"events": [], "versions": {"c": {"k": version}}}));
        assert_eq!(s.field("c", "k", "_v").await, json!(version));
    }
    let stale = CommitRequest {
        writes: vec![prombus_engine::commits::CommitWrite {
            if_version: Some(2),
            ..set("c", "k", json!({}))
        }],
        ..CommitRequest::default()
    };
    let refused = s.hub.commit(stale).await;
    assert!(matches!(refused, Err(CommitRefused::Bus(_))), "{refused:?}");
}
