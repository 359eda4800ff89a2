//! Forgetting a key: what was given up of it is erased when that is asked for, and nobody who reads notices.

use crate::Subject;
use crate::build::{event, numbered, partitions, producer_id};
use crate::subject::{must, refusal};
use prombus_core::{
    Appended, Commit, CommitError, ConfigChange, Document, DocumentWrite, Event, Json, Loss, Offset,
    Partition, TopicName, TopicRef, WriteOp,
};
use std::sync::Arc;

fn note(topic: impl Into<TopicRef>, key: &str) -> ConfigChange {
    ConfigChange::Forget { topic: topic.into(), key: key.into() }
}

/// Gives up everything of a key, and has it erased.
async fn forget(s: &Subject, topic: &TopicName, key: &str) {
    let mut config = vec![note(topic, key)];
    for partition in (0..s.topic(topic).await.config.partitions).map(Partition) {
        let events = s.all(topic, partition.0).await;
        let gone = events.iter().filter(|event| event.key.as_deref() == Some(key));
        let offsets = Arc::new(gone.map(|event| event.offset).collect());
        config.push(ConfigChange::Discard { topic: topic.into(), partition, offsets, loss: Loss::default() });
    }
    must(s.commit(Commit { config, ..Commit::default() }).await, "a key can be forgotten");
    erase(s).await;
}

async fn erase(s: &Subject) {
    must(s.log.erase().await, "what was forgotten can be erased");
}

async fn all(s: &Subject, topic: &TopicName) -> Vec<Event> {
    let mut events = s.all(topic, 0).await;
    events.extend(s.all(topic, 1).await);
    events
}

/// After a key was forgotten and erased, everything else is as it was, and the key may come again.
pub async fn what_is_forgotten_is_erased_and_nothing_else(s: Subject) {
    erase(&s).await;
    let topic = s.create("forgotten", partitions(2)).await;
    s.published(&topic, (0..60).map(|n| numbered(n).key(&format!("k{}", n % 6)).id(producer_id(n as u64))))
        .await;
    let mut left = all(&s, &topic).await;
    for round in 0..3 {
        let key = format!("k{round}");
        forget(&s, &topic, &key).await;
        left.retain(|event| event.key.as_deref() != Some(&key));
        assert_eq!(all(&s, &topic).await, left, "the others are there, in their places");
        assert_eq!((s.latest(&topic, &key).await, s.history(&topic, &key, 10).await), (None, Vec::new()));
        for event in &left {
            assert_eq!(s.by_id(&topic, event.id).await.as_ref(), Some(event), "and are found");
        }
    }
    let again = s.published_one(&topic, event("1").key("k0")).await;
    erase(&s).await;
    assert_eq!(s.latest(&topic, "k0").await.map(|event| event.id), Some(again.id), "a new life is kept");
    assert_eq!(s.history(&topic, "k0", 10).await.len(), 1, "without the old one");
    forget(&s, &topic, "k0").await;
    assert_eq!(all(&s, &topic).await, left, "until that is forgotten, too");
}

/// What is kept of a key is not erased: what came after it was forgotten, or was never given up.
pub async fn what_is_kept_of_a_forgotten_key_stays(s: Subject) {
    let topic = s.create("forgotten.kept", partitions(1)).await;
    s.published(&topic, (0..10).map(|n| numbered(n).key("k"))).await;
    s.discard(&topic, 0, &[0, 3, 9]).await;
    s.trim(&topic, 0, 2).await;
    let left = s.all(&topic, 0).await;
    must(s.configure(note(&topic, "k")).await, "a key can be forgotten");
    erase(&s).await;
    assert_eq!(s.all(&topic, 0).await, left);
    assert_eq!(s.history(&topic, "k", 100).await, left);
}

/// The id of an event that is erased is recognised, with what it was used for.
pub async fn an_id_outlives_what_is_erased(s: Subject) {
    let topic = s.create("forgotten.ids", partitions(1)).await;
    let draft = event("1").key("k").id(producer_id(1)).ts(5);
    let first = s.published_one(&topic, draft.clone()).await;
    forget(&s, &topic, "k").await;
    assert_eq!(s.by_id(&topic, producer_id(1)).await, None);
    let answer = s.published_one(&topic, draft).await;
    assert_eq!(answer, Appended { duplicate: true, ..first });
    let error = s.refused(&topic, [event("2").key("k").id(producer_id(1))]).await;
    assert_eq!(error, CommitError::IdConflict { index: 0, id: producer_id(1) });
}

/// Documents are as they are, whatever is erased of those that were there before.
pub async fn documents_outlive_what_is_erased(s: Subject) {
    let topic = s.create("forgotten.documents", partitions(1)).await;
    let write = |key: &str, op| Commit {
        documents: vec![DocumentWrite::new("forgotten", key, op)],
        ..Commit::default()
    };
    let set = |n: u64| WriteOp::Set(Json::from_stored(format!("{{\"n\":{n}}}").into()));
    for n in 0..20 {
        must(s.commit(write(&format!("d{}", n % 5), set(n))).await, "documents can be written");
    }
    must(s.commit(write("d1", WriteOp::Delete)).await, "and deleted");
    must(s.commit(write("d2", WriteOp::Delete)).await, "and deleted");
    must(s.commit(write("d2", set(99))).await, "and written again");
    for key in ["d1", "d2", "d3", "never"] {
        must(s.configure(note(&topic, key)).await, "a key can be forgotten");
    }
    erase(&s).await;
    let read = async |key: &str| {
        let found = must(s.documents().document("forgotten", key).await, "documents can be read");
        found.map(|Document { body, .. }| body)
    };
    let body = |n: u64| Some(Json::from_stored(format!("{{\"n\":{n}}}").into()));
    assert_eq!([read("d0").await, read("d1").await, read("d2").await], [body(15), None, body(99)]);
    assert_eq!([read("d3").await, read("d4").await], [body(18), body(19)]);
}

/// A topic that was made again under the same name is another one.
pub async fn only_the_topic_that_was_read_is_forgotten(s: Subject) {
    let topic = s.create("forgotten.again", partitions(1)).await;
    let old = s.topic(&topic).await.pinned();
    s.delete(&topic).await;
    let error = refusal(s.configure(note(&topic, "k")).await);
    assert_eq!(error, CommitError::TopicNotFound(topic.clone()));
    s.create("forgotten.again", partitions(1)).await;
    s.published_one(&topic, event("1").key("k")).await;
    must(s.configure(note(old, "k")).await, "of a topic that is gone, there is nothing to do");
    erase(&s).await;
    assert_eq!(s.latest(&topic, "k").await.map(|event| event.offset), Some(Offset(0)));
}

/// A commit that is refused forgets nothing.
pub async fn forgetting_is_part_of_its_commit(s: Subject) {
    let topic = s.create("forgotten.refused", partitions(1)).await;
    s.published_one(&topic, event("1").key("k")).await;
    let missing = ConfigChange::DeleteTopic { name: crate::build::topic("missing") };
    let offsets = Arc::new([Offset(0)].into_iter().collect());
    let (partition, loss) = (Partition(0), Loss::default());
    let discard = ConfigChange::Discard { topic: (&topic).into(), partition, offsets, loss };
    let config = vec![discard, note(&topic, "k"), missing];
    refusal(s.commit(Commit { config, ..Commit::default() }).await);
    erase(&s).await;
    assert_eq!(s.history(&topic, "k", 10).await.len(), 1);
}
