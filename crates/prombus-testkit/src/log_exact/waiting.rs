//! Waiting for commits: nobody misses one.

use crate::Subject;
use crate::build::{self, event, numbered, partitions};
use crate::subject::must;
use crate::tasks::{joined, poll_once, together};
use prombus_core::{Commit, DocumentWrite, Json, Offset, Receipt, Sequence, TopicName, Watched, WriteOp};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// Waits until more than `after` is visible, whatever wakes for nothing in between.
async fn more_than(s: &Subject, after: Sequence) -> Sequence {
    more_of(s, &Watched::Everything, after).await
}

async fn more_of(s: &Subject, of: &Watched, after: Sequence) -> Sequence {
    loop {
        let now = s.log.changed(of, after).await;
        if now > after {
            return now;
        }
        tokio::task::yield_now().await;
    }
}

async fn commit(s: &Subject, topic: &TopicName) -> Receipt {
    must(s.publish(topic, [event("1")]).await, "an event can be published")
}

/// Sequences grow from commit to commit, and one that has passed is not waited for.
pub async fn what_was_committed_is_not_waited_for(s: Subject) {
    let topic = s.create("waiting", partitions(1)).await;
    let mut last = Sequence(0);
    for _ in 0..10 {
        let sequence = commit(&s, &topic).await.sequence;
        assert!(sequence > last, "the sequence grows from commit to commit");
        assert!(more_than(&s, last).await >= sequence, "an answered commit is visible");
        assert!(more_than(&s, Sequence(0)).await >= sequence, "nobody waits for what has passed");
        last = sequence;
    }
}

/// Whoever waits wakes for the next commit, also a change of topics.
pub async fn a_waiter_wakes_for_the_next_commit(s: Subject) {
    let topic = s.create("waking", partitions(1)).await;
    for round in 0..20 {
        let before = commit(&s, &topic).await.sequence;
        let mut waiter = pin!(more_than(&s, before));
        assert_eq!(poll_once(waiter.as_mut()).await, Poll::Pending, "nothing was committed since");
        let receipt = if round % 2 == 0 {
            commit(&s, &topic).await
        } else {
            must(s.alter(&topic, |config| config.retention_ms += 1).await, "settings can be changed")
        };
        assert!(waiter.await >= receipt.sequence, "a waiter wakes for the next commit");
    }
}

/// Whoever waits for a topic wakes for its events, from wherever they come, and when it is made, changed or deleted.
pub async fn a_waiter_for_a_topic_wakes_for_all_that_happens_to_it(s: Subject) {
    let other = s.create("waking.other", partitions(1)).await;
    let name = build::topic("waking.topic");
    let topic = Watched::Topic(name.clone());
    let some = Watched::AnyOf(vec![build::topic("waking.unused"), name.clone()]);
    for step in 0..5 {
        // What happened before this has passed.
        let before = commit(&s, &other).await.sequence;
        let mut of_topic = pin!(more_of(&s, &topic, before));
        let mut of_some = pin!(more_of(&s, &some, before));
        let mut of_topics = pin!(more_of(&s, &Watched::Topics, before));
        assert_eq!(poll_once(of_topic.as_mut()).await, Poll::Pending, "nothing was committed since");
        assert_eq!(poll_once(of_some.as_mut()).await, Poll::Pending, "nothing was committed since");
        assert_eq!(poll_once(of_topics.as_mut()).await, Poll::Pending, "nothing was committed since");
        match step {
            0 => drop(s.create("waking.topic", partitions(1)).await),
            1 => drop(commit(&s, &name).await),
            2 => drop(must(s.alter(&name, |config| config.partitions += 1).await, "a topic can grow")),
            3 => s.delete(&name).await,
            _ => {
                let (events, auto_create) = (s.place(&name, [event("1")]), Some(Arc::default()));
                let made = s.commit(Commit { events, auto_create, ..Commit::default() }).await;
                drop(must(made, "an event makes its topic"));
            }
        }
        of_topic.await;
        of_some.await;
        if step != 1 {
            of_topics.await;
        }
    }
}

/// Whoever waits for a collection wakes when documents of it are written or deleted.
pub async fn a_waiter_for_a_collection_wakes_for_its_documents(s: Subject) {
    let other = s.create("waking.documents", partitions(1)).await;
    let mine: Arc<str> = "waking".into();
    for op in [WriteOp::Set(Json::from_stored("{}".into())), WriteOp::Delete] {
        let before = commit(&s, &other).await.sequence;
        let watched = Watched::Collection(mine.clone());
        let mut waiting = pin!(more_of(&s, &watched, before));
        assert_eq!(poll_once(waiting.as_mut()).await, Poll::Pending, "nothing was written since");
        let documents = vec![DocumentWrite::new(&mine, "k", op)];
        let written = s.commit(Commit { documents, ..Commit::default() }).await;
        drop(must(written, "a document can be written"));
        waiting.await;
    }
}

/// All who wait wake.
pub async fn many_waiters_all_wake(s: Subject) {
    let s = Arc::new(s);
    let topic = s.create("waking.many", partitions(1)).await;
    let before = commit(&s, &topic).await.sequence;
    let mut waiters: Vec<_> = (0..100).map(|_| Box::pin(more_than(&s, before))).collect();
    for waiter in &mut waiters {
        assert_eq!(poll_once(waiter.as_mut()).await, Poll::Pending, "nothing was committed since");
    }
    let sequence = commit(&s, &topic).await.sequence;
    for waiter in waiters {
        assert!(waiter.await >= sequence, "all who wait wake");
    }
}

/// A waiter that gave up leaves the others alone.
pub async fn a_waiter_that_gave_up_bothers_nobody(s: Subject) {
    let topic = s.create("waking.dropped", partitions(1)).await;
    let before = commit(&s, &topic).await.sequence;
    let mut stays = Box::pin(more_than(&s, before));
    let mut leaves = Box::pin(more_than(&s, before));
    assert_eq!(poll_once(leaves.as_mut()).await, Poll::Pending);
    assert_eq!(poll_once(stays.as_mut()).await, Poll::Pending);
    drop(leaves);
    let sequence = commit(&s, &topic).await.sequence;
    assert!(stays.await >= sequence, "the other one wakes");
}

/// Whoever reads, waits, and reads again sees every event, while many commit.
pub async fn a_follower_misses_nothing(s: Subject) {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 30;
    let s = Arc::new(s);
    let topic = s.create("followed", partitions(1)).await;
    let follow = || {
        let (s, topic) = (s.clone(), topic.clone());
        tokio::spawn(async move {
            let (mut from, mut visible) = (Offset(0), Sequence(0));
            let watched = Watched::Topic(topic.clone());
            while from < Offset((WRITERS * ROUNDS) as u64) {
                let page = must(s.log.read(s.page(&topic, 0, from)).await, "a kept offset can be read");
                from = page.next;
                if page.events.is_empty() {
                    visible = s.log.changed(&watched, visible).await;
                }
            }
        })
    };
    let followers: Vec<_> = (0..4).map(|_| follow()).collect();
    together(WRITERS, |writer| {
        let (s, topic) = (s.clone(), topic.clone());
        async move {
            for round in 0..ROUNDS {
                s.published(&topic, [numbered(writer * ROUNDS + round)]).await;
            }
        }
    })
    .await;
    for follower in followers {
        joined(follower).await;
    }
}

/// Reads see every commit up to the sequence that they were woken with.
pub async fn what_the_sequence_covers_can_be_read(s: Subject) {
    const ROUNDS: u64 = 100;
    let s = Arc::new(s);
    let topic = s.create("covered", partitions(1)).await;
    let reader = {
        let (s, topic) = (s.clone(), topic.clone());
        tokio::spawn(async move {
            let (mut visible, mut seen) = (Sequence(0), Vec::new());
            loop {
                visible = s.log.changed(&Watched::Topic(topic.clone()), visible).await;
                let next = s.bounds(&topic, 0).await.next;
                seen.push((visible, next));
                if next == Offset(ROUNDS) {
                    return seen;
                }
            }
        })
    };
    let mut receipts = Vec::new();
    for _ in 0..ROUNDS {
        receipts.push(commit(&s, &topic).await);
    }
    for (visible, next) in joined(reader).await {
        for receipt in receipts.iter().filter(|receipt| receipt.sequence <= visible) {
            assert!(receipt.events[0].offset < next, "reads at a sequence see the commits up to it");
        }
    }
}
