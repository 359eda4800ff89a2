//! Very much that happens at one moment. A look at each for each would take minutes here, and all of it is done under
//! the lock of the group.

mod refusals;

use super::{Settle, State};
use crate::groups::lease::{Lease, LeaseToken, Leases, Session};
use crate::groups::metrics::GroupMetrics;
use crate::groups::options::{GroupOptions, Mode};
use crate::groups::partition_queue::{PartitionQueue, Times};
use crate::groups::progress::Progress;
use prombus_core::{Epoch, TopicNumber};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const MANY: u64 = 60_000;

fn state(options: GroupOptions) -> (State, Times) {
    let session = Session { topic: TopicNumber(1), epoch: Epoch(1), seat: 0 };
    let mut queue = PartitionQueue::new(Progress::default(), 0, session.epoch);
    queue.owners = (options.mode == Mode::Partitioned).then_some(0);
    let leases = Leases::new(session, 0);
    let state = State::new((Arc::new(options), Ok(None)), vec![queue], leases, GroupMetrics::default());
    (state, Times { instant: Instant::now(), wall_ms: 1_000 })
}

/// Delivers the first events of the only partition.
fn deliver(state: &mut State, member: &Arc<str>, now: Times) -> Vec<LeaseToken> {
    let (first, deadline) = (state.leases.next_number(), now.instant + state.options.ack_timeout());
    let lease = |offset| {
        let (member, given) = (member.clone(), now.instant);
        Lease { partition: 0, offset, key: None, member, given, deadline }
    };
    let tokens = (0..MANY).map(|offset| state.leases.open(lease(offset))).collect();
    state.leases.opened(first, deadline);
    state.queues[0].in_flight += MANY;
    tokens
}

fn commit(state: &mut State, now: Times) {
    let (batch, _) = state.begin(Vec::new());
    state.committed(batch, now);
}

#[test]
fn many_nacks_with_one_delay_are_due_together() {
    let (mut state, now) = state(GroupOptions::default());
    let delay = Duration::from_secs(1);
    for lease in deliver(&mut state, &"m".into(), now) {
        assert!(state.settle(Settle::Nack { lease, reason: None, delay: Some(delay) }, now));
    }
    commit(&mut state, now);
    assert_eq!((state.next_tick(), state.has_cold()), (Some(now.instant + delay), false));
    state.tick(Times { instant: now.instant + delay, ..now });
    assert!(state.has_cold() && state.queues[0].held_back() == 0);
}

#[test]
fn many_leases_may_end_at_one_moment() {
    let (mut state, now) = state(GroupOptions { max_attempts: 2, ..GroupOptions::default() });
    for attempt in 1..=2 {
        for lease in deliver(&mut state, &"m".into(), now) {
            let by = Some(Duration::from_secs(1));
            assert!(state.settle(Settle::Extend { lease, by }, now));
        }
        state.tick(Times { instant: now.instant + Duration::from_secs(1), ..now });
        assert_eq!((state.leases.iter().count(), state.queues[0].in_flight), (0, 0), "attempt {attempt}");
        commit(&mut state, now);
    }
    let mut dead = 0;
    while state.needs_commit() {
        let (batch, buried) = state.begin(state.dying(64));
        dead += buried.len() as u64;
        state.committed(batch, now);
    }
    assert_eq!((dead, state.queues[0].progress.next()), (MANY, MANY));
}

#[test]
fn a_large_commit_settles_what_a_new_owner_has() {
    let (mut state, now) = state(GroupOptions { mode: Mode::Partitioned, ..GroupOptions::default() });
    let (before, after): (Arc<str>, Arc<str>) = ("before".into(), "after".into());
    state.join(&before, now.instant).unwrap();
    let tokens = deliver(&mut state, &before, now);
    let pledge = state.pledge(&tokens).unwrap();
    state.leave(&before, now.instant);
    state.join(&after, now.instant).unwrap();
    deliver(&mut state, &after, now);
    state.members.gave(&after, MANY as usize);
    state.redeem(pledge, now);
    assert_eq!((state.leases.iter().count(), state.queues[0].in_flight), (0, 0));
    assert_eq!((state.members.in_flight(&after), state.queues[0].progress.next()), (0, MANY));
}
