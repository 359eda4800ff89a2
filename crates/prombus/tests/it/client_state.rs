//! The Rust client with collections, projections and commits, against a real hub.

use crate::client_support::wire::Wire;
use crate::client_support::{Spot, numbered, quick, soon};
use crate::common::Hub;
use prombus_client::{
    Client, ClientError, CollectionOwner, CollectionSettings, Commit, CommitError, ConsumeOptions,
    GetOptions, GroupOrdering, Lookup, MinOffset, NewEvent, ProjectionState, PullRequest, SubscribeOptions,
};
use serde_json::{Value, json};
use std::time::Duration;

fn client(hub: &Hub) -> Client {
    Client::new(&hub.url, None).unwrap()
}

/// A projection of topic `t` into collection `c`, by the key of the event.
async fn with_projection(client: &Client) {
    let definition = json!({"topic": "t", "collection": "c", "key": "event.key", "indexes": [["n"]]});
    client.put_projection("p", &definition).await.unwrap();
}

fn keyed(key: &str, n: u64) -> NewEvent {
    NewEvent::of(&json!({"n": n, "host": "web1"})).unwrap().with_key(key)
}

fn field<'a>(documents: &'a [Value], name: &str) -> Vec<&'a Value> {
    documents.iter().map(|document| &document[name]).collect()
}

#[tokio::test]
async fn what_was_published_is_read_back_and_only_if_it_has_changed() {
    let hub = Hub::start();
    let client = client(&hub);
    with_projection(&client).await;
    assert!(client.get("c", "k").await.unwrap().is_none());
    assert!(client.get("no-such", "k").await.unwrap().is_none());
    let published = client.publish("t", &keyed("k/ö", 1)).await.unwrap();
    let seen = GetOptions::default().after(&published);
    let Lookup::Found(document) = client.get_with("c", "k/ö", &seen).await.unwrap() else { panic!() };
    assert_eq!(document.parse::<Value>().unwrap()["n"], 1);
    let same = GetOptions::default().unless(&document.etag);
    assert!(matches!(client.get_with("c", "k/ö", &same).await.unwrap(), Lookup::Unchanged));
    let published = client.publish("t", &keyed("k/ö", 2)).await.unwrap();
    let newer = same.after(&published);
    let Lookup::Found(newer) = client.get_with("c", "k/ö", &newer).await.unwrap() else { panic!() };
    assert_eq!(newer.parse::<Value>().unwrap()["_key"], "k/ö");
    assert_ne!(newer.etag, document.etag);
    let nowhere = GetOptions::default().after(MinOffset { partition: Some(9), offset: 0 });
    let error = client.get_with("c", "k/ö", &nowhere).await.unwrap_err();
    assert_eq!(error.hub().unwrap().code, "bad_request");
}

#[tokio::test]
async fn lists_go_by_conditions_order_and_pages() {
    let hub = Hub::start();
    let client = client(&hub);
    let writes = (0..25).fold(Commit::new(), |commit, n| {
        commit.set(
            "c",
            &format!("k{n:02}"),
            &json!({"n": n, "even": n % 2 == 0, "limit": n, "t": {"x": format!("a,{n}")}}),
        )
    });
    client.commit(&writes).await.unwrap();
    let page = client.list("c").gte("n", 10).lt("n", 13).sort("-n").page().await.unwrap();
    assert_eq!((page.count, page.next), (3, None));
    assert_eq!(field(&page.parse::<Value>().unwrap(), "n"), [&json!(12), &json!(11), &json!(10)]);
    let page =
        client.list("c").eq("even", true).ne("n", 0).sort("n").limit(2).offset(1).page().await.unwrap();
    assert_eq!(field(&page.parse::<Value>().unwrap(), "n"), [&json!(4), &json!(6)]);
    assert_eq!((page.offset, page.limit, page.next), (1, 2, Some(3)));
    let page = client.list("c").any_of("t.x", ["a,3", "a,7", "nothing"]).sort("n").page().await.unwrap();
    assert_eq!(field(&page.parse::<Value>().unwrap(), "n"), [&json!(3), &json!(7)]);
    let page = client.list("c").eq("limit", 5).page().await.unwrap();
    assert_eq!(page.count, 1, "a field may have the name of a parameter");

    let mut pages = client.list("c").sort("_key").limit(10).pages();
    let mut keys = Vec::new();
    while let Some(page) = pages.next().await.unwrap() {
        keys.extend(page.parse::<Value>().unwrap().iter().map(|document| document["_key"].clone()));
    }
    assert_eq!(keys, (0..25).map(|n| json!(format!("k{n:02}"))).collect::<Vec<_>>());
    let error = client.list("c").condition("n[near]", "1").page().await.unwrap_err();
    assert_eq!(error.hub().unwrap().code, "bad_request");
    assert!(client.list("no-such").page().await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn collections_and_projections_can_be_looked_at_changed_and_deleted() {
    let hub = Hub::start();
    let client = client(&hub);
    with_projection(&client).await;
    let settings =
        CollectionSettings::default().with_unique_index(["email"]).with_changefeed("users.changed");
    let users = client.put_collection("users", &settings).await.unwrap();
    assert_eq!((users.owner, users.count), (CollectionOwner::Commits, 0));
    let indexes: Vec<_> = users.indexes.into_iter().map(|answer| answer.index).collect();
    assert_eq!((indexes, users.changefeed), (settings.indexes.clone(), settings.changefeed.clone()));
    let names: Vec<_> = client.collections().await.unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["c", "users"]);
    let owned = client.collection("c").await.unwrap().unwrap();
    assert_eq!(owned.owner, CollectionOwner::Projection("p".into()));
    assert!(client.collection("no-such").await.unwrap().is_none());
    let error = client.put_collection("c", &settings).await.unwrap_err();
    assert_eq!(error.hub().unwrap().code, "not_owner");

    let waiting = client.projection("p").await.unwrap().unwrap();
    assert_eq!((waiting.kind.as_str(), waiting.state), ("changelog", ProjectionState::Waiting));
    client.publish("t", &keyed("k", 1)).await.unwrap();
    let mut rebuilt = client.rebuild("p", false).await.unwrap();
    while rebuilt.rebuild.is_some() {
        rebuilt = client.projection("p").await.unwrap().unwrap();
    }
    assert_eq!((rebuilt.state, rebuilt.stale, rebuilt.errors), (ProjectionState::Running, false, 0));
    assert_eq!(client.projections().await.unwrap().len(), 1);
    client.delete_projection("p").await.unwrap();
    assert!(client.projection("p").await.unwrap().is_none());
    assert!(client.get("c", "k").await.unwrap().is_none());
    assert!(client.delete_projection("p").await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn a_commit_over_http_does_everything_or_nothing() {
    let hub = Hub::start();
    let client = client(&hub);
    with_projection(&client).await;
    client.publish("orders", &numbered(7)).await.unwrap();
    let pull = PullRequest { wait_ms: Some(10_000), from: Some("earliest".into()), ..PullRequest::default() };
    let delivery = &client.pull("orders", "g", &pull).await.unwrap().deliveries[0];
    let commit = Commit::new()
        .commit_id("once")
        .ack(delivery)
        .set("state", "o", &json!({"n": 7}))
        .if_version(0)
        .inc("totals", "all", &json!({"n": 7}))
        .publish("done", keyed("o", 7));
    let committed = client.commit(&commit).await.unwrap();
    assert_eq!((committed.version("state", "o"), committed.version("totals", "all")), (Some(1), Some(1)));
    assert_eq!((&*committed.events[0].topic, committed.events[0].offset), ("done", 0));
    assert_eq!(client.cursor("orders", "g").await.unwrap().partitions[0].next, 1);
    assert_eq!(client.commit(&commit).await.unwrap(), committed, "the same id does it once");

    let conflict =
        Commit::new().merge("state", "o", &json!({"x": 1})).if_version(7).publish("done", keyed("o", 8));
    assert!(matches!(client.commit(&conflict).await, Err(CommitError::VersionConflict(_))));
    let spent = Commit::new().ack(delivery).delete("state", "o");
    assert!(matches!(client.commit(&spent).await, Err(CommitError::LeaseExpired(_))));
    let owned = Commit::new().set("c", "k", &json!({})).delete("state", "o");
    let refused = client.commit(&owned).await.unwrap_err();
    assert!(matches!(&refused, CommitError::NotOwner(_)), "{refused}");
    assert_eq!(ClientError::from(refused).hub().unwrap().status, 409);
    let nothing = client.commit(&Commit::new()).await.unwrap_err();
    assert_eq!(nothing.hub().unwrap().code, "bad_request");
    assert_eq!(client.get("state", "o").await.unwrap().unwrap().parse::<Value>().unwrap()["n"], 7);
    assert!(client.latest("done", "o").await.unwrap().unwrap().payload.get().contains("7"));
}

#[tokio::test]
async fn a_commit_over_the_connection_settles_what_it_acks() {
    let hub = Hub::start();
    let client = client(&hub);
    let live = client.connect_with(quick()).await.unwrap();
    live.publish_batch("orders", &[numbered(0), numbered(1)]).await.unwrap();
    let mut options = SubscribeOptions::earliest().with_max_in_flight(1);
    options.group.ordering = Some(GroupOrdering::None);
    let mut orders = live.subscribe("orders", "g", options).await.unwrap();
    let first = soon("the first comes", orders.next()).await.unwrap();
    let commit = Commit::new().ack(&first).inc("totals", "all", &json!({"n": 1}));
    let committed = live.commit(&commit).await.unwrap();
    assert_eq!(committed.version("totals", "all"), Some(1));
    first.ack().await.unwrap();
    // There is room for one only, so the first one was settled for the hub as well.
    let second = soon("the second comes", orders.next()).await.unwrap();
    assert_eq!(second.event.offset, 1);
    let conflict = Commit::new().ack(&second).inc("totals", "all", &json!({"n": 1})).if_version(9);
    assert!(matches!(live.commit(&conflict).await, Err(CommitError::VersionConflict(_))));
    second.ack().await.unwrap();
    assert_eq!(client.cursor("orders", "g").await.unwrap().partitions[0].next, 2);
    live.close().await;
}

#[tokio::test]
async fn a_handler_that_commits_counts_every_event_once() {
    let hub = Hub::start();
    let client = client(&hub);
    let live = client.connect_with(quick()).await.unwrap();
    let events: Vec<_> = (0..50).map(numbered).collect();
    live.publish_batch("orders", &events).await.unwrap();
    let mut options = ConsumeOptions::earliest().with_concurrency(4);
    options.subscribe.group.ack_timeout_ms = Some(2_000);
    let line = live.clone();
    let consumer = live
        .consume("orders", "g", options, move |delivery| {
            let line = line.clone();
            async move {
                let n: Value = delivery.payload()?;
                let commit =
                    Commit::new().ack(&delivery).inc("totals", "all", &json!({"count": 1, "sum": n["n"]}));
                line.commit(&commit).await?;
                // What it says afterwards is too late.
                Err::<(), _>(ClientError::BadAnswer("a failure after the commit".into()))
            }
        })
        .await
        .unwrap();
    soon("all are done", async {
        while client.cursor("orders", "g").await.unwrap().partitions[0].next < 50 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    consumer.stop().await.unwrap();
    let totals: Value = client.get("totals", "all").await.unwrap().unwrap().parse().unwrap();
    assert_eq!((&totals["count"], &totals["sum"]), (&json!(50), &json!(1225)));
    assert_eq!(client.dead_letters("orders", &Default::default(), 10).await.unwrap().count, 0);
}

#[tokio::test]
async fn a_commit_outlives_the_hub_that_was_asked_first() {
    let mut spot = Spot::start();
    let client = spot.client();
    let live = client.connect_with(quick()).await.unwrap();
    live.commit(&Commit::new().inc("c", "k", &json!({"n": 1}))).await.unwrap();
    spot.kill();
    let late = live.clone();
    let waiting =
        tokio::spawn(async move { late.commit(&Commit::new().inc("c", "k", &json!({"n": 1}))).await });
    spot.start_again();
    let committed = soon("it is committed", waiting).await.unwrap().unwrap();
    assert_eq!(committed.version("c", "k"), Some(2));
    let document: Value = client.get("c", "k").await.unwrap().unwrap().parse().unwrap();
    assert_eq!(document["n"], 2);
    tokio::time::timeout(Duration::from_secs(30), live.close()).await.unwrap();
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_happens_once() {
    let spot = Spot::start();
    let (direct, wire) = (spot.client(), Wire::to(&spot.address).await);
    let live = Client::new(&wire.url(), None).unwrap().connect_with(quick()).await.unwrap();
    live.publish("orders", &numbered(7)).await.unwrap();
    let mut orders = live.subscribe("orders", "g", SubscribeOptions::earliest()).await.unwrap();
    let delivery = soon("it comes", orders.next()).await.unwrap();
    wire.lose_answers();
    let commit = Commit::new().ack(&delivery).inc("totals", "all", &json!({"n": 7}));
    let line = live.clone();
    let waiting = tokio::spawn(async move { line.commit(&commit).await });
    soon("it has happened", async {
        while direct.get("totals", "all").await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    soon("its answer is lost", wire.an_answer_was_lost()).await;
    wire.cut();
    let committed = soon("it is answered", waiting).await.unwrap().unwrap();
    assert_eq!(committed.version("totals", "all"), Some(1));
    delivery.ack().await.unwrap();
    let totals: Value = direct.get("totals", "all").await.unwrap().unwrap().parse().unwrap();
    assert_eq!((&totals["n"], &totals["_v"]), (&json!(7), &json!(1)));
    assert_eq!(direct.cursor("orders", "g").await.unwrap().partitions[0].next, 1);
}

#[tokio::test]
async fn a_commit_with_a_lease_of_a_line_that_is_gone_is_refused_and_the_event_comes_again() {
    let spot = Spot::start();
    let (direct, wire) = (spot.client(), Wire::to(&spot.address).await);
    let live = Client::new(&wire.url(), None).unwrap().connect_with(quick()).await.unwrap();
    live.publish("orders", &numbered(7)).await.unwrap();
    let mut orders = live.subscribe("orders", "g", SubscribeOptions::earliest()).await.unwrap();
    let stale = soon("it comes", orders.next()).await.unwrap();
    wire.cut();
    let again = soon("it comes again", orders.next()).await.unwrap();
    let count = |delivery| Commit::new().ack(delivery).inc("totals", "all", &json!({"n": 7}));
    assert!(matches!(live.commit(&count(&stale)).await, Err(CommitError::LeaseExpired(_))));
    assert!(direct.get("totals", "all").await.unwrap().is_none());
    live.commit(&count(&again)).await.unwrap();
    let totals: Value = direct.get("totals", "all").await.unwrap().unwrap().parse().unwrap();
    assert_eq!(totals["n"], 7);
}
