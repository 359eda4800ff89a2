//! Collections that are made anew.

use crate::projections::stage::*;
use prombus_core::{Append, Commit, CommitError, EventLogExt, Partition, Placement, TopicName, collection};
use prombus_engine::projections::{ProjectionError, ProjectionState};
use serde_json::{Value, json};

/// Events with versions that go up and down, deletes, and keys of their own.
fn events(numbers: std::ops::Range<u64>) -> impl Iterator<Item = (String, Value)> {
    numbers.map(|n| {
        let key = format!("k{}", n % 37);
        let payload = match n % 11 {
            0 => Value::Null,
            1 => json!({"_deleted": true, "rev": n}),
            2 => json!({"gone": true, "rev": n}),
            _ => json!({"host": format!("h{}", n % 5), "rev": (n * 7) % 100, "n": n, "x": 1.10, "ä.$": [n]}),
        };
        (key, payload)
    })
}

async fn publish(s: &Stage, topic: &TopicName, numbers: std::ops::Range<u64>) {
    for (key, payload) in events(numbers) {
        s.clock.advance(3);
        s.publish(topic, [(key.as_str(), payload)]).await;
    }
}

async fn all_projections(s: &Stage) -> [&'static str; 3] {
    s.put(
        "plain",
        json!({"topic": "t", "collection": "plain", "key": "event.key", "indexes": [["host", "n"]]}),
    )
    .await;
    let versioned = json!({"topic": "t", "collection": "versioned", "key": "event.key", "version": "event.payload.rev",
        "tombstone": "event.payload.gone", "map": "{'n': event.payload.n, 'all': event.payload}"});
    s.put("versioned", versioned).await;
    let write = json!([
        {"collection": "live", "key": "event.key", "set": "event.payload", "delete": "event.payload.gone"},
        {"collection": "stats", "key": "event.key", "when": "event.payload.n % 2 == 0",
         "inc": {"seen": "1", "sum": "event.payload.x"}, "set": {"last": "event.ts"}},
    ]);
    s.put("txn", json!({"topic": "t", "write": write})).await;
    ["plain", "versioned", "txn"]
}

const COLLECTIONS: [&str; 4] = ["plain", "versioned", "live", "stats"];

async fn contents(s: &Stage) -> Vec<Vec<(String, u128)>> {
    let mut all = Vec::new();
    for name in COLLECTIONS {
        all.push(s.all(name).await);
        assert!(!all[all.len() - 1].is_empty(), "{name}");
    }
    all
}

pub async fn a_rebuild_gives_the_same_to_the_byte(s: Stage) {
    let topic = s.topic("t", 3).await;
    let names = all_projections(&s).await;
    publish(&s, &topic, 0..700).await;
    for name in names {
        s.caught_up(name).await;
    }
    let (before, letters) = (contents(&s).await, s.letters(&topic).await.len());
    let errors = s.status("txn").await.errors;
    for name in names {
        let status = s.rebuilt(name).await;
        assert!(!status.stale);
        assert_eq!(status.lag, 0);
    }
    assert_eq!(contents(&s).await, before);
    assert_eq!(s.letters(&topic).await.len(), letters, "what failed has its letter already");
    assert_eq!(s.status("txn").await.errors, errors, "and was counted already");
    let mut names: Vec<String> = collections(&s).await;
    names.retain(|name| !name.ends_with("~failed"));
    assert_eq!(names, ["hub~projections", "live", "plain", "stats", "versioned"]);
    publish(&s, &topic, 700..720).await;
    for name in ["plain", "versioned", "txn"] {
        assert_eq!(s.caught_up(name).await.state, ProjectionState::Running);
    }
}

async fn collections(s: &Stage) -> Vec<String> {
    let all = prombus_core::Documents::collections(&*s.log).await.expect("collections");
    all.iter().map(|state| state.name.to_string()).collect()
}

/// Whether a commit writes to what is made anew.
fn builds(commit: &Commit) -> bool {
    commit.documents.iter().any(|write| write.collection.ends_with("~rebuild"))
}

fn switches(commit: &Commit) -> bool {
    commit.config.iter().any(|change| matches!(change, prombus_core::ConfigChange::SwapCollection { .. }))
}

pub async fn events_keep_coming_during_a_rebuild(s: Stage) {
    let topic = s.topic("t", 2).await;
    s.put("p", counter("t", "counts")).await;
    let one = |n: u64| (format!("e{n}"), json!({"k": "a", "v": n}));
    let some = async |numbers: std::ops::Range<u64>| {
        let events = numbers.map(one).map(|(key, payload)| append(&topic, Some(&key), &payload)).collect();
        s.hub.publish(events).await.expect("events can be published");
    };
    some(0..5_000).await;
    s.caught_up("p").await;
    s.log.hold(builds);
    s.hub.projections().rebuild("p", false).await.expect("it can be begun");
    s.log.until_held(1).await;
    assert_eq!(s.field("counts", "a", "n").await, json!(5_000), "the old one is whole");
    let again = s.hub.projections().rebuild("p", false);
    let release = async {
        some(5_000..6_000).await;
        s.log.release();
    };
    let (again, ()) = tokio::join!(again, release);
    assert!(matches!(again, Err(ProjectionError::Rebuilding(_))), "{again:?}");
    some(6_000..7_000).await;
    s.until("p", "the rebuild ends", |status| status.rebuild.is_none()).await;
    some(7_000..8_000).await;
    s.caught_up("p").await;
    let document = s.document("counts", "a").await.expect("a counter");
    assert_eq!((&document["n"], &document["sum"]), (&json!(8_000), &json!((0..8_000).sum::<u64>())));
}

/// From here on whoever reads finds something new: an event in each of three partitions, of which one fails.
async fn feed_always(s: &Stage, topic: &TopicName) {
    let one = |partition| {
        let value = if partition == 1 { json!("no number") } else { json!(1) };
        let placement = Placement::Named(Partition(partition));
        Append { placement, ..append(topic, None, &json!({"k": "a", "v": value})) }
    };
    s.log.feed(Commit { events: (0..3).map(one).collect(), ..Commit::default() }, &s.clock).await;
}

/// Nobody may wait for the moment when there is nothing to do, and nothing may be done in silence on the way.
pub async fn a_rebuild_ends_though_events_do_not(s: Stage) {
    let topic = s.topic("t", 3).await;
    let mut definition = counter("t", "counts");
    definition["write"][0]["changefeed"] = json!("counts.changed");
    s.put("p", definition).await;
    feed_always(&s, &topic).await;
    for _ in 0..3 {
        s.rebuilt("p").await;
    }
    s.log.end_feed().await;
    let status = s.caught_up("p").await;
    let good = status.partitions[0].tail.0 + status.partitions[2].tail.0;
    assert_eq!(s.field("counts", "a", "n").await, json!(good));
    assert_eq!(
        s.log.bounds(&(&topic_name("counts.changed")).into(), Partition(0)).await.expect("a feed").next.0,
        good
    );
    let dead = s
        .log
        .bounds(&(&topic.dead_letters().expect("a name")).into(), Partition(0))
        .await
        .expect("letters")
        .next
        .0;
    assert_eq!((dead, status.errors), (status.partitions[1].tail.0, dead));
}

/// Where the present collections will never go on, a rebuild ends where the topic did.
pub async fn a_stopped_projection_can_be_rebuilt_though_events_do_not_end(s: Stage) {
    let topic = s.topic("t", 3).await;
    s.put("p", counter("t", "counts")).await;
    let three_each = async || {
        let event = |n: u32| Append {
            placement: Placement::Named(Partition(n % 3)),
            ..append(&topic, None, &json!({"k": "a", "v": 1}))
        };
        s.hub.publish((0..9).map(event).collect()).await.expect("events can be published");
    };
    three_each().await;
    s.caught_up("p").await;
    s.refuse(moves_cursors, usize::MAX, CommitError::NoRoom);
    three_each().await;
    s.until("p", "it waits", |status| status.last_error.is_some()).await;
    s.trim(&topic, 5).await;
    s.refuse(moves_cursors, 0, CommitError::NoRoom);
    s.until("p", "it stops", |status| matches!(status.state, ProjectionState::Stopped(_))).await;
    feed_always(&s, &topic).await;
    s.hub.projections().rebuild("p", true).await.expect("it can be begun");
    s.until("p", "the rebuild ends", |status| status.rebuild.is_none()).await;
    s.log.end_feed().await;
    let status = s.caught_up("p").await;
    let good = status.partitions[0].tail.0 + status.partitions[2].tail.0 + 3;
    assert_eq!(
        (status.state, s.field("counts", "a", "n").await),
        (ProjectionState::Running, json!(good - 2))
    );
}

/// What has stopped at the end of a topic, and is rebuilt from another one that is shorter.
pub async fn a_rebuild_after_one_that_was_given_up_is_a_new_one(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", counter("t", "counts")).await;
    let some = || (0..50).map(|_| ("x", json!({"k": "a", "v": 1})));
    s.publish(&topic, some()).await;
    s.caught_up("p").await;
    s.refuse(moves_cursors, usize::MAX, CommitError::NoRoom);
    s.publish(&topic, some()).await;
    s.until("p", "it waits", |status| status.last_error.is_some()).await;
    s.trim(&topic, 60).await;
    s.refuse(moves_cursors, 0, CommitError::NoRoom);
    s.until("p", "it stops", |status| matches!(status.state, ProjectionState::Stopped(_))).await;
    s.log.hold(builds);
    s.hub.projections().rebuild("p", true).await.expect("it can be begun");
    s.log.until_held(1).await;
    s.hub.delete_topic(&topic).await.expect("a topic can be deleted");
    s.log.release();
    s.until("p", "it is given up", |status| status.rebuild.is_none()).await;
    s.topic("t", 1).await;
    s.publish(&topic, some().take(2)).await;
    s.rebuilt("p").await;
    let status = s.until("p", "it runs", |status| status.state == ProjectionState::Running).await;
    assert_eq!(status.rebuild_error, None, "that was about another one");
    s.caught_up("p").await;
    assert_eq!(s.field("counts", "a", "n").await, json!(2));
}

/// A clock that stands, and events that were applied before there was anyone to wait for.
pub async fn a_rebuild_ends_after_growth_though_the_clock_stands(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", counter("t", "counts")).await;
    s.publish(&topic, (0..50).map(|_| ("x", json!({"k": "a", "v": 1})))).await;
    s.caught_up("p").await;
    s.topic("t", 3).await;
    s.rebuilt("p").await;
    assert_eq!(s.field("counts", "a", "n").await, json!(50));
}

/// What was made of a topic that is gone must not be put in place half done.
pub async fn a_rebuild_is_given_up_when_its_topic_goes(s: Stage) {
    let topic = s.topic("t", 2).await;
    s.put("p", counter("t", "counts")).await;
    let some = async |count: usize| {
        let event = |n: usize| append(&topic, Some(&format!("e{n}")), &json!({"k": "a", "v": 1}));
        s.hub.publish((0..count).map(event).collect()).await.expect("events can be published");
    };
    for made_again in [false, true] {
        s.topic("t", 2).await;
        some(5_000).await;
        let before = s.caught_up("p").await;
        let counted = s.field("counts", "a", "n").await.as_u64().expect("a number");
        s.log.hold(builds);
        s.hub.projections().rebuild("p", false).await.expect("it can be begun");
        s.log.until_held(1).await;
        s.hub.delete_topic(&topic).await.expect("a topic can be deleted");
        if made_again {
            s.topic("t", 2).await;
            some(3).await;
        }
        s.log.release();
        let status = s.until("p", "the rebuild ends", |status| status.rebuild.is_none()).await;
        let why = status.last_error.unwrap_or_default();
        assert!(why.contains("the rebuild was given up"), "{why}");
        assert!(status.rebuild_error.is_some_and(|why| why.contains("deleted")), "it is told by itself");
        assert_eq!(status.errors, before.errors);
        s.caught_up("p").await;
        let more = if made_again { 3 } else { 0 };
        assert_eq!(s.field("counts", "a", "n").await, json!(counted + more));
        assert!(collections(&s).await.iter().all(|name| !name.ends_with("~rebuild")));
    }
}

pub async fn the_old_collection_is_whole_until_the_switch(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", json!({"topic": "t", "collection": "c", "key": "event.key", "fields": ["a"]})).await;
    s.publish(&topic, [("x", json!({"a": 1, "b": 1})), ("y", json!({"a": 1, "b": 1}))]).await;
    s.caught_up("p").await;
    s.put("p", json!({"topic": "t", "collection": "c", "key": "event.key", "fields": ["b"]})).await;
    let before = s.all("c").await;
    s.log.hold(switches);
    s.hub.projections().rebuild("p", false).await.expect("it can be begun");
    s.log.until_held(1).await;
    assert_eq!(s.all("c").await, before);
    assert!(s.status("p").await.rebuild.is_some());
    s.log.release();
    s.until("p", "the rebuild ends", |status| status.rebuild.is_none() && !status.stale).await;
    assert_eq!((s.field("c", "x", "b").await, s.all("c").await.len()), (json!(1), 2));
}

pub async fn a_rebuild_goes_on_after_a_restart(s: Stage) {
    let topic = s.topic("t", 2).await;
    s.put(
        "p",
        json!({"topic": "t", "write": [{"collection": "c", "key": "event.payload.k", "inc": {"n": "1"}}]}),
    )
    .await;
    let events = (0..9_000).map(|n| append(&topic, Some(&format!("e{n}")), &json!({"k": "a"}))).collect();
    s.hub.publish(events).await.expect("events can be published");
    s.caught_up("p").await;
    let doubled =
        json!({"topic": "t", "write": [{"collection": "c", "key": "event.payload.k", "inc": {"n": "2"}}]});
    assert!(s.put("p", doubled).await.stale);
    // Two pages of it are done when the hub goes.
    let error = CommitError::Unavailable("no".into());
    let refusal =
        crate::support::switch::Refusal { which: builds, after: 2, times: usize::MAX, error, happens: false };
    s.log.refuse(refusal);
    s.hub.projections().rebuild("p", false).await.expect("it can be begun");
    s.until("p", "it is held up", |status| status.last_error.is_some()).await;
    assert_eq!(s.field("c", "a", "n").await, json!(9_000));
    let s = s.crash().await;
    assert_eq!(s.field("c", "a", "n").await, json!(9_000));
    let status = s.until("p", "the rebuild ends", |status| status.rebuild.is_none() && !status.stale).await;
    assert_eq!((status.state, s.field("c", "a", "n").await), (ProjectionState::Running, json!(18_000)));
    assert!(collections(&s).await.iter().all(|name| !name.ends_with("~rebuild")));
}

pub async fn a_put_ends_a_rebuild(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", json!({"topic": "t", "collection": "c", "key": "event.key", "fields": ["a"]})).await;
    s.publish(&topic, [("x", json!({"a": 1, "b": 1}))]).await;
    s.caught_up("p").await;
    s.refuse(switches, usize::MAX, CommitError::Busy);
    s.hub.projections().rebuild("p", false).await.expect("it can be begun");
    s.until("p", "it cannot be put in place", |status| status.last_error.is_some()).await;
    let status =
        s.put("p", json!({"topic": "t", "collection": "c", "key": "event.key", "fields": ["b"]})).await;
    assert_eq!((status.rebuild, status.stale), (None, true));
    assert!(collections(&s).await.iter().all(|name| !name.ends_with("~rebuild")));
    let readers = prombus_core::EventLog::readers(&*s.log, &topic, "").await.expect("readers");
    assert_eq!(readers, ["projection:p"]);
    s.refuse(switches, 0, CommitError::Busy);
    assert!(!s.rebuilt("p").await.stale);
    assert_eq!(s.field("c", "x", "b").await, json!(1));
}

pub async fn a_changefeed_is_silent_during_a_rebuild(s: Stage) {
    let topic = s.topic("t", 1).await;
    let definition = json!({"topic": "t", "collection": "c", "key": "event.key", "changefeed": "c.changed", "indexes": [["a"]]});
    s.put("p", definition).await;
    s.publish(&topic, (0..5).map(|n| ("x", json!({"a": n})))).await;
    s.caught_up("p").await;
    let feed = topic_name("c.changed");
    assert_eq!(s.events(&feed).await.len(), 5);
    for round in 1..3 {
        s.rebuilt("p").await;
        assert_eq!(s.events(&feed).await.len(), 4 + round);
        s.publish(&topic, [("x", json!({"a": 10 * round}))]).await;
        s.caught_up("p").await;
        let told = s.events(&feed).await;
        assert_eq!(told.len(), 5 + round);
        let last = told.last().expect("an event");
        assert_eq!(last.payload.to_value().expect("JSON")["a"], json!(10 * round));
        let cause = s.events(&topic).await.last().map(|event| json!([event.id]));
        assert_eq!(last.caused_by.as_ref().map(|ids| ids.to_value().expect("JSON")), cause);
    }
    let state = s.hub.collections().get("c").await.expect("readable").expect("there");
    assert_eq!((state.config.indexes.len(), &state.config.changefeed), (1, &Some(feed)));
}

pub async fn an_empty_topic_can_be_rebuilt_from(s: Stage) {
    s.topic("t", 2).await;
    s.put("p", changelog("t", "c")).await;
    s.rebuilt("p").await;
    s.put("q", changelog("none", "d")).await;
    s.rebuilt("q").await;
    assert!(matches!(s.hub.projections().rebuild("r", false).await, Err(ProjectionError::NotFound(_))));
    assert!(collection::is_internal("c~rebuild"));
}
