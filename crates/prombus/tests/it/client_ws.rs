//! The Rust client over WebSocket, against a real hub.

use crate::client_support::{Spot, numbered, numbers_of, quick, soon};
use crate::common::{Hub, PATIENCE};
use prombus_client::{
    Client, ClientError, Delivery, GroupOrdering, Live, LiveState, NewEvent, PublisherOptions,
    SubscribeOptions,
};
use serde_json::json;
use std::time::Duration;

async fn connect(hub: &Hub) -> (Client, Live) {
    let client = Client::new(&hub.url, None).unwrap();
    let live = client.connect_with(quick()).await.unwrap();
    (client, live)
}

/// The code of a refusal of the hub.
#[track_caller]
fn code<T: std::fmt::Debug>(result: Result<T, ClientError>) -> String {
    result.unwrap_err().hub().unwrap().code.clone()
}

/// An id of the producer's own.
fn own_id(n: u64) -> String {
    format!("0198c0de-5d00-4a3c-9c1e-{n:012}")
}

async fn delivered(subscription: &mut prombus_client::Subscription) -> Delivery {
    soon("an event comes", subscription.next()).await.unwrap()
}

#[tokio::test]
async fn what_is_published_is_delivered_and_acked_once() {
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    assert_eq!(live.state(), LiveState::Connected);
    let event = NewEvent::of(&json!({"n": 1.5, "t": "é\n"})).unwrap().with_key("k");
    let published = live.publish("a.b", &event).await.unwrap();
    assert_eq!((published.offset, published.duplicate), (0, false));
    assert_eq!((&*published.topic, &*published.durability), ("a.b", "sync"));

    let mut events = live.subscribe("a.b", "g", SubscribeOptions::earliest()).await.unwrap();
    let delivery = delivered(&mut events).await;
    assert_eq!((delivery.event.id.as_str(), delivery.attempt), (published.id.as_str(), 1));
    assert_eq!(delivery.event.payload.get(), event.payload.get());
    assert_eq!(delivery.payload::<serde_json::Value>().unwrap()["n"], 1.5);
    delivery.ack().await.unwrap();
    assert_eq!(client.cursor("a.b", "g").await.unwrap().partitions[0].next, 1);
    live.publish("a.b", &numbered(2)).await.unwrap();
    assert_eq!(delivered(&mut events).await.event.offset, 1);
}

#[tokio::test]
async fn nacked_events_come_again_and_extended_ones_stay() {
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    live.publish_batch("t", &[numbered(0), numbered(1)]).await.unwrap();
    let mut options = SubscribeOptions::earliest();
    options.group.ordering = Some(GroupOrdering::None);
    options.group.max_attempts = Some(2);
    let mut events = live.subscribe("t", "g", options).await.unwrap();
    let failing = delivered(&mut events).await;
    let mut slow = delivered(&mut events).await;
    slow.extend(Duration::from_secs(3600)).await.unwrap();
    assert!(slow.time_left() > Duration::from_secs(3000));
    failing.nack("no such file", None).await.unwrap();
    let again = delivered(&mut events).await;
    assert_eq!((again.event.offset, again.attempt, again.max_attempts), (0, 2, 2));
    again.nack("still no such file", Some(Duration::from_millis(1))).await.unwrap();
    slow.ack().await.unwrap();
    let letters = soon("it is a dead letter", async {
        loop {
            match client.dead_letters("t", &Default::default(), 10).await {
                Ok(page) if page.count > 0 => return page,
                _ => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    assert!(letters.events[0].payload.get().contains("still no such file"));
}

#[tokio::test]
async fn a_batch_is_all_or_nothing() {
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    assert!(live.publish_batch("t", &[]).await.unwrap().is_empty());
    let published = live.publish_batch("t", &[numbered(0), numbered(1)]).await.unwrap();
    assert_eq!((published[0].offset, published[1].offset), (0, 1));
    let mut bad = numbered(3);
    bad.ts = Some(u64::MAX);
    assert_eq!(code(live.publish_batch("t", &[numbered(2), bad]).await), "bad_request");
    assert_eq!(numbers_of(&client, "t").await, [0, 1]);
}

#[tokio::test]
async fn a_publisher_sends_more_than_its_window_in_order() {
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    let options = PublisherOptions { window: 10, batch: 4, ..PublisherOptions::default() };
    let publisher = live.publisher("t", options);
    let mut receipts = Vec::new();
    for n in 0..500 {
        receipts.push(publisher.send(numbered(n)).await.unwrap());
    }
    publisher.flush().await.unwrap();
    for (receipt, n) in receipts.into_iter().zip(0..) {
        assert_eq!(receipt.await.unwrap().offset, n);
    }
    assert_eq!(numbers_of(&client, "t").await, (0..500).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_frame_waits_to_get_full_where_it_is_told_to() {
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    let linger = Duration::from_secs(3600);
    let options = PublisherOptions { window: 10, batch: 5, linger, ..PublisherOptions::default() };
    let publisher = live.publisher("t", options);
    let mut receipts = Vec::new();
    for n in 0..7 {
        receipts.push(publisher.send(numbered(n)).await.unwrap());
    }
    for receipt in receipts.drain(..5) {
        soon("the full frame is answered", receipt).await.unwrap();
    }
    assert_eq!(numbers_of(&client, "t").await, [0, 1, 2, 3, 4]);
    soon("a flush waits for no more", publisher.flush()).await.unwrap();
    assert_eq!(numbers_of(&client, "t").await, [0, 1, 2, 3, 4, 5, 6]);
    // A window that is full is as good as a frame that is.
    let options = PublisherOptions { window: 3, batch: 5, linger, ..PublisherOptions::default() };
    let narrow = live.publisher("narrow", options);
    for n in 0..9 {
        soon("there is room", narrow.send(numbered(n))).await.unwrap();
    }
    let options = PublisherOptions { linger: Duration::from_millis(1), ..PublisherOptions::default() };
    let publisher = live.publisher("other", options);
    publisher.send(numbered(0)).await.unwrap();
    soon("a frame that is not full is sent, too", publisher.flush()).await.unwrap();
}

#[tokio::test]
async fn of_many_events_only_the_bad_one_fails_and_order_stays() {
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    let options =
        PublisherOptions { batch: 100, linger: Duration::from_millis(20), ..PublisherOptions::default() };
    let publisher = live.publisher("t", options);
    let mut receipts = Vec::new();
    for n in 0..300 {
        let mut event = numbered(n).with_id(own_id(n));
        if n == 42 || n == 199 {
            event.ts = Some(u64::MAX);
        }
        receipts.push(publisher.send(event).await.unwrap());
    }
    let told = publisher.flush().await.unwrap_err();
    assert_eq!((told.failed.len(), told.count()), (2, 2), "{told}");
    let ids: Vec<String> = [42, 199].map(own_id).to_vec();
    assert_eq!(told.failed.iter().map(|failed| failed.id.clone()).collect::<Vec<_>>(), ids);
    assert!(told.failed.iter().all(|failed| failed.error.hub().unwrap().code == "bad_request"));
    publisher.flush().await.unwrap();
    for (receipt, n) in receipts.into_iter().zip(0..) {
        match n {
            42 | 199 => assert_eq!(code(receipt.await), "bad_request"),
            _ => assert!(receipt.await.is_ok(), "{n}"),
        }
    }
    let expected: Vec<u64> = (0..300).filter(|n| ![42, 199].contains(n)).collect();
    assert_eq!(numbers_of(&client, "t").await, expected);
}

#[tokio::test]
async fn refusals_are_told_with_code_and_details() {
    let hub = Hub::start();
    let (_, live) = connect(&hub).await;
    assert_eq!(code(live.publish("Bad Topic", &numbered(1)).await), "bad_request");
    assert_eq!(code(live.publish("dlq.x", &numbered(1)).await), "forbidden");
    let id = "0198c0de-5d00-7a3c-9c1e-6b1f00a3d2e4";
    assert!(!live.publish("t", &numbered(1).with_id(id)).await.unwrap().duplicate);
    assert!(live.publish("t", &numbered(1).with_id(id)).await.unwrap().duplicate);
    let conflict = live.publish("t", &numbered(2).with_id(id)).await.unwrap_err();
    assert_eq!(conflict.hub().unwrap().status, 409);
    assert_eq!(conflict.hub().unwrap().details["id"], id);
    assert!(!conflict.is_temporary());
    let mut filtered = SubscribeOptions::default().with_filter("nonsense(");
    assert_eq!(code(live.subscribe("t", "g", filtered.clone()).await), "bad_filter");
    filtered.group.filter = None;
    let _first = live.subscribe("t", "g", filtered.clone()).await.unwrap();
    assert_eq!(code(live.subscribe("t", "g", filtered).await), "already_subscribed");
}

#[tokio::test]
async fn an_event_that_no_frame_can_hold_fails_and_the_connection_goes_on() {
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    let huge = NewEvent::of(&"x".repeat(40 << 20)).unwrap();
    let one = numbered(1);
    let (huge, small) = tokio::join!(live.publish("t", &huge), live.publish("t", &one));
    assert_eq!(code(huge), "too_large");
    small.unwrap();
    assert_eq!(numbers_of(&client, "t").await, [1]);
    // One that a frame can hold and a commit cannot is refused without breaking anything.
    let large = NewEvent::of(&"x".repeat(9 << 20)).unwrap();
    assert_eq!(code(live.publish("t", &large).await), "too_large");
}

#[tokio::test]
async fn a_slow_consumer_holds_no_more_than_it_may() {
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    let publisher = live.publisher("t", PublisherOptions::default());
    for n in 0..2_000 {
        publisher.send(numbered(n)).await.unwrap();
    }
    publisher.flush().await.unwrap();
    let options = SubscribeOptions::earliest().with_max_in_flight(50);
    let mut events = live.subscribe("t", "g", options).await.unwrap();
    let first = delivered(&mut events).await;
    // The hub gives out no more than it may, however long nothing is taken.
    let in_flight = async {
        loop {
            let group = client.group("t", "g").await.unwrap().unwrap();
            if group.partitions[0].in_flight == 50 {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    soon("all that may be is in flight", in_flight).await;
    let mut held = vec![first];
    while let Some(delivery) = events.try_next() {
        held.push(delivery);
    }
    assert!(held.len() <= 50, "{}", held.len());
    for delivery in held {
        delivery.ack().await.unwrap();
    }
    // It goes on to the end.
    let mut last = 0;
    while last < 1_999 {
        let delivery = delivered(&mut events).await;
        last = last.max(delivery.event.offset);
        delivery.ack().await.unwrap();
    }
}

#[tokio::test]
async fn a_slow_loop_by_hand_keeps_the_events_that_wait_for_it() {
    const EVENTS: u64 = 300;
    let lease = Duration::from_secs(1);
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    live.publish_batch("t", &(0..EVENTS).map(numbered).collect::<Vec<_>>()).await.unwrap();
    let options = SubscribeOptions::earliest().with_ack_timeout(lease).with_max_attempts(1);
    let mut events = live.subscribe("t", "g", options).await.unwrap();
    for n in 0..EVENTS {
        let delivery = delivered(&mut events).await;
        assert_eq!((delivery.event.offset, delivery.attempt), (n, 1));
        delivery.ack().await.unwrap();
        if n == 0 {
            // Several leases long: that time passes is the point.
            tokio::time::sleep(lease * 3).await;
        }
    }
    client.drained("t", "g", PATIENCE).await.unwrap();
    assert_eq!(client.dead_letters("t", &Default::default(), 10).await.unwrap().count, 0);
}

#[tokio::test]
async fn leases_that_ran_out_are_refused_one_by_one() {
    let hub = Hub::start();
    let (_, live) = connect(&hub).await;
    live.publish_batch("t", &[numbered(0), numbered(1)]).await.unwrap();
    let mut options = SubscribeOptions::earliest();
    options.group.ordering = Some(GroupOrdering::None);
    options.group.ack_timeout_ms = Some(300);
    let mut events = live.subscribe("t", "g", options).await.unwrap();
    let late = delivered(&mut events).await;
    let mut kept = delivered(&mut events).await;
    kept.extend(Duration::from_secs(60)).await.unwrap();
    // The event comes again when its lease has run out.
    let again = delivered(&mut events).await;
    assert_eq!((again.event.offset, again.attempt), (0, 2));
    let (late, kept) = tokio::join!(late.ack(), kept.ack());
    assert_eq!(code(late), "lease_expired");
    kept.unwrap();
    again.ack().await.unwrap();
}

#[tokio::test]
async fn a_group_that_is_deleted_ends_its_subscription_and_no_other() {
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    live.publish("t", &numbered(0)).await.unwrap();
    let mut doomed = live.subscribe("t", "doomed", SubscribeOptions::default()).await.unwrap();
    let mut other = live.subscribe("t", "other", SubscribeOptions::earliest()).await.unwrap();
    client.delete_group("t", "doomed").await.unwrap();
    assert!(soon("it ends", doomed.next()).await.is_none());
    assert_eq!(doomed.error().unwrap().hub().unwrap().code, "not_found");
    delivered(&mut other).await.ack().await.unwrap();
    assert!(other.error().is_none());
}

#[tokio::test]
async fn a_paused_subscription_gets_nothing_until_it_is_resumed() {
    let hub = Hub::start();
    let (_, live) = connect(&hub).await;
    let mut events = live.subscribe("t", "g", SubscribeOptions::earliest()).await.unwrap();
    let mut others = live.subscribe("t", "other", SubscribeOptions::earliest()).await.unwrap();
    events.pause().await.unwrap();
    for n in 0..20 {
        live.publish("t", &numbered(n)).await.unwrap();
        delivered(&mut others).await.ack().await.unwrap();
        assert!(events.try_next().is_none(), "others have had {n} by now");
    }
    events.resume().await.unwrap();
    assert_eq!(delivered(&mut events).await.event.offset, 0);
}

#[tokio::test]
async fn what_a_subscription_held_goes_to_others_when_it_ends() {
    let hub = Hub::start();
    let (_, live) = connect(&hub).await;
    live.publish("t", &numbered(0)).await.unwrap();
    let mut first = live.subscribe("t", "g", SubscribeOptions::earliest()).await.unwrap();
    let held = delivered(&mut first).await;
    drop(first);
    let mut second = live.subscribe("t", "g", SubscribeOptions::earliest()).await.unwrap();
    let again = delivered(&mut second).await;
    assert_eq!(again.event.id, held.event.id);
    assert!(held.ack().await.is_err());
    again.ack().await.unwrap();
    second.close().await.unwrap();
}

#[tokio::test]
async fn members_are_told_which_partitions_are_theirs() {
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    client.put_topic("t", &json!({"partitions": 4})).await.unwrap();
    let one = live.subscribe("t", "g", SubscribeOptions::earliest().partitioned()).await.unwrap();
    let mut of_one = one.assigned();
    soon("it has all", of_one.wait_for(|all| all.len() == 4)).await.unwrap();
    let other = client.connect().await.unwrap();
    let two = other.subscribe("t", "g", SubscribeOptions::earliest().partitioned()).await.unwrap();
    let mut of_two = two.assigned();
    soon("they share", async {
        loop {
            let (a, b) = (of_one.borrow_and_update().clone(), of_two.borrow_and_update().clone());
            if a.len() + b.len() == 4 && a.iter().all(|one| !b.contains(one)) {
                return;
            }
            tokio::select! {
                changed = of_one.changed() => changed.unwrap(),
                changed = of_two.changed() => changed.unwrap(),
            }
        }
    })
    .await;
    two.close().await.unwrap();
    soon("it has all again", of_one.wait_for(|all| all.len() == 4)).await.unwrap();
}

#[tokio::test]
async fn closing_answers_what_was_asked_and_ends_everything() {
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    let linger = Duration::from_secs(3600);
    let publisher = live.publisher("t", PublisherOptions { linger, ..PublisherOptions::default() });
    let mut receipts = Vec::new();
    for n in 0..100 {
        receipts.push(publisher.send(numbered(n)).await.unwrap());
    }
    let mut events = live.subscribe("t", "g", SubscribeOptions::default()).await.unwrap();
    let mut state = live.watch();
    soon("it is closed", live.clone().close()).await;
    for receipt in receipts {
        receipt.await.unwrap();
    }
    assert!(state.wait_for(LiveState::is_ended).await.is_ok());
    assert!(matches!(live.publish("t", &numbered(1)).await, Err(ClientError::Ended(_))));
    assert!(matches!(publisher.send(numbered(1)).await, Err(ClientError::Ended(_))));
    assert!(events.next().await.is_none());
    assert!(events.error().is_none(), "it is the end that was asked for");
    assert_eq!(numbers_of(&client, "t").await.len(), 100);
}

#[tokio::test]
async fn a_connection_that_nobody_holds_ends_after_its_work() {
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    let mut state = live.watch();
    let publisher = live.publisher("t", PublisherOptions::default());
    for n in 0..100 {
        publisher.send(numbered(n)).await.unwrap();
    }
    drop((live, publisher));
    soon("it ends", state.wait_for(LiveState::is_ended)).await.unwrap();
    assert_eq!(numbers_of(&client, "t").await.len(), 100);
}

#[tokio::test]
async fn a_hub_that_is_not_there_is_told_at_once_or_waited_for() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client = Client::new(&format!("http://{nobody}"), None).unwrap();
    let error = client.connect().await.unwrap_err();
    assert!(matches!(error, ClientError::NoConnection { .. }) && error.is_temporary(), "{error}");
    let client = Client::new("http://127.0.0.1:1", Some("a\nb")).unwrap();
    assert!(!client.connect().await.unwrap_err().to_string().contains("a\nb"));
}

#[tokio::test]
async fn a_hub_that_limits_the_rate_holds_publishers_back_and_loses_nothing() {
    const EVENTS: u64 = 600;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("prombus.toml"), "[limits]\ntopic_events_per_s = 200\n").unwrap();
    let spot = Spot::with(folder, &["--config", "prombus.toml"]);
    let client = spot.client();
    let live = client.connect_with(quick()).await.unwrap();
    let options = PublisherOptions { window: 50, batch: 20, ..PublisherOptions::default() };
    let publisher = live.publisher("t", options);
    for n in 0..EVENTS {
        soon("there is room", publisher.send(numbered(n))).await.unwrap();
    }
    soon("all is answered", publisher.flush()).await.unwrap();
    // Those of single calls wait for their turn as well.
    soon("it is published", live.publish("t", &numbered(EVENTS))).await.unwrap();
    soon("they are published", live.publish_batch("u", &[numbered(0), numbered(1)])).await.unwrap();
    assert_eq!(numbers_of(&client, "t").await, (0..=EVENTS).collect::<Vec<_>>(), "each once, and in order");
}

#[tokio::test]
async fn a_group_that_has_drained_is_told_and_one_that_has_not_says_what_it_waits_for() {
    let hub = Hub::start();
    let (client, live) = connect(&hub).await;
    let short = Duration::from_millis(50);
    let error = client.drained("t", "g", short).await.unwrap_err();
    assert!(error.to_string().contains("has no group g"), "{error}");
    let mut events = live.subscribe("t", "g", SubscribeOptions::earliest()).await.unwrap();
    live.publish_batch("t", &[numbered(0), numbered(1)]).await.unwrap();
    let (first, second) = (delivered(&mut events).await, delivered(&mut events).await);
    first.ack().await.unwrap();
    let error = client.drained("t", "g", short).await.unwrap_err().to_string();
    assert!(error.contains("1 unsettled events from offset 1 on, 1 in flight"), "{error}");
    let draining = client.clone();
    let drained = tokio::spawn(async move { draining.drained("t", "g", PATIENCE).await });
    second.ack().await.unwrap();
    soon("it has drained", drained).await.unwrap().unwrap();
    drop(events);
    live.close().await;
    client.publish("t", &numbered(2)).await.unwrap();
    let error = client.drained("t", "g", short).await.unwrap_err().to_string();
    assert!(error.contains("it has no members, so nothing is consumed"), "{error}");
}
