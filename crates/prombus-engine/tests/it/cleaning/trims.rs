//! What goes by hand.

use super::compaction::moving_key;
use super::stage::*;
use prombus_core::*;
use prombus_engine::CleanError;

pub async fn a_partition_is_trimmed_by_hand(s: Stage) {
    let topic = s.topic_with("trimmed", TopicPatch { partitions: Some(2), ..TopicPatch::default() }).await;
    s.record(&topic, &[Draft::default(); 10]).await;
    let before = s.kept(&topic).await[1];
    let kept = s.hub.cleaning().trim(&topic, Partition(1), Offset(3)).await.unwrap();
    assert_eq!(kept.bounds, Bounds { first: Offset(3), next: Offset(5) });
    assert_eq!(kept.bytes, before.bytes / 5 * 2);
    assert_eq!(s.left(&topic).await, [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 3), (1, 4)]);
    let again = s.hub.cleaning().trim(&topic, Partition(1), Offset(2)).await.unwrap();
    assert_eq!(again, kept, "what is gone already may be asked for");
    let kept = s.hub.cleaning().trim(&topic, Partition(1), Offset(5)).await.unwrap();
    assert_eq!((kept.bounds.first, kept.bytes), (Offset(5), 0), "all of it can go");
}

pub async fn what_makes_no_sense_is_refused(s: Stage) {
    let topic = s.topic_with("sense", TopicPatch::default()).await;
    s.record(&topic, &[Draft::default()]).await;
    let trim = |partition, before| s.hub.cleaning().trim(&topic, Partition(partition), Offset(before));
    let (partition, next, before) = (Partition(0), Offset(1), Offset(2));
    assert_eq!(trim(0, 2).await, Err(CleanError::BeyondEnd { partition, next, before }));
    let missing = ReadError::NoSuchPartition { topic: topic.clone(), partitions: 1 };
    assert_eq!(trim(1, 0).await, Err(CleanError::Read(missing)));
    let nowhere = topic_name("no.such.topic");
    let refused = s.hub.cleaning().trim(&nowhere, Partition(0), Offset(0)).await;
    assert_eq!(refused, Err(CleanError::Read(ReadError::TopicNotFound(nowhere))));
}

pub async fn what_a_trimmed_event_has_superseded_goes_with_it(s: Stage) {
    let topic = s.topic_with("grown", TopicPatch::default()).await;
    let key = moving_key(2);
    s.record(&topic, &[of(&key), Draft::default(), of(&key)]).await;
    s.topic("grown", 2).await;
    s.record(&topic, &[of(&key), of(&key)]).await;
    s.hub.cleaning().trim(&topic, Partition(1), Offset(1)).await.unwrap();
    assert_eq!(s.left(&topic).await, [(0, 0), (0, 1), (0, 2), (1, 1)], "its latest is still there");
    let bytes = s.kept(&topic).await[0].bytes;
    s.hub.cleaning().trim(&topic, Partition(1), Offset(2)).await.unwrap();
    assert_eq!(s.left(&topic).await, [(0, 1)], "an old event does not become the latest again");
    assert!(s.kept(&topic).await[0].bytes < bytes / 2);
}

pub async fn trims_and_passes_take_turns(s: Stage) {
    let topic = s.topic_with("turns", compacted()).await;
    s.record(&topic, &[of("a"), of("a"), of("b"), of("b")]).await;
    s.log.hold(|commit| !commit.config.is_empty());
    let cleaning = s.hub.cleaning();
    let (cleaned, trimmed, ()) =
        tokio::join!(cleaning.clean(&topic), cleaning.trim(&topic, Partition(0), Offset(2)), async {
            s.log.until_held(1).await;
            s.log.release();
        },);
    assert!(cleaned.unwrap().events <= 2 && trimmed.unwrap().bounds.first == Offset(2));
    let left = s.events(&topic).await;
    assert_eq!(left.iter().map(|event| event.offset.0).collect::<Vec<_>>(), [3]);
    assert_eq!(s.kept(&topic).await[0].bytes, left[0].size() as u64, "nothing is counted twice");
}
