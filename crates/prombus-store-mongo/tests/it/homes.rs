//! Homes in MongoDB keep what the port promises; and a hub that dies is in nobody's way.

use crate::support::{Fresh, open};
use mongodb::Client;
use mongodb::bson::{Bson, Document, doc};
use prombus_core::{Claim, ClaimRequest, Epoch, Homes, HomesError, HubId, ManualClock, TopicName};
use prombus_store_mongo::{HomesOptions, HomesTime, MongoHomes, MongoStore};
use prombus_testkit::build::{event, partitions, topic};
use prombus_testkit::{HomesSubject, Subject};
use std::sync::Arc;

const TTL_MS: u64 = 60;
/// So many hubs die, until enough of them have left transactions under way.
const VICTIMS: usize = 40;
const CAUGHT: usize = 3;

async fn hub_with(
    store: &MongoStore,
    name: &str,
    (clock, ttl_ms): (&Arc<ManualClock>, u64),
) -> Arc<MongoHomes> {
    let time = HomesTime::Shared(clock.clone());
    Arc::new(store.homes(HomesOptions { hub: HubId(name.into()), ttl_ms, time }).await.unwrap())
}

async fn hub(store: &MongoStore, name: &str, clock: &Arc<ManualClock>) -> Arc<MongoHomes> {
    hub_with(store, name, (clock, TTL_MS)).await
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(1_754_683_200_000))
}

async fn two() -> HomesSubject {
    let clock = clock();
    // Nothing keeps it for the length of the test, so it stays until the set ends.
    let fresh = Box::leak(Box::new(Fresh::new().await));
    let store = open(fresh, &clock).await;
    let (one, other) = (hub(&store, "one", &clock).await, hub(&store, "other", &clock).await);
    HomesSubject { one, other, clock, ttl_ms: TTL_MS }
}

prombus_testkit::homes_conformance!(two);

async fn claim(homes: &MongoHomes, topic: &TopicName) -> Result<Claim, HomesError> {
    let request = ClaimRequest { topic: topic.clone(), above: Epoch(0) };
    homes.claim(&[request]).await?.remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_hub_has_its_own_time_to_live() {
    let (fresh, clock) = (Fresh::new().await, clock());
    let store = open(&fresh, &clock).await;
    let patient = hub_with(&store, "patient", (&clock, 10 * TTL_MS)).await;
    let hasty = hub_with(&store, "hasty", (&clock, TTL_MS)).await;
    let (slow, quick) = (topic("slow"), topic("quick"));
    claim(&patient, &slow).await.unwrap();
    claim(&hasty, &quick).await.unwrap();
    clock.advance(TTL_MS);
    let refused = claim(&hasty, &slow).await;
    assert!(matches!(refused, Err(HomesError::Elsewhere { .. })), "its own time is not over: {refused:?}");
    assert_eq!(hasty.home_of(&slow).await.unwrap().map(|home| home.hub), Some(HubId("patient".into())));
    clock.advance(TTL_MS);
    claim(&patient, &quick).await.expect("the other one has not been heard of for its time");
    clock.advance(10 * TTL_MS);
    claim(&hasty, &slow).await.expect("the patient one has not been heard of for its time");
}

/// The transactions that sessions of the hub have left under way.
async fn left_behind(client: &Client, sessions: &[Bson]) -> usize {
    let pipeline = [
        doc! { "$currentOp": { "allUsers": true, "idleSessions": true } },
        doc! { "$match": { "lsid.id": { "$in": sessions.to_vec() }, "transaction": { "$exists": true } } },
    ];
    let mut found = client.database("admin").aggregate(pipeline).await.unwrap();
    let mut count = 0;
    while found.advance().await.unwrap() {
        count += 1;
    }
    count
}

/// What a hub does all the time, until it is no more.
async fn live(fresh: &Fresh, clock: &Arc<ManualClock>, name: &str) {
    let store = open(fresh, clock).await;
    let homes = hub(&store, name, clock).await;
    let s = Subject::new(store, clock.clone());
    let busy = topic("busy");
    claim(&homes, &topic(name)).await.unwrap();
    let payload = format!("{:?}", "x".repeat(2_000));
    let writes = async {
        loop {
            s.published(&busy, (0..300).map(|_| event(&payload))).await;
        }
    };
    let claims = async {
        loop {
            let claim = claim(&homes, &busy).await.unwrap();
            homes.release(&[claim]).await.unwrap();
        }
    };
    tokio::join!(writes, claims);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_dies_inside_a_transaction_is_in_nobodys_way() {
    let (fresh, clock) = (Arc::new(Fresh::new().await), clock());
    let client = Client::with_uri_str(fresh.url()).await.unwrap();
    let hubs = client.database(&fresh.name).collection::<Document>("hubs");
    let store = open(&fresh, &clock).await;
    let survivor = hub(&store, "survivor", &clock).await;
    let s = Subject::new(store, clock.clone());
    let busy = s.create("busy", partitions(1)).await;
    let mut caught = 0;
    for n in 0..VICTIMS {
        let name = format!("victim-{n}");
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        {
            let (fresh, clock, name) = (fresh.clone(), clock.clone(), name.clone());
            runtime.spawn(async move { live(&fresh, &clock, &name).await });
        }
        let before = s.bounds(&busy, 0).await.next;
        while s.bounds(&busy, 0).await.next == before {
            tokio::task::yield_now().await;
        }
        // Nothing of it runs any more, wherever it was.
        runtime.shutdown_background();
        let found = hubs.find_one(doc! { "_id": &name }).await.unwrap().unwrap();
        let sessions = found.get_array("sessions").unwrap().clone();
        caught += left_behind(&client, &sessions).await;
        clock.advance(TTL_MS);
        for topic in [topic(&name), topic("busy")] {
            claim(&survivor, &topic).await.expect("it is taken over from at once");
        }
        assert_eq!(left_behind(&client, &sessions).await, 0, "nothing of it is left under way");
        s.published(&busy, [event("1")]).await;
        if caught >= CAUGHT {
            return;
        }
    }
    panic!("only {caught} have died inside a transaction");
}
