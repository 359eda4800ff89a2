//! Passes that nobody asked for.

use super::stage::*;
use prombus_core::*;
use prombus_engine::CleanError;
use std::time::Duration;

/// Waits until something of the topic has changed in the way that is asked for.
async fn until(s: &Stage, topic: &TopicName, is_so: impl Fn(&[Kept]) -> bool) {
    let mut seen = Sequence(0);
    let watched = Watched::Topic(topic.clone());
    let wait = async {
        while !is_so(&s.kept(topic).await) {
            seen = s.hub.changed(&watched, seen).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("it is so at last");
}

pub async fn topics_are_cleaned_by_themselves(s: Stage) {
    let aged = s.topic_with("aged", TopicPatch { retention_ms: Some(10), ..TopicPatch::default() }).await;
    let compacted = s.topic_with("compacted", compacted()).await;
    let kept = s.topic_with("kept", TopicPatch::default()).await;
    for topic in [&aged, &compacted, &kept] {
        s.record(topic, &[of("k"), of("k")]).await;
    }
    s.clock.advance(100);
    s.hub.cleaning().start(Duration::from_millis(1));
    until(&s, &aged, |kept| kept[0].bounds.first == Offset(2)).await;
    until(&s, &compacted, |kept| kept[0].has_holes).await;
    s.hub.close().await;
    assert!(s.hub.cleaning().durations().counts().iter().sum::<u64>() >= 1);
    let s = s.restart().await;
    assert_eq!(s.offsets(&kept).await, [0, 1], "one that asks for nothing is left alone");
    assert_eq!(s.offsets(&compacted).await, [1]);
}

pub async fn rounds_survive_a_store_that_refuses(s: Stage) {
    let topic = s.topic_with("refused", TopicPatch { retention_ms: Some(10), ..TopicPatch::default() }).await;
    s.record(&topic, &[of("k"), of("k")]).await;
    s.clock.advance(100);
    s.log.refuse(crate::support::switch::Refusal {
        which: |_| true,
        after: 0,
        times: 3,
        error: CommitError::Unavailable("the test says so".into()),
        happens: false,
    });
    s.hub.cleaning().start(Duration::from_millis(1));
    until(&s, &topic, |kept| kept[0].bounds.first == Offset(2)).await;
    assert_eq!(s.log.refusals_left(), 0);
}

pub async fn closing_ends_a_pass(s: Stage) {
    let topic = s.topic_with("closing", compacted()).await;
    s.record(&topic, &[of("k"), of("k")]).await;
    s.hub.cleaning().start(Duration::from_secs(1_000_000));
    s.hub.cleaning().close().await;
    s.hub.cleaning().close().await;
    assert_eq!(s.hub.cleaning().clean(&topic).await, Err(CleanError::Closing));
}
