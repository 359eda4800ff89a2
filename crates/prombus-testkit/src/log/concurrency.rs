//! Many at once: nothing is lost, doubled, torn or seen out of order.

use crate::Subject;
use crate::build::{event, numbered, partitions, producer_id};
use crate::subject::must;
use crate::tasks::{joined, together};
use prombus_core::{Appended, CommitError, Event, Offset, TopicName};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use uuid::Uuid;

const WRITERS: usize = 8;
const ROUNDS: usize = 20;

/// Commits from many tasks are all there, each event once, where its receipt says.
pub async fn concurrent_commits_lose_nothing(s: Subject) {
    let s = Arc::new(s);
    let topic = s.create("many-writers", partitions(2)).await;
    let receipts = together(WRITERS, |writer| {
        let (s, topic) = (s.clone(), topic.clone());
        async move {
            let mut receipts = Vec::new();
            for round in 0..ROUNDS {
                let n = writer * ROUNDS + round;
                let drafts =
                    [numbered(n).in_partition(0), numbered(n).in_partition(1), numbered(n).in_partition(0)];
                receipts.push((n, s.published(&topic, drafts).await));
            }
            receipts
        }
    })
    .await;
    let logs = [s.all(&topic, 0).await, s.all(&topic, 1).await];
    assert_eq!([logs[0].len(), logs[1].len()], [2 * WRITERS * ROUNDS, WRITERS * ROUNDS], "nothing is lost");
    for (n, receipt) in receipts.iter().flatten() {
        for Appended { id, partition, offset, .. } in receipt {
            let event = &logs[partition.0 as usize][offset.0 as usize];
            assert_eq!((event.id, &event.payload), (*id, &numbered(*n).event.payload), "receipts are true");
        }
        assert_eq!(receipt[2].offset, receipt[0].offset.plus(1), "no other commit gets in between");
    }
    for log in &logs {
        assert!(log.is_sorted_by_key(|event| event.recorded_ts), "recorded_ts never decreases");
    }
}

/// Of many publishes with one id at the same time, one is appended, and the others answer its position.
pub async fn concurrent_publishes_of_one_id_append_one_event(s: Subject) {
    let s = Arc::new(s);
    let topic = s.create("one-id", partitions(3)).await;
    for round in 0..ROUNDS as u64 {
        let answers = together(WRITERS, |writer| {
            let (s, topic) = (s.clone(), topic.clone());
            let draft = event("1").id(producer_id(round)).in_partition(writer as u32 % 3);
            async move { s.published_one(&topic, draft).await }
        })
        .await;
        let appended = answers.iter().filter(|answer| !answer.duplicate).count();
        assert_eq!(appended, 1, "of many publishes with one id, one is appended");
        let places: HashSet<_> = answers.iter().map(|answer| (answer.partition, answer.offset)).collect();
        assert_eq!(places.len(), 1, "all of them answer the same position");
    }
    let mut count = 0;
    for partition in 0..3 {
        count += s.all(&topic, partition).await.len();
    }
    assert_eq!(count, ROUNDS, "each id is there once");
}

/// Of many publishes with one id and different payloads, one is appended, and the others are conflicts.
pub async fn concurrent_publishes_of_one_id_conflict(s: Subject) {
    let s = Arc::new(s);
    let topic = s.create("one-id.conflict", partitions(1)).await;
    for round in 0..ROUNDS as u64 {
        let id = producer_id(round);
        let answers = together(WRITERS, |writer| {
            let (s, topic) = (s.clone(), topic.clone());
            async move { s.publish(&topic, [numbered(writer).id(id)]).await }
        })
        .await;
        let winners: Vec<usize> = (0..WRITERS).filter(|writer| answers[*writer].is_ok()).collect();
        assert_eq!(winners.len(), 1, "one of them is appended");
        for error in answers.into_iter().filter_map(Result::err) {
            assert_eq!(error, CommitError::IdConflict { index: 0, id }, "the others are conflicts");
        }
        let payload = s.by_id(&topic, id).await.map(|event| event.payload);
        assert_eq!(payload, Some(numbered(winners[0]).event.payload), "the one that was answered is there");
    }
    assert_eq!(s.bounds(&topic, 0).await.next, Offset(ROUNDS as u64), "nothing else was appended");
}

/// Of many publishes with the same expectation, one wins, and the others are told by whom they lost.
pub async fn of_equal_expectations_one_wins(s: Subject) {
    let s = Arc::new(s);
    let topic = s.create("race", partitions(1)).await;
    let mut last: Option<Uuid> = None;
    for _ in 0..ROUNDS {
        let answers = together(WRITERS, |writer| {
            let (s, topic) = (s.clone(), topic.clone());
            async move { s.publish(&topic, [numbered(writer).key("k").expecting(last)]).await }
        })
        .await;
        let won: Vec<Uuid> =
            answers.iter().flatten().flat_map(|receipt| &receipt.events).map(|e| e.id).collect();
        assert_eq!(won.len(), 1, "of equal expectations one wins");
        last = Some(won[0]);
        for error in answers.into_iter().filter_map(Result::err) {
            assert_eq!(
                error,
                CommitError::ExpectationFailed { index: 0, actual: last },
                "the others lose to it"
            );
        }
    }
    assert_eq!(s.bounds(&topic, 0).await.next, Offset(ROUNDS as u64), "only winners are appended");
}

/// While others commit, a reader sees no gap, nothing vanish, and no batch by half.
pub async fn a_reader_never_sees_a_gap_or_half_a_batch(s: Subject) {
    let s = Arc::new(s);
    let topic = s.create("torn", partitions(2)).await;
    let done = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn(read_while_written(s.clone(), topic.clone(), done.clone()));
    together(4, |writer| {
        let (s, topic) = (s.clone(), topic.clone());
        async move {
            for round in 0..ROUNDS {
                let draft = |partition| numbered(writer * ROUNDS + round).in_partition(partition);
                s.published(&topic, [draft(0), draft(1), draft(0)]).await;
            }
        }
    })
    .await;
    done.store(true, Ordering::SeqCst);
    let seen = joined(reader).await;
    assert_eq!(seen, s.all(&topic, 0).await, "what was seen while it was written is what is there");
    assert_eq!(seen.len(), 8 * ROUNDS);
}

/// Reads until the writers are done, and once more.
async fn read_while_written(s: Arc<Subject>, topic: TopicName, done: Arc<AtomicBool>) -> Vec<Event> {
    let mut seen: Vec<Event> = Vec::new();
    loop {
        let last_round = done.load(Ordering::SeqCst);
        let one_before = s.bounds(&topic, 1).await.next.0;
        let from = Offset(seen.len() as u64);
        let page = must(s.log.read(s.page(&topic, 0, from)).await, "a kept offset can be read");
        let one_after = s.bounds(&topic, 1).await.next.0;
        assert!(page.end >= from, "what was visible stays visible");
        assert_eq!(page.end.0 % 2, 0, "a batch becomes visible as a whole, within a partition");
        assert!(2 * one_before <= page.end.0, "a batch becomes visible in all partitions at once");
        assert!(page.end.0 <= 2 * one_after, "a batch becomes visible in all partitions at once");
        for event in page.events {
            assert_eq!(event.offset, Offset(seen.len() as u64), "a reader sees every offset, in order");
            seen.push(event);
        }
        if let Some(last) = seen.last() {
            assert_eq!(
                s.by_id(&topic, last.id).await.as_ref(),
                Some(last),
                "what can be read is found by id"
            );
        }
        if last_round && seen.len() as u64 == page.end.0 {
            return seen;
        }
        tokio::task::yield_now().await;
    }
}
