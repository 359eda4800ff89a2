//! Groups that are about some events only.

use crate::stage::{Stage, Use, drain};
use prombus_engine::groups::OptionsPatch;

fn filter(filter: &str) -> OptionsPatch {
    OptionsPatch { filter: Some(filter.into()), ..OptionsPatch::default() }
}

pub async fn what_a_filter_drops_is_settled(s: Stage) {
    let topic = s.topic("filtered", 1).await;
    s.publish(&topic, Some("k"), 0..300).await;
    let group = s.group(&topic, "g", filter("event.payload.n % 100 == 7")).await;
    assert_eq!(drain(&group, "m").await, [7, 107, 207]);
    let status = group.status().await.unwrap();
    assert_eq!((status.lanes[0].lag, status.lanes[0].next), (0, 300), "what it drops is settled");
    assert_eq!(group.counters().delivered.get(), 3, "and is no delivery");
}

pub async fn a_filter_that_fails_does_not_match(s: Stage) {
    let topic = s.topic("failing", 1).await;
    s.publish(&topic, None, [1, 2]).await;
    let group = s.group(&topic, "g", filter("event.payload.missing > 1 || event.payload.n == 2")).await;
    // A missing field makes the left side fail, and the right side still decides where it can.
    let got = drain(&group, "m").await;
    assert!(got.is_empty() || got == [2], "{got:?}");
    let group = s.group(&topic, "h", filter("event.key.startsWith('a')")).await;
    assert!(drain(&group, "m").await.is_empty(), "no key, no match");
    s.publish(&topic, Some("ab"), [3]).await;
    group.take_just("m", 3, 1).await;
    assert_eq!(group.status().await.unwrap().lanes[0].lag, 1, "only the match is open");
}

pub async fn a_filter_survives_a_restart(s: Stage) {
    let topic = s.topic("kept", 1).await;
    let group = s.group(&topic, "g", filter("event.payload.n > 5")).await;
    s.publish(&topic, None, [1, 6]).await;
    assert_eq!(drain(&group, "m").await, [6]);
    let s = s.restart().await;
    s.publish(&topic, None, [2, 7]).await;
    assert_eq!(drain(&s.found(&topic, "g").await, "m").await, [7]);
}
