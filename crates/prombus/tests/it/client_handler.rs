//! Consuming with handlers, and typed topics, against a real hub.

use crate::client_support::{number, numbered, quick, soon};
use crate::common::Hub;
use prombus_client::{
    Client, ClientError, ConsumeOptions, Delivery, HandlerError, Live, PublisherOptions, SubscribeOptions,
    publish, subscribe, topics,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};

async fn connect(hub: &Hub) -> (Client, Live) {
    let client = Client::new(&hub.url, None).unwrap();
    let live = client.connect_with(quick()).await.unwrap();
    (client, live)
}

async fn settled(client: &Client, group: &str, next: u64) {
    soon("all is settled", async {
        while client.cursor("t", group).await.unwrap().partitions[0].next < next {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn ok_acks_and_an_error_or_a_panic_nacks_with_its_text() {
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    let mut options = ConsumeOptions::earliest();
    options.subscribe.group.max_attempts = Some(1);
    let handler = |delivery: Delivery| async move {
        match number(&delivery.event) {
            1 => Err("one is not liked".to_owned()),
            2 => panic!("two is hated"),
            _ => Ok(()),
        }
    };
    let consumer = live.consume("t", "g", options, handler).await.unwrap();
    live.publish_batch("t", &(0..4).map(numbered).collect::<Vec<_>>()).await.unwrap();
    settled(&client, "g", 4).await;
    consumer.stop().await.unwrap();
    let letters = client.dead_letters("t", &Default::default(), 10).await.unwrap();
    let reasons: Vec<&str> = letters.events.iter().map(|letter| letter.payload.get()).collect();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(reasons[0].contains("one is not liked") && reasons[1].contains("two is hated"), "{reasons:?}");
}

#[tokio::test]
async fn as_many_run_at_once_as_may_and_stop_waits_for_them() {
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let gate = Arc::new(Semaphore::new(0));
    let shared = (running.clone(), most.clone(), gate.clone());
    let handler = move |_: Delivery| {
        let (running, most, gate) = shared.clone();
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            gate.acquire().await.map_err(|error| error.to_string())?.forget();
            running.fetch_sub(1, Ordering::SeqCst);
            Ok::<(), String>(())
        }
    };
    let options = ConsumeOptions::earliest().with_concurrency(3);
    let consumer = live.consume("t", "g", options, handler).await.unwrap();
    live.publish_batch("t", &(0..10).map(numbered).collect::<Vec<_>>()).await.unwrap();
    soon("three run", async {
        while running.load(Ordering::SeqCst) < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut stopping = tokio::spawn(consumer.stop());
    // As long as handlers run, it has not stopped, whatever else is done.
    for _ in 0..20 {
        client.topics().await.unwrap();
        assert!(futures::FutureExt::now_or_never(&mut stopping).is_none());
    }
    gate.add_permits(3);
    soon("it stops", stopping).await.unwrap().unwrap();
    assert_eq!(most.load(Ordering::SeqCst), 3);
    assert_eq!(client.cursor("t", "g").await.unwrap().partitions[0].next, 3, "three were acked, and no more");
    assert_eq!(client.group("t", "g").await.unwrap().unwrap().partitions[0].in_flight, 0);
}

#[tokio::test]
async fn events_of_a_key_follow_each_other_however_many_run_at_once() {
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    let seen: Arc<Mutex<BTreeMap<String, Vec<u64>>>> = Arc::default();
    let by_key = seen.clone();
    let handler = move |delivery: Delivery| {
        let by_key = by_key.clone();
        async move {
            tokio::task::yield_now().await;
            let key = delivery.event.key.clone().unwrap_or_default();
            by_key.lock().unwrap().entry(key).or_default().push(number(&delivery.event));
            Ok::<(), String>(())
        }
    };
    let options = ConsumeOptions::earliest().with_concurrency(8);
    let consumer = live.consume("t", "g", options, handler).await.unwrap();
    let publisher = live.publisher("t", PublisherOptions::default());
    for n in 0..500 {
        publisher.send(numbered(n).with_key(format!("k{}", n % 7))).await.unwrap();
    }
    publisher.flush().await.unwrap();
    settled(&client, "g", 500).await;
    consumer.stop().await.unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.values().map(Vec::len).sum::<usize>(), 500);
    assert!(seen.values().all(|numbers| numbers.is_sorted()), "{seen:?}");
}

#[tokio::test]
async fn a_consumer_whose_group_is_deleted_says_so() {
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    let handler = |_: Delivery| async { Ok::<(), String>(()) };
    let mut consumer = live.consume("t", "g", ConsumeOptions::default(), handler).await.unwrap();
    client.delete_group("t", "g").await.unwrap();
    let error = soon("it ends", consumer.ended()).await.unwrap();
    assert!(error.is_not_found(), "{error}");
    assert!(consumer.stop().await.is_err());
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    number: u64,
    customer: String,
}

topics! {
    /// Orders of the shop.
    ORDERS: Order = "shop.orders" { partitions: 4, dedupe_window_ms: 60_000, keyed_by: |order| order.customer.clone() };
    NOTES: String = "shop.notes";
}

fn order(number: u64) -> Order {
    Order { number, customer: format!("c{}", number % 3) }
}

#[tokio::test]
async fn a_typed_topic_is_made_as_declared_and_may_have_grown() {
    let hub = Hub::start();
    let (client, _live) = connect(&hub).await;
    let made = client.ensure(&ORDERS).await.unwrap();
    assert_eq!((made.bounds.len(), &made.config["dedupe_window_ms"]), (4, &60_000.into()));
    client.put_topic("shop.orders", &serde_json::json!({"partitions": 6})).await.unwrap();
    assert_eq!(client.ensure(&ORDERS).await.unwrap().bounds.len(), 6);
    assert_eq!(client.ensure(&NOTES).await.unwrap().bounds.len(), 1);
}

#[tokio::test]
async fn typed_events_go_in_and_out_with_their_keys() {
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    client.ensure(&ORDERS).await.unwrap();
    let orders = live.of(&ORDERS);
    orders.publish(&order(0)).await.unwrap();
    let publisher = orders.publisher(PublisherOptions::default());
    for number in 1..10 {
        publisher.send(&order(number)).await.unwrap();
    }
    publisher.flush().await.unwrap();
    // One that is no order is told as such.
    publish!(live, "shop.orders", {"number": "many"}, key: "odd").await.unwrap();
    let mut events = orders.subscribe("g", SubscribeOptions::earliest()).await.unwrap();
    let (mut seen, mut odd) = (Vec::new(), 0);
    while seen.len() + odd < 11 {
        let (payload, delivery) = soon("an event comes", events.next()).await.unwrap();
        match payload {
            Ok(order) => {
                assert_eq!(delivery.event.key.as_deref(), Some(order.customer.as_str()));
                seen.push(order.number);
            }
            Err(error) => {
                assert!(matches!(error, ClientError::BadPayload(_)), "{error}");
                odd += 1;
            }
        }
        delivery.ack().await.unwrap();
    }
    seen.sort_unstable();
    assert_eq!((seen, odd), ((0..10).collect::<Vec<_>>(), 1));
    assert!(events.error().is_none());
}

#[tokio::test]
async fn macros_say_it_shorter() {
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    let (sender, mut taken) = mpsc::unbounded_channel();
    let options = ConsumeOptions::earliest().with_concurrency(2);
    let consumer = subscribe!(live, ORDERS, "g", options, clone(sender), |order, delivery| {
        let number = u8::try_from(order.number)?;
        sender.send((number, delivery.attempt))?;
    })
    .await
    .unwrap();
    publish!(client, "shop.orders", {"number": 7, "customer": "c"}, key: "c", sid: "s").await.unwrap();
    publish!(live, "shop.orders", {"number": 1_000, "customer": "c"}).await.unwrap();
    assert_eq!(soon("it is handled", taken.recv()).await, Some((7, 1)));
    let second = subscribe!(live, ORDERS, "h", |order| {
        let _: Result<(), HandlerError> = Ok(());
        drop(order);
    });
    second.await.unwrap().stop().await.unwrap();
    consumer.stop().await.unwrap();
}

#[tokio::test]
async fn a_slow_handler_keeps_its_events_and_those_that_wait_for_it() {
    const EVENTS: usize = 20;
    let lease = Duration::from_millis(400);
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    let mut options = ConsumeOptions::earliest();
    options.subscribe.group.ack_timeout_ms = Some(lease.as_millis() as u64);
    let (seen, mut deliveries) = mpsc::unbounded_channel();
    let handler = move |delivery: Delivery| {
        let seen = seen.clone();
        async move {
            if number(&delivery.event) == 0 {
                // Several leases long: that time passes is the point.
                tokio::time::sleep(lease * 4).await;
            }
            seen.send((number(&delivery.event), delivery.attempt)).map_err(|error| error.to_string())
        }
    };
    let consumer = live.consume("t", "g", options, handler).await.unwrap();
    live.publish_batch("t", &(0..EVENTS as u64).map(numbered).collect::<Vec<_>>()).await.unwrap();
    settled(&client, "g", EVENTS as u64).await;
    consumer.stop().await.unwrap();
    let mut all = Vec::new();
    while let Some(one) = deliveries.recv().await {
        all.push(one);
    }
    assert_eq!(
        all,
        (0..EVENTS as u64).map(|n| (n, 1)).collect::<Vec<_>>(),
        "each once, at the first attempt"
    );
}
