//! A store takes only events whose partition was decided for the layout that the topic has.

use crate::Subject;
use crate::build::{event, json, partitions, topic};
use crate::subject::{must, refusal};
use prombus_core::{
    Append, Commit, CommitError, ConfigChange, Layout, NewEvent, Partition, Placement, TopicName, TopicNumber,
};

fn events(events: Vec<Append>) -> Commit {
    Commit { events, ..Commit::default() }
}

/// Events placed for fewer partitions than the topic has are refused, and can be placed anew.
pub async fn a_placement_from_before_growth_is_stale(s: Subject) {
    let topic = s.create("stale.growth", partitions(1)).await;
    let placed = s.place(&topic, [event("1"), event("2").key("k")]).await;
    s.grow(&topic, 2).await;
    for count in [1, 2] {
        let error = refusal(s.commit(events(placed[..count].to_vec())).await);
        assert_eq!(error, CommitError::StaleLayout(topic.clone()), "the layout has changed");
    }
    let mut ahead = s.place(&topic, [event("3")]).await;
    ahead[0].placement = Placement::Placed(Partition(0), Layout { partitions: 3, ..s.layout(&topic).await });
    let error = refusal(s.commit(events(ahead)).await);
    assert_eq!(
        error,
        CommitError::StaleLayout(topic.clone()),
        "a layout that the topic never had is no better"
    );
    assert_eq!(s.all(&topic, 0).await, []);
    s.published(&topic, [event("1"), event("2").key("k")]).await;
}

/// Each growth is noted with the ends that the partitions had then, and other changes of the topic are not.
pub async fn a_topic_knows_where_it_ended_when_it_grew(s: Subject) {
    let topic = s.create("growth", partitions(1)).await;
    s.published(&topic, [event("1"), event("2")]).await;
    must(s.alter(&topic, |config| config.retention_days = 1).await, "settings can change");
    assert!(s.topic(&topic).await.growths.is_empty(), "the topic has not grown yet");
    s.grow(&topic, 3).await;
    s.published(&topic, [event("3"), event("4").in_partition(2)]).await;
    s.grow(&topic, 4).await;
    s.published(&topic, [event("5")]).await;
    let state = s.topic(&topic).await;
    let ends = |partition| state.before(Partition(partition)).iter().map(|end| end.0).collect::<Vec<_>>();
    assert_eq!([0, 1, 2, 3].map(ends), [vec![], vec![2], vec![2], vec![3, 0, 1]], "ends at each growth");
}

/// Events placed for a topic that was deleted and made again are refused.
pub async fn a_placement_from_an_earlier_life_is_stale(s: Subject) {
    let topic = s.create("stale.life", partitions(1)).await;
    let placed = s.place(&topic, [event("1")]).await;
    s.delete(&topic).await;
    let error = refusal(s.commit(events(placed.clone())).await);
    assert_eq!(error, CommitError::TopicNotFound(topic.clone()), "the topic is gone");
    s.create(topic.as_str(), partitions(1)).await;
    let error = refusal(s.commit(events(placed)).await);
    assert_eq!(error, CommitError::StaleLayout(topic.clone()), "the topic is another one");
    s.assert_holds(&topic, 0, &[]).await;
}

/// Other changes of a topic leave a placement valid.
pub async fn a_placement_outlives_other_changes(s: Subject) {
    let topic = s.create("stale.not", partitions(2)).await;
    let placed = s.place(&topic, [event("1")]).await;
    must(s.alter(&topic, |config| config.retention_days = 1).await, "settings can be changed");
    s.create("stale.other", partitions(1)).await;
    must(s.commit(events(placed)).await, "a placement holds as long as the layout does");
}

/// An event whose partition is not decided, or not one of the topic's, is refused by its index.
pub async fn an_event_without_a_valid_partition_is_refused(s: Subject) {
    let topic = s.create("unplaced", partitions(2)).await;
    let layout = s.layout(&topic).await;
    let bad = [
        Placement::Auto,
        Placement::Named(Partition(0)),
        Placement::Placed(Partition(2), layout),
        Placement::Placed(Partition(u32::MAX), layout),
    ];
    for placement in bad {
        let mut placed = s.place(&topic, [event("1"), event("2"), event("3")]).await;
        placed[1].placement = placement;
        let error = refusal(s.commit(events(placed)).await);
        assert_eq!(error, CommitError::NotPlaced { index: 1 }, "{placement:?} is no decided partition");
    }
    s.assert_holds(&topic, 0, &[]).await;
}

/// A store does not ask why an event is in its partition. (Those of a key never go to a lower one.)
pub async fn an_event_goes_where_it_was_placed(s: Subject) {
    let topic = s.create("placed", partitions(3)).await;
    let layout = s.layout(&topic).await;
    for partition in [0, 1, 1, 2].map(Partition) {
        let mut placed = s.place(&topic, [event("1").key("k")]).await;
        placed[0].placement = Placement::Placed(partition, layout);
        let receipt = must(s.commit(events(placed)).await, "a decided partition is taken");
        assert_eq!(receipt.events[0].partition, partition, "an event goes where it was placed");
        let latest = s.latest(&topic, "k").await.map(|event| event.id);
        assert_eq!(latest, Some(receipt.events[0].id), "the latest of a key was committed last in the topic");
    }
    let places: Vec<(u32, u64)> =
        s.history(&topic, "k", 2).await.iter().map(|event| (event.partition.0, event.offset.0)).collect();
    assert_eq!(places, [(0, 0), (1, 0), (1, 1), (2, 0)], "a history is in the order of commits");
}

/// Within one commit, the later event is the later one also across partitions.
pub async fn order_within_a_commit_counts_across_partitions(s: Subject) {
    let topic = s.create("placed.batch", partitions(3)).await;
    let layout = s.layout(&topic).await;
    let order = [0, 0, 1, 2, 2];
    let mut placed = s.place(&topic, order.map(|_| event("1").key("k"))).await;
    for (append, partition) in placed.iter_mut().zip(order) {
        append.placement = Placement::Placed(Partition(partition), layout);
    }
    must(s.commit(events(placed)).await, "decided partitions are taken");
    for limit in [1, 2, 10] {
        let history = s.history(&topic, "k", limit).await;
        let found: Vec<u32> = history.iter().map(|event| event.partition.0).collect();
        assert_eq!(found, order, "a history is in the order of the events of a commit");
    }
    let latest = s.latest(&topic, "k").await.map(|event| (event.partition, event.offset.0));
    assert_eq!(latest, Some((Partition(2), 1)));
}

/// An event for a topic that does not exist is refused; a store makes no topics by itself.
pub async fn an_event_for_a_missing_topic_is_refused(s: Subject) {
    let exists = s.create("present", partitions(1)).await;
    let missing = topic("absent");
    let mut placed = s.place(&exists, [event("1"), event("2")]).await;
    placed[1].topic = missing.clone();
    let layout = Layout { topic: TopicNumber(1_000), partitions: 1 };
    placed[1].placement = Placement::Placed(Partition(0), layout);
    let error = refusal(s.commit(events(placed)).await);
    assert_eq!(error, CommitError::TopicNotFound(missing.clone()));
    assert_eq!(must(s.log.topic(&missing).await, "topics can be looked up"), None);
    s.assert_holds(&exists, 0, &[]).await;
}

/// Events can go to a topic that the same commit makes, and only to such a one without saying which.
pub async fn events_go_to_a_topic_that_their_commit_makes(s: Subject) {
    let name = topic("made.with.events");
    let other = s.create("made.before", partitions(2)).await;
    let config = vec![ConfigChange::CreateTopic { name: name.clone(), config: partitions(2) }];
    let append = |topic: &TopicName, partition| Append {
        topic: topic.clone(),
        placement: Placement::PlacedInNew(Partition(partition)),
        expect: None,
        event: NewEvent::new(json("1")),
    };
    let commit = |events| Commit { config: config.clone(), events, ..Commit::default() };
    let refused = refusal(s.commit(commit(vec![append(&name, 0), append(&other, 0)])).await);
    assert_eq!(refused, CommitError::StaleLayout(other.clone()), "this one was there before");
    let refused = refusal(s.commit(commit(vec![append(&name, 2)])).await);
    assert_eq!(refused, CommitError::NotPlaced { index: 0 }, "it has no such partition");
    assert_eq!(must(s.log.topic(&name).await, "topics can be read"), None, "a refused commit makes no topic");
    must(s.commit(commit(vec![append(&name, 1), append(&name, 0)])).await, "topic and events in one");
    s.assert_holds(&name, 0, &["1"]).await;
    s.assert_holds(&name, 1, &["1"]).await;
    let again = Commit { events: vec![append(&name, 0)], ..Commit::default() };
    assert_eq!(refusal(s.commit(again).await), CommitError::StaleLayout(name), "now it was there before");
}
