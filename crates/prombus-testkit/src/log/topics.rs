//! Topics come, grow and go.

use crate::Subject;
use crate::build::{event, numbered, partitions, producer_id, topic};
use crate::subject::{assert_no_topic, must, refusal};
use prombus_core::{
    Bounds, CommitError, ConfigChange, Durability, EventLogExt, HistoryRequest, Offset, Partition, ReadError,
    ReadRequest, SchemaMode, TopicConfig, TopicRef, TsRequest,
};
use std::fmt::Debug;

const EMPTY: Bounds = Bounds { first: Offset(0), next: Offset(0) };

/// A topic that was made is there, empty, with all its settings.
pub async fn a_new_topic_is_there_with_its_settings(s: Subject) {
    let config = TopicConfig {
        partitions: 3,
        retention_ms: 9,
        retention_bytes: 1 << 40,
        compaction: true,
        min_compaction_lag_ms: 11,
        tombstone_retention_ms: 12,
        dedupe_window_ms: 13,
        durability: Durability::Interval,
        schema: SchemaMode::Warn,
        ..TopicConfig::default()
    };
    let name = s.create("new-topic", config.clone()).await;
    let state = s.topic(&name).await;
    assert_eq!((&state.name, &state.config), (&name, &config), "a topic has the settings that it was given");
    for partition in 0..3 {
        assert_eq!(s.bounds(&name, partition).await, EMPTY, "a new topic is empty");
        assert_eq!(s.all(&name, partition).await, [], "a new topic has no events");
    }
}

/// All topics are listed by name.
pub async fn topics_are_listed_by_name(s: Subject) {
    for name in ["b", "a.b", "a", "a-b", "c.v2", "a0"] {
        s.create(name, partitions(1)).await;
    }
    s.delete(&topic("c.v2")).await;
    let topics = must(s.log.topics().await, "topics can be listed");
    let names: Vec<&str> = topics.iter().map(|state| state.name.as_str()).collect();
    assert_eq!(names, ["a", "a-b", "a.b", "a0", "b"], "topics are listed by name, each once");
    for state in &topics {
        assert_eq!(*state, s.topic(&state.name).await, "the list says the same as the look-up");
    }
}

/// Reads of a topic that does not exist say so.
pub async fn a_topic_that_does_not_exist_is_not_found(s: Subject) {
    s.create("exists", partitions(1)).await;
    let name = topic("missing");
    assert_eq!(must(s.log.topic(&name).await, "topics can be looked up"), None);
    assert_no_topic(s.log.read(s.page(&name, 0, Offset(0))).await, &name);
    assert_no_topic(s.log.bounds(&(&name).into(), Partition(0)).await, &name);
    let request = TsRequest { topic: (&name).into(), partition: Partition(0), ts: 0 };
    assert_no_topic(s.log.offset_at(request).await, &name);
    assert_no_topic(s.log.by_id(&(&name).into(), producer_id(1)).await, &name);
    assert_no_topic(s.log.latest_by_key(&(&name).into(), "k").await, &name);
    let (topic, key) = (TopicRef::from(&name), "k".to_owned());
    let request = HistoryRequest { topic, key, after: None, limit: 1, max_bytes: 1 };
    assert_no_topic(s.log.history(request).await, &name);
    let error = refusal(s.configure(ConfigChange::DeleteTopic { name: name.clone() }).await);
    assert_eq!(error, CommitError::TopicNotFound(name), "what does not exist cannot be deleted");
}

/// Reads of a partition that the topic does not have say how many it has.
pub async fn a_partition_that_does_not_exist_is_refused(s: Subject) {
    let name = s.create("narrow", partitions(2)).await;
    for partition in [2, 7, u32::MAX] {
        let missing = ReadError::NoSuchPartition { topic: name.clone(), partitions: 2 };
        assert_eq!(s.log.read(s.page(&name, partition, Offset(0))).await, Err(missing.clone()));
        let partition = Partition(partition);
        assert_eq!(s.log.bounds(&(&name).into(), partition).await, Err(missing.clone()));
        let request = TsRequest { topic: (&name).into(), partition, ts: 0 };
        assert_eq!(s.log.offset_at(request).await, Err(missing));
    }
}

/// Settings can change, and events stay.
pub async fn settings_change_and_events_stay(s: Subject) {
    let name = s.create("altered", partitions(1)).await;
    s.published(&name, [event("1").key("k"), event("2")]).await;
    let change = |config: &mut TopicConfig| {
        config.durability = Durability::Interval;
        config.retention_ms = 30;
        config.tombstone_retention_ms = 1;
    };
    must(s.alter(&name, change).await, "settings can be changed");
    let mut config = partitions(1);
    change(&mut config);
    assert_eq!(s.topic(&name).await.config, config, "the new settings hold");
    s.assert_holds(&name, 0, &["1", "2"]).await;
    let receipt = must(s.publish(&name, [event("3")]).await, "publishing goes on");
    assert_eq!(receipt.durability, Durability::Interval, "the new settings hold for the next commit");
}

/// A topic grows by empty partitions; what it held stays where it is.
pub async fn a_topic_grows_by_empty_partitions(s: Subject) {
    let name = s.create("growing", partitions(2)).await;
    s.published(&name, (0..4).map(|n| numbered(n).in_partition(n as u32 % 2))).await;
    let before = [s.all(&name, 0).await, s.all(&name, 1).await];
    s.grow(&name, 5).await;
    assert_eq!([s.all(&name, 0).await, s.all(&name, 1).await], before, "growth moves no events");
    for partition in 2..5 {
        assert_eq!(s.bounds(&name, partition).await, EMPTY, "new partitions are empty");
    }
    let receipt = s.published(&name, (0..5).map(|n| numbered(9).in_partition(n))).await;
    let offsets: Vec<u64> = receipt.iter().map(|appended| appended.offset.0).collect();
    assert_eq!(offsets, [2, 2, 0, 0, 0], "each partition goes on where it ends");
}

/// Partitions cannot shrink.
pub async fn partitions_cannot_shrink(s: Subject) {
    let name = s.create("shrinking", partitions(3)).await;
    s.published(&name, [event("1").in_partition(2)]).await;
    let error = refusal(s.alter(&name, |config| config.partitions = 2).await);
    assert_eq!(error, CommitError::PartitionsShrink { topic: name.clone(), now: 3, asked: 2 });
    assert_eq!(s.topic(&name).await.config.partitions, 3, "a refused change changes nothing");
    s.assert_holds(&name, 2, &["1"]).await;
}

/// A read that names an incarnation gives what is of that one, and nothing of one that took its place.
pub async fn a_read_that_names_an_incarnation_is_of_no_other(s: Subject) {
    let name = s.create("pinned", partitions(2)).await;
    let appended = s.published_one(&name, event("1").key("k").id(producer_id(1))).await;
    let pinned = s.topic(&name).await.pinned();
    let there = must(s.log.latest_by_key(&pinned, "k").await, "it is this incarnation");
    assert_eq!(there.map(|event| event.id), Some(appended.id));
    for life in 2..5 {
        s.delete(&name).await;
        assert_gone(&s, &pinned).await;
        s.create(name.as_str(), partitions(life)).await;
        assert_gone(&s, &pinned).await;
        s.published_one(&name, event("2").key("k").id(producer_id(1))).await;
        assert_gone(&s, &pinned).await;
    }
    let now = s.topic(&name).await.pinned();
    let there = must(s.log.by_id(&now, producer_id(1)).await, "what is there now can be read");
    assert!(there.is_some());
}

async fn assert_gone(s: &Subject, pinned: &TopicRef) {
    fn assert_it<T: PartialEq + Debug>(answer: Result<T, ReadError>, pinned: &TopicRef) {
        assert_eq!(answer, Err(ReadError::TopicGone(pinned.name.clone())));
    }
    let (topic, key) = (pinned.clone(), "k".to_owned());
    for partition in [0, 1, 9].map(Partition) {
        let page = ReadRequest { topic: topic.clone(), ..s.page(&topic.name, partition.0, Offset(0)) };
        assert_it(s.log.read(page).await, pinned);
        assert_it(s.log.bounds(pinned, partition).await, pinned);
        assert_it(s.log.offset_at(TsRequest { topic: topic.clone(), partition, ts: 0 }).await, pinned);
    }
    assert_it(s.log.by_id(pinned, producer_id(1)).await, pinned);
    assert_it(s.log.latest_by_key(pinned, "k").await, pinned);
    let request = HistoryRequest { topic, key, after: None, limit: 1, max_bytes: 1 };
    assert_it(s.log.history(request).await, pinned);
}

/// With a topic go its events, ids and keys; one that is made again starts anew.
pub async fn a_topic_that_is_made_again_starts_anew(s: Subject) {
    let name = s.create("phoenix", partitions(3)).await;
    let stays = s.create("stays", partitions(1)).await;
    s.published_one(&stays, event("0").key("k").id(producer_id(1))).await;
    for life in 1..4 {
        let draft = event(&life.to_string()).key("k").id(producer_id(1)).expecting(None);
        let appended = s.published_one(&name, draft).await;
        assert_eq!((appended.offset, appended.duplicate), (Offset(0), false), "it starts at offset 0");
        s.published_one(&name, event("9").key("k")).await;
        s.delete(&name).await;
        assert_eq!(must(s.log.topic(&name).await, "topics can be looked up"), None, "it is gone");
        assert_no_topic(s.log.by_id(&(&name).into(), producer_id(1)).await, &name);
        s.create(name.as_str(), partitions(2 + life % 2)).await;
        assert_eq!(s.by_id(&name, producer_id(1)).await, None, "ids go with their topic");
        assert_eq!(s.latest(&name, "k").await, None, "keys go with their topic");
        assert_eq!(s.history(&name, "k", 10).await, [], "histories go with their topic");
        assert_eq!(s.bounds(&name, 0).await, EMPTY, "events go with their topic");
        assert_eq!(s.offset_at(&name, 0, 0).await, Offset(0));
    }
    s.assert_holds(&stays, 0, &["0"]).await;
    assert!(s.by_id(&stays, producer_id(1)).await.is_some(), "other topics stay as they are");
}
