//! What is in a copy, whatever happens to the store.

use super::{CopiesSubject, fetched};
use crate::Subject;
use crate::build::{event, json, numbered, partitions};
use crate::model::{Model, Options, assert_same};
use crate::subject::must;
use prombus_core::{
    Commit, ConfigChange, DocumentWrite, Durability, EventLogExt, Loss, Offset, Partition, TopicConfig,
    TopicName, WriteOp,
};
use std::sync::Arc;

/// Copies are taken after so many rounds of so many random commits.
const ROUNDS: u64 = 4;
const STEPS: usize = 25;
/// How many commits go on beside those who copy.
const COMMITS: usize = 200;

/// Whoever has all files of a copy opens them as a store that has everything.
pub async fn a_copy_opens_as_what_the_store_was(s: CopiesSubject) {
    let clock = match &s.store.clock {
        Some(clock) => clock.clone(),
        None => panic!("this suite needs a subject with a manual clock"),
    };
    let mut model = Model::new(Options::new(7, clock));
    assert_same(&s.store, &s.copied().await).await;
    for _ in 0..ROUNDS {
        for _ in 0..STEPS {
            // What is refused is no part of this.
            let _ = model.step(&[&s.store]).await;
        }
        assert_same(&s.store, &s.copied().await).await;
    }
}

/// What was answered is in a copy, though its topic does not ask that it is flushed.
pub async fn what_was_answered_is_in_a_copy(s: CopiesSubject) {
    let config = TopicConfig { durability: Durability::Interval, ..partitions(1) };
    let topic = s.store.create("loose", config).await;
    let mut payloads = Vec::new();
    for n in 0..12 {
        payloads.push(n.to_string());
        s.store.published(&topic, [event(&payloads[n])]).await;
        let wanted: Vec<&str> = payloads.iter().map(String::as_str).collect();
        s.copied().await.assert_holds(&topic, 0, &wanted).await;
    }
}

/// Nothing of a commit is in a copy without the rest of it.
pub async fn a_copy_has_commits_as_a_whole(s: CopiesSubject) {
    let (a, b) =
        (s.store.create("whole.a", partitions(1)).await, s.store.create("whole.b", partitions(1)).await);
    let commits: Vec<Commit> = (0..COMMITS)
        .map(|n| {
            let mut events = s.store.place(&a, [numbered(n)]);
            events.extend(s.store.place(&b, [numbered(n)]));
            let one = WriteOp::Inc(json("{\"commits\":1}"));
            Commit { events, documents: vec![DocumentWrite::new("whole", "k", one)], ..Commit::default() }
        })
        .collect();
    let log = s.store.log.clone();
    let committing = tokio::spawn(async move {
        for commit in commits {
            must(log.commit(Arc::new(commit)).await, "a commit that nothing speaks against happens");
        }
    });
    let mut last = 0;
    while !committing.is_finished() || last < COMMITS as u64 {
        let copy = s.copied().await;
        let counted = counted(&copy).await;
        for topic in [&a, &b] {
            assert_eq!(copy.bounds(topic, 0).await.next, Offset(counted), "a copy is as of one commit");
            assert_eq!(copy.all(topic, 0).await.len() as u64, counted);
        }
        assert!(counted >= last, "a later copy has no less");
        last = counted;
    }
    must(committing.await, "commits go on beside those who copy");
}

/// How many commits a copy has, by its document.
async fn counted(copy: &Subject) -> u64 {
    match copy.document("whole", "k").await {
        Some(document) => {
            let body = must(document.body.to_value(), "a document is JSON");
            body["commits"].as_u64().unwrap_or_default()
        }
        None => 0,
    }
}

/// Files that are held stay as they are, whatever is committed, rewritten or deleted, and commits do not wait for that.
pub async fn a_copy_that_is_held_stays_as_it_is(s: CopiesSubject) {
    let topic = s.store.create("held", partitions(2)).await;
    let drafts = |n| (n..n + 40).map(|n| numbered(n).key(&format!("k{}", n % 5)));
    for round in 0..5 {
        s.store.published(&topic, drafts(40 * round)).await;
    }
    let copy = s.hold().await;
    let (files, then) = (copy.files().to_vec(), fetched(&*copy).await);
    forget(&s.store, "k0", &topic).await;
    let opened = (s.open)(&then);
    assert_eq!(opened.history(&topic, "k0", 100).await.len(), 40, "what was there then is in the copy");
    for round in 5..10 {
        s.store.published(&topic, drafts(40 * round)).await;
    }
    s.store.trim(&topic, 0, u64::MAX).await;
    s.store.delete(&topic).await;
    must(s.store.log.erase().await, "what was forgotten can be erased");
    assert_eq!(copy.files(), files, "its files are the same");
    assert_eq!(fetched(&*copy).await, then, "and have the same bytes");
    assert!(s.copied().await.log.topic(&topic).await == Ok(None), "another copy is as of its own moment");
}

/// Gives up everything of a key, and has it erased.
async fn forget(s: &Subject, key: &str, topic: &TopicName) {
    let mut config = vec![ConfigChange::Forget { topic: topic.into(), key: key.into() }];
    for partition in [Partition(0), Partition(1)] {
        let events = s.all(topic, partition.0).await;
        let gone = events.iter().filter(|event| event.key.as_deref() == Some(key));
        let offsets = Arc::new(gone.map(|event| event.offset).collect());
        config.push(ConfigChange::Discard { topic: topic.into(), partition, offsets, loss: Loss::default() });
    }
    must(s.commit(Commit { config, ..Commit::default() }).await, "a key can be forgotten");
    must(s.log.erase().await, "what was forgotten can be erased");
}
