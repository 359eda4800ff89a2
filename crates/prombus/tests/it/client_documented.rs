//! Handlers and loops of `docs/client.md`, written as they stand there, on a hub that is ended again and again: every
//! order is booked once, and none is lost or a dead letter.

use crate::client_support::wire::Wire;
use crate::client_support::{Spot, quick, reaches, soon};
use crate::common::PATIENCE;
use prombus_client::{
    Client, Commit, CommitError, ConsumeOptions, Delivery, HandlerError, Live, LiveState, NewEvent,
    PublisherOptions, SubscribeOptions, Topic,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Semaphore;

/// How many orders there are.
const ORDERS: u64 = 1_500;
/// How often the hub ends.
const ENDS: u64 = 4;
/// A hub that ends counts no attempt, so one is enough.
const ATTEMPTS: u32 = 1;
const BOOKED: Topic<Order> = Topic::new("orders.booked").keyed_by(|order| order.customer.clone());

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    number: String,
    customer: String,
    cents: u64,
}

/// Each order has a customer of its own, so that one that is booked twice does not make up for one that is not.
fn order(n: u64) -> Order {
    Order { number: format!("o-{n}"), customer: format!("c-{n}"), cents: n }
}

fn booking(order: &Order, delivery: &Delivery) -> Commit {
    Commit::new()
        .ack(delivery)
        .inc("totals", &order.customer, &json!({"orders": 1, "cents": order.cents}))
        .set("booked", &order.number, order)
        .publish_to(&BOOKED, order)
}

/// The handler that leaves everything to `?`.
async fn book(live: Live, delivery: Delivery) -> Result<(), HandlerError> {
    let order: Order = delivery.payload()?;
    live.commit(&booking(&order, &delivery)).await?;
    Ok(())
}

/// The handler that looks at what went wrong.
async fn book_by_match(live: Live, delivery: Delivery) -> Result<(), HandlerError> {
    let order: Order = delivery.payload()?;
    match live.commit(&booking(&order, &delivery)).await {
        Ok(_) => {}
        Err(CommitError::LeaseExpired(_)) => {}
        Err(CommitError::NotOwner(why)) => return Err(why.into()),
        Err(other) => return Err(other.into()),
    }
    Ok(())
}

/// A topic with all orders.
async fn publish_orders(live: &Live) {
    let publisher = live.publisher("orders", PublisherOptions::default());
    for n in 0..ORDERS {
        let order = order(n);
        publisher.send(NewEvent::of(&order).unwrap().with_key(&order.customer)).await.unwrap();
    }
    publisher.flush().await.unwrap();
}

/// Ends the hub whenever another part of the orders is done.
async fn end_again_and_again(spot: &mut Spot, live: &Live, done: &AtomicU64, end: fn(&mut Spot)) {
    for part in 1..=ENDS {
        let enough = part * ORDERS / (ENDS + 1);
        soon("enough is done", async {
            while done.load(Ordering::SeqCst) < enough {
                tokio::task::yield_now().await;
            }
        })
        .await;
        tokio::task::block_in_place(|| end(spot));
        reaches(live, |state| !state.is_connected()).await;
        tokio::task::block_in_place(|| spot.start_again());
        reaches(live, LiveState::is_connected).await;
    }
}

/// How often each order was booked, by the count that was kept with it.
async fn bookings(client: &Client) -> BTreeMap<String, Value> {
    let mut pages = client.list("totals").sort("_key").limit(1_000).pages();
    let mut found = BTreeMap::new();
    while let Some(page) = pages.next().await.unwrap() {
        for document in page.parse::<Value>().unwrap() {
            found.insert(document["_key"].as_str().unwrap().to_owned(), document["orders"].clone());
        }
    }
    found
}

/// Every order is booked once, and nothing is left.
async fn is_booked_once(client: &Client, group: &str) {
    client.drained("orders", group, PATIENCE).await.unwrap();
    let letters = client.dead_letters("orders", &Default::default(), 10).await.unwrap();
    let letters: Vec<&str> = letters.events.iter().map(|letter| letter.payload.get()).collect();
    assert_eq!(letters, [""; 0], "a restart makes no dead letters");
    let found = bookings(client).await;
    let wrong: Vec<_> =
        (0..ORDERS).map(|n| format!("c-{n}")).filter(|c| found.get(c) != Some(&json!(1))).collect();
    let how = |customer: &String| (customer.clone(), found.get(customer).cloned());
    assert!(wrong.is_empty(), "not booked once: {:?}", wrong.iter().map(how).collect::<Vec<_>>());
    let booked = client.topic("orders.booked").await.unwrap().unwrap();
    assert_eq!(booked.bounds.iter().map(|bounds| bounds.next - bounds.first).sum::<u64>(), ORDERS);
}

async fn with_handler<F>(handler: fn(Live, Delivery) -> F, end: fn(&mut Spot))
where
    F: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    let mut spot = Spot::start();
    let client = spot.client();
    let live = client.connect_with(quick()).await.unwrap();
    publish_orders(&live).await;
    let (line, done) = (live.clone(), Arc::new(AtomicU64::new(0)));
    let counter = done.clone();
    let handler = move |delivery| {
        let (work, counter) = (handler(line.clone(), delivery), counter.clone());
        async move {
            let result = work.await;
            counter.fetch_add(1, Ordering::SeqCst);
            result
        }
    };
    let options = ConsumeOptions::earliest().with_concurrency(16).with_max_attempts(ATTEMPTS);
    let consumer = live.consume("orders", "booking", options, handler).await.unwrap();
    end_again_and_again(&mut spot, &live, &done, end).await;
    is_booked_once(&client, "booking").await;
    soon("it stops", consumer.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_leaves_everything_to_the_question_mark_books_every_order_once() {
    with_handler(book, Spot::kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_looks_at_what_went_wrong_books_every_order_once() {
    with_handler(book_by_match, Spot::kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_commits_survives_hubs_that_are_stopped() {
    with_handler(book_by_match, Spot::stop).await;
}

/// What a handler returns when its commit came too late.
#[derive(Clone, Copy)]
enum Returns {
    Ok,
    Err,
    Panic,
}

/// The line breaks while the handler runs, and the event has come again by the time that it commits.
async fn commits_too_late(returns: Returns) {
    let spot = Spot::start();
    let (direct, wire) = (spot.client(), Wire::to(&spot.address).await);
    let live = Client::new(&wire.url(), None).unwrap().connect_with(quick()).await.unwrap();
    let (runs, gate) = (Arc::new(AtomicU64::new(0)), Arc::new(Semaphore::new(0)));
    let (line, counter, waiting) = (live.clone(), runs.clone(), gate.clone());
    let handler = move |delivery: Delivery| {
        let (line, counter, gate) = (line.clone(), counter.clone(), waiting.clone());
        async move {
            counter.fetch_add(1, Ordering::SeqCst);
            gate.acquire().await.map_err(|error| error.to_string())?.forget();
            let order: Order = delivery.payload().map_err(|error| error.to_string())?;
            match (line.commit(&booking(&order, &delivery)).await, returns) {
                (Ok(_), _) | (Err(_), Returns::Ok) => Ok(()),
                (Err(error), Returns::Err) => Err(error.to_string()),
                (Err(error), Returns::Panic) => panic!("{error}"),
            }
        }
    };
    // The connection that broke is one attempt, by the contract; another one would be the last.
    let options = ConsumeOptions::earliest().with_concurrency(2).with_max_attempts(2);
    let consumer = live.consume("orders", "booking", options, handler).await.unwrap();
    direct.publish("orders", &NewEvent::of(&order(7)).unwrap()).await.unwrap();
    soon("it is handled", async {
        while runs.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut state = live.watch();
    wire.cut();
    soon("the line breaks", state.changed()).await.unwrap();
    soon("the event comes again", async {
        let in_flight =
            || async { direct.group("orders", "booking").await.unwrap().unwrap().partitions[0].in_flight };
        while !live.state().is_connected() || in_flight().await == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    gate.add_permits(10);
    direct.drained("orders", "booking", PATIENCE).await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2, "it was handled again");
    assert_eq!(direct.dead_letters("orders", &Default::default(), 10).await.unwrap().count, 0);
    let totals: Value = direct.get("totals", "c-7").await.unwrap().unwrap().parse().unwrap();
    assert_eq!(totals["orders"], 1);
    soon("it stops", consumer.stop()).await.unwrap();
}

#[tokio::test]
async fn what_a_handler_returns_settles_nothing_where_its_commit_came_too_late() {
    for returns in [Returns::Ok, Returns::Err, Returns::Panic] {
        commits_too_late(returns).await;
    }
}

/// The loop that acks, as it is in the docs; it counts what it does in a collection.
async fn ack_loop(live: Live, done: Arc<AtomicU64>) -> Result<(), HandlerError> {
    async fn bill(delivery: &Delivery, done: &AtomicU64) -> Result<(), HandlerError> {
        let _order: Order = delivery.payload()?;
        done.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    let options = SubscribeOptions::earliest().with_max_attempts(ATTEMPTS);
    let mut orders = live.subscribe("orders", "billing", options).await?;
    while let Some(delivery) = orders.next().await {
        match bill(&delivery, &done).await {
            Ok(()) => delivery.ack().await?,
            Err(error) => delivery.nack(&error.to_string(), None).await?,
        };
    }
    if let Some(error) = orders.error() {
        return Err(error.into());
    }
    Ok(())
}

/// The loop that commits, as it is in the docs.
async fn commit_loop(live: Live, done: Arc<AtomicU64>) -> Result<(), HandlerError> {
    let options = SubscribeOptions::earliest().with_max_attempts(ATTEMPTS);
    let mut orders = live.subscribe("orders", "booking", options).await?;
    while let Some(delivery) = orders.next().await {
        let order: Order = match delivery.payload() {
            Ok(order) => order,
            Err(error) => {
                delivery.nack(&error.to_string(), None).await?;
                continue;
            }
        };
        done.fetch_add(1, Ordering::SeqCst);
        match live.commit(&booking(&order, &delivery)).await {
            Ok(_) => {}
            Err(CommitError::LeaseExpired(_)) => {}
            Err(other) => return Err(other.into()),
        }
    }
    Ok(())
}

async fn with_loops(end: fn(&mut Spot)) {
    let mut spot = Spot::start();
    let client = spot.client();
    let live = client.connect_with(quick()).await.unwrap();
    publish_orders(&live).await;
    let (billed, booked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let billing = tokio::spawn(ack_loop(live.clone(), billed.clone()));
    let booking = tokio::spawn(commit_loop(live.clone(), booked.clone()));
    end_again_and_again(&mut spot, &live, &booked, end).await;
    is_booked_once(&client, "booking").await;
    client.drained("orders", "billing", PATIENCE).await.unwrap();
    assert_eq!(billed.load(Ordering::SeqCst), ORDERS, "there is one member, so each is billed once");
    live.close().await;
    // Only now do they end.
    soon("billing ends", billing).await.unwrap().unwrap();
    soon("booking ends", booking).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loops_by_hand_survive_hubs_that_are_killed() {
    with_loops(Spot::kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loops_by_hand_survive_hubs_that_are_stopped() {
    with_loops(Spot::stop).await;
}
