//! Giving up on an answer.

use crate::Subject;
use crate::build::{numbered, partitions};
use crate::tasks::poll_once;
use prombus_core::{Commit, Event, EventLogExt, Offset};
use std::sync::Arc;

/// A commit whose answer nobody waits for may still happen, but only as a whole, and it harms nobody else.
pub async fn a_commit_that_was_given_up_is_still_whole(s: Subject) {
    const ROUNDS: usize = 50;
    let topic = s.create("dropped", partitions(1)).await;
    for round in 0..ROUNDS {
        let events = s.place(&topic, (0..3).map(|_| numbered(round)));
        let mut given_up = Box::pin(s.log.commit(Arc::new(Commit { events, ..Commit::default() })));
        let _ = poll_once(given_up.as_mut()).await;
        drop(given_up);
        let answered = s.published_one(&topic, numbered(ROUNDS + round)).await;
        assert!(!answered.duplicate, "other commits go on");
    }
    let events = s.all(&topic, 0).await;
    for (n, event) in events.iter().enumerate() {
        assert_eq!(event.offset, Offset(n as u64), "no gap is left");
    }
    let count = |n: usize| {
        let payload = numbered(n).event.payload;
        events.iter().filter(|event: &&Event| event.payload == payload).count()
    };
    for round in 0..ROUNDS {
        assert_eq!(count(ROUNDS + round), 1, "what was answered is there");
        let given_up = count(round);
        assert!(
            given_up == 0 || given_up == 3,
            "a commit that was given up happens as a whole or not at all"
        );
    }
}
