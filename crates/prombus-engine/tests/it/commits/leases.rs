//! All of a commit happens, or none of it.

use crate::commits::consumer::*;
use crate::projections::stage::*;
use prombus_core::{CommitError, DocumentWrite, Expect, Json, WriteOp};
use prombus_engine::BusError;
use prombus_engine::commits::{CommitRefused, CommitRequest};
use prombus_engine::groups::OptionsPatch;
use serde_json::json;
use std::time::Duration;

pub async fn a_commit_settles_leases_of_several_groups_and_topics(s: Stage) {
    let (t, u) = (s.topic("t", 2).await, s.topic("u", 1).await);
    publish(&s, &t, "a", 0..3).await;
    publish(&s, &u, "a", 10..13).await;
    let none =
        OptionsPatch { ordering: Some(prombus_engine::groups::Ordering::None), ..OptionsPatch::default() };
    let groups = [
        group_with(&s, &t, "g", none.clone()).await,
        group_with(&s, &t, "h", none.clone()).await,
        group_with(&s, &u, "g", none).await,
    ];
    let mut acks = Vec::new();
    for group in &groups {
        acks.extend(leases(&take_all(group, "m", 2).await));
    }
    let answer = s.hub.commit(request(&acks)).await.expect("a commit");
    assert_eq!((version(&answer, "done", "all"), answer.versions.len()), (Some(1), 1));
    let (topic, appended) = &answer.events[0];
    assert_eq!((topic.as_str(), appended.offset.0), ("out", 0));
    assert_eq!(outcome(&s).await, (6, 1));
    for (group, left) in groups.iter().zip([2, 2, 12]) {
        assert_eq!(numbers(&take(group, "m", 10).await), [left]);
    }
    let s = s.restart().await;
    for (topic, name, left) in [(&t, "g", 2), (&t, "h", 2), (&u, "g", 12)] {
        let group = group_with(&s, topic, name, OptionsPatch::default()).await;
        assert_eq!(numbers(&take_all(&group, "m", 1).await), [left], "what was committed never comes back");
        assert!(take_if_any(&group, "m").await.is_empty());
    }
}

pub async fn a_commit_that_fails_does_nothing_and_leases_hold(s: Stage) {
    let t = s.topic("t", 1).await;
    s.put("p", changelog("t", "owned")).await;
    let known = s.publish(&topic_name("out"), [("x", json!({"first": 1}))]).await[0];
    s.hub
        .commit(CommitRequest {
            writes: vec![set("docs", "d", json!({"a": "text"}))],
            ..CommitRequest::default()
        })
        .await
        .expect("a document");
    publish(&s, &t, "a", 0..1).await;
    publish(&s, &t, "b", 1..2).await;
    let group = group(&s, &t, "g").await;
    let taken = take_all(&group, "m", 2).await;
    let acks = leases(&taken);
    let with = |change: fn(&mut CommitRequest)| {
        let mut request = request(&acks);
        change(&mut request);
        request
    };
    let mut conflict = request(&acks);
    let mut again = append(&topic_name("out"), Some("x"), &json!({"second": 2}));
    again.event.id = Some(known.id);
    conflict.publish.push(again);
    let mut expecting = request(&acks);
    let mut unexpected = append(&topic_name("out"), Some("x"), &json!({}));
    unexpected.expect = Some(Expect { last_id: None });
    expecting.publish.push(unexpected);
    let cases = [
        (
            with(|r| r.writes.push(DocumentWrite { if_version: Some(7), ..set("docs", "d", json!({})) })),
            "version 1",
        ),
        (
            with(|r| r.writes.push(DocumentWrite { if_version: Some(1), ..set("docs", "e", json!({})) })),
            "version 0",
        ),
        (with(|r| r.writes.push(set("owned", "k", json!({})))), "projection \"p\""),
        (with(|r| r.writes.push(inc("docs", "d", json!({"a": 1})))), "not a number"),
        (
            with(|r| {
                r.writes.push(DocumentWrite {
                    op: WriteOp::Set(Json::from_value(&json!([]))),
                    ..set("docs", "d", json!({}))
                })
            }),
            "object",
        ),
        (with(|r| r.writes.push(set("No name", "k", json!({})))), "collection name"),
        (with(|r| r.writes.push(set("docs", &"k".repeat(1_025), json!({})))), "1025"),
        (with(|r| r.publish.push(append(&topic_name("dlq.t"), None, &json!({})))), "belongs to the hub"),
        (with(|r| r.commit_id = Some(String::new())), "commit_id"),
        (with(|r| r.commit_id = Some("x".repeat(201))), "commit_id"),
        (conflict, "already published"),
        (expecting, "not the expected one"),
    ];
    for (request, expected) in cases {
        let refused = s.hub.commit(request).await.expect_err(expected).to_string();
        assert!(refused.contains(expected), "{expected}: {refused}");
        assert_eq!(outcome(&s).await, (0, 1), "{expected}");
    }
    let empty = s.hub.commit(CommitRequest::default()).await;
    assert!(matches!(empty, Err(CommitRefused::Bad(_))), "{empty:?}");
    assert!(take_if_any(&group, "n").await.is_empty(), "the leases hold");
    assert_eq!(ack(&group, &acks[..1]).await, [true], "and can be acked");
    s.hub.commit(request(&acks[1..])).await.expect("or committed");
    assert_eq!(outcome(&s).await, (1, 2));
    let s = s.restart().await;
    let group = group_with(&s, &t, "g", OptionsPatch::default()).await;
    assert!(take_if_any(&group, "m").await.is_empty());
}

pub async fn a_spent_lease_spoils_the_whole_commit(s: Stage) {
    let (t, u) = (s.topic("t", 1).await, s.topic("u", 1).await);
    publish(&s, &t, "a", 0..1).await;
    publish(&s, &u, "a", 0..1).await;
    publish(&s, &u, "b", 1..2).await;
    let (one, two) = (group(&s, &t, "g").await, group(&s, &u, "g").await);
    let good = take_all(&one, "m", 1).await[0].lease;
    let taken = leases(&take_all(&two, "m", 2).await);
    assert_eq!(ack(&two, &taken[..1]).await, [true]);
    let answer = s.hub.commit(request(&[good, taken[1], taken[0]])).await;
    assert!(is_spent(&answer, taken[0]), "{answer:?}");
    let twice = s.hub.commit(request(&[good, good])).await;
    assert!(is_spent(&twice, good), "the same one twice: {twice:?}");
    let alien = "0-1-0-0".parse().expect("a token");
    let answer = s.hub.commit(request(&[good, alien])).await;
    assert!(is_spent(&answer, alien), "{answer:?}");
    assert!(matches!(s.hub.leases(&[alien]), Err(CommitRefused::LeaseExpired(spent)) if spent == alien));
    assert_eq!(s.hub.leases(&[good, taken[1]]).expect("both are open").len(), 2);
    assert_eq!(outcome(&s).await, (0, 0));
    s.hub.commit(request(&[good, taken[1]])).await.expect("both are open");
    let again = s.hub.commit(request(&[good])).await;
    assert!(is_spent(&again, good), "never in a commit: {again:?}");
    assert_eq!(ack(&one, &[good]).await, [true], "an ack that was accepted may be repeated");
    assert_eq!(outcome(&s).await, (2, 1));
}

fn short() -> OptionsPatch {
    OptionsPatch { ack_timeout_ms: Some(1_000), ..OptionsPatch::default() }
}

/// A lease of another group that is given now ends later than all that were given before.
async fn until_leases_of_now_have_ended(s: &Stage, topic: &prombus_core::TopicName) {
    let group = group_with(s, topic, "later", short()).await;
    let given = take_all(&group, "m", 1).await;
    let again = take_all(&group, "m", 1).await;
    assert_eq!((numbers(&again), again[0].attempt), (numbers(&given), 2), "it has ended");
}

/// Commits that settle leases and publish, as those of [`request`] do.
fn is_ours(commit: &prombus_core::Commit) -> bool {
    !commit.events.is_empty() && !commit.cursors.is_empty()
}

pub async fn a_lease_does_not_expire_while_it_is_committed(s: Stage) {
    let t = s.topic("t", 1).await;
    publish(&s, &t, "a", 0..2).await;
    let group = group_with(&s, &t, "g", short()).await;
    let taken = take_all(&group, "m", 1).await;
    s.log.hold(is_ours);
    let (hub, acks) = (s.hub.clone(), leases(&taken));
    let committing = tokio::spawn(async move { hub.commit(request(&acks)).await });
    s.log.until_held(1).await;
    until_leases_of_now_have_ended(&s, &t).await;
    assert!(take_if_any(&group, "n").await.is_empty(), "nobody gets it, nor the next of its key");
    assert_eq!(ack(&group, &leases(&taken)).await, [false], "and nobody else can settle it");
    s.log.release();
    committing.await.expect("no panic").expect("a commit");
    let next = take_all(&group, "n", 1).await;
    assert_eq!((numbers(&next), next[0].attempt), (vec![1], 1), "the key is free after the commit");
}

pub async fn a_lease_that_ended_during_a_refused_commit_is_over(s: Stage) {
    let t = s.topic("t", 1).await;
    publish(&s, &t, "a", 0..1).await;
    let group = group_with(&s, &t, "g", short()).await;
    let taken = take_all(&group, "m", 1).await;
    s.log.hold(is_ours);
    s.refuse(is_ours, 1, CommitError::Busy);
    let (hub, acks) = (s.hub.clone(), leases(&taken));
    let committing = tokio::spawn(async move { hub.commit(request(&acks)).await });
    s.log.until_held(1).await;
    until_leases_of_now_have_ended(&s, &t).await;
    s.log.release();
    let answer = committing.await.expect("no panic");
    assert!(matches!(answer, Err(CommitRefused::Bus(BusError::Commit(CommitError::Busy)))), "{answer:?}");
    let again = take_all(&group, "n", 1).await;
    assert_eq!((numbers(&again), again[0].attempt), (vec![0], 2), "the expiry counts");
    let late = s.hub.commit(request(&leases(&taken))).await;
    assert!(is_spent(&late, taken[0].lease), "{late:?}");
}

pub async fn of_commits_of_the_same_lease_one_happens(s: Stage) {
    let t = s.topic("t", 1).await;
    publish(&s, &t, "a", 0..1).await;
    let group = group(&s, &t, "g").await;
    let acks = leases(&take_all(&group, "m", 1).await);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (hub, acks) = (s.hub.clone(), acks.clone());
        tasks.spawn(async move { hub.commit(request(&acks)).await });
    }
    let mut happened = 0;
    while let Some(answer) = tasks.join_next().await {
        let answer = answer.expect("no panic");
        match &answer {
            Ok(_) => happened += 1,
            Err(_) => assert!(is_spent(&answer, acks[0]), "{answer:?}"),
        }
    }
    assert_eq!((happened, outcome(&s).await), (1, (1, 1)));
}

pub async fn others_are_acked_while_a_commit_is_under_way(s: Stage) {
    let t = s.topic("t", 2).await;
    for key in ["a", "b", "c", "d", "e", "f"] {
        publish(&s, &t, key, 0..1).await;
    }
    let group = group(&s, &t, "g").await;
    let taken = leases(&take_all(&group, "m", 6).await);
    s.log.hold(is_ours);
    let (hub, acks) = (s.hub.clone(), taken[..2].to_vec());
    let committing = tokio::spawn(async move { hub.commit(request(&acks)).await });
    s.log.until_held(1).await;
    let (others, of) = (taken[2..4].to_vec(), group.clone());
    let acking = tokio::spawn(async move { ack(&of, &others).await });
    let (hub, acks) = (s.hub.clone(), taken[4..].to_vec());
    let second = tokio::spawn(async move { hub.commit(request(&acks)).await });
    s.log.release();
    committing.await.expect("no panic").expect("a commit");
    second.await.expect("no panic").expect("a commit");
    assert_eq!(acking.await.expect("no panic"), [true, true]);
    assert_eq!(outcome(&s).await, (4, 2));
    let s = s.restart().await;
    let group = group_with(&s, &t, "g", OptionsPatch::default()).await;
    assert!(take_if_any(&group, "m").await.is_empty());
    assert_eq!(group.cursor().iter().map(|next| next.0).sum::<u64>(), 6);
}

pub async fn many_commits_and_acks_at_once_lose_nothing(s: Stage) {
    let t = s.topic("t", 3).await;
    let events = (0..600).map(|n| append(&t, Some(&format!("k{n}")), &json!({"n": n}))).collect();
    s.hub.publish(events).await.expect("events can be published");
    let groups = [group(&s, &t, "g").await, group(&s, &t, "h").await];
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..4 {
        let (hub, groups) = (s.hub.clone(), groups.clone());
        tasks.spawn(async move {
            let member = format!("m{worker}");
            let mut committed = 0;
            loop {
                let one = take_if_any_of(&groups[0], &member, 7).await;
                let two = take_if_any_of(&groups[1], &member, 5).await;
                if one.is_empty() && two.is_empty() {
                    if groups.iter().all(|group| settled(group) == 600) {
                        return committed;
                    }
                    continue;
                }
                let mut acks = leases(&one);
                acks.extend(leases(&two));
                if acks.len().is_multiple_of(3) {
                    for group in &groups {
                        let mine: Vec<_> =
                            acks.iter().copied().filter(|lease| of(group, &one, &two, *lease)).collect();
                        assert!(ack(group, &mine).await.iter().all(|taken| *taken));
                    }
                } else {
                    hub.commit(request(&acks)).await.expect("a commit");
                    committed += acks.len() as u64;
                }
            }
        });
    }
    let mut committed = 0;
    while let Some(done) = tasks.join_next().await {
        committed += done.expect("no panic");
    }
    assert_eq!(outcome(&s).await.0, committed);
    let s = s.restart().await;
    for name in ["g", "h"] {
        let group = group_with(&s, &t, name, OptionsPatch::default()).await;
        assert_eq!(settled(&group), 600, "{name}");
    }
}

/// How many events a group has behind it, over all partitions.
fn settled(group: &prombus_engine::groups::Group) -> u64 {
    group.cursor().iter().map(|next| next.0).sum()
}

/// Whether a lease is one that this group gave.
fn of(
    group: &std::sync::Arc<prombus_engine::groups::Group>,
    one: &[prombus_engine::groups::Delivery],
    two: &[prombus_engine::groups::Delivery],
    lease: prombus_engine::groups::LeaseToken,
) -> bool {
    let mine = if group.name().as_str() == "g" { one } else { two };
    mine.iter().any(|delivery| delivery.lease == lease)
}

async fn take_if_any_of(
    group: &std::sync::Arc<prombus_engine::groups::Group>,
    member: &str,
    max: usize,
) -> Vec<prombus_engine::groups::Delivery> {
    let wait = Duration::from_millis(300);
    let pull = prombus_engine::groups::Pull { member: Some(member.into()), max, wait, ..Default::default() };
    group.pull(&pull).await.expect("a pull has an answer")
}

pub async fn a_caller_that_goes_away_does_not_end_its_commit(s: Stage) {
    let t = s.topic("t", 1).await;
    publish(&s, &t, "a", 0..1).await;
    let group = group(&s, &t, "g").await;
    let acks = leases(&take_all(&group, "m", 1).await);
    s.log.hold(is_ours);
    {
        let mut committing = std::pin::pin!(s.hub.commit(request(&acks)));
        tokio::select! {
            answer = &mut committing => panic!("it is held: {answer:?}"),
            () = s.log.until_held(1) => {}
        }
    }
    s.log.release();
    // The next one of the group waits until that is decided.
    let late = s.hub.commit(request(&acks)).await;
    assert!(is_spent(&late, acks[0]), "{late:?}");
    assert_eq!(outcome(&s).await, (1, 1));
}
