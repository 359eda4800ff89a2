//! What was said and found no room: it was not accepted, and is counted when it is.

use super::{Settle, deliver, state};
use crate::groups::metrics::GroupMetrics;
use crate::groups::options::{GroupOptions, Mode};
use std::sync::Arc;

#[test]
fn what_is_refused_after_a_move_was_not_accepted() {
    let (mut state, now) = state(GroupOptions { mode: Mode::Partitioned, ..GroupOptions::default() });
    let (before, after): (Arc<str>, Arc<str>) = ("before".into(), "after".into());
    state.join(&before, now.instant).unwrap();
    let tokens = deliver(&mut state, &before, now);
    let ack = Settle::Ack(tokens[0]);
    let nack = Settle::Nack { lease: tokens[1], reason: None, delay: None };
    assert!(state.settle(ack.clone(), now) && state.settle(nack.clone(), now));
    let (batch, _) = state.begin(Vec::new());
    state.leave(&before, now.instant);
    state.join(&after, now.instant).unwrap();
    assert_eq!(state.refused(batch, now).0.len(), 2);
    assert!(state.queues[0].progress.is_open(tokens[0].number), "the new owner gets it");
    assert!(!state.settle(ack, now) && !state.settle(nack, now), "nothing was settled");
}

/// Acks, nacks, and times of handlers.
fn counted(metrics: &GroupMetrics) -> (u64, u64, u64) {
    let times = metrics.times.handlers.counts().iter().sum();
    (metrics.counters.acked.get(), metrics.counters.nacked.get(), times)
}

#[test]
fn what_is_refused_is_counted_when_it_is_accepted() {
    let (mut state, now) = state(GroupOptions::default());
    let metrics = state.metrics.clone();
    let tokens = deliver(&mut state, &"m".into(), now);
    let said = [
        Settle::Ack(tokens[0]),
        Settle::Nack { lease: tokens[1], reason: None, delay: None },
        Settle::Bury { lease: tokens[2], reason: "hopeless".into() },
    ];
    for _ in 0..2 {
        said.iter().for_each(|said| assert!(state.settle(said.clone(), now)));
        let dying = state.dying(64);
        let (mut batch, buried) = state.begin(dying);
        assert_eq!(state.exhume(&mut batch, &buried, now).len(), 1);
        assert_eq!(state.refused(batch, now).0.len(), 2);
        state.flush_times();
        assert_eq!(counted(&metrics), (0, 0, 0), "nothing has happened");
    }
    said.iter().for_each(|said| assert!(state.settle(said.clone(), now)));
    let dying = state.dying(64);
    let (batch, _) = state.begin(dying);
    state.committed(batch, now);
    assert_eq!(counted(&metrics), (1, 2, 3));
}
