//! Copies of events, which the store makes in the same commit.

use crate::Subject;
use crate::build::{Draft, event, json, partitions, producer_id, topic};
use crate::subject::{must, refusal};
use prombus_core::commit::DEFAULT_RESULT_BYTES;
use prombus_core::{
    Commit, CommitError, CommitLimits, Durability, EventCopy, Json, Receipt, TopicConfig, TopicName,
};
use std::sync::Arc;

/// Events for one topic, each with a copy for the other.
fn copied(
    s: &Subject,
    (from, to): (&TopicName, &TopicName),
    drafts: impl IntoIterator<Item = Draft>,
) -> Commit {
    let events = s.place(from, drafts);
    let copy = |of| EventCopy { of, topic: to.clone(), settings: Arc::new(partitions(2)) };
    Commit { event_copies: (0..events.len()).map(copy).collect(), events, ..Commit::default() }
}

async fn two_topics(s: &Subject) -> (TopicName, TopicName) {
    (s.create("first", partitions(2)).await, s.create("copies", partitions(2)).await)
}

fn there<T>(found: Option<T>) -> T {
    match found {
        Some(found) => found,
        None => panic!("an event that was published is there"),
    }
}

fn taken(answer: Result<Receipt, CommitError>) -> Receipt {
    must(answer, "nothing speaks against it")
}

/// A copy has what the first one has, but an id and an offset of its own, and the first one is its cause. The receipt
/// tells of the first one only.
pub async fn a_copy_is_an_event_of_its_own(s: Subject) {
    let (first, copies) = two_topics(&s).await;
    s.published(&copies, [event("0").key("k")]).await;
    let mut full = event("{\"n\":1.10}").key("k").id(producer_id(1)).ts(77);
    full.event.headers = Some(json("{\"x-a\":\"b\"}").into());
    full.event.sid = Some(json("\"s\"").into());
    full.event.tags = Some(json("[\"t\"]").into());
    full.event.caused_by = Some(json("[\"before\"]").into());
    let receipt = taken(s.commit(copied(&s, (&first, &copies), [full, event("2").key("k")])).await);
    assert_eq!(receipt.events.len(), 2, "a receipt has the events that were asked for");
    for appended in receipt.events {
        let original = there(s.by_id(&first, appended.id).await);
        let all = s.all(&copies, appended.partition.0).await;
        let cause = format!("[\"{}\"]", appended.id);
        let is_copy = |caused_by: &Option<Box<Json>>| {
            caused_by.as_ref().is_some_and(|text| text.as_bytes() == cause.as_bytes())
        };
        let copy = there(all.iter().find(|event| is_copy(&event.caused_by)));
        assert_ne!(copy.id, original.id, "the copy has an id of its own");
        assert_eq!(copy.offset.0, appended.offset.0 + 1, "and an offset of its topic");
        assert_eq!(s.by_id(&copies, copy.id).await.as_ref(), Some(copy));
        let mut same = copy.clone();
        same.id = original.id;
        (same.topic, same.offset) = (original.topic.clone(), original.offset);
        same.caused_by = original.caused_by.clone();
        assert_eq!(same, original, "nothing else is different");
    }
    assert_eq!(there(s.latest(&copies, "k").await).payload, json("2"));
}

/// The topic of a copy is made with the settings that the copy brings, whoever else makes topics, and is flushed.
pub async fn a_copy_makes_its_topic(s: Subject) {
    let settings = TopicConfig { durability: Durability::Interval, ..partitions(1) };
    let (first, made) = (s.create("first", settings).await, topic("first.v1"));
    let commit = || copied(&s, (&first, &made), [event("1").key("k")]);
    let limits = CommitLimits { topics: 1, ..CommitLimits::default() };
    let refused = refusal(s.commit(Commit { limits, ..commit() }).await);
    assert_eq!(refused, CommitError::TooManyTopics { limit: 1 }, "it counts as a topic");
    s.assert_holds(&first, 0, &[]).await;
    assert_eq!(taken(s.commit(commit()).await).durability, Durability::Sync);
    assert_eq!(s.topic(&made).await.config, partitions(2));
    let copies = taken(s.commit(commit()).await);
    assert_eq!(
        copies.durability,
        Durability::Sync,
        "a commit is as durable as the topics of its copies ask for"
    );
    let count = s.all(&made, 0).await.len() + s.all(&made, 1).await.len();
    assert_eq!(count, 2);
}

/// What comes again was copied when it came first.
pub async fn a_duplicate_is_not_copied(s: Subject) {
    let (first, copies) = two_topics(&s).await;
    let one = || event("1").key("k").id(producer_id(1));
    taken(s.commit(copied(&s, (&first, &copies), [one(), one()])).await);
    let again = taken(s.commit(copied(&s, (&first, &copies), [one(), event("2").key("k")])).await);
    assert_eq!(again.events.iter().map(|event| event.duplicate).collect::<Vec<_>>(), [true, false]);
    let partition = again.events[0].partition.0;
    s.assert_holds(&first, partition, &["1", "2"]).await;
    s.assert_holds(&copies, partition, &["1", "2"]).await;
    let beyond = EventCopy { of: 7, topic: copies.clone(), settings: Arc::default() };
    let commit =
        Commit { event_copies: vec![beyond], ..copied(&s, (&first, &copies), [event("3").key("k")]) };
    taken(s.commit(commit).await);
    s.assert_holds(&copies, partition, &["1", "2"]).await;
}

/// Copies are in the order of the first ones, those without a key in the same partition as far as there is one.
pub async fn copies_keep_the_order_of_the_first_ones(s: Subject) {
    let (wide, copies) = (s.create("wide", partitions(4)).await, s.create("narrow", partitions(2)).await);
    let drafts = (0..8).map(|n| event(&n.to_string()).in_partition(n % 4));
    taken(s.commit(copied(&s, (&wide, &copies), drafts)).await);
    let payloads = async |topic: &TopicName, partition: u32| -> Vec<String> {
        let text = |json: &Json| String::from_utf8_lossy(json.as_bytes()).into_owned();
        s.all(topic, partition).await.iter().map(|event| text(&event.payload)).collect()
    };
    let mut all = Vec::new();
    for partition in 0..2 {
        let there = payloads(&copies, partition).await;
        for first in payloads(&wide, partition).await {
            assert!(there.contains(&first), "{first} is in partition {partition} of both: {there:?}");
        }
        assert!(there.is_sorted(), "{there:?}");
        all.extend(there);
    }
    all.sort_unstable();
    assert_eq!(all, ["0", "1", "2", "3", "4", "5", "6", "7"]);
}

/// A commit that is refused leaves neither events nor copies.
pub async fn copies_happen_with_their_commit_or_not_at_all(s: Subject) {
    let (first, made) = (s.create("first", partitions(1)).await, topic("first.v1"));
    let bad = event("2").key("k").expecting(Some(producer_id(9)));
    let refused = refusal(s.commit(copied(&s, (&first, &made), [event("1").key("k"), bad])).await);
    assert!(matches!(refused, CommitError::ExpectationFailed { index: 1, .. }), "{refused:?}");
    assert_eq!(must(s.log.topic(&made).await, "topics can be looked up"), None);
    s.assert_holds(&first, 0, &[]).await;
}

/// What a commit may make includes the copies of its events.
pub async fn copies_count_as_what_a_commit_makes(s: Subject) {
    let (first, copies) = two_topics(&s).await;
    let large = format!("\"{}\"", "x".repeat(DEFAULT_RESULT_BYTES / 100));
    let commit =
        Commit { event_copies: Vec::new(), ..copied(&s, (&first, &copies), vec![event(&large); 60]) };
    taken(s.commit(commit).await);
    let refused = refusal(s.commit(copied(&s, (&first, &copies), vec![event(&large); 60])).await);
    assert!(matches!(refused, CommitError::TooLarge { .. }), "{refused:?}");
}
