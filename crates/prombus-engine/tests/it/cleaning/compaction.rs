//! What goes because later events have superseded it.

use super::stage::*;
use prombus_core::*;

pub async fn the_latest_of_each_key_stays(s: Stage) {
    let topic = s.topic_with("latest", compacted()).await;
    s.record(&topic, &[of("a"), of("b"), of("a"), of("c"), of("b"), of("a")]).await;
    let cleaned = s.clean(&topic).await;
    assert_eq!(cleaned.events, 3);
    assert_eq!(s.offsets(&topic).await, [3, 4, 5]);
    let kept = s.kept(&topic).await[0];
    assert_eq!(kept.bounds, Bounds { first: Offset(0), next: Offset(6) }, "holes are no trim");
    assert_eq!(kept.bytes, cleaned.bytes, "as much is left as went");
    assert!(kept.has_holes);
    for key in ["a", "b", "c"] {
        assert!(s.hub.latest_by_key(&(&topic).into(), key).await.unwrap().is_some());
    }
    assert_eq!(s.clean(&topic).await.events, 0);
    s.record(&topic, &[of("c")]).await;
    assert_eq!(s.clean(&topic).await.events, 1);
    assert_eq!(s.offsets(&topic).await, [4, 5, 6]);
}

pub async fn events_without_a_key_stay(s: Stage) {
    let topic = s.topic_with("keyless", compacted()).await;
    s.record(&topic, &[Draft::default(), of("a"), Draft::default(), of("a"), Draft::default()]).await;
    assert_eq!(s.clean(&topic).await.events, 1);
    assert_eq!(s.offsets(&topic).await, [0, 2, 3, 4]);
}

pub async fn superseded_events_stay_for_their_lag(s: Stage) {
    let settings = TopicPatch { min_compaction_lag_ms: Some(100), ..compacted() };
    let topic = s.topic_with("lag", settings).await;
    s.record(&topic, &[of("a"), of("b")]).await;
    s.clock.advance(60);
    s.record(&topic, &[of("a"), of("a")]).await;
    assert_eq!(s.clean(&topic).await.events, 0, "all are too young");
    s.clock.advance(40);
    assert_eq!(
        s.clean(&topic).await.events,
        1,
        "the first one is old enough, though what superseded it is not"
    );
    assert_eq!(s.offsets(&topic).await, [1, 2, 3]);
    s.clock.advance(59);
    s.record(&topic, &[of("b")]).await;
    assert_eq!(s.clean(&topic).await.events, 1, "the latest of b is superseded, and old");
    assert_eq!(s.offsets(&topic).await, [2, 3, 4]);
    s.clock.advance(1);
    assert_eq!(s.clean(&topic).await.events, 1);
    assert_eq!(s.offsets(&topic).await, [3, 4]);
}

pub async fn a_longer_lag_holds_for_what_was_judged_before(s: Stage) {
    let topic = s.topic_with("longer", compacted()).await;
    s.record(&topic, &[of("a"), of("b")]).await;
    s.clean(&topic).await;
    s.set(&topic, TopicPatch { min_compaction_lag_ms: Some(100), ..compacted() }).await;
    s.record(&topic, &[of("a")]).await;
    assert_eq!(s.clean(&topic).await.events, 0);
    s.clock.advance(100);
    assert_eq!(s.clean(&topic).await.events, 1, "it is not forgotten");
    assert_eq!(s.offsets(&topic).await, [1, 2]);
}

pub async fn tombstones_go_when_their_time_is_over(s: Stage) {
    let settings = TopicPatch { tombstone_retention_ms: Some(50), ..compacted() };
    let topic = s.topic_with("tombs", settings).await;
    s.record(&topic, &[of("a"), of("b"), end_of("a"), end_of("never.there")]).await;
    assert_eq!(s.clean(&topic).await.events, 1, "what it ended goes at once");
    assert_eq!(s.offsets(&topic).await, [1, 2, 3]);
    s.clock.advance(49);
    assert_eq!(s.clean(&topic).await.events, 0);
    s.record(&topic, &[of("again"), end_of("again"), of("again")]).await;
    s.clock.advance(1);
    assert_eq!(s.clean(&topic).await.events, 4, "two have had their time, and two are superseded");
    assert_eq!(s.offsets(&topic).await, [1, 6]);
    s.clock.advance(1_000);
    assert_eq!(s.clean(&topic).await.events, 0, "one that was superseded ends nothing");
}

pub async fn a_tombstone_outlives_what_it_ended(s: Stage) {
    let settings =
        TopicPatch { tombstone_retention_ms: Some(10), min_compaction_lag_ms: Some(100), ..compacted() };
    let topic = s.topic_with("outlived", settings).await;
    s.record(&topic, &[of("a")]).await;
    s.clock.advance(5);
    s.record(&topic, &[end_of("a")]).await;
    s.clock.advance(50);
    assert_eq!(s.clean(&topic).await.events, 0, "else the key would live again");
    s.clock.advance(45);
    assert_eq!(s.clean(&topic).await.events, 1);
    assert_eq!(s.offsets(&topic).await, [1]);
    s.clock.advance(5);
    assert_eq!(s.clean(&topic).await.events, 1);
    assert!(s.offsets(&topic).await.is_empty());
}

/// A key that goes to a new partition when a topic grows from one to so many.
pub fn moving_key(partitions: u32) -> String {
    let moves =
        |key: &String| prombus_core::hashing::partition_of(key.as_bytes(), partitions) == Partition(1);
    (0..).map(|n| format!("k{n}")).find(moves).expect("some key moves")
}

pub async fn a_key_is_followed_through_growth(s: Stage) {
    let settings = TopicPatch { tombstone_retention_ms: Some(10), ..compacted() };
    let topic = s.topic_with("grown", settings.clone()).await;
    let key = moving_key(2);
    s.record(&topic, &[of(&key), of(&key), of(&key)]).await;
    assert_eq!(s.clean(&topic).await.events, 2);
    s.record(&topic, &[of(&key)]).await;
    s.topic("grown", 2).await;
    s.record(&topic, &[of(&key), of(&key)]).await;
    assert_eq!(s.clean(&topic).await.events, 3, "those in the lower partition are earlier");
    assert_eq!(s.left(&topic).await, [(1, 1)]);
    s.record(&topic, &[end_of(&key)]).await;
    s.clock.advance(10);
    assert_eq!(s.clean(&topic).await.events, 2);
    assert!(s.left(&topic).await.is_empty());
}

pub async fn a_second_pass_reads_what_is_new(s: Stage) {
    let topic = s.topic_with("second", compacted()).await;
    let keys: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    for _ in 0..10 {
        s.record(&topic, &keys.iter().map(|key| of(key)).collect::<Vec<_>>()).await;
    }
    s.looked_at();
    assert_eq!(s.clean(&topic).await.events, 900);
    assert_eq!(
        s.looked_at(),
        (1_000 + 1, 0),
        "a first pass looks nothing up; a tombstone may be the first that is left"
    );
    s.clean(&topic).await;
    assert_eq!(s.looked_at(), (1, 0));
    s.record(&topic, &[of("7"), of("8"), of("7"), of("new")]).await;
    assert_eq!(s.clean(&topic).await.events, 3);
    assert_eq!(s.looked_at(), (4 + 1, 3), "each key that has something new is looked up once");
    assert_eq!(s.offsets(&topic).await.len(), 101);
}

pub async fn a_restart_does_not_start_over(s: Stage) {
    if !s.is_durable() {
        return;
    }
    let settings = TopicPatch { min_compaction_lag_ms: Some(100), ..compacted() };
    let topic = s.topic_with("restart", settings).await;
    s.record(&topic, &[of("a"), of("a"), of("b"), of("a")]).await;
    s.clean(&topic).await;
    let s = s.restart().await;
    s.looked_at();
    assert_eq!(s.clean(&topic).await.events, 0);
    assert_eq!(s.looked_at(), (1, 0), "all it looks at is whether the first one is old enough");
    s.clock.advance(100);
    assert_eq!(s.clean(&topic).await.events, 2);
    let s = s.crash().await;
    s.record(&topic, &[of("b")]).await;
    s.looked_at();
    assert_eq!(s.clean(&topic).await.events, 1);
    let (read, looked_up) = s.looked_at();
    assert!(read <= 3 && looked_up == 1, "{read} {looked_up}");
    assert_eq!(s.offsets(&topic).await, [3, 4]);
}

pub async fn few_keys_are_remembered_and_nothing_is_missed(s: Stage) {
    let s = s.remembering(16).await;
    let topic = s.topic_with("few", compacted()).await;
    let keys: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    for _ in 0..5 {
        s.record(&topic, &keys.iter().map(|key| of(key)).collect::<Vec<_>>()).await;
    }
    let bytes = s.kept(&topic).await[0].bytes;
    let cleaned = s.clean(&topic).await;
    assert_eq!(cleaned.events, 400);
    assert_eq!(s.offsets(&topic).await, (400..500).collect::<Vec<_>>());
    assert_eq!(s.kept(&topic).await[0].bytes, bytes - cleaned.bytes);
}

pub async fn the_horizon_is_the_time_of_what_superseded(s: Stage) {
    let topic = s.topic_with("horizon", compacted()).await;
    let now = s.clock.now_ms();
    let at = |key, ts| Draft { ts: Some(now + ts), ..of(key) };
    s.record(&topic, &[at("back", 900), at("back", 500), at("one", 800)]).await;
    s.clean(&topic).await;
    assert_eq!(s.kept(&topic).await[0].horizon_ts, 0, "what ran backwards was covered all the time");
    s.record(&topic, &[at("k", 10), at("k", 30), at("k", 20)]).await;
    s.clean(&topic).await;
    assert_eq!(s.kept(&topic).await[0].horizon_ts, now + 30);
    s.record(&topic, &[at("k", 40)]).await;
    s.clean(&topic).await;
    assert_eq!(s.kept(&topic).await[0].horizon_ts, now + 40);
}

pub async fn compaction_can_be_turned_on_and_off(s: Stage) {
    let topic = s.topic_with("switch", TopicPatch::default()).await;
    s.record(&topic, &[of("a"), of("a")]).await;
    assert_eq!(s.clean(&topic).await.events, 0);
    s.set(&topic, compacted()).await;
    assert_eq!(s.clean(&topic).await.events, 1);
    s.set(&topic, TopicPatch { compaction: Some(false), ..TopicPatch::default() }).await;
    s.record(&topic, &[of("a"), of("a")]).await;
    assert_eq!(s.clean(&topic).await.events, 0);
    s.set(&topic, compacted()).await;
    assert_eq!(s.clean(&topic).await.events, 2);
    assert_eq!(s.offsets(&topic).await, [3]);
}
