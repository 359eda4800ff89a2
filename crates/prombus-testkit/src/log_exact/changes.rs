//! Changes of topics: what they are refused for, and in which order they happen.

use crate::Subject;
use crate::build::{Draft, event, partitions, producer_id, topic};
use crate::subject::{must, refusal};
use crate::tasks::together;
use prombus_core::{
    Commit, CommitError, ConfigChange, Loss, Offset, Partition, TopicConfig, TopicFence, TopicName,
    TopicState,
};
use std::collections::HashSet;
use std::sync::Arc;

fn create(name: &TopicName, config: TopicConfig) -> ConfigChange {
    ConfigChange::CreateTopic { name: name.clone(), config }
}

fn delete(name: &TopicName) -> ConfigChange {
    ConfigChange::DeleteTopic { name: name.clone() }
}

fn alter(name: &TopicName, expect_revision: u64, config: TopicConfig) -> ConfigChange {
    ConfigChange::AlterTopic { name: name.clone(), expect_revision, config }
}

fn changes(config: Vec<ConfigChange>) -> Commit {
    Commit { config, ..Commit::default() }
}

/// A topic that exists cannot be made, not even with the same settings.
pub async fn a_topic_that_exists_cannot_be_made(s: Subject) {
    let name = s.create("made", partitions(2)).await;
    s.published(&name, [event("1")]).await;
    let before = s.topic(&name).await;
    for count in [2, 3] {
        let error = refusal(s.configure(create(&name, partitions(count))).await);
        assert_eq!(error, CommitError::TopicExists(name.clone()));
    }
    assert_eq!(s.topic(&name).await, before, "a refused change changes nothing");
    s.assert_holds(&name, 0, &["1"]).await;
}

/// A topic that does not exist cannot be changed, deleted or trimmed.
pub async fn a_missing_topic_cannot_be_changed(s: Subject) {
    let name = topic("never-made");
    let trim = ConfigChange::Trim {
        topic: (&name).into(),
        partition: Partition(0),
        before: Offset(0),
        loss: Loss::default(),
    };
    for change in [alter(&name, 1, partitions(1)), delete(&name), trim] {
        let error = refusal(s.configure(change.clone()).await);
        assert_eq!(error, CommitError::TopicNotFound(name.clone()), "{change:?}");
    }
    assert_eq!(must(s.log.topics().await, "topics can be listed"), []);
}

/// A change made from settings that are no longer those of the topic is refused.
pub async fn a_change_from_an_old_revision_is_refused(s: Subject) {
    let name = s.create("revised", partitions(1)).await;
    let first = s.topic(&name).await;
    must(s.configure(alter(&name, first.revision, partitions(2))).await, "settings can be changed");
    let second = s.topic(&name).await;
    assert!(second.revision > first.revision, "a change makes a new revision");
    assert_eq!(second.number, first.number, "a change makes no new topic");
    for wrong in [first.revision, second.revision + 1] {
        let error = refusal(s.configure(alter(&name, wrong, partitions(3))).await);
        assert_eq!(error, CommitError::TopicChanged(name.clone()));
    }
    assert_eq!(s.topic(&name).await, second, "a refused change changes nothing");
    s.published(&name, [event("1")]).await;
    assert_eq!(s.topic(&name).await, second, "publishing makes no new revision");
    must(s.configure(alter(&name, second.revision, partitions(3))).await, "the present revision is right");
}

/// Of changes made from the same revision at the same time, one wins.
pub async fn of_equal_revisions_one_wins(s: Subject) {
    let s = Arc::new(s);
    let name = s.create("contested", partitions(1)).await;
    for round in 0..10 {
        let revision = s.topic(&name).await.revision;
        let answers = together(6, |n| {
            let config = TopicConfig { retention_ms: round * 10 + n as u64, ..partitions(1) };
            let (s, change) = (s.clone(), alter(&name, revision, config));
            async move { s.configure(change).await }
        })
        .await;
        let winners: Vec<u64> = (0..6).filter(|n| answers[*n as usize].is_ok()).collect();
        assert_eq!(winners.len(), 1, "of changes from the same revision one wins");
        let found = s.topic(&name).await.config.retention_ms;
        assert_eq!(found, round * 10 + winners[0], "the one that was answered holds");
        for error in answers.into_iter().filter_map(Result::err) {
            assert_eq!(error, CommitError::TopicChanged(name.clone()));
        }
    }
}

/// Of many who make the same topic at the same time, one does.
pub async fn of_many_makers_one_wins(s: Subject) {
    let s = Arc::new(s);
    for round in 0..10 {
        let name = topic(&format!("made-by-many.{round}"));
        let answers = together(6, |n| {
            let (s, change) = (s.clone(), create(&name, partitions(n as u32 + 1)));
            async move { s.configure(change).await }
        })
        .await;
        let winners: Vec<u32> = (0..6).filter(|n| answers[*n as usize].is_ok()).collect();
        assert_eq!(winners.len(), 1, "a topic is made once");
        assert_eq!(s.topic(&name).await.config.partitions, winners[0] + 1, "the one that was answered holds");
        for error in answers.into_iter().filter_map(Result::err) {
            assert_eq!(error, CommitError::TopicExists(name.clone()));
        }
    }
}

/// Each topic that was ever made has a number of its own.
pub async fn no_topic_number_is_used_twice(s: Subject) {
    let mut numbers = HashSet::new();
    for name in ["numbers.a", "numbers.b", "numbers.a", "numbers.c", "numbers.a"] {
        if must(s.log.topic(&topic(name)).await, "topics can be looked up").is_some() {
            s.delete(&topic(name)).await;
        }
        let name = s.create(name, partitions(1)).await;
        assert!(numbers.insert(s.topic(&name).await.number), "no topic number is used twice");
    }
    // The greatest number is free, and still not used again.
    let last = s.create("numbers.d", partitions(1)).await;
    assert!(numbers.insert(s.topic(&last).await.number));
    s.delete(&last).await;
    let name = s.create("numbers.e", partitions(1)).await;
    assert!(numbers.insert(s.topic(&name).await.number), "the number of a deleted topic is not used again");
}

/// The changes of one commit happen in order, each on top of the earlier ones.
pub async fn changes_of_a_commit_happen_in_order(s: Subject) {
    let (a, b) = (topic("ordered.a"), topic("ordered.b"));
    let made = vec![create(&a, partitions(1)), create(&b, partitions(2)), delete(&a)];
    must(s.commit(changes(made)).await, "a topic can be made and deleted in one commit");
    assert_eq!(must(s.log.topic(&a).await, "topics can be looked up"), None);
    s.published(&b, [event("1").key("k")]).await;
    let before = s.topic(&b).await;
    let grown = vec![alter(&b, before.revision, partitions(3)), create(&a, partitions(1))];
    must(s.commit(changes(grown)).await, "a commit can change two topics");
    assert_eq!(s.topic(&b).await.config.partitions, 3);
    must(s.commit(changes(vec![delete(&b), create(&b, partitions(1))])).await, "and replace one");
    let after = s.topic(&b).await;
    assert_ne!(after.number, before.number, "a topic that is made again is another one");
    s.assert_holds(&b, 0, &[]).await;
    assert_eq!(s.latest(&b, "k").await, None, "nothing of its earlier life is left");
}

/// Of several changes in one commit, all happen or none.
pub async fn changes_happen_as_a_whole_or_not_at_all(s: Subject) {
    let kept = s.create("whole.kept", partitions(2)).await;
    s.published(&kept, [event("1"), event("2")]).await;
    let before = s.topic(&kept).await;
    let new = topic("whole.new");
    let trim = ConfigChange::Trim {
        topic: (&kept).into(),
        partition: Partition(0),
        before: Offset(1),
        loss: Loss::default(),
    };
    let good =
        [create(&new, partitions(1)), trim, alter(&kept, before.revision, partitions(5)), delete(&kept)];
    let bad = [
        (create(&new, partitions(1)), CommitError::TopicExists(new.clone())),
        (alter(&new, 999, partitions(1)), CommitError::TopicChanged(new.clone())),
        (delete(&topic("whole.missing")), CommitError::TopicNotFound(topic("whole.missing"))),
        (delete(&kept), CommitError::TopicNotFound(kept.clone())),
    ];
    for (bad, expected) in bad {
        let error = refusal(s.commit(changes(good.iter().cloned().chain([bad]).collect())).await);
        assert_eq!(error, expected, "each change is checked on top of the earlier ones");
        assert_eq!(must(s.log.topic(&new).await, "topics can be looked up"), None, "nothing is made");
        assert_eq!(s.topic(&kept).await, before, "nothing is changed or deleted");
        s.assert_holds(&kept, 0, &["1", "2"]).await;
    }
}

/// Events that were made for a topic as it was are refused where it is another by then, and all of their commit with them.
pub async fn events_for_a_topic_as_it_was_are_refused(s: Subject) {
    let (name, other) = (topic("seen"), s.create("seen.other", partitions(1)).await);
    let publish = |now: Option<&TopicState>| Commit {
        events: [s.place(&other, [event("0")]), s.place(&name, [event("1")])].concat(),
        auto_create: Some(Arc::default()),
        expected_topics: vec![TopicFence::of(&name, now)],
        ..Commit::default()
    };
    let mut taken = 0;
    let mut takes = |commit: Commit, why: &'static str| {
        taken += 1;
        let s = &s;
        async move { must(s.commit(commit).await, why) }
    };
    takes(publish(None), "there is no such topic yet").await;
    let first = s.topic(&name).await;
    takes(publish(None), "one that was never changed is as good as none").await;
    takes(publish(Some(&first)), "it is the same").await;
    must(
        s.configure(alter(&name, first.revision, first.config.clone())).await,
        "it can be changed to the same",
    );
    let second = s.topic(&name).await;
    takes(publish(Some(&second)), "it is as it was seen").await;
    let and_alter = |now: &TopicState| Commit {
        config: vec![alter(&name, second.revision, partitions(2))],
        ..publish(Some(now))
    };
    takes(and_alter(&second), "what the commit itself changes was not there before").await;
    let third = s.topic(&name).await;
    let refuses = |commit: Commit| {
        let (s, outdated) = (&s, CommitError::Outdated(name.clone()));
        async move { assert_eq!(refusal(s.commit(commit).await), outdated) }
    };
    for before in [None, Some(&first), Some(&second)] {
        refuses(publish(before)).await;
    }
    must(s.configure(delete(&name)).await, "it can be deleted");
    refuses(publish(Some(&third))).await;
    assert_eq!(must(s.log.topic(&name).await, "topics can be looked up"), None, "nothing is made");
    takes(publish(None), "there is none again").await;
    refuses(publish(Some(&first))).await;
    s.assert_holds(&other, 0, &vec!["0"; taken]).await;
    s.assert_holds(&name, 0, &["1"]).await;
}

/// Events that may only be duplicates are refused if they are new, and all of their commit with them. What is remembered of an
/// id decides that, whether its event is still there or not.
pub async fn events_that_may_only_be_duplicates_are_refused_if_they_are_new(s: Subject) {
    let name = s.create("again", partitions(1)).await;
    let known = |n: u64| event("1").id(producer_id(n));
    let commit = |drafts: Vec<Draft>, only_duplicates: &[usize]| Commit {
        events: s.place(&name, drafts),
        only_duplicates: only_duplicates.to_vec(),
        ..Commit::default()
    };
    must(s.commit(commit(vec![known(1), known(2)], &[])).await, "nothing is asked for");
    s.trim(&name, 0, 1).await;
    let again = commit(vec![known(2), event("2"), known(1)], &[0, 2]);
    let again = must(s.commit(again).await, "both are there");
    assert_eq!(again.events.iter().map(|event| event.duplicate).collect::<Vec<_>>(), [true, false, true]);
    for (drafts, only_duplicates, index) in [
        (vec![event("3"), known(3)], &[1][..], 1),
        (vec![event("3"), known(1)], &[0, 1], 0),
        (vec![known(1), known(3), known(3)], &[0, 1, 2], 1),
    ] {
        let refused = refusal(s.commit(commit(drafts, only_duplicates)).await);
        assert_eq!(refused, CommitError::NotDuplicate { index });
    }
    let within = commit(vec![known(3), known(3)], &[1]);
    let within = must(s.commit(within).await, "the second repeats the first");
    assert_eq!(within.events.iter().map(|event| event.duplicate).collect::<Vec<_>>(), [false, true]);
    let conflict = refusal(s.commit(commit(vec![event("2").id(producer_id(1))], &[0])).await);
    assert_eq!(conflict, CommitError::IdConflict { index: 0, id: producer_id(1) });
    let kept = s.all(&name, 0).await;
    let payloads: Vec<&[u8]> = kept.iter().map(|event| event.payload.as_bytes()).collect();
    assert_eq!(payloads, [b"1", b"2", b"1"], "nothing of what was refused is there");
}
