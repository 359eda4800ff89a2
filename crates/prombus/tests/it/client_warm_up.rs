//! Warm-up, then live, while events are published and the hub is killed: each consumer ends with what is true.

use crate::client_support::{Spot, soon};
use prombus_client::{Change, Client, ClientError, NewEvent};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;
use uuid::Uuid;

const TOPIC: &str = "t";
const KEYS: u64 = 20;
const LIVES: usize = 4;

/// What the keys are; one that has ended is not there.
type States = BTreeMap<String, u64>;

/// Publishes until it is told to stop, each event until it is answered. Says what it has left of its keys.
async fn write(
    client: Client,
    keys: std::ops::Range<u64>,
    stop: watch::Receiver<bool>,
    count: Arc<AtomicU64>,
) -> States {
    let (mut states, mut n) = (States::new(), 0);
    while !*stop.borrow() {
        let key = format!("k{}", keys.start + n % (keys.end - keys.start));
        let ends = n % 7 == 3;
        let payload = if ends { json!(null) } else { json!(n) };
        let event = NewEvent::of(&payload).unwrap().with_key(&key).with_id(Uuid::now_v7().to_string());
        while let Err(error) = client.publish(TOPIC, &event).await {
            assert!(error.is_temporary(), "{error}");
            tokio::task::yield_now().await;
        }
        match ends {
            true => states.remove(&key),
            false => states.insert(key, n),
        };
        n += 1;
        count.fetch_add(1, Ordering::SeqCst);
    }
    states
}

/// A consumer that keeps the states of all keys.
#[derive(Default)]
struct Keeper {
    states: States,
    /// The last event that was seen of each key.
    places: HashMap<String, (u32, u64)>,
    snapshots: usize,
    events: usize,
}

impl Keeper {
    fn take(&mut self, change: &Change) {
        let key = change.key().unwrap().to_owned();
        match change {
            Change::Snapshot(_) => self.snapshots += 1,
            Change::Event(_) => self.events += 1,
        }
        let before = self.places.insert(key.clone(), change.place());
        assert!(before < Some(change.place()), "{key} was at {before:?} and is at {:?}", change.place());
        match change.payload().unwrap() {
            Some(n) => self.states.insert(key, n),
            None => self.states.remove(&key),
        };
    }
}

/// Warms up again and again until it is told to stop, and says how often.
async fn keep(client: Client, mut stop: watch::Receiver<bool>) -> usize {
    for warm_ups in 0.. {
        let mut keeper = Keeper::default();
        let warm_up = async {
            let mut changes = client.warm_up(TOPIC).await?;
            while keeper.events < 300 {
                keeper.take(&changes.next().await?);
            }
            Ok::<(), ClientError>(())
        };
        tokio::select! {
            done = warm_up => if let Err(error) = done {
                // Only the first step is not tried again by itself.
                assert!(error.is_temporary() && keeper.places.is_empty(), "{error}");
            },
            _ = stop.wait_for(|stop| *stop) => return warm_ups,
        }
    }
    0
}

/// A consumer that goes on until it has what is true.
async fn until_true(client: &Client, truth: &States) -> Keeper {
    let mut keeper = Keeper::default();
    let mut changes = client.warm_up(TOPIC).await.unwrap();
    while keeper.states != *truth {
        keeper.take(&changes.next().await.unwrap());
    }
    keeper
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_missed_or_doubled_while_the_hub_is_killed() {
    let mut spot = Spot::start();
    let client = spot.client();
    let snapshot = json!({"topic": "t.snapshot", "every_ms": 20});
    client.put_topic(TOPIC, &json!({"partitions": 2, "snapshot": snapshot})).await.unwrap();
    let (stop, count) = (watch::Sender::new(false), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = [0..KEYS / 2, KEYS / 2..KEYS]
        .into_iter()
        .map(|keys| tokio::spawn(write(client.clone(), keys, stop.subscribe(), count.clone())))
        .collect();
    let keepers: Vec<_> = (0..2).map(|_| tokio::spawn(keep(client.clone(), stop.subscribe()))).collect();
    for life in 1..=LIVES {
        let wanted = count.load(Ordering::SeqCst) + 400;
        soon("enough is published", async {
            while count.load(Ordering::SeqCst) < wanted {
                tokio::task::yield_now().await;
            }
        })
        .await;
        if life == 2 {
            client.put_topic(TOPIC, &json!({"partitions": 5})).await.unwrap();
        }
        spot.kill();
        spot.start_again();
    }
    stop.send_replace(true);
    let mut truth = States::new();
    for writer in writers {
        truth.extend(soon("a writer ends", writer).await.unwrap());
    }
    for keeper in keepers {
        assert!(soon("a keeper ends", keeper).await.unwrap() > 0);
    }
    let keeper = soon("all is known", until_true(&client, &truth)).await;
    assert!(keeper.snapshots > 0, "it began with snapshots");
}

#[tokio::test]
async fn what_cannot_go_on_says_so() {
    let spot = Spot::start();
    let client = spot.client();
    let code = |error: ClientError| error.hub().map(|error| error.code.clone()).unwrap_or_default();
    assert_eq!(code(client.warm_up(TOPIC).await.err().unwrap()), "not_found");
    client.put_topic(TOPIC, &json!({})).await.unwrap();
    assert_eq!(code(client.warm_up(TOPIC).await.err().unwrap()), "not_found");
    let snapshot = json!({"topic": "t.snapshot", "every_ms": 5});
    client.put_topic(TOPIC, &json!({ "snapshot": snapshot })).await.unwrap();
    for n in 0..10 {
        client.publish(TOPIC, &NewEvent::of(&n).unwrap().with_key(format!("k{n}"))).await.unwrap();
    }
    let passed = async |wanted: u64| {
        while client.topic(TOPIC).await.unwrap().unwrap().snapshot().unwrap().unwrap().through != [wanted] {
            tokio::task::yield_now().await;
        }
    };
    soon("snapshots are there", passed(10)).await;
    let mut begun = client.warm_up(TOPIC).await.unwrap();
    client.delete_topic("t.snapshot").await.unwrap();
    soon("snapshots are there again", passed(10)).await;
    let error = soon("it notices", async {
        loop {
            match begun.next().await {
                Ok(Change::Snapshot(_)) => {}
                Ok(Change::Event(event)) => panic!("{event:?} is not new"),
                Err(error) => return error,
            }
        }
    })
    .await;
    assert_eq!(code(error), "gone");
    let mut anew = client.warm_up(TOPIC).await.unwrap();
    for _ in 0..10 {
        assert!(matches!(soon("a snapshot", anew.next()).await.unwrap(), Change::Snapshot(_)));
    }
    client.delete_topic(TOPIC).await.unwrap();
    assert!(["gone", "not_found"].contains(&code(soon("it ends", anew.next()).await.unwrap_err()).as_str()));
}
