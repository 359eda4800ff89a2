//! Commits that are about several topics.

use crate::Subject;
use crate::build::{event, numbered, partitions, producer_id, topic};
use crate::subject::{assert_is, must, refusal};
use crate::tasks::{joined, together};
use prombus_core::{Commit, CommitError, ConfigChange, Durability, Event, TopicConfig, TopicName};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn lasting(durability: Durability) -> TopicConfig {
    TopicConfig { durability, ..partitions(1) }
}

/// Events of several topics go into one commit, each to its own.
pub async fn a_commit_takes_events_of_several_topics(s: Subject) {
    let (a, b) = (s.create("both.a", partitions(2)).await, s.create("both.b", partitions(1)).await);
    s.published(&b, [event("0")]).await;
    let id = producer_id(1);
    let mut events = s.place(&a, [event("1").id(id), event("2").in_partition(1)]);
    events.splice(1..1, s.place(&b, [event("3").id(id).key("k"), event("4").id(producer_id(2))]));
    let receipt = must(s.commit(Commit { events, ..Commit::default() }).await, "topics can share a commit");
    let places: Vec<(u32, u64)> =
        receipt.events.iter().map(|appended| (appended.partition.0, appended.offset.0)).collect();
    assert_eq!(places, [(0, 0), (0, 1), (0, 2), (1, 0)], "each topic counts its own offsets");
    assert!(receipt.events.iter().all(|appended| !appended.duplicate), "ids belong to their topics");
    for (topic, appended) in [&a, &b, &b, &a].into_iter().zip(&receipt.events) {
        assert_is(s.by_id(topic, appended.id).await.as_ref(), appended);
    }
}

/// If an event of one topic is refused, nothing happens in the others either.
pub async fn several_topics_change_as_a_whole_or_not_at_all(s: Subject) {
    let (a, b) = (s.create("whole.a", partitions(1)).await, s.create("whole.b", partitions(1)).await);
    s.published(&b, [event("0").key("k").id(producer_id(1))]).await;
    let new = topic("whole.made");
    let bad = [
        event("1").key("k").id(producer_id(1)),
        event("1").key("k").expecting(None),
        event("1").key("k").expecting(Some(producer_id(9))),
    ];
    for bad in bad {
        let mut events = s.place(&a, [event("1").key("k").id(producer_id(5))]);
        events.extend(s.place(&b, [event("2"), bad]));
        events.extend(s.place(&a, [event("3")]));
        let config = vec![ConfigChange::CreateTopic { name: new.clone(), config: partitions(1) }];
        let error = refusal(s.commit(Commit { config, events, ..Commit::default() }).await);
        let index = match error {
            CommitError::IdConflict { index, .. } | CommitError::ExpectationFailed { index, .. } => index,
            other => panic!("a refusal says why: {other:?}"),
        };
        assert_eq!(index, 2, "the index counts all events of the commit");
        assert_eq!(must(s.log.topic(&new).await, "topics can be looked up"), None, "no topic is made");
        s.assert_holds(&a, 0, &[]).await;
        s.assert_holds(&b, 0, &["0"]).await;
        assert_eq!(s.by_id(&a, producer_id(5)).await, None, "no id is left");
        assert_eq!(s.latest(&a, "k").await, None, "no key is left");
    }
}

/// A commit is as durable as the strictest of its topics asks for; changes of topics are always flushed.
pub async fn a_commit_is_as_durable_as_its_strictest_topic(s: Subject) {
    let strict = s.create("strict", lasting(Durability::Sync)).await;
    let loose = s.create("loose", lasting(Durability::Interval)).await;
    let other = s.create("loose.too", lasting(Durability::Interval)).await;
    let known = event("1").id(producer_id(1));
    s.published(&strict, [known.clone()]).await;
    let commit = async |parts: &[(&TopicName, u8)]| -> Durability {
        let mut events = Vec::new();
        for (topic, kind) in parts {
            let draft = if *kind == 0 { event("2") } else { known.clone() };
            events.extend(s.place(topic, [draft]));
        }
        let answer = s.commit(Commit { events, ..Commit::default() }).await;
        must(answer, "nothing speaks against it").durability
    };
    assert_eq!(commit(&[(&loose, 0), (&other, 0)]).await, Durability::Interval);
    assert_eq!(commit(&[(&strict, 0), (&loose, 0)]).await, Durability::Sync);
    assert_eq!(commit(&[(&loose, 0), (&strict, 0), (&other, 0)]).await, Durability::Sync);
    assert_eq!(commit(&[(&loose, 0), (&strict, 1)]).await, Durability::Sync, "a duplicate counts too");
    let events = s.place(&loose, [event("3")]);
    let config = vec![ConfigChange::CreateTopic { name: topic("loose.new"), config: TopicConfig::default() }];
    let receipt = must(s.commit(Commit { config, events, ..Commit::default() }).await, "they can be mixed");
    assert_eq!(receipt.durability, Durability::Sync, "changes of topics are always flushed");
    let receipt = must(s.alter(&loose, |config| config.retention_ms = 1).await, "settings change");
    assert_eq!(receipt.durability, Durability::Sync, "changes of topics are always flushed");
}

/// Whoever sees a commit in one topic sees it in the other, while others commit.
pub async fn several_topics_become_visible_at_once(s: Subject) {
    const ROUNDS: usize = 30;
    let s = Arc::new(s);
    let (a, b) = (s.create("at-once.a", partitions(1)).await, s.create("at-once.b", partitions(1)).await);
    let done = Arc::new(AtomicBool::new(false));
    let reader = {
        let (s, a, b, done) = (s.clone(), a.clone(), b.clone(), done.clone());
        tokio::spawn(async move {
            while !done.load(Ordering::SeqCst) {
                let in_a = s.bounds(&a, 0).await.next;
                let in_b = s.bounds(&b, 0).await.next;
                assert!(in_a <= in_b, "what is visible in the first topic is so in the second");
                assert!(in_b <= s.bounds(&a, 0).await.next, "and the other way round");
                tokio::task::yield_now().await;
            }
        })
    };
    together(4, |writer| {
        let (s, a, b) = (s.clone(), a.clone(), b.clone());
        async move {
            for round in 0..ROUNDS {
                let mut events = s.place(&a, [numbered(writer * ROUNDS + round)]);
                events.extend(s.place(&b, [numbered(writer * ROUNDS + round)]));
                must(s.commit(Commit { events, ..Commit::default() }).await, "nothing speaks against it");
            }
        }
    })
    .await;
    done.store(true, Ordering::SeqCst);
    joined(reader).await;
    let payloads = |events: Vec<Event>| -> Vec<_> { events.into_iter().map(|event| event.payload).collect() };
    let (in_a, in_b) = (payloads(s.all(&a, 0).await), payloads(s.all(&b, 0).await));
    assert_eq!(in_a.len(), 4 * ROUNDS);
    assert_eq!(in_a, in_b, "commits are in one order, in all the topics that they share");
}
