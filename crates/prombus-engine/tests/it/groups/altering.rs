//! Options that are changed while a group is at work.

use crate::groups::filters::store_options;
use crate::groups::stage::{Stage, Use, drain, numbers};
use prombus_engine::groups::{GroupError, OptionsChange, OptionsPatch, Pull, Replay, Settle};
use prombus_engine::query::From;
use serde_json::Value;
use std::time::Duration;

fn filter(filter: &str) -> OptionsChange {
    OptionsChange { filter: Some(Some(filter.into())), ..OptionsChange::default() }
}

fn quick() -> OptionsPatch {
    OptionsPatch { backoff_ms: Some(0), ..OptionsPatch::default() }
}

pub async fn changed_options_hold_and_survive_a_restart(s: Stage) {
    let topic = s.topic("changed", 1).await;
    let group = s.group(&topic, "g", OptionsPatch::default()).await;
    let change = OptionsChange {
        ack_timeout_ms: Some(1_000),
        max_attempts: Some(2),
        backoff_ms: Some(7),
        filter: Some(Some("event.payload.n > 5".into())),
        normalize: Some(true),
        ack_window: Some(10),
        member_ttl_ms: Some(99),
    };
    group.alter(change.clone()).await.unwrap();
    let expected = change.apply(&Default::default());
    assert_eq!(*group.options(), expected);
    let s = s.restart().await;
    let group = s.found(&topic, "g").await;
    assert_eq!(*group.options(), expected);
    s.publish_numbers(&topic, None, [1, 6]).await;
    assert_eq!(drain(&group, "m").await, [6]);
    group.alter(OptionsChange { filter: Some(None), ..OptionsChange::default() }).await.unwrap();
    let s = s.restart().await;
    let group = s.found(&topic, "g").await;
    assert_eq!((group.options().filter.clone(), group.options().max_attempts), (None, 2));
}

pub async fn a_change_that_makes_no_sense_changes_nothing(s: Stage) {
    let topic = s.topic("refused", 1).await;
    let group = s.group(&topic, "g", OptionsPatch::default()).await;
    let before = group.options();
    let bad = OptionsChange { max_attempts: Some(9), ..filter("event.") };
    assert!(matches!(group.alter(bad).await, Err(GroupError::BadFilter(_))));
    let bad = OptionsChange { max_attempts: Some(9), ack_window: Some(0), ..OptionsChange::default() };
    assert!(matches!(group.alter(bad).await, Err(GroupError::BadOption(_))));
    assert_eq!(group.options(), before);
    let s = s.restart().await;
    assert_eq!(s.found(&topic, "g").await.options(), before);
}

pub async fn what_was_read_ahead_is_judged_by_the_new_filter(s: Stage) {
    let topic = s.topic("ahead", 1).await;
    s.publish_numbers(&topic, None, 0..20).await;
    let group = s.group(&topic, "g", OptionsPatch::default()).await;
    // A page is read for the first of them.
    let first = group.take_just("m", 0, 1).await;
    group.alter(filter("event.payload.n % 10 == 3")).await.unwrap();
    assert!(group.ack(first.lease).await, "what was delivered before can still be settled");
    assert_eq!(drain(&group, "m").await, [3, 13]);
    assert_eq!(group.status().await.unwrap().partitions[0].lag, 0, "the others are passed over");
}

pub async fn what_waits_for_its_key_is_judged_by_the_new_filter(s: Stage) {
    let topic = s.topic("keyed", 1).await;
    s.publish_numbers(&topic, Some("k"), 0..6).await;
    let group = s.group(&topic, "g", quick()).await;
    let first = group.take_just("m", 0, 1).await;
    // The others wait for the first, and are in memory.
    assert!(group.take_now("m", 10).await.is_empty());
    group.alter(filter("event.payload.n != 2")).await.unwrap();
    assert!(group.ack(first.lease).await);
    assert_eq!(drain(&group, "m").await, [1, 3, 4, 5], "in order, and without the one that does not match");
}

pub async fn a_retry_is_judged_by_the_new_filter(s: Stage) {
    let topic = s.topic("poison", 1).await;
    s.publish_numbers(&topic, Some("k"), 0..3).await;
    let group = s.group(&topic, "g", quick()).await;
    let poison = group.take_just("m", 0, 1).await;
    assert!(group.nack(poison.lease, Some(Duration::from_secs(3_600))).await);
    group.alter(filter("event.payload.n > 0")).await.unwrap();
    let s = s.restart().await;
    s.clock.advance(3_600_001);
    let group = s.found(&topic, "g").await;
    assert_eq!(drain(&group, "m").await, [1, 2], "it does not come again, and holds up no other");
    assert_eq!(group.counters().dead_lettered.get(), 0);
}

pub async fn a_wider_filter_does_not_bring_back_what_was_passed_over(s: Stage) {
    let topic = s.topic("wider", 1).await;
    s.publish_numbers(&topic, None, 0..5).await;
    let patch = OptionsPatch { filter: Some(Some("event.payload.n == 4".into())), ..OptionsPatch::default() };
    let group = s.group(&topic, "g", patch).await;
    assert_eq!(drain(&group, "m").await, [4]);
    group.alter(OptionsChange { filter: Some(None), ..OptionsChange::default() }).await.unwrap();
    assert!(drain(&group, "m").await.is_empty());
    s.publish_numbers(&topic, None, [5]).await;
    assert_eq!(drain(&group, "m").await, [5]);
    group.set_cursor(From::Earliest, None).await.unwrap();
    assert_eq!(drain(&group, "m").await, [0, 1, 2, 3, 4, 5]);
}

pub async fn those_who_wait_go_on_by_the_new_options(s: Stage) {
    let topic = s.topic("waiting", 1).await;
    let patch = OptionsPatch { filter: Some(Some("event.payload.n == 0".into())), ..OptionsPatch::default() };
    let group = s.group(&topic, "g", patch).await;
    let waiting = tokio::spawn({
        let group = group.clone();
        async move { numbers(&group.take("m", 10).await) }
    });
    group.until("the pull is there", |status| !status.members.is_empty()).await;
    group.alter(filter("event.payload.n == 1")).await.unwrap();
    s.publish_numbers(&topic, None, [0, 1]).await;
    assert_eq!(waiting.await.unwrap(), [1]);

    let patch = OptionsPatch { ack_window: Some(1), ..OptionsPatch::default() };
    let group = s.group(&topic, "narrow", patch).await;
    group.take_just("m", 0, 1).await;
    let waiting = tokio::spawn({
        let group = group.clone();
        async move { numbers(&group.take("n", 10).await) }
    });
    group.until("it waits", |status| status.members.len() == 2).await;
    group.alter(OptionsChange { ack_window: Some(100), ..OptionsChange::default() }).await.unwrap();
    assert_eq!(waiting.await.unwrap(), [1], "the window is wider for those who wait already");
}

pub async fn fewer_attempts_count_from_the_next_failure_on(s: Stage) {
    let topic = s.topic("fewer", 1).await;
    s.publish_numbers(&topic, None, [0]).await;
    let group = s.group(&topic, "g", quick()).await;
    for attempt in 1..=3 {
        let delivery = group.take_just("m", 0, attempt).await;
        assert!(group.nack(delivery.lease, Some(Duration::ZERO)).await);
    }
    group.alter(OptionsChange { max_attempts: Some(2), ..OptionsChange::default() }).await.unwrap();
    let last = group.take_just("m", 0, 4).await;
    assert_eq!(group.counters().dead_lettered.get(), 0, "no event dies by a change alone");
    assert!(group.nack(last.lease, None).await);
    group.until("it is dead", |status| status.partitions[0].lag == 0).await;
    assert_eq!(group.counters().dead_lettered.get(), 1);
    // What comes back by hand comes, whatever the filter says by now.
    group.alter(filter("event.payload.n == 77")).await.unwrap();
    assert_eq!(s.hub.replay(&topic, Replay::default()).await.unwrap().replayed, 1);
    let again = group.take_just("m", 0, 1).await;
    assert!(group.say(Settle::Ack(again.lease)).await);
}

pub async fn a_filter_that_compiles_no_more_can_be_replaced(s: Stage) {
    let topic = s.topic("mended", 1).await;
    s.publish_numbers(&topic, None, [1, 2]).await;
    s.group(&topic, "g", OptionsPatch::default()).await;
    store_options(&s, &topic, "g", |options| {
        let mut options: Value = serde_json::from_slice(options).unwrap();
        options["filter"] = "of_an_earlier.build(".into();
        options.to_string().into_bytes()
    })
    .await;
    let s = s.restart().await;
    let group = s.found(&topic, "g").await;
    assert!(matches!(group.pull(&Pull::default()).await, Err(GroupError::BadFilter(_))));
    let other = OptionsChange { max_attempts: Some(3), ..OptionsChange::default() };
    assert!(matches!(group.alter(other).await, Err(GroupError::BadFilter(_))), "it says what is in the way");
    group.alter(filter("event.payload.n == 2")).await.unwrap();
    assert_eq!(drain(&group, "m").await, [2]);
    assert_eq!(group.status().await.unwrap().bad_filter, None);
}

pub async fn a_preview_tells_what_a_reset_would_deliver(s: Stage) {
    let topic = s.topic("preview", 1).await;
    s.publish_numbers(&topic, None, 0..50).await;
    let group = s.group(&topic, "g", OptionsPatch::default()).await;
    drain(&group, "m").await;
    let counts = async |from| {
        let preview = group.preview_cursor(from, None).await.unwrap();
        (preview.partitions[0].next, preview.partitions[0].events, preview.exact)
    };
    assert_eq!(counts(From::Earliest).await, (0, 50, true));
    assert_eq!(counts(From::Offset(prombus_core::Offset(40))).await, (40, 10, true));
    assert_eq!(counts(From::Latest).await, (50, 0, true));
    group.alter(filter("event.payload.n % 10 == 7")).await.unwrap();
    assert_eq!(counts(From::Earliest).await, (0, 5, true));
    assert_eq!(group.cursor()[0].0, 50, "nothing has moved");
    group.set_cursor(From::Earliest, None).await.unwrap();
    assert_eq!(drain(&group, "m").await, [7, 17, 27, 37, 47], "as was told");
}
