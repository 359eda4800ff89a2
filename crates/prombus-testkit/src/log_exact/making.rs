//! Topics that come into being by their first event, or with it.

use crate::Subject;
use crate::build::{event, json, numbered, partitions, producer_id, topic};
use crate::subject::{must, refusal};
use crate::tasks::together;
use prombus_core::{
    Append, Commit, CommitError, CommitLimits, ConfigChange, Durability, NewEvent, NewTopics, Partition,
    Placement, TopicConfig, TopicName,
};
use std::collections::HashSet;
use std::sync::Arc;

fn auto_create(configs: &[(&TopicName, TopicConfig)]) -> Option<Arc<NewTopics>> {
    let configs = configs.iter().map(|(name, config)| ((*name).clone(), config.clone())).collect();
    Some(Arc::new(NewTopics { configs }))
}

fn create(name: &TopicName, config: TopicConfig) -> ConfigChange {
    ConfigChange::CreateTopic { name: name.clone(), config }
}

async fn is_there(s: &Subject, name: &TopicName) -> bool {
    must(s.log.topic(name).await, "topics can be looked up").is_some()
}

/// An event for a topic that does not exist is refused where its commit makes none, and all of the commit with it.
pub async fn an_event_for_a_missing_topic_is_refused(s: Subject) {
    let (exists, missing) = (s.create("present", partitions(1)).await, topic("absent"));
    for draft in [event("2"), event("2").key("k"), event("2").in_partition(7)] {
        let events = [s.place(&exists, [event("1")]), s.place(&missing, [draft])].concat();
        let error = refusal(s.commit(Commit { events, ..Commit::default() }).await);
        assert_eq!(error, CommitError::TopicNotFound(missing.clone()));
    }
    assert!(!is_there(&s, &missing).await);
    s.assert_holds(&exists, 0, &[]).await;
}

/// A commit that makes topics makes those that its events need, as they are to be, and leaves the others alone.
pub async fn events_make_the_topics_that_they_need(s: Subject) {
    let (wide, plain) = (topic("made.wide"), topic("made.plain"));
    let there = s.create("made.before", partitions(1)).await;
    let before = s.topic(&there).await;
    let settings = TopicConfig { durability: Durability::Interval, ..partitions(8) };
    let auto_create = auto_create(&[
        (&wide, settings.clone()),
        (&there, partitions(5)),
        (&topic("unasked"), partitions(1)),
    ]);
    let first = event("2").key("user-1").id(producer_id(1)).expecting(None);
    let events = [
        s.place(&wide, [first.clone(), first.clone()]),
        s.place(&plain, [event("3")]),
        s.place(&there, [event("4").key("user-1")]),
        s.place(&wide, [event("5").in_partition(7)]),
    ]
    .concat();
    let commit = || Commit { events: events.clone(), auto_create: auto_create.clone(), ..Commit::default() };
    let receipt = must(s.commit(commit()).await, "events make topics");
    let places: Vec<u32> = receipt.events.iter().map(|appended| appended.partition.0).collect();
    assert_eq!(places, [5, 5, 0, 0, 7], "they are placed as the new topics are");
    assert!(
        receipt.events[1].duplicate && !receipt.events[0].duplicate,
        "the second has the id of the first"
    );
    let s = s.reopened().await;
    let state = s.topic(&wide).await;
    assert_eq!((&state.config, state.revision, state.growths.len()), (&settings, 1, 0));
    assert_eq!(s.topic(&plain).await.config, TopicConfig::default(), "the usual settings");
    assert_eq!(s.topic(&there).await, before, "one that is there stays as it is");
    assert!(!is_there(&s, &topic("unasked")).await, "nobody has published there");
    let numbers = HashSet::from([before.number, state.number, s.topic(&plain).await.number]);
    assert_eq!(numbers.len(), 3, "each has its own number");
    s.assert_holds(&wide, 5, &["2"]).await;
    s.assert_holds(&plain, 0, &["3"]).await;
    assert_eq!(s.by_id(&wide, producer_id(1)).await.map(|event| event.partition), Some(Partition(5)));
    must(s.commit(commit()).await, "they are there now");
    assert_eq!(s.topic(&wide).await, state, "a topic is made once");
}

/// Whatever a topic asks for, that it has come into being is flushed.
pub async fn a_new_topic_is_always_flushed(s: Subject) {
    let loose = topic("made.loose");
    let auto_create =
        auto_create(&[(&loose, TopicConfig { durability: Durability::Interval, ..partitions(1) })]);
    for expected in [Durability::Sync, Durability::Interval] {
        let events = s.place(&loose, [event("1")]);
        let commit = Commit { events, auto_create: auto_create.clone(), ..Commit::default() };
        assert_eq!(must(s.commit(commit).await, "it is taken").durability, expected);
    }
}

/// A topic is taken back with the commit that would have made it.
pub async fn a_refused_commit_makes_no_topic(s: Subject) {
    let (new, exists) = (topic("made.not"), s.create("made.then", partitions(1)).await);
    s.published(&exists, [event("1").key("k")]).await;
    let auto_create = auto_create(&[(&new, partitions(2))]);
    let bad = [
        s.place(&exists, [event("2").key("k").expecting(None)]),
        s.place(&new, [event("2").in_partition(2)]),
        s.place(&new, [event("2").key("k").expecting(Some(producer_id(1)))]),
        s.place(&new, [event("3").id(producer_id(2)), event("4").id(producer_id(2))]),
    ];
    for bad in bad {
        let events = [s.place(&new, [event("1").key("k").id(producer_id(3))]), bad].concat();
        refusal(s.commit(Commit { events, auto_create: auto_create.clone(), ..Commit::default() }).await);
        assert!(!is_there(&s, &new).await, "a refused commit makes no topic");
    }
    let events = s.place(&new, [event("1").id(producer_id(3)).in_partition(1)]);
    let receipt = must(s.commit(Commit { events, auto_create, ..Commit::default() }).await, "now it is made");
    assert!(!receipt.events[0].duplicate, "nothing is left of what was refused");
    s.assert_holds(&new, 1, &["1"]).await;
    s.assert_holds(&exists, 0, &["1"]).await;
}

/// Topics of the hub's own come into being whatever the commit says of other topics, with the usual settings.
pub async fn topics_of_the_hub_make_themselves(s: Subject) {
    let limits = CommitLimits { topics: 0, ..CommitLimits::default() };
    for (n, name) in ["dlq.made", "system.made"].map(topic).into_iter().enumerate() {
        let auto_create = auto_create(&[(&name, partitions(3))]).filter(|_| n == 1);
        let events = s.place(&name, [event("1").key("k")]);
        must(s.commit(Commit { events, auto_create, limits, ..Commit::default() }).await, "it is made");
        assert_eq!(s.topic(&name).await.config, TopicConfig::default());
        s.assert_holds(&name, 0, &["1"]).await;
    }
}

/// There are no more topics than the commit allows, whoever makes them; those of the hub's own count, and come.
pub async fn there_are_only_so_many_topics(s: Subject) {
    let (limits, auto_create) = (CommitLimits { topics: 3, ..CommitLimits::default() }, auto_create(&[]));
    let limited = |config: Vec<ConfigChange>, names: &[&str]| {
        let events = names.iter().flat_map(|name| s.place(&topic(name), [event("1")])).collect();
        s.commit(Commit { config, events, limits, auto_create: auto_create.clone(), ..Commit::default() })
    };
    let make = |name: &str| vec![create(&topic(name), partitions(1))];
    let too_many = CommitError::TooManyTopics { limit: 3 };
    assert_eq!(refusal(limited(make("a"), &["b", "c", "d"]).await), too_many);
    assert!(!is_there(&s, &topic("a")).await, "nothing has happened");
    must(limited(make("a"), &["b", "dlq.a", "b"]).await, "there is room for those");
    assert_eq!(refusal(limited(Vec::new(), &["c"]).await), too_many);
    assert_eq!(refusal(limited(make("c"), &[]).await), too_many);
    assert_eq!(refusal(limited(make("a"), &[]).await), CommitError::TopicExists(topic("a")));
    must(limited(Vec::new(), &["a", "b", "dlq.b"]).await, "those are there, or the hub's own");
    let delete = |name| ConfigChange::DeleteTopic { name: topic(name) };
    assert_eq!(refusal(limited(vec![delete("a")], &["c"]).await), too_many, "there were too many already");
    must(limited(vec![delete("a"), delete("dlq.b")], &["c"]).await, "those that go make room");
    s.create("d", partitions(1)).await;
    assert_eq!(refusal(limited(Vec::new(), &["e"]).await), too_many, "others may be allowed more");
}

/// Events can go to a topic that the changes of their commit make, which say what it is like.
pub async fn events_go_to_a_topic_that_their_commit_makes(s: Subject) {
    let name = topic("made.with.events");
    let append = |partition| Append {
        topic: name.clone(),
        placement: Placement::Named(Partition(partition)),
        expect: None,
        event: NewEvent::new(json("1")),
    };
    let commit = |events| Commit {
        config: vec![create(&name, partitions(2))],
        events,
        auto_create: auto_create(&[(&name, partitions(9))]),
        ..Commit::default()
    };
    let (partition, partitions) = (Partition(2), 2);
    let missing = CommitError::NoSuchPartition { index: 0, topic: name.clone(), partition, partitions };
    assert_eq!(refusal(s.commit(commit(vec![append(2)])).await), missing, "it has no such partition");
    assert!(!is_there(&s, &name).await, "a refused commit makes no topic");
    must(s.commit(commit(vec![append(1), append(0)])).await, "topic and events in one");
    s.assert_holds(&name, 0, &["1"]).await;
    s.assert_holds(&name, 1, &["1"]).await;
}

/// Of many first events at the same time none is refused, and all go to the same topic.
pub async fn many_first_events_make_one_topic(s: Subject) {
    let s = Arc::new(s);
    for round in 0..10 {
        let name = topic(&format!("made.together.{round}"));
        let answers = together(6, |n| {
            let (s, name) = (s.clone(), name.clone());
            async move {
                let events = s.place(&name, [numbered(n).in_partition(n as u32 % 2)]);
                let auto_create = auto_create(&[(&name, partitions(2))]);
                s.commit(Commit { events, auto_create, ..Commit::default() }).await
            }
        })
        .await;
        answers.into_iter().for_each(|answer| drop(must(answer, "one makes it, and the others find it")));
        let state = s.topic(&name).await;
        assert_eq!((state.revision, state.config.partitions), (1, 2));
        assert_eq!((s.all(&name, 0).await.len(), s.all(&name, 1).await.len()), (3, 3));
    }
}
