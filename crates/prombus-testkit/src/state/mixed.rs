//! Commits that mix events, documents, cursors and configuration: all of it, or none.

use super::{inc, set, write};
use crate::Subject;
use crate::build::{event, json, partitions, producer_id, topic};
use crate::subject::{must, refusal};
use crate::tasks::joined;
use bytes::Bytes;
use prombus_core::{
    Commit, CommitError, ConfigChange, CursorKey, CursorMove, CursorTarget, DocumentWrite, Durability, Epoch,
    Offset, Partition, TopicConfig, TopicName, WriteOp,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn key(topic: &TopicName) -> CursorKey {
    CursorKey { topic: topic.clone(), reader: "projection".into(), partition: Partition(0) }
}

fn step(topic: &TopicName, version: u64) -> CursorMove {
    let to = Some(CursorTarget { next: Offset(version + 1), detail: Bytes::from_static(b"{}") });
    CursorMove { key: key(topic), incarnation: None, expect_version: version, epoch: Epoch(0), to }
}

/// A commit with a part of every kind.
async fn everything(s: &Subject, topic: &TopicName, made: &TopicName) -> Commit {
    Commit {
        config: vec![ConfigChange::CreateTopic { name: made.clone(), config: TopicConfig::default() }],
        events: s.place(topic, [event("1").key("k").id(producer_id(1)), event("2")]),
        documents: vec![set("d", "{}"), inc("d", r#"{"n":1}"#)],
        cursors: vec![step(topic, 0)],
        ..Commit::default()
    }
}

/// Whatever a commit is made of, all of it happens.
pub async fn all_parts_of_a_commit_happen(s: Subject) {
    let (name, made) = (s.create("mixed", partitions(1)).await, topic("mixed.made"));
    let receipt = must(s.commit(everything(&s, &name, &made).await).await, "all kinds can be mixed");
    assert_eq!(receipt.events.len(), 2, "a receipt has the events");
    assert_eq!(receipt.versions, [1, 2], "a receipt has the versions");
    s.topic(&made).await;
    s.assert_holds(&name, 0, &["1", "2"]).await;
    assert_eq!(s.document("c", "d").await.map(|document| document.body), Some(json(r#"{"n":1}"#)));
    assert_eq!(s.cursor(&key(&name)).await.map(|cursor| cursor.next), Some(Offset(1)));
}

/// Whichever part of a commit is refused, nothing of it happens.
pub async fn a_refused_part_takes_all_with_it(s: Subject) {
    let (name, made) = (s.create("refused", partitions(1)).await, topic("refused.made"));
    let breakages: [fn(&mut Commit); 9] = [
        |commit| commit.config.push(ConfigChange::DeleteTopic { name: topic("no-such-topic") }),
        |commit| commit.config.push(commit.config[0].clone()),
        |commit| commit.events[1].event.id = Some(producer_id(1)),
        |commit| commit.events.push(commit.events[0].clone()),
        |commit| commit.documents[1].if_version = Some(7),
        |commit| commit.documents.push(write("c", "d", WriteOp::Set(json("1")))),
        |commit| commit.cursors[0].expect_version = 7,
        |commit| commit.cursors.push(commit.cursors[0].clone()),
        |commit| commit.cursors[0].key.topic = topic("no-such-topic"),
    ];
    for (n, breakage) in breakages.into_iter().enumerate() {
        let mut commit = everything(&s, &name, &made).await;
        breakage(&mut commit);
        if n == 3 {
            // The same event again would be a duplicate; with another payload it is a conflict.
            commit.events[2].event.payload = json("9");
        }
        refusal(s.commit(commit).await);
        assert_eq!(must(s.log.topic(&made).await, "topics can be looked up"), None, "no topic is made ({n})");
        s.assert_holds(&name, 0, &[]).await;
        assert_eq!(s.by_id(&name, producer_id(1)).await, None, "no id is left ({n})");
        assert_eq!(s.latest(&name, "k").await, None, "no key is left ({n})");
        assert_eq!(s.document("c", "d").await, None, "no document is written ({n})");
        assert_eq!(s.cursor(&key(&name)).await, None, "no cursor is moved ({n})");
    }
    must(s.commit(everything(&s, &name, &made).await).await, "without the breakage it happens");
}

/// A cursor that is not where it is expected refuses the commit before any document is changed, whatever is wrong with those.
pub async fn a_cursor_decides_before_documents_are_read(s: Subject) {
    let name = s.create("mixed.cursor", partitions(1)).await;
    let wrong = || vec![write("c", "d", WriteOp::Set(json("1")))];
    let cursors = vec![step(&name, 7)];
    let refused = refusal(s.commit(Commit { documents: wrong(), cursors, ..Commit::default() }).await);
    assert!(matches!(refused, CommitError::CursorMoved { .. }), "{refused:?}");
    let cursors = vec![step(&name, 0)];
    let refused = refusal(s.commit(Commit { documents: wrong(), cursors, ..Commit::default() }).await);
    assert!(matches!(refused, CommitError::BadWrite { .. }), "{refused:?}");
    assert_eq!(s.cursor(&key(&name)).await, None);
}

/// A duplicate in a commit stops none of its other parts.
pub async fn a_duplicate_stops_no_other_part(s: Subject) {
    let name = s.create("mixed.duplicate", partitions(1)).await;
    s.published(&name, [event("1").id(producer_id(1))]).await;
    let events = s.place(&name, [event("1").id(producer_id(1))]);
    let (documents, cursors) = (vec![set("d", "{}")], vec![step(&name, 0)]);
    let commit = Commit { events, documents, cursors, ..Commit::default() };
    let receipt = must(s.commit(commit).await, "a duplicate is no failure");
    assert!(receipt.events[0].duplicate);
    assert!(s.document("c", "d").await.is_some(), "documents of the commit are written");
    assert!(s.cursor(&key(&name)).await.is_some(), "cursors of the commit are moved");
    s.assert_holds(&name, 0, &["1"]).await;
}

/// Documents make a commit as durable as can be, whatever its topics ask for.
pub async fn documents_make_a_commit_durable(s: Subject) {
    let config = TopicConfig { durability: Durability::Interval, ..partitions(1) };
    let name = s.create("mixed.durability", config).await;
    let commit = |documents: Vec<DocumentWrite>, events| Commit { events, documents, ..Commit::default() };
    let mut loose = commit(Vec::new(), s.place(&name, [event("1")]));
    loose.cursors.push(step(&name, 0));
    assert_eq!(must(s.commit(loose).await, "it happens").durability, Durability::Interval);
    let events = s.place(&name, [event("2")]);
    let receipt = must(s.commit(commit(vec![set("d", "{}")], events)).await, "it happens");
    assert_eq!(receipt.durability, Durability::Sync, "documents are always flushed");
}

/// Whoever sees one part of a commit sees all of it.
pub async fn all_parts_become_visible_at_once(s: Subject) {
    const ROUNDS: u64 = 60;
    let s = Arc::new(s);
    let name = s.create("mixed.visible", partitions(1)).await;
    let done = Arc::new(AtomicBool::new(false));
    let reader = {
        let (s, name, done) = (s.clone(), name.clone(), done.clone());
        tokio::spawn(async move {
            while !done.load(Ordering::SeqCst) {
                let document = counted(&s).await;
                let events = s.bounds(&name, 0).await.next.0;
                let cursor = s.cursor(&key(&name)).await.map_or(0, |cursor| cursor.next.0);
                let later = (counted(&s).await, s.bounds(&name, 0).await.next.0);
                assert!(document <= events, "an event is visible when its document is");
                assert!(events <= cursor, "a cursor is where it should be when its event is visible");
                assert!(cursor <= later.0, "a document is visible when its cursor is");
                assert!(later.0 <= later.1, "nothing becomes invisible again");
                tokio::task::yield_now().await;
            }
        })
    };
    for version in 0..ROUNDS {
        let events = s.place(&name, [event("1")]);
        let (documents, cursors) = (vec![inc("d", r#"{"n":1}"#)], vec![step(&name, version)]);
        must(s.commit(Commit { events, documents, cursors, ..Commit::default() }).await, "it happens");
        assert_eq!(counted(&s).await, version + 1, "whoever wrote it sees it");
    }
    done.store(true, Ordering::SeqCst);
    joined(reader).await;
}

async fn counted(s: &Subject) -> u64 {
    let value = s.document("c", "d").await.and_then(|document| document.body.to_value().ok());
    value.and_then(|value| value["n"].as_u64()).unwrap_or_default()
}

/// An event is refused for the documents of no other commit: what one refused commit touched, the next may.
pub async fn a_refused_commit_leaves_the_next_alone(s: Subject) {
    let name = s.create("mixed.next", partitions(1)).await;
    let events = s.place(&name, [event("1").key("k").id(producer_id(1)).expecting(None)]);
    let mut commit = Commit { events, documents: vec![set("d", "{}")], ..Commit::default() };
    commit.documents[0].if_version = Some(1);
    let conflict = CommitError::VersionConflict { collection: "c".into(), key: "d".into(), actual: 0 };
    assert_eq!(refusal(s.commit(commit.clone()).await), conflict);
    commit.documents[0].if_version = Some(0);
    let receipt = must(s.commit(commit).await, "what one refused commit touched, the next may");
    assert_eq!((receipt.events[0].offset, receipt.events[0].duplicate), (Offset(0), false));
    assert_eq!(receipt.versions, [1]);
}
