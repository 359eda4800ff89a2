//! What users find in the database, and which databases a hub does not open.

use crate::support::{Fresh, open, subject_on};
use mongodb::bson::{Document, doc};
use mongodb::{Client, Database};
use prombus_core::{Commit, DocumentWrite, ManualClock, WriteOp};
use prombus_store_mongo::{FORMAT, MongoOptions, MongoStore};
use prombus_testkit::build::{event, json, partitions};
use std::sync::Arc;
use std::time::Duration;

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(1_754_683_200_000))
}

async fn database(fresh: &Fresh) -> Database {
    Client::with_uri_str(fresh.url()).await.unwrap().default_database().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_can_be_queried() {
    let fresh = Arc::new(Fresh::new().await);
    let (db, s) = (database(&fresh).await, subject_on(fresh, clock()).await);
    let topic = s.create("orders", partitions(1)).await;
    let payloads = [r#"{"total":7,"tags":["a"]}"#, r#"{"total":1.10}"#, r#"{"$odd":1}"#];
    s.published(&topic, payloads.map(|payload| event(payload).key("k"))).await;
    let events = db.collection::<Document>("events");
    let found = events.find_one(doc! { "topic": "orders", "payload.total": { "$gt": 5 } }).await.unwrap();
    let found = found.unwrap();
    assert_eq!((found.get_i64("offset").unwrap(), found.get_str("key").unwrap()), (0, "k"));
    let exact = async |offset: i64| {
        let found = events.find_one(doc! { "topic": "orders", "offset": offset }).await.unwrap().unwrap();
        let exact = found.get_document("exact").unwrap().get_str("payload").unwrap().to_owned();
        (exact, found.contains_key("payload"))
    };
    assert_eq!(exact(1).await, (payloads[1].to_owned(), true));
    assert_eq!(exact(2).await, (payloads[2].to_owned(), false), "what does not fit is left out");
    let head = db.collection::<Document>("heads").find_one(doc! { "_id": "orders" }).await.unwrap().unwrap();
    assert_eq!(head.get_array("next").unwrap()[0].as_i64(), Some(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collections_can_be_queried_by_their_names() {
    let fresh = Arc::new(Fresh::new().await);
    let (db, s) = (database(&fresh).await, subject_on(fresh, clock()).await);
    let write = DocumentWrite::new("processes", "web1", WriteOp::Set(json(r#"{"status":"alive","n":1.10}"#)));
    s.commit(Commit { documents: vec![write], ..Commit::default() }).await.unwrap();
    let view = db.collection::<Document>("docs.processes");
    // The view follows the commit.
    let found = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            if let Some(found) = view.find_one(doc! { "status": "alive" }).await.unwrap() {
                return found;
            }
            tokio::task::yield_now().await;
        }
    });
    let found = found.await.unwrap();
    assert_eq!(found, doc! { "_id": "web1", "_key": "web1", "_ts": 0_i64, "status": "alive", "n": 1.1 });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_format_is_refused() {
    let fresh = Fresh::new().await;
    drop(open(&fresh, &clock()).await);
    let meta = database(&fresh).await.collection::<Document>("meta");
    let later = doc! { "$set": { "version": FORMAT + 1 } };
    meta.update_one(doc! { "_id": "format" }, later).await.unwrap();
    let refused = MongoStore::open(fresh.options(&clock())).await.err().unwrap().to_string();
    assert!(refused.contains(&format!("has format {}", FORMAT + 1)), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_far_off_is_refused() {
    let fresh = Fresh::new().await;
    let options = MongoOptions { most_skew: Some(Duration::from_secs(60)), ..fresh.options(&clock()) };
    let refused = MongoStore::open(options).await.err().unwrap().to_string();
    assert!(refused.contains("time server"), "{refused}");
}
