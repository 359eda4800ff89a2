//! Until when a topic is complete.

use crate::Subject;
use crate::build::{numbered, partitions, topic};
use crate::subject::must;
use crate::tasks::{joined, together};
use prombus_core::{Clock, Event, Partition, ReadError, TopicName};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const HOUR: u64 = 3_600_000;
const PARTITIONS: u32 = 3;

async fn horizon(s: &Subject, topic: &TopicName, past: u64) -> u64 {
    let horizon = must(s.log.advance_horizon(topic, past).await, "a topic has a horizon");
    assert!(horizon > past, "{horizon} is not past {past}");
    horizon
}

/// When an event is recorded that is published now.
async fn recorded_now(s: &Subject, topic: &TopicName, partition: u32) -> u64 {
    s.published(topic, [numbered(0).in_partition(partition)]).await;
    let all = s.all(topic, partition).await;
    all[all.len() - 1].recorded_ts
}

/// What comes after a horizon is recorded at it or later, though the clock stands or steps back.
pub async fn what_comes_after_a_horizon_is_not_before_it(s: Subject) {
    let topic = s.create("horizon", partitions(PARTITIONS)).await;
    let mut last = 0;
    for (n, past) in [0, 0, 1, 5_000, 0].into_iter().enumerate() {
        let recorded = recorded_now(&s, &topic, n as u32 % PARTITIONS).await;
        let horizon = horizon(&s, &topic, recorded + past).await;
        assert!(horizon >= last, "a horizon never falls");
        last = horizon;
        s.clock().set(s.clock().now_ms() - n as u64);
        let after = recorded_now(&s, &topic, (n as u32 + 1) % PARTITIONS).await;
        assert!(after >= horizon, "recorded at {after}, after a horizon of {horizon}");
    }
    s.grow(&topic, PARTITIONS + 1).await;
    let horizon = horizon(&s, &topic, last + HOUR).await;
    s.grow(&topic, PARTITIONS + 3).await;
    for partition in [PARTITIONS, PARTITIONS + 2] {
        let after = recorded_now(&s, &topic, partition).await;
        assert!(after >= horizon, "recorded at {after} in a new partition, after a horizon of {horizon}");
    }
    s.clock().advance(2 * HOUR);
    let now = s.clock().now_ms();
    assert_eq!(recorded_now(&s, &topic, 0).await, now, "the clock counts again once it is ahead");
}

/// What was done after a horizon keeps it, also for who opens the store again with another clock.
pub async fn a_horizon_outlives_the_store(s: Subject) {
    let topic = s.create("horizon.kept", partitions(PARTITIONS)).await;
    let recorded = recorded_now(&s, &topic, 0).await;
    let horizon = horizon(&s, &topic, recorded + HOUR).await;
    s.trim(&topic, 0, 1).await;
    s.clock().set(recorded - HOUR);
    let s = s.reopened().await;
    let after = recorded_now(&s, &topic, 1).await;
    assert!(after >= horizon, "recorded at {after}, after a horizon of {horizon}");
}

/// The horizon of a topic that does not exist is an error; that of a closed store is answered, one way or another.
pub async fn a_horizon_is_of_a_topic_that_is_there(s: Subject) {
    let missing = topic("horizon.missing");
    assert_eq!(s.log.advance_horizon(&missing, 0).await, Err(ReadError::TopicNotFound(missing)));
    let topic = s.create("horizon.closed", partitions(PARTITIONS)).await;
    let past = horizon(&s, &topic, 0).await + HOUR;
    s.log.close().await;
    if let Ok(horizon) = s.log.advance_horizon(&topic, past).await {
        assert!(horizon > past);
    }
}

/// Whoever asks is answered, though nothing else happens and others ask at the same moment.
pub async fn a_horizon_needs_no_commit(s: Subject) {
    const ASKERS: usize = 4;
    const ROUNDS: usize = 300;
    let s = Arc::new(s);
    let topic = s.create("horizon.quiet", partitions(PARTITIONS)).await;
    together(ASKERS, |_| {
        let (s, topic) = (s.clone(), topic.clone());
        async move {
            let mut past = 0;
            for _ in 0..ROUNDS {
                past = horizon(&s, &topic, past).await;
            }
        }
    })
    .await;
}

async fn places_before(s: &Subject, topic: &TopicName, horizon: u64) -> Vec<(Partition, u64)> {
    let mut all = Vec::new();
    for partition in 0..PARTITIONS {
        let is_before = |event: &Event| event.recorded_ts < horizon;
        let events = s.all(topic, partition).await.into_iter().filter(is_before);
        all.extend(events.map(|event| (event.partition, event.offset.0)));
    }
    all
}

/// Whoever knows a horizon can read everything that was recorded before it, however many publish meanwhile.
pub async fn everything_before_a_horizon_can_be_read(s: Subject) {
    const WRITERS: usize = 6;
    const ROUNDS: usize = 40;
    let s = Arc::new(s);
    let topic = s.create("horizon.all", partitions(PARTITIONS)).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let looks = tokio::spawn({
        let (s, topic, is_over) = (s.clone(), topic.clone(), is_over.clone());
        async move {
            let (mut seen, mut past) = (Vec::new(), 0);
            loop {
                let was_over = is_over.load(Ordering::SeqCst);
                let horizon = horizon(&s, &topic, past).await;
                seen.push((horizon, places_before(&s, &topic, horizon).await));
                // Every other time, recorded time has to move on for it.
                past = if past == 0 { horizon } else { 0 };
                if was_over {
                    return seen;
                }
            }
        }
    });
    together(WRITERS, |writer| {
        let (s, topic) = (s.clone(), topic.clone());
        async move {
            for round in 0..ROUNDS {
                let n = writer * ROUNDS + round;
                let (first, second) = (n as u32 % PARTITIONS, (n as u32 + 1) % PARTITIONS);
                s.published(&topic, [numbered(n).in_partition(first), numbered(n).in_partition(second)])
                    .await;
                if n.is_multiple_of(7) {
                    s.clock().advance(1);
                }
            }
        }
    })
    .await;
    is_over.store(true, Ordering::SeqCst);
    for (horizon, seen) in joined(looks).await {
        assert_eq!(places_before(&s, &topic, horizon).await, seen, "before {horizon}");
    }
}
