//! A publish that comes again is recognised by its id.

use crate::Subject;
use crate::build::{Draft, event, json, partitions, producer_id};
use prombus_core::{Appended, CommitError, Offset, Partition};
use uuid::Uuid;

/// The first one's answer, given again.
fn again(first: Appended) -> Appended {
    Appended { duplicate: true, ..first }
}

/// An id that comes again answers the first one's position, and nothing is appended, whatever else came with it.
pub async fn a_repeated_id_answers_the_first_position(s: Subject) {
    let topic = s.create("repeats", partitions(1)).await;
    let draft = event(r#"{"a":1.10}"#).key("k").id(producer_id(1)).ts(5);
    let first = s.published_one(&topic, draft.clone()).await;
    assert!(!first.duplicate, "the first one is no duplicate");
    s.published_one(&topic, event("2").key("k")).await;
    let mut other = draft.clone().ts(6);
    other.event.headers = Some(json(r#"{"x-a":"b"}"#).into());
    other.event.tags = Some(json(r#"["t"]"#).into());
    for repeat in [draft, other] {
        let answer = s.published_one(&topic, repeat).await;
        assert_eq!(answer, again(first), "a duplicate answers the first one's position");
    }
    s.assert_holds(&topic, 0, &[r#"{"a":1.10}"#, "2"]).await;
    let latest = s.latest(&topic, "k").await.map(|event| event.offset);
    assert_eq!(latest, Some(Offset(1)), "a duplicate does not make an event the latest again");
}

/// Within a commit, an id that comes again is a duplicate of the first.
pub async fn a_repeated_id_within_a_batch_is_a_duplicate(s: Subject) {
    let topic = s.create("repeats.batch", partitions(2)).await;
    let draft = event("1").key("k").id(producer_id(1));
    let receipt =
        s.published(&topic, [draft.clone(), event("2").in_partition(0), draft.clone(), draft]).await;
    assert!(!receipt[0].duplicate && !receipt[1].duplicate, "the first ones are no duplicates");
    assert_eq!(receipt[2..], [again(receipt[0]), again(receipt[0])], "the later ones are");
    let count = s.all(&topic, 0).await.len() + s.all(&topic, 1).await.len();
    assert_eq!(count, 2, "a duplicate is not appended");
}

/// A batch that comes again appends only what is new in it.
pub async fn a_repeated_batch_appends_only_what_is_new(s: Subject) {
    let topic = s.create("repeats.batches", partitions(1)).await;
    let draft = |n: u64| event(&n.to_string()).id(producer_id(n));
    let first = s.published(&topic, (0..5).map(draft)).await;
    let second = s.published(&topic, (0..5).map(draft)).await;
    assert_eq!(second, first.iter().copied().map(again).collect::<Vec<_>>(), "all are duplicates");
    let third = s.published(&topic, (3..8).map(draft)).await;
    assert_eq!(third[..2], second[3..], "the known ones are duplicates");
    let offsets: Vec<u64> = third[2..].iter().map(|appended| appended.offset.0).collect();
    assert_eq!(offsets, [5, 6, 7], "the new ones continue without gaps");
    s.assert_holds(&topic, 0, &["0", "1", "2", "3", "4", "5", "6", "7"]).await;
}

/// An id that comes again with another payload or key is a conflict, and nothing happens.
pub async fn an_id_with_another_payload_or_key_is_a_conflict(s: Subject) {
    let topic = s.create("conflicts", partitions(1)).await;
    let (with_key, without) = (producer_id(1), producer_id(2));
    s.published(&topic, [event("1.0").key("k").id(with_key), event("1.0").id(without)]).await;
    let conflicts = [
        event("1").key("k").id(with_key),
        event("null").key("k").id(with_key),
        event("1.0").key("K").id(with_key),
        event("1.0").id(with_key),
        event("1.0").key("k").id(without),
        event("1.00").id(without),
    ];
    for draft in conflicts {
        let id = draft.event.id.unwrap_or_default();
        let error = s.refused(&topic, [event("2"), draft]).await;
        assert_eq!(error, CommitError::IdConflict { index: 1, id }, "another payload or key is a conflict");
    }
    s.assert_holds(&topic, 0, &["1.0", "1.0"]).await;
}

/// A conflict is also seen between events of one commit.
pub async fn an_id_conflict_within_a_batch_is_seen(s: Subject) {
    let topic = s.create("conflicts.batch", partitions(1)).await;
    let id = producer_id(1);
    for other in [event("2").id(id), event("1").key("k").id(id)] {
        let error = s.refused(&topic, [event("1").id(id), event("3"), other]).await;
        assert_eq!(error, CommitError::IdConflict { index: 2, id }, "a batch can be in conflict with itself");
    }
    s.assert_holds(&topic, 0, &[]).await;
}

/// An id is remembered for the topic, in whichever partition it comes again.
pub async fn a_duplicate_is_recognised_in_every_partition(s: Subject) {
    let topic = s.create("repeats.partitions", partitions(3)).await;
    let draft = |partition| event("1").id(producer_id(1)).in_partition(partition);
    let first = s.published_one(&topic, draft(1)).await;
    assert_eq!(first.partition, Partition(1));
    for partition in [0, 1, 2] {
        let answer = s.published_one(&topic, draft(partition)).await;
        assert_eq!(answer, again(first), "a duplicate answers the first one's partition and offset");
    }
}

/// An id is remembered when the topic grows, also for a key that is then placed elsewhere.
pub async fn a_duplicate_is_recognised_after_growth(s: Subject) {
    let topic = s.create("repeats.growth", partitions(1)).await;
    let drafts: Vec<Draft> = crate::build::moving_keys(5)
        .take(5)
        .zip(0..)
        .map(|(key, n)| event("1").key(&key).id(producer_id(n)))
        .collect();
    let first = s.published(&topic, drafts.iter().cloned()).await;
    s.grow(&topic, 5).await;
    let second = s.published(&topic, drafts).await;
    assert_eq!(second, first.into_iter().map(again).collect::<Vec<_>>(), "growth forgets no ids");
}

/// An id that the store made was published too: a producer who brings it back repeats that event.
pub async fn an_id_that_the_store_made_is_remembered(s: Subject) {
    let topic = s.create("repeats.made", partitions(1)).await;
    let first = s.published_one(&topic, event("1").key("k")).await;
    let answer = s.published_one(&topic, event("1").key("k").id(first.id)).await;
    assert_eq!(answer, again(first), "an id that the store made is recognised");
    let error = s.refused(&topic, [event("2").key("k").id(first.id)]).await;
    assert_eq!(error, CommitError::IdConflict { index: 0, id: first.id });
}

/// A duplicate is recognised before the expectation is checked, and so is a conflict.
pub async fn a_duplicate_is_recognised_before_the_expectation(s: Subject) {
    let topic = s.create("repeats.expect", partitions(1)).await;
    let draft = event("1").key("k").id(producer_id(1)).expecting(None);
    let first = s.published_one(&topic, draft.clone()).await;
    s.published_one(&topic, event("2").key("k")).await;
    for expected in [None, Some(Uuid::max()), Some(first.id)] {
        let answer = s.published_one(&topic, draft.clone().expecting(expected)).await;
        assert_eq!(answer, again(first), "the retry of a publish that won is a duplicate");
    }
    let error =
        s.refused(&topic, [event("3").key("k").id(producer_id(1)).expecting(Some(Uuid::max()))]).await;
    assert_eq!(error, CommitError::IdConflict { index: 0, id: producer_id(1) }, "ids are looked at first");
    let batch =
        [event("4").key("n").id(producer_id(2)).expecting(None), event("4").key("n").id(producer_id(2))];
    let batch = batch.map(|draft| draft.expecting(None));
    let receipt = s.published(&topic, batch).await;
    assert_eq!(receipt[1], again(receipt[0]), "also within a batch");
}
