//! The model holds for two memory stores, and would notice if it did not.

use prombus_core::{Appended, Commit, CommitError, ManualClock};
use prombus_store_memory::MemoryStore;
use prombus_testkit::Subject;
use prombus_testkit::build::{event, partitions, producer_id};
use prombus_testkit::model::{Answered, Dump, Model, Options, assert_same};
use std::collections::BTreeMap;
use std::sync::Arc;

const START: u64 = 1_754_683_200_000;

fn memory(clock: &Arc<ManualClock>, seed: u64) -> Subject {
    Subject::new(Arc::new(MemoryStore::new(clock.clone(), seed)), clock.clone())
}

fn setting(seed: u64) -> (Model, Subject, Subject) {
    let clock = Arc::new(ManualClock::at(START));
    let stores = (memory(&clock, seed), memory(&clock, seed + 1_000));
    (Model::new(Options::new(seed, clock)), stores.0, stores.1)
}

/// The kinds of answers that the ports know, but for those of a store that is full or broken.
const KINDS: [&str; 14] = [
    "appended",
    "BadWrite",
    "CursorMoved",
    "duplicate",
    "ExpectationFailed",
    "IdConflict",
    "NoSuchPartition",
    "PartitionsShrink",
    "TooManyTopics",
    "TopicChanged",
    "TopicExists",
    "TopicNotFound",
    "TopicReplaced",
    "VersionConflict",
];

#[tokio::test]
async fn two_memory_stores_are_the_same() {
    let mut kinds = BTreeMap::<String, usize>::new();
    for seed in 0..20 {
        let (mut model, a, b) = setting(seed);
        let mut taken = 0;
        for step in 1..=300 {
            let answer = model.step(&[&a, &b]).await;
            taken += usize::from(answer.is_ok());
            for kind in kinds_of(&answer) {
                *kinds.entry(kind).or_default() += 1;
            }
            if step % 60 == 0 {
                assert_same(&a, &b).await;
            }
        }
        assert!((150..290).contains(&taken), "{taken} of 300 were taken: neither all nor too few");
    }
    for kind in KINDS {
        let count = kinds.get(kind).copied().unwrap_or_default();
        assert!(count >= 10, "the model finds its way to {kind} too seldom: {kinds:?}");
    }
}

fn kinds_of(answer: &Answered) -> Vec<String> {
    match answer {
        Ok(receipt) => {
            let kind = |event: &Appended| if event.duplicate { "duplicate" } else { "appended" };
            receipt.events.iter().map(|event| kind(event).to_owned()).collect()
        }
        Err(error) => {
            let name = format!("{error:?}");
            vec![name.split(['(', ' ']).next().unwrap_or_default().to_owned()]
        }
    }
}

#[tokio::test]
async fn a_commit_in_doubt_is_there_or_not() {
    let (mut model, a, b) = setting(7);
    let mut survived = 0;
    for step in 0..200 {
        let proposal = model.propose(&a).await;
        // The second store is killed, sometimes before and sometimes after the commit got through.
        if step % 2 == 0 {
            let _answer: Result<_, CommitError> = b.commit(model.commit_for(1, &proposal)).await;
        }
        survived += usize::from(model.settle_in_doubt(&proposal, &a, &b).await);
    }
    assert_same(&a, &b).await;
    assert!(survived > 50, "{survived}");
}

/// Whatever a store has more than the other, the comparison finds it.
#[tokio::test]
async fn differences_are_found() {
    for part in 0..4 {
        let (mut model, a, b) = setting(3);
        let mut extra = Commit::default();
        let is_enough = |extra: &Commit| match part {
            0 => !extra.events.is_empty(),
            1 => !extra.documents.is_empty(),
            2 => !extra.cursors.is_empty(),
            _ => !extra.config.is_empty(),
        };
        // A commit from the middle of the run, of which just one part happens, in just one of the stores.
        while !is_enough(&extra) {
            let _ = model.step(&[&a, &b]).await;
            let proposed = model.propose(&a).await;
            let commit = model.commit_for(1, &proposed);
            let one_part = match part {
                0 => Commit { events: commit.events, ..Commit::default() },
                1 => Commit { documents: commit.documents, ..Commit::default() },
                2 => Commit { cursors: commit.cursors, ..Commit::default() },
                _ => Commit { config: commit.config, ..Commit::default() },
            };
            let before = Dump::of(&b).await;
            let taken = b.commit(one_part.clone()).await.is_ok();
            if taken && Dump::of(&b).await != before {
                extra = one_part;
            }
        }
        let compared = tokio::spawn(async move { assert_same(&a, &b).await }).await;
        assert!(compared.is_err_and(|error| error.is_panic()), "the comparison is blind to {extra:?}");
    }
}

/// An event with the same content and another id is another event, unless stores made the ids.
#[tokio::test]
async fn producers_ids_are_compared() {
    let (_, a, b) = setting(1);
    let (one, two) = (producer_id(1), producer_id(2));
    for (store, id) in [(&a, one), (&b, two)] {
        let topic = store.create("m.a", partitions(1)).await;
        store.published(&topic, [event("1")]).await;
        store.published(&topic, [event("1").id(id)]).await;
    }
    let compared = tokio::spawn(async move { assert_same(&a, &b).await }).await;
    assert!(compared.is_err_and(|error| error.is_panic()), "producers' ids are not renamed");
}
