//! Several hubs on one database: what one commits the others see, and what they do at the same time happens as if one had
//! done it after the other.

use crate::support::{Fresh, subject_on};
use prombus_core::{Commit, Offset, Sequence, Watched, WriteOp};
use prombus_core::{DocumentWrite, Json, ManualClock};
use prombus_testkit::Subject;
use prombus_testkit::build::{event, numbered, partitions, producer_id};
use std::sync::Arc;

const ROUNDS: usize = 15;

async fn two() -> (Arc<Subject>, Arc<Subject>) {
    let fresh = Arc::new(Fresh::new().await);
    // Clocks that are an hour apart.
    let [one, other] = [0, 3_600_000].map(|ahead| Arc::new(ManualClock::at(1_754_683_200_000 + ahead)));
    let one = subject_on(fresh.clone(), one).await;
    (Arc::new(one), Arc::new(subject_on(fresh, other).await))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hubs_write_one_partition_without_gaps() {
    let (one, other) = two().await;
    let topic = one.create("shared", partitions(2)).await;
    let writes = |s: Arc<Subject>, start: usize| {
        let topic = topic.clone();
        tokio::spawn(async move {
            for n in 0..ROUNDS {
                let drafts = [numbered(start + n).in_partition(0), numbered(start + n).in_partition(1)];
                s.published(&topic, drafts).await;
            }
        })
    };
    let (first, second) = (writes(one.clone(), 0), writes(other.clone(), 100));
    first.await.unwrap();
    second.await.unwrap();
    for partition in 0..2 {
        let events = one.all(&topic, partition).await;
        assert_eq!(events, other.all(&topic, partition).await, "both see the same");
        let offsets: Vec<u64> = events.iter().map(|event| event.offset.0).collect();
        assert_eq!(offsets, (0..2 * ROUNDS as u64).collect::<Vec<_>>());
        assert!(events.is_sorted_by_key(|event| event.recorded_ts), "whatever the clocks say");
        assert!(events.is_sorted_by(|a, b| a.id < b.id), "made ids grow, whichever hub makes them");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_is_taken_once_by_whichever_hub() {
    let (one, other) = two().await;
    let topic = one.create("shared.ids", partitions(2)).await;
    for n in 0..ROUNDS as u64 {
        let publish = |s: Arc<Subject>, partition| {
            let topic = topic.clone();
            let draft = event("1").id(producer_id(n)).in_partition(partition);
            tokio::spawn(async move { s.published_one(&topic, draft).await })
        };
        let (first, second) = (publish(one.clone(), 0), publish(other.clone(), 1));
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        assert!(first.duplicate != second.duplicate, "one of them is a duplicate");
        assert_eq!((first.partition, first.offset), (second.partition, second.offset));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_follows_what_another_one_changes() {
    let (one, other) = two().await;
    let topic = one.create("shared.settings", partitions(1)).await;
    other.published(&topic, [numbered(0)]).await;
    one.grow(&topic, 3).await;
    other.published(&topic, [numbered(1).in_partition(2)]).await;
    assert_eq!(one.bounds(&topic, 2).await.next, Offset(1));
    one.delete(&topic).await;
    one.create("shared.settings", partitions(1)).await;
    let appended = other.published_one(&topic, numbered(2)).await;
    assert_eq!(appended.offset, Offset(0), "it is another topic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_is_woken_by_another_hub() {
    let (one, other) = two().await;
    let topic = one.create("shared.waking", partitions(1)).await;
    let documents = vec![DocumentWrite::new("c", "k", WriteOp::Set(Json::from_stored("{}".into())))];
    for n in 0..ROUNDS as u64 {
        let publish = async {
            one.published(&topic, [numbered(0)]).await;
            let commit = Commit { documents: documents.clone(), ..Commit::default() };
            one.commit(commit).await.unwrap();
        };
        let events = async || other.bounds(&topic, 0).await.next.0 > n;
        let written = async || other.document("c", "k").await.is_some_and(|document| document.version > n);
        let sees_events = follow(&other, Watched::Topic(topic.clone()), events);
        let sees_documents = follow(&other, Watched::Collection("c".into()), written);
        tokio::join!(publish, sees_events, sees_documents);
    }
}

/// Waits until something is there, looking only when it is woken.
async fn follow(s: &Subject, of: Watched, is_there: impl AsyncFn() -> bool) {
    let mut seen = Sequence(0);
    while !is_there().await {
        seen = s.log.changed(&of, seen).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sums_of_two_hubs_are_exact() {
    let (one, other) = two().await;
    let adds = |s: Arc<Subject>| {
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let op = WriteOp::Inc(Json::from_stored(r#"{"n":1}"#.into()));
                let documents = vec![DocumentWrite::new("sums", "k", op)];
                s.commit(Commit { documents, ..Commit::default() }).await.unwrap();
            }
        })
    };
    let (first, second) = (adds(one.clone()), adds(other));
    first.await.unwrap();
    second.await.unwrap();
    let sum = one.document("sums", "k").await.unwrap();
    assert_eq!(sum.body, Json::from_stored(format!(r#"{{"n":{}}}"#, 2 * ROUNDS).into()));
}
