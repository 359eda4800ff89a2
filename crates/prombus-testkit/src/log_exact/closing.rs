//! Closing a store.

use crate::Subject;
use crate::build::{numbered, partitions};
use crate::subject::refusal;
use crate::tasks::{joined, together};
use prombus_core::{Commit, CommitError, ConfigChange};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[track_caller]
fn assert_unavailable(error: &CommitError) {
    assert!(
        matches!(error, CommitError::Unavailable(_)),
        "a closed store says that it is, and not {error:?}"
    );
}

/// A closed store takes no commits, and says why. Closing twice is closing once.
pub async fn a_closed_store_takes_no_commits(s: Subject) {
    let topic = s.create("closed", partitions(1)).await;
    let events = s.place(&topic, [numbered(0)]);
    assert_eq!(s.log.status().failed, None, "an open store takes commits");
    assert!(!s.log.status().kind.is_empty(), "a store says what kind it is");
    for _ in 0..2 {
        s.log.close().await;
        let commit = Commit { events: events.clone(), ..Commit::default() };
        assert_unavailable(&refusal(s.commit(commit.clone()).await));
        assert!(s.log.enqueue(Arc::new(commit)).await.is_err(), "it gives no commit a place");
        let change = ConfigChange::DeleteTopic { name: topic.clone() };
        assert_unavailable(&refusal(s.configure(change).await));
        assert!(s.log.status().failed.is_some(), "the status says why it takes no commits");
    }
}

/// A commit that meets the closing either happens, or is told that the store is closed.
pub async fn commits_that_meet_the_closing_are_answered(s: Subject) {
    let s = Arc::new(s);
    let topic = s.create("closing", partitions(1)).await;
    let placed = s.place(&topic, [numbered(0)]);
    let closed = Arc::new(AtomicBool::new(false));
    let closer = {
        let (s, topic, closed) = (s.clone(), topic.clone(), closed.clone());
        tokio::spawn(async move {
            // Not before the writers have begun.
            while s.bounds(&topic, 0).await.next.0 < 10 {
                tokio::task::yield_now().await;
            }
            together(2, |_| {
                let s = s.clone();
                async move { s.log.close().await }
            })
            .await;
            closed.store(true, Ordering::SeqCst);
        })
    };
    let last = together(4, |_| {
        let (s, placed, closed) = (s.clone(), placed.clone(), closed.clone());
        async move {
            loop {
                let was_closed = closed.load(Ordering::SeqCst);
                match s.commit(Commit { events: placed.clone(), ..Commit::default() }).await {
                    Err(error) => return error,
                    Ok(receipt) => assert!(!was_closed, "a closed store takes no commits: {receipt:?}"),
                }
                // A store that is never busy would leave the closer no time.
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    joined(closer).await;
    last.iter().for_each(assert_unavailable);
}
