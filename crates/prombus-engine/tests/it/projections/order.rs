//! The one order in which the events of several partitions are applied, whenever that happens.

use crate::projections::stage::*;
use crate::support::switch::{Look, Refusal};
use async_trait::async_trait;
use parking_lot::Mutex;
use prombus_core::{Append, CommitError, Event, Partition, Placement, TopicName};
use prombus_engine::collections::CollectionSettings;
use prombus_engine::projections::{CodeSetup, Project, ProjectFailure, Tx};
use serde_json::{Value, json};
use std::sync::Arc;

/// Where an event is in the one order.
type MergeKey = (u64, u32, u64);

fn place(event: &Event) -> MergeKey {
    (event.recorded_ts, event.partition.0, event.offset.0)
}

/// Chains events: each document says what came before in all of the topic, so that any other order is another chain.
struct Chain(Arc<Mutex<Vec<MergeKey>>>);

#[async_trait]
impl Project for Chain {
    async fn apply(&self, event: &Event, tx: &mut Tx<'_>) -> Result<(), ProjectFailure> {
        self.0.lock().push(place(event));
        let before: Option<Value> = tx.get("chain", "all").await?;
        let before = before.map_or(0, |link| link["link"].as_u64().expect("a number"));
        let link = before.wrapping_mul(31).wrapping_add(event.offset.0 * 64 + u64::from(event.partition.0))
            % 1_000_003;
        tx.put("chain", "all", &json!({"link": link})).await
    }
}

/// Runs [`Chain`], and says what it sees.
async fn chain(s: &Stage) -> Arc<Mutex<Vec<MergeKey>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let collections = vec![("chain".to_owned(), CollectionSettings::default())];
    let setup = CodeSetup { topic: topic_name("t"), collections, project: Arc::new(Chain(seen.clone())) };
    s.hub.projections().run_code("p", setup).await.expect("it runs");
    seen
}

/// Publishes events of many keys, several at once, while the clock does as it likes.
async fn publish(s: &Stage, topic: &TopicName, rounds: std::ops::Range<u64>) {
    for round in rounds {
        let event = |n: u64| {
            append(topic, Some(&format!("k{}", (round * 5 + n) % 23)), &json!({"n": round * 10 + n}))
        };
        let several = |from: u64| s.hub.publish((from..from + 3).map(event).collect());
        let (a, b, c) = tokio::join!(several(0), several(3), several(6));
        a.and(b).and(c).expect("events can be published");
        match round % 4 {
            0 => s.clock.advance(2),
            1 => s.clock.set(prombus_core::Clock::now_ms(&*s.clock) - 1),
            _ => {}
        }
    }
}

/// All events of a topic in the one order.
async fn in_order(s: &Stage, topic: &TopicName) -> Vec<MergeKey> {
    let mut all: Vec<MergeKey> = s.events(topic).await.iter().map(place).collect();
    all.sort_unstable();
    all
}

/// What is made anew is the same, and comes of the same order.
async fn assert_same_again(s: &Stage, topic: &TopicName, seen: &Mutex<Vec<MergeKey>>) {
    let before = s.all("chain").await;
    seen.lock().clear();
    s.rebuilt("p").await;
    assert_eq!(s.all("chain").await, before);
    assert_eq!(in_order(s, topic).await, *seen.lock());
}

pub async fn partitions_are_one_sequence_by_recorded_time(s: Stage) {
    let topic = s.topic("t", 5).await;
    let seen = chain(&s).await;
    publish(&s, &topic, 0..120).await;
    assert_eq!(s.caught_up("p").await.lag, 0);
    assert_eq!(in_order(&s, &topic).await, *seen.lock());
    assert_same_again(&s, &topic, &seen).await;
}

/// What was read and applied ahead of a commit that fails is not skipped, and not moved.
pub async fn a_refused_commit_leaves_the_order_as_it_is(mut s: Stage) {
    let topic = s.topic("t", 4).await;
    for round in 0..4 {
        chain(&s).await;
        s.put("set", last_writer()).await;
        let (error, happens) = (CommitError::Unknown("no".into()), round % 2 == 1);
        s.log.refuse(Refusal { which: moves_cursors, after: round, times: 3, error, happens });
        publish(&s, &topic, 100 * round as u64..100 * (round as u64 + 1)).await;
        s.until("p", "some are refused", |_| s.log.refusals_left() < 3).await;
        s = s.crash().await;
    }
    let seen = chain(&s).await;
    for name in ["p", "set"] {
        assert_eq!(s.caught_up(name).await.lag, 0);
    }
    let before = s.all("last").await;
    s.rebuilt("set").await;
    assert_eq!(s.all("last").await, before);
    assert_same_again(&s, &topic, &seen).await;
}

/// Partitions that come while a projection runs, the second one among them.
pub async fn growth_leaves_the_order_as_it_is(s: Stage) {
    let topic = s.topic("t", 1).await;
    let seen = chain(&s).await;
    for (round, partitions) in (0..).zip([2, 3, 7, 8]) {
        let publishes = publish(&s, &topic, 40 * round..40 * (round + 1));
        let grows = async {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            s.topic("t", partitions).await;
        };
        tokio::join!(publishes, grows);
    }
    assert_eq!(s.caught_up("p").await.lag, 0);
    assert_eq!(in_order(&s, &topic).await, *seen.lock());
    assert_same_again(&s, &topic, &seen).await;
}

/// A topic that grows at the worst moment: when a projection has looked at it, and not yet at its events; or at its
/// events, and not yet at what they must wait for.
pub async fn growth_is_noticed_at_any_moment(s: Stage) {
    let topic = s.topic("t", 1).await;
    let seen = chain(&s).await;
    let one = |partition: u32| {
        let placement = Placement::Named(Partition(partition));
        vec![Append { placement, ..append(&topic, None, &json!({})) }]
    };
    let publish = async |partition| {
        s.hub.publish(one(partition)).await.expect("an event can be published");
        s.clock.advance(5);
    };
    let looks = [Look::Read, Look::Read, Look::Horizon, Look::Read, Look::Horizon];
    for (partitions, look) in (1..).zip(looks) {
        s.log.hold_looks(look);
        publish(0).await;
        s.log.until_held(1).await;
        s.topic("t", partitions + 1).await;
        for partition in [partitions, 0, 0] {
            publish(partition).await;
        }
        s.log.release();
        assert_eq!(s.caught_up("p").await.lag, 0);
        assert_eq!(in_order(&s, &topic).await, *seen.lock(), "{look:?} with {partitions}");
    }
    assert_same_again(&s, &topic, &seen).await;
}

/// Recorded time moves on for whoever waits for it.
pub async fn a_clock_that_stands_holds_nothing_up(s: Stage) {
    let topic = s.topic("t", 3).await;
    s.put("p", changelog("t", "c")).await;
    for n in 0..20 {
        if n == 10 {
            s.clock.set(5);
        }
        for key in ["a", "b", "c", "d"] {
            s.publish(&topic, [(key, json!({"n": n}))]).await;
        }
        assert_eq!(s.caught_up("p").await.lag, 0);
        assert_eq!(s.field("c", "d", "n").await, json!(n));
    }
}

/// One document for all keys, which is what was written last; and numbers whose sum depends on their order.
fn last_writer() -> Value {
    let add =
        json!({"seen": "1", "sum": "event.payload.n % 4 == 0 ? 1.0e15 : double(event.payload.n) + 0.1"});
    json!({"topic": "t", "write": [
        {"collection": "last", "key": "'all'", "set": {"n": "event.payload.n", "ts": "event.ts"}, "inc": add},
        {"collection": "last", "key": "string(event.payload.n % 7)", "set": "event.payload",
         "delete": "event.payload.n % 3 == 0"},
    ]})
}

pub async fn many_partitions_give_the_same_to_the_byte(s: Stage) {
    let topic = s.topic("t", 6).await;
    s.put("set", last_writer()).await;
    s.put("log", json!({"topic": "t", "collection": "log", "key": "string(event.payload.n % 5)"})).await;
    publish(&s, &topic, 0..300).await;
    let mut all = s.events(&topic).await;
    all.sort_by_key(place);
    for (name, collection) in [("set", "last"), ("log", "log")] {
        assert_eq!(s.caught_up(name).await.lag, 0);
        let before = s.all(collection).await;
        for _ in 0..3 {
            s.rebuilt(name).await;
            assert_eq!(s.all(collection).await, before, "{name}");
        }
    }
    let last = all.last().expect("events").payload.to_value().expect("JSON");
    assert_eq!(s.field("last", "all", "n").await, last["n"]);
    assert_eq!(s.field("last", "all", "seen").await, json!(all.len()));
}

/// What fails when it is committed is taken out, and the rest of its page is done in pieces, over all partitions.
pub async fn events_that_fail_leave_the_order_as_it_is(s: Stage) {
    let topic = s.topic("t", 4).await;
    // Of each hundred, one leaves a text that nothing can be added to for as long as it is there.
    let write = json!([{"collection": "sums", "key": "string(event.payload.n % 3)",
        "when": "event.payload.n % 100 != 7 && event.payload.n % 10 != 1", "inc": {"sum": "event.payload.n", "seen": "1"}},
        {"collection": "sums", "key": "string(event.payload.n % 3)", "when": "event.payload.n % 100 == 7",
         "set": {"sum": "'none'"}},
        {"collection": "sums", "key": "string(event.payload.n % 3)", "when": "event.payload.n % 10 == 1",
         "set": {"sum": "0"}}]);
    s.put("p", json!({"topic": "t", "write": write, "retries": 0})).await;
    publish(&s, &topic, 0..300).await;
    let status = s.caught_up("p").await;
    assert_eq!(status.lag, 0);
    assert!(status.errors > 50, "{status:?}");
    let (before, letters) = (s.all("sums").await, s.letters(&topic).await.len());
    assert_eq!(letters as u64, status.errors);
    s.rebuilt("p").await;
    assert_eq!(s.all("sums").await, before);
    assert_eq!(s.letters(&topic).await.len(), letters);
}
