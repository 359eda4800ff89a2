//! Which partition events go to: decided when they are committed, as the topic is then.

use crate::Subject;
use crate::build::{Draft, event, moving_keys, numbered, partitions, producer_id};
use crate::subject::{must, refusal};
use prombus_core::hashing::partition_of;
use prombus_core::{Append, Commit, CommitError, ConfigChange, Partition, Placement, TopicName};

/// How many partitions most topics have here.
const PARTITIONS: u32 = 4;

fn events(events: Vec<Append>) -> Commit {
    Commit { events, ..Commit::default() }
}

/// Events for which the store is to choose.
fn auto(topic: &TopicName, drafts: impl IntoIterator<Item = Draft>) -> Vec<Append> {
    let append = |Draft { event, expect, .. }| Append {
        topic: topic.clone(),
        placement: Placement::Auto,
        expect,
        event,
    };
    drafts.into_iter().map(append).collect()
}

/// Events in these partitions, whatever their key says.
fn named(topic: &TopicName, order: &[u32], draft: &Draft) -> Vec<Append> {
    let append = |partition: &u32| Append {
        placement: Placement::Named(Partition(*partition)),
        ..auto(topic, [draft.clone()]).remove(0)
    };
    order.iter().map(append).collect()
}

/// Where these events went.
async fn placed(s: &Subject, appends: Vec<Append>) -> Vec<u32> {
    let receipt = must(s.commit(events(appends)).await, "every event has a partition");
    receipt.events.iter().map(|appended| appended.partition.0).collect()
}

/// An event goes by its key, also where it has an id: the vectors are those of the guide.
pub async fn an_event_goes_by_its_key(s: Subject) {
    let keys = ["a", "web1:stt:4242", "schlüssel", "日本"];
    for (count, expected) in [(1, [0, 0, 0, 0]), (8, [1, 5, 0, 1]), (64, [14, 23, 49, 36])] {
        let topic = s.create(&format!("by-key.{count}"), partitions(count)).await;
        assert_eq!(placed(&s, auto(&topic, keys.map(|key| event("1").key(key)))).await, expected);
        let with_id = |(n, key)| event("2").key(key).id(producer_id(n));
        let with_ids = auto(&topic, (0..).zip(keys).map(with_id));
        assert_eq!(placed(&s, with_ids).await, expected, "a key comes before an id");
    }
}

/// An event without a key goes by the 16 bytes of its producer's id.
pub async fn an_event_without_a_key_goes_by_its_id(s: Subject) {
    let topic = s.create("by-id", partitions(PARTITIONS)).await;
    let ids = || (0..50).map(producer_id);
    let expected: Vec<u32> = ids().map(|id| partition_of(id.as_bytes(), PARTITIONS).0).collect();
    assert!((0..PARTITIONS).all(|partition| expected.contains(&partition)), "{expected:?}");
    let appends = || auto(&topic, ids().map(|id| event("1").id(id)));
    assert_eq!(placed(&s, appends()).await, expected);
    assert_eq!(placed(&s, appends()).await, expected, "a repeated id is where the first one is");
}

/// Events with neither take turns, within a commit and from commit to commit.
pub async fn events_with_neither_take_turns(s: Subject) {
    let topic = s.create("turns", partitions(PARTITIONS)).await;
    let mut counts = [0; PARTITIONS as usize];
    for partition in placed(&s, auto(&topic, (0..12).map(numbered))).await {
        counts[partition as usize] += 1;
    }
    assert_eq!(counts, [3; PARTITIONS as usize], "each partition has its turn");
    let mut seen = [false; PARTITIONS as usize];
    for n in 0..20 {
        seen[placed(&s, auto(&topic, [numbered(n)])).await[0] as usize] = true;
    }
    assert_eq!(seen, [true; PARTITIONS as usize], "no partition is left out");
    let narrow = s.create("turns.narrow", partitions(1)).await;
    assert_eq!(placed(&s, auto(&narrow, (0..5).map(numbered))).await, [0; 5]);
}

/// A named partition is taken, and nobody asks why. (Events of a key never go to a lower one.)
pub async fn a_named_partition_is_taken(s: Subject) {
    let topic = s.create("named", partitions(3)).await;
    for partition in [0, 1, 1, 2] {
        let appends = named(&topic, &[partition], &event("1").key("k"));
        let receipt = must(s.commit(events(appends)).await, "a partition can be named");
        assert_eq!(receipt.events[0].partition, Partition(partition), "an event goes where it was named");
        let latest = s.latest(&topic, "k").await.map(|event| event.id);
        assert_eq!(latest, Some(receipt.events[0].id), "the latest of a key was committed last in the topic");
    }
    let places: Vec<(u32, u64)> =
        s.history(&topic, "k", 2).await.iter().map(|event| (event.partition.0, event.offset.0)).collect();
    assert_eq!(places, [(0, 0), (1, 0), (1, 1), (2, 0)], "a history is in the order of commits");
}

/// Within one commit, the later event is the later one also across partitions.
pub async fn order_within_a_commit_counts_across_partitions(s: Subject) {
    let topic = s.create("named.batch", partitions(3)).await;
    let order = [0, 0, 1, 2, 2];
    assert_eq!(placed(&s, named(&topic, &order, &event("1").key("k"))).await, order);
    for limit in [1, 2, 10] {
        let history = s.history(&topic, "k", limit).await;
        let found: Vec<u32> = history.iter().map(|event| event.partition.0).collect();
        assert_eq!(found, order, "a history is in the order of the events of a commit");
    }
    let latest = s.latest(&topic, "k").await.map(|event| (event.partition, event.offset.0));
    assert_eq!(latest, Some((Partition(2), 1)));
}

/// An event in a partition that the topic does not have is refused by its index, and all of its commit with it.
pub async fn a_named_partition_must_be_there(s: Subject) {
    let topic = s.create("named.missing", partitions(2)).await;
    for partition in [2, 3, u32::MAX].map(Partition) {
        let mut appends = s.place(&topic, [event("1"), event("2").in_partition(1), event("3")]);
        appends[1].placement = Placement::Named(partition);
        let error = refusal(s.commit(events(appends)).await);
        let topic = topic.clone();
        assert_eq!(error, CommitError::NoSuchPartition { index: 1, topic, partition, partitions: 2 });
    }
    s.assert_holds(&topic, 0, &[]).await;
}

/// From the moment that a topic grows, and in that very commit, events go by the partitions that it has then.
pub async fn growth_is_followed_at_once(s: Subject) {
    let topic = s.create("grown", partitions(1)).await;
    let keys: Vec<String> = moving_keys(2).take(4).collect();
    let keyed = || auto(&topic, keys.iter().map(|key| event("1").key(key)));
    let by = |count| keys.iter().map(|key| partition_of(key.as_bytes(), count).0).collect::<Vec<_>>();
    assert_eq!(placed(&s, keyed()).await, by(1));
    s.grow(&topic, 2).await;
    assert_eq!(placed(&s, keyed()).await, by(2), "those that are placed by key have moved");
    assert_eq!(placed(&s, named(&topic, &[1], &event("2"))).await, [1], "what was added can be named");
    let now = s.topic(&topic).await;
    let (name, expect_revision) = (topic.clone(), now.revision);
    let grow = ConfigChange::AlterTopic { name, expect_revision, config: partitions(7) };
    let commit = Commit { config: vec![grow], events: keyed(), ..Commit::default() };
    let receipt = must(s.commit(commit).await, "growth and events can share a commit");
    assert_eq!(receipt.events.iter().map(|event| event.partition.0).collect::<Vec<_>>(), by(7));
    for key in &keys {
        let history = s.history(&topic, key, 10).await;
        assert!(history.is_sorted_by_key(|event| event.partition), "a key never goes to a lower partition");
        assert_eq!(history.len(), 3);
    }
}

/// Each growth is noted with the ends that the partitions had then, and other changes of the topic are not.
pub async fn a_topic_knows_where_it_ended_when_it_grew(s: Subject) {
    let topic = s.create("growth", partitions(1)).await;
    s.published(&topic, [event("1"), event("2")]).await;
    must(s.alter(&topic, |config| config.retention_ms = 1).await, "settings can change");
    assert!(s.topic(&topic).await.growths.is_empty(), "the topic has not grown yet");
    s.grow(&topic, 3).await;
    s.published(&topic, [event("3"), event("4").in_partition(2)]).await;
    s.grow(&topic, 4).await;
    s.published(&topic, [event("5")]).await;
    let state = s.topic(&topic).await;
    let ends = |partition| state.before(Partition(partition)).iter().map(|end| end.0).collect::<Vec<_>>();
    assert_eq!([0, 1, 2, 3].map(ends), [vec![], vec![2], vec![2], vec![3, 0, 1]], "ends at each growth");
}

/// A topic that was deleted and made again has the partitions that it was made with, and no others.
pub async fn a_remade_topic_has_its_own_partitions(s: Subject) {
    let topic = s.create("remade", partitions(3)).await;
    let keys: Vec<String> = moving_keys(3).take(3).collect();
    let keyed = || auto(&topic, keys.iter().map(|key| event("1").key(key)));
    assert!(!placed(&s, keyed()).await.contains(&0));
    s.delete(&topic).await;
    let error = refusal(s.commit(events(keyed())).await);
    assert_eq!(error, CommitError::TopicNotFound(topic.clone()), "the topic is gone");
    s.create(topic.as_str(), partitions(1)).await;
    let error = refusal(s.commit(events(named(&topic, &[1], &event("2")))).await);
    let missing = CommitError::NoSuchPartition {
        index: 0,
        topic: topic.clone(),
        partition: Partition(1),
        partitions: 1,
    };
    assert_eq!(error, missing, "the topic is another one");
    assert_eq!(placed(&s, keyed()).await, [0; 3]);
    s.assert_holds(&topic, 0, &["1"; 3]).await;
}
