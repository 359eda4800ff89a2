//! A commit happens as a whole, or not at all.

use crate::Subject;
use crate::build::{Draft, event, numbered, partitions, producer_id};
use crate::tasks::joined;
use prombus_core::{Bounds, CommitError, Offset};
use std::sync::Arc;

/// Wherever in a batch the event stands that is refused, nothing of the batch happens.
pub async fn a_batch_happens_as_a_whole_or_not_at_all(s: Subject) {
    let topic = s.create("batches", partitions(3)).await;
    let first = s.published_one(&topic, event("0").key("k").id(producer_id(0))).await;
    let before = [s.bounds(&topic, 0).await, s.bounds(&topic, 1).await, s.bounds(&topic, 2).await];
    let bad = [event("1").key("k").id(producer_id(0)), event("1").key("k").expecting(None)];
    for (bad, at) in bad.iter().flat_map(|bad| (0..4).map(move |at| (bad, at))) {
        let mut batch: Vec<Draft> = (0..3).map(|n| numbered(n).in_partition(n as u32)).collect();
        batch[0] = event("2").key("new").id(producer_id(1));
        batch.insert(at, bad.clone());
        let index = match s.refused(&topic, batch).await {
            CommitError::IdConflict { index, .. } | CommitError::ExpectationFailed { index, .. } => index,
            other => panic!("a refusal says why: {other:?}"),
        };
        assert_eq!(index, at, "a refusal says which event is to blame");
        for (partition, before) in (0..).zip(before) {
            assert_eq!(s.bounds(&topic, partition).await, before, "a refused batch appends nothing");
        }
        assert_eq!(s.by_id(&topic, producer_id(1)).await, None, "a refused batch leaves no ids");
        assert_eq!(s.latest(&topic, "new").await, None, "a refused batch leaves no keys");
        let latest = s.latest(&topic, "k").await.map(|event| event.id);
        assert_eq!(latest, Some(first.id), "a refused batch does not change what is latest");
    }
    let appended = s.published_one(&topic, event("3").key("new").id(producer_id(1)).expecting(None)).await;
    assert!(!appended.duplicate, "an id of a refused batch was not published");
}

/// When a commit is answered, every read sees it, from any task.
pub async fn an_answered_commit_is_seen_by_everyone(s: Subject) {
    let s = Arc::new(s);
    let topic = s.create("visible", partitions(1)).await;
    for n in 0..50u64 {
        let appended = s.published_one(&topic, numbered(n as usize).key("k")).await;
        let (reader, topic) = (s.clone(), topic.clone());
        joined(tokio::spawn(async move {
            let next = Offset(n + 1);
            assert_eq!(reader.bounds(&topic, 0).await, Bounds { first: Offset(0), next }, "bounds see it");
            let page = reader.log.read(reader.page(&topic, 0, Offset(n))).await;
            let found = page.map(|page| page.events.first().map(|event| event.id));
            assert_eq!(found, Ok(Some(appended.id)), "a read sees it");
            assert!(reader.by_id(&topic, appended.id).await.is_some(), "a look-up by id sees it");
            let latest = reader.latest(&topic, "k").await.map(|event| event.offset);
            assert_eq!(latest, Some(Offset(n)), "a look-up by key sees it");
            let last = reader.history(&topic, "k", 100).await.pop().map(|event| event.offset);
            assert_eq!(last, Some(Offset(n)), "the key's history sees it");
        }))
        .await;
    }
}

/// Topics do not share offsets, ids or keys.
pub async fn topics_are_apart(s: Subject) {
    let (a, b) = (s.create("apart.a", partitions(1)).await, s.create("apart.b", partitions(1)).await);
    s.published(&a, [event("1").key("k").id(producer_id(1)), event("2").key("k")]).await;
    assert_eq!(s.by_id(&b, producer_id(1)).await, None, "an id belongs to its topic");
    assert_eq!(s.latest(&b, "k").await, None, "a key belongs to its topic");
    let other = s.published_one(&b, event("3").key("k").id(producer_id(1)).expecting(None)).await;
    assert_eq!((other.offset, other.duplicate), (Offset(0), false), "offsets and ids are a topic's own");
    s.assert_holds(&a, 0, &["1", "2"]).await;
    s.assert_holds(&b, 0, &["3"]).await;
}
