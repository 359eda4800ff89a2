//! What a store makes of its clock, which may step back.

use crate::Subject;
use crate::build::{Draft, event, numbered, partitions, producer_id};
use crate::tasks::together;
use prombus_core::{Clock, CommitError, Offset, TopicConfig, TopicName};
use std::sync::Arc;
use uuid::Uuid;

const HOUR: u64 = 3_600_000;
const WINDOW: u64 = 10_000;

/// The store's clock says when an event was recorded, and the event's `ts` where the producer gives none.
pub async fn the_clock_says_when_an_event_was_recorded(s: Subject) {
    let topic = s.create("clock", partitions(1)).await;
    let mut times = Vec::new();
    for n in 0..5 {
        s.clock().advance(1 + n * 1_000);
        times.push(s.clock().now_ms());
        s.published(&topic, [event("1"), event("2").ts(7)]).await;
    }
    let events = s.all(&topic, 0).await;
    for (pair, now) in events.chunks(2).zip(times) {
        assert_eq!([pair[0].recorded_ts, pair[1].recorded_ts], [now, now], "recorded_ts is the store's time");
        assert_eq!([pair[0].ts, pair[1].ts], [now, 7], "ts is the store's time where none was given");
        assert_eq!((pair[0].id.as_u128() >> 80) as u64, now, "the time of an id is that of its commit");
    }
}

/// When the clock steps back, ids that the store makes still grow, and `recorded_ts` does not decrease.
pub async fn ids_and_recorded_ts_survive_a_clock_that_steps_back(s: Subject) {
    let topic = s.create("clock.back", partitions(2)).await;
    let start = s.clock().now_ms();
    let mut last = [Uuid::nil(); 2];
    for (n, step) in [0, HOUR, 1, 0, 2 * HOUR, HOUR, HOUR, 0].into_iter().enumerate() {
        s.clock().set(start + step);
        let drafts = (0..6).map(|i| numbered(n).in_partition(i % 2));
        for appended in s.published(&topic, drafts).await {
            let last = &mut last[appended.partition.0 as usize];
            assert!(appended.id > *last, "ids grow though the clock steps back");
            *last = appended.id;
        }
    }
    for partition in 0..2 {
        let recorded: Vec<u64> = s.all(&topic, partition).await.iter().map(|e| e.recorded_ts).collect();
        assert!(
            recorded.is_sorted(),
            "recorded_ts never decreases, though the clock steps back: {recorded:?}"
        );
    }
}

/// The `ts` of an event for which the producer gives none is the clock as it is, also after the clock was ahead for a
/// while: only `recorded_ts` is held up.
pub async fn ts_follows_a_clock_that_was_ahead(s: Subject) {
    let topic = s.create("clock.ahead", partitions(1)).await;
    let start = s.clock().now_ms();
    let steps = [0, 7 * 24 * HOUR, 1, 5, HOUR];
    for (n, step) in steps.into_iter().enumerate() {
        s.clock().set(start + step);
        assert_eq!(s.published_one(&topic, numbered(n)).await.ts, start + step, "the answer says the ts");
    }
    let events = s.all(&topic, 0).await;
    let ts: Vec<u64> = events.iter().map(|event| event.ts).collect();
    assert_eq!(ts, steps.map(|step| start + step), "ts is the clock as it is");
    let held = start + 7 * 24 * HOUR;
    let recorded: Vec<u64> = events.iter().map(|event| event.recorded_ts).collect();
    assert_eq!(recorded, [start, held, held, held, held], "recorded_ts is held up");
    let at = |ts| s.offset_at(&topic, 0, ts);
    assert_eq!(
        (at(start).await, at(start + 2).await),
        (Offset(0), Offset(1)),
        "the first as late as asked for"
    );
}

async fn window(s: &Subject, name: &str) -> TopicName {
    s.create(name, TopicConfig { dedupe_window_ms: WINDOW, ..partitions(2) }).await
}

fn repeated() -> Draft {
    event("1").key("k").id(producer_id(1))
}

/// Ids that the store makes grow within a partition, also where many commit at once. (Clients that make ids of their
/// own cannot promise that.)
pub async fn made_ids_grow_however_many_commit(s: Subject) {
    const WRITERS: usize = 8;
    const ROUNDS: usize = 20;
    let s = Arc::new(s);
    let topic = s.create("made-ids", partitions(2)).await;
    together(WRITERS, |writer| {
        let (s, topic) = (s.clone(), topic.clone());
        async move {
            for round in 0..ROUNDS {
                let n = writer * ROUNDS + round;
                s.published(&topic, [numbered(n).in_partition(0), numbered(n).in_partition(1)]).await;
            }
        }
    })
    .await;
    for partition in 0..2 {
        let log = s.all(&topic, partition).await;
        assert_eq!(log.len(), WRITERS * ROUNDS);
        assert!(log.is_sorted_by(|a, b| a.id < b.id), "ids that the store makes grow within a partition");
    }
}

/// An id is remembered for `dedupe_window_ms`, and after that it is as if it were new.
pub async fn an_id_is_remembered_for_its_window(s: Subject) {
    let topic = window(&s, "window").await;
    let first = s.published_one(&topic, repeated()).await;
    s.clock().advance(WINDOW - 1);
    let answer = s.published_one(&topic, repeated()).await;
    assert_eq!(
        (answer.offset, answer.duplicate),
        (first.offset, true),
        "within the window it is a duplicate"
    );
    s.clock().advance(2);
    let second = s.published_one(&topic, repeated()).await;
    assert_eq!(
        (second.offset, second.duplicate),
        (Offset(1), false),
        "after the window it is appended again"
    );
    s.clock().advance(WINDOW - 1);
    let answer = s.published_one(&topic, repeated()).await;
    let place = (answer.offset, answer.ts, answer.duplicate);
    assert_eq!(
        place,
        (second.offset, second.ts, true),
        "the window counts from the last time it was appended"
    );
    assert_eq!(s.all(&topic, first.partition.0).await.len(), 2);
}

/// After the window, an id with another payload or key is no conflict, and expectations are checked again.
pub async fn after_its_window_an_id_means_nothing(s: Subject) {
    let topic = window(&s, "window.conflict").await;
    s.published_one(&topic, repeated()).await;
    s.clock().advance(WINDOW - 1);
    let error = s.refused(&topic, [event("2").key("k").id(producer_id(1))]).await;
    assert_eq!(error, CommitError::IdConflict { index: 0, id: producer_id(1) });
    s.clock().advance(2);
    let error = s.refused(&topic, [repeated().expecting(None)]).await;
    let failed = CommitError::ExpectationFailed { index: 0, actual: Some(producer_id(1)) };
    assert_eq!(error, failed, "what is no duplicate has its expectation checked");
    let appended = s.published_one(&topic, event("2").key("other").id(producer_id(1))).await;
    assert!(!appended.duplicate, "after the window the id can be used for something else");
    let found = s.by_id(&topic, producer_id(1)).await.map(|event| event.id);
    assert_eq!(found, Some(producer_id(1)), "an event with the id is found");
}

/// Of an id that came again after its window, an event is found as long as one is kept.
pub async fn an_id_that_came_twice_is_found_while_one_is_kept(s: Subject) {
    let topic = window(&s, "window.twice").await;
    let draft = |partition| event("1").id(producer_id(1)).in_partition(partition);
    s.published_one(&topic, draft(0)).await;
    s.clock().advance(WINDOW + 1);
    s.published_one(&topic, draft(1)).await;
    for (partition, kept) in [(1, true), (0, false)] {
        let found = s.by_id(&topic, producer_id(1)).await;
        assert!(found.is_some(), "an event with the id is kept");
        s.trim(&topic, partition, 1).await;
        let found = s.by_id(&topic, producer_id(1)).await;
        assert_eq!(found.is_some(), kept, "an event is found as long as one with its id is kept");
    }
}

/// The window goes by when an event was recorded, and not by its `ts`.
pub async fn the_window_goes_by_recorded_time(s: Subject) {
    let topic = window(&s, "window.recorded").await;
    let first = s.published_one(&topic, repeated().ts(1)).await;
    let answer = s.published_one(&topic, repeated()).await;
    assert_eq!(
        (answer.offset, answer.ts, answer.duplicate),
        (first.offset, 1, true),
        "an old ts is no old event"
    );
}

/// Each topic has its own window.
pub async fn each_topic_has_its_own_window(s: Subject) {
    let (short, long) = (window(&s, "window.short").await, s.create("window.long", partitions(2)).await);
    s.published_one(&short, repeated()).await;
    s.published_one(&long, repeated()).await;
    s.clock().advance(WINDOW + 1);
    assert!(!s.published_one(&short, repeated()).await.duplicate, "the short window is over");
    assert!(s.published_one(&long, repeated()).await.duplicate, "the long window is not");
}

/// An id is remembered through a clock that steps back.
pub async fn an_id_is_remembered_when_the_clock_steps_back(s: Subject) {
    let topic = window(&s, "window.back").await;
    let start = s.clock().now_ms();
    s.clock().set(start + HOUR);
    let first = s.published_one(&topic, repeated()).await;
    s.clock().set(start);
    let answer = s.published_one(&topic, repeated()).await;
    assert_eq!((answer.offset, answer.duplicate), (first.offset, true), "stepping back forgets nothing");
}

/// What an id was forgotten for while the clock was ahead it is not forgotten for afterwards: its window goes by the clock.
pub async fn an_id_is_remembered_after_a_clock_that_was_ahead(s: Subject) {
    let topic = window(&s, "window.ahead").await;
    let start = s.clock().now_ms();
    let first = s.published_one(&topic, repeated()).await;
    s.clock().set(start + 7 * 24 * HOUR);
    let ahead = s.published_one(&topic, event("2").key("k").id(producer_id(2))).await;
    s.clock().set(start + WINDOW);
    for (n, before) in [(1, first), (2, ahead)] {
        let draft = event(if n == 1 { "1" } else { "2" }).key("k").id(producer_id(n));
        let answer = s.published_one(&topic, draft).await;
        assert_eq!((answer.offset, answer.duplicate), (before.offset, true), "id {n}");
    }
    let error = s.refused(&topic, [event("3").key("k").id(producer_id(1))]).await;
    assert_eq!(error, CommitError::IdConflict { index: 0, id: producer_id(1) });
    s.clock().set(start + WINDOW + 1);
    assert!(!s.published_one(&topic, repeated()).await.duplicate, "the window is over");
}
