//! Two hubs on one store: one stalls, the other takes over, and the first comes back. Nothing is doubled, and nothing lost.

use crate::groups::stage::{append as numbered, begins_to_wait, group_name};
use crate::projections::stage::{append, counter, moves_cursors};
use crate::support::stage::{LONG, Stage, topic_name};
use prombus_core::homes::SharedHomes;
use prombus_core::*;
use prombus_engine::commits::{CommitRefused, CommitRequest};
use prombus_engine::groups::{
    Delivery, Group, GroupCall, GroupError, LeaseToken, OptionsPatch, Pull, Replay, ReplayTo, Settle,
    SettleCall,
};
use prombus_engine::projections::{ProjectionState, ProjectionStatus};
use prombus_engine::query::From;
use prombus_store_memory::MemoryStore;
use prombus_testkit::stalling::{Stall, StallingHomes};
use serde_json::json;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// No time passes but by hand, so this is never over by itself.
const TTL_MS: u64 = 60_000;
const COUNTERS: u64 = 7;

struct Pair {
    one: Stage,
    other: Stage,
    /// That the first one is stalled.
    stall: Arc<Stall>,
    clock: Arc<ManualClock>,
}

impl Pair {
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::at(1_754_683_200_000));
        let store = Arc::new(MemoryStore::new(clock.clone(), 1));
        let (shared, stall) = (SharedHomes::new(clock.clone(), Some(TTL_MS)), Stall::new());
        let inner = shared.hub("one");
        let homes = Arc::new(StallingHomes { inner, stall: stall.clone() });
        let one = Stage::sharing(store.clone(), clock.clone(), homes).await;
        let other = Stage::sharing(store, clock.clone(), Arc::new(shared.hub("other"))).await;
        Self { one, other, stall, clock }
    }

    /// The first hub says nothing until its time is over, while whatever moves a cursor is on its way to the store.
    fn stall(&self) {
        self.stall.set(true);
        self.clock.advance(TTL_MS);
    }

    /// It comes back.
    fn resume(&self) {
        self.one.log.release();
        self.stall.set(false);
    }
}

async fn group(s: &Stage) -> Result<Arc<Group>, GroupError> {
    let call = GroupCall { from: From::Earliest, ..GroupCall::default() };
    Ok(s.hub.group(&topic_name("t"), &group_name("g"), &call).await?.0)
}

async fn pulled(group: &Arc<Group>, max: usize) -> Vec<Delivery> {
    let pull = Pull { max, wait: LONG, ..Pull::default() };
    group.pull(&pull).await.expect("the group is at home here")
}

async fn publish_numbers(s: &Stage, numbers: std::ops::Range<u64>) {
    let events = numbers.map(|number| numbered(&topic_name("t"), Some("k"), number)).collect();
    s.hub.publish(events).await.expect("any hub publishes");
}

async fn said(group: &Arc<Group>, settles: impl IntoIterator<Item = Settle>) -> Vec<bool> {
    let settles = settles.into_iter().map(Some).collect();
    let results = group.settle(SettleCall { settles }).await.expect("an answer for each lease");
    results.into_iter().map(|result| result.is_done()).collect()
}

/// Everything that can be said of a lease, none of which holds.
async fn assert_void(s: &Stage, group: &Arc<Group>, lease: LeaseToken) {
    let nack = Settle::Nack { lease, reason: None, delay: None };
    let all = [Settle::Extend { lease, by: None }, Settle::Ack(lease), nack];
    assert_eq!(said(group, all).await, [false; 3]);
    let commit = s.hub.commit(CommitRequest { acks: vec![lease], ..CommitRequest::default() }).await;
    assert!(matches!(commit, Err(CommitRefused::LeaseExpired(spent)) if spent == lease), "{commit:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_goes_with_its_topic() {
    let pair = Pair::new().await;
    publish_numbers(&pair.one, 0..3).await;
    let before = group(&pair.one).await.unwrap();
    let [first] = &pulled(&before, 1).await[..] else { panic!("one is delivered") };
    let elsewhere = group(&pair.other).await.err();
    assert!(matches!(elsewhere, Some(GroupError::Home(HomesError::Elsewhere { .. }))), "{elsewhere:?}");
    pair.stall();
    let after = group(&pair.other).await.unwrap();
    let [again] = &pulled(&after, 1).await[..] else { panic!("it is delivered again") };
    assert_eq!((again.event.offset, again.attempt), (first.event.offset, 1), "no attempt is counted");
    assert!(again.lease.session.epoch > first.lease.session.epoch);
    pair.resume();
    assert_void(&pair.one, &before, first.lease).await;
    let lost = before.pull(&Pull::default()).await.err();
    assert!(matches!(lost, Some(GroupError::Home(HomesError::Lost(_)))), "{lost:?}");
    assert_eq!(said(&after, [Settle::Ack(again.lease)]).await, [true]);
    // Handed over cleanly, it goes on at once.
    pair.other.hub.close().await;
    let back = group(&pair.one).await.unwrap();
    let rest: Vec<u64> = pulled(&back, 1).await.iter().map(|delivery| delivery.event.offset.0).collect();
    assert_eq!(rest, [1], "what was acked elsewhere is not delivered again");
}

/// Two hubs, of which one stalls while it stores an ack of the first of two events.
async fn stalled_in_an_ack() -> (Pair, JoinHandle<Vec<bool>>) {
    let pair = Pair::new().await;
    publish_numbers(&pair.one, 0..2).await;
    let group = group(&pair.one).await.unwrap();
    let lease = pulled(&group, 1).await[0].lease;
    pair.one.log.hold(moves_cursors);
    let ack = tokio::spawn(async move { said(&group, [Settle::Ack(lease)]).await });
    pair.one.log.until_held(1).await;
    pair.stall();
    (pair, ack)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ack_that_comes_after_the_takeover_is_refused() {
    let (pair, ack) = stalled_in_an_ack().await;
    let after = group(&pair.other).await.unwrap();
    let again = pulled(&after, 1).await;
    assert_eq!(again[0].event.offset, Offset(0));
    pair.resume();
    assert_eq!(ack.await.unwrap(), [false], "the other hub has the event under a lease");
    assert_eq!(said(&after, [Settle::Ack(again[0].lease)]).await, [true]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ack_that_is_on_its_way_when_the_topic_is_lost_is_answered_as_it_ends() {
    let (pair, ack) = stalled_in_an_ack().await;
    let before = group(&pair.one).await.unwrap();
    group(&pair.other).await.unwrap();
    // The first one hears of that while the store has not answered yet.
    pair.stall.set(false);
    let lost = before.pull(&Pull::default()).await.err();
    assert!(matches!(lost, Some(GroupError::Home(HomesError::Lost(_)))), "{lost:?}");
    pair.one.log.release();
    assert_eq!(ack.await.unwrap(), [true], "it was taken, so nobody gets the event again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ack_that_comes_before_anything_was_delivered_counts() {
    let (pair, ack) = stalled_in_an_ack().await;
    let after = group(&pair.other).await.unwrap();
    // The other one has looked at the group, and not delivered anything.
    pair.resume();
    assert_eq!(ack.await.unwrap(), [true]);
    let gone_on = async {
        loop {
            let Ok(group) = group(&pair.other).await else { continue };
            if let Ok(deliveries) = group.pull(&Pull { wait: LONG, ..Pull::default() }).await {
                return deliveries[0].event.offset;
            }
        }
    };
    let next = tokio::time::timeout(LONG, gone_on).await.expect("it goes on");
    assert_eq!(next, Offset(1), "what was acked is not delivered again");
    drop(after);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_go_back_where_their_topic_is_at_home() {
    let pair = Pair::new().await;
    publish_numbers(&pair.one, 0..2).await;
    let call = GroupCall {
        from: From::Earliest,
        options: OptionsPatch { max_attempts: Some(1), ..OptionsPatch::default() },
    };
    let dying = pair.one.hub.group(&topic_name("t"), &group_name("g"), &call).await.unwrap().0;
    for _ in 0..2 {
        let lease = pulled(&dying, 1).await[0].lease;
        assert_eq!(said(&dying, [Settle::Nack { lease, reason: None, delay: None }]).await, [true]);
    }
    let to_topic = |limit| Replay { to: ReplayTo::Topic, limit: Some(limit), ..Replay::default() };
    let replayed = async |s: &Stage, limit| s.hub.replay(&topic_name("t"), to_topic(limit)).await;
    assert_eq!(replayed(&pair.one, 1).await.unwrap().replayed, 1);
    let elsewhere = replayed(&pair.other, 2).await.err();
    assert!(matches!(elsewhere, Some(GroupError::Home(HomesError::Elsewhere { .. }))), "{elsewhere:?}");
    let key = CursorKey { topic: topic_name("dlq.t"), reader: "replayed".into(), partition: Partition(0) };
    let epoch = async || pair.one.log.cursor(&key).await.unwrap().expect("it is noted").epoch;
    let before = epoch().await;
    pair.stall();
    assert_eq!(replayed(&pair.other, 2).await.unwrap().replayed, 1, "the other hub has the topic now");
    assert!(epoch().await > before);
    pair.resume();
    let lost = replayed(&pair.one, 2).await.err();
    assert!(matches!(lost, Some(GroupError::Home(_))), "{lost:?}");
    assert_eq!(pair.one.events(&topic_name("t")).await.len(), 4, "each letter went back once");
}

async fn publish(s: &Stage, numbers: std::ops::Range<u64>) {
    let payload = |n: u64| json!({"k": format!("c{}", n % COUNTERS), "v": n});
    let events = numbers.map(|n| append(&topic_name("t"), Some(&format!("e{n}")), &payload(n))).collect();
    s.hub.publish(events).await.expect("any hub publishes");
}

/// Waits until a hub has projected everything, and checks that each event counts once.
async fn assert_exact(s: &Stage, published: u64) {
    let is_through = |status: &ProjectionStatus| {
        status.partitions.iter().map(|at| at.next.0).sum::<u64>() == published
            && status.state == ProjectionState::Running
    };
    let looked = async {
        while !s.hub.projections().get("p").await.is_ok_and(|status| is_through(&status)) {
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(LONG, looked).await.is_err() {
        panic!("it does not get there: {:#?}", s.hub.projections().get("p").await);
    }
    for counter in 0..COUNTERS {
        let mine = (0..published).filter(|n| n % COUNTERS == counter);
        let (count, sum) = mine.fold((0, 0), |(count, sum), n| (count + 1, sum + n));
        let document = s.document("counts", &format!("c{counter}")).await.expect("a counter");
        assert_eq!((&document["n"], &document["sum"]), (&json!(count), &json!(sum)), "counter {counter}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_projection_goes_with_its_topic() {
    let pair = Pair::new().await;
    pair.one.topic("t", 3).await;
    // Both hubs hear of the projection at once: this one has the topic already.
    drop(group(&pair.one).await.unwrap());
    pair.one.put("p", counter("t", "counts")).await;
    publish(&pair.one, 0..500).await;
    assert_exact(&pair.one, 500).await;
    pair.one.log.hold(moves_cursors);
    publish(&pair.other, 500..1_000).await;
    pair.one.log.until_held(1).await;
    pair.stall();
    // It was defined through the first hub.
    assert_exact(&pair.other, 1_000).await;
    pair.resume();
    publish(&pair.one, 1_000..1_500).await;
    assert_exact(&pair.other, 1_500).await;
    let is_elsewhere = |status: &ProjectionStatus| matches!(status.state, ProjectionState::Stopped(_));
    pair.one.until("p", "it learns that the topic is elsewhere", is_elsewhere).await;
    pair.other.hub.close().await;
    publish(&pair.one, 1_500..2_000).await;
    assert_exact(&pair.one, 2_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_are_followed_whoever_changes_them() {
    let pair = Pair::new().await;
    pair.one.topic("t", 1).await;
    pair.one.put("p", counter("t", "counts")).await;
    let known = async || pair.other.hub.projections().get("p").await;
    let follows = async |what: &str, holds: &dyn Fn(Option<ProjectionStatus>) -> bool| {
        let looked = async {
            while !holds(known().await.ok()) {
                tokio::task::yield_now().await;
            }
        };
        assert!(tokio::time::timeout(LONG, looked).await.is_ok(), "{what}");
    };
    follows("it is made", &|status| status.is_some()).await;
    let mut changed = counter("t", "counts");
    changed["retries"] = json!(7);
    pair.one.put("p", changed).await;
    follows("it is changed", &|status| status.is_some_and(|status| status.definition.retries == Some(7)))
        .await;
    pair.one.hub.projections().delete("p").await.unwrap();
    follows("it is deleted", &|status| status.is_none()).await;
}

/// What a cursor becomes, whoever moves it.
async fn move_options(s: &Stage, to: impl FnOnce(String) -> Option<String>) {
    let key = CursorKey { topic: topic_name("t"), reader: "group-options:g".into(), partition: Partition(0) };
    let now = s.log.cursor(&key).await.unwrap().expect("the group is stored");
    let text = String::from_utf8(now.detail.to_vec()).unwrap();
    let to = to(text).map(|text| CursorTarget { next: now.next, detail: text.into() });
    let (expect_version, epoch) = (now.version, now.epoch);
    let cursors = vec![CursorMove { key, incarnation: None, expect_version, epoch, to }];
    s.log.commit(Arc::new(Commit { cursors, ..Commit::default() })).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_is_as_it_is_stored() {
    let s = Stage::memory().await;
    s.topic("t", 1).await;
    let before = group(&s).await.unwrap();
    move_options(&s, |text| Some(text.replace("\"maxAttempts\":5", "\"maxAttempts\":3"))).await;
    let after = group(&s).await.unwrap();
    assert!(Arc::ptr_eq(&before, &after), "consumers stay where they are");
    assert_eq!(after.options().max_attempts, 3);
    move_options(&s, |_| None).await;
    let gone = s.hub.groups().find(&topic_name("t"), &group_name("g")).await.err();
    assert!(matches!(gone, Some(GroupError::NotFound { .. })), "{gone:?}");
}

async fn another_group(s: &Stage) -> Arc<Group> {
    let call = GroupCall { from: From::Earliest, ..GroupCall::default() };
    s.hub.group(&topic_name("t"), &group_name("another"), &call).await.unwrap().0
}

#[tokio::test(start_paused = true)]
async fn who_waits_hears_that_the_topic_is_lost() {
    let pair = Pair::new().await;
    publish_numbers(&pair.one, 0..1).await;
    let (before, another) = (group(&pair.one).await.unwrap(), another_group(&pair.one).await);
    pulled(&before, 1).await;
    let [delivery] = &pulled(&another, 1).await[..] else { panic!("one is delivered") };
    let pull = Pull { max: 1, wait: LONG, ..Pull::default() };
    let mut waiting = pin!(before.pull(&pull));
    begins_to_wait(waiting.as_mut()).await;
    pair.stall();
    group(&pair.other).await.unwrap();
    pair.resume();
    // Whoever acts first finds it out, and all others hear of it.
    assert_eq!(said(&another, [Settle::Ack(delivery.lease)]).await, [false]);
    let told = Instant::now();
    assert!(waiting.await.is_err());
    assert_eq!(told.elapsed(), Duration::ZERO, "no time passes unless there is nothing else to wait for");
}

#[tokio::test]
async fn another_group_of_the_topic_voids_no_lease() {
    let pair = Pair::new().await;
    publish_numbers(&pair.one, 0..1).await;
    let first = group(&pair.one).await.unwrap();
    let [delivery] = &pulled(&first, 1).await[..] else { panic!("one is delivered") };
    assert_eq!(pulled(&another_group(&pair.one).await, 1).await.len(), 1);
    assert_eq!(said(&first, [Settle::Ack(delivery.lease)]).await, [true]);
}
