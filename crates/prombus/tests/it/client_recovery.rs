//! The Rust client when the hub goes away, or the line to it: everything recovers by itself, nothing is lost or doubled.

use crate::client_support::wire::Wire;
use crate::client_support::{Spot, number, numbered, numbers_of, quick, reaches, soon};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use prombus_client::{
    Client, ClientError, ClientOptions, ConsumeOptions, Delivery, Live, LiveOptions, LiveState,
    PublisherOptions, Settled, SubscribeOptions, Subscription, Token,
};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How many events the tests under load publish.
const MANY: u64 = 20_000;

/// How often each number was handled.
type Handled = Arc<Mutex<BTreeMap<u64, u32>>>;

/// Publishes numbers, and says how many are answered.
async fn publish_all(live: Live, options: PublisherOptions, answered: Arc<AtomicU64>) {
    let publisher = live.publisher("t", options);
    let mut receipts = FuturesUnordered::new();
    for n in 0..MANY {
        receipts.push(publisher.send(numbered(n)).await.unwrap());
        while let Some(Some(receipt)) = futures::FutureExt::now_or_never(receipts.next()) {
            receipt.unwrap();
            answered.fetch_add(1, Ordering::SeqCst);
        }
    }
    publisher.flush().await.unwrap();
    while let Some(receipt) = receipts.next().await {
        receipt.unwrap();
        answered.fetch_add(1, Ordering::SeqCst);
    }
}

/// Takes and acks events until all numbers are done, with many acks in flight. What was acked must not come again.
async fn consume_all(mut events: Subscription) {
    let (mut acked, mut under_way) = (HashSet::new(), FuturesUnordered::new());
    while acked.len() < MANY as usize {
        tokio::select! {
            Some((n, result)) = under_way.next() => match result {
                // Where that is not confirmed, it counts as done all the same, and is not given out again.
                Ok(_) => drop(acked.insert(n)),
                Err(error) => panic!("{n}: {error}"),
            },
            delivery = events.next() => {
                let delivery = delivery.unwrap();
                let n = number(&delivery.event);
                assert!(!acked.contains(&n), "{n} was acked and came again");
                under_way.push(async move { (n, delivery.ack().await) });
            }
        }
    }
}

async fn reaches_count(count: &AtomicU64, wanted: u64) {
    soon("enough is answered", async {
        while count.load(Ordering::SeqCst) < wanted {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Ends the hub twice while it is busy.
async fn under_load(options: PublisherOptions, end: fn(&mut Spot)) {
    let mut spot = Spot::start();
    let client = spot.client();
    client.put_topic("t", &serde_json::json!({})).await.unwrap();
    let live = client.connect_with(quick()).await.unwrap();
    let handled = Handled::default();
    let seen = handled.clone();
    let handler = move |delivery: Delivery| {
        *seen.lock().unwrap().entry(number(&delivery.event)).or_default() += 1;
        async { Ok::<(), ClientError>(()) }
    };
    let options_of_handler = ConsumeOptions::earliest().with_concurrency(4);
    let consumer = live.consume("t", "handler", options_of_handler, handler).await.unwrap();
    let events = live.subscribe("t", "acks", SubscribeOptions::earliest()).await.unwrap();
    let acking = tokio::spawn(consume_all(events));
    let answered = Arc::new(AtomicU64::new(0));
    let publishing = tokio::spawn(publish_all(live.clone(), options, answered.clone()));
    for part in [MANY / 4, MANY / 2] {
        reaches_count(&answered, part).await;
        tokio::task::block_in_place(|| end(&mut spot));
        reaches(&live, |state| !state.is_connected()).await;
        tokio::task::block_in_place(|| spot.start_again());
        reaches(&live, LiveState::is_connected).await;
    }
    soon("all is published", publishing).await.unwrap();
    soon("all is acked", acking).await.unwrap();
    soon("all is handled", async {
        while handled.lock().unwrap().len() < MANY as usize {
            tokio::task::yield_now().await;
        }
    })
    .await;
    soon("it stops", consumer.stop()).await.unwrap();
    assert_eq!(numbers_of(&client, "t").await, (0..MANY).collect::<Vec<_>>(), "each is there once, in order");
    let twice: Vec<_> =
        handled.lock().unwrap().iter().filter(|(_, times)| **times > 1).map(|(n, _)| *n).collect();
    assert_eq!(twice, [0; 0], "no event was handled twice");
    let group = client.group("t", "handler").await.unwrap().unwrap();
    assert_eq!((group.partitions[0].next, group.partitions[0].in_flight), (MANY, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_is_killed_under_load_is_no_loss_and_no_double() {
    under_load(PublisherOptions { batch: 50, ..PublisherOptions::default() }, Spot::kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_frames_survive_a_kill_as_well() {
    under_load(PublisherOptions { batch: 1, ordered: false, ..PublisherOptions::default() }, Spot::kill)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_is_stopped_under_load_is_no_loss_and_no_double() {
    under_load(PublisherOptions { batch: 50, ..PublisherOptions::default() }, Spot::stop).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_tells_why() {
    let mut spot = Spot::start();
    // The first reason stays for so long that nothing else can take its place.
    let pause = Duration::from_secs(600);
    let options = LiveOptions { first_pause: pause, longest_pause: pause, ..LiveOptions::default() };
    let live = spot.client().connect_with(options).await.unwrap();
    let mut state = live.watch();
    let watching = tokio::spawn(async move {
        state.changed().await.unwrap();
        state.borrow().clone()
    });
    tokio::task::block_in_place(|| spot.stop());
    let state = soon("the line is gone", watching).await.unwrap();
    assert!(
        matches!(&state, LiveState::Reconnecting { reason, .. } if reason.contains("the hub is closing")),
        "{state}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_while_the_hub_is_away_waits_for_it() {
    let mut spot = Spot::start();
    let client = spot.client();
    let live = client.connect_with(quick()).await.unwrap();
    let mut events = live.subscribe("t", "g", SubscribeOptions::earliest()).await.unwrap();
    live.publish("t", &numbered(0)).await.unwrap();
    let held = soon("it comes", events.next()).await.unwrap();
    tokio::task::block_in_place(|| spot.kill());
    reaches(&live, |state| !state.is_connected()).await;
    assert_eq!(held.ack().await.unwrap(), Settled::Unconfirmed);
    let publisher = live.publisher("t", PublisherOptions { window: 5, ..PublisherOptions::default() });
    let mut receipts = Vec::new();
    for n in 1..6 {
        receipts.push(publisher.send(numbered(n)).await.unwrap());
    }
    let full = publisher.send(numbered(6));
    assert!(futures::FutureExt::now_or_never(full).is_none(), "the window holds");
    tokio::task::block_in_place(|| spot.start_again());
    for receipt in receipts {
        assert!(!soon("it is answered", receipt).await.unwrap().duplicate);
    }
    // What was done before the line broke is not given out again; the rest comes.
    for n in 1..6 {
        let delivery = soon("it comes", events.next()).await.unwrap();
        assert_eq!(number(&delivery.event), n);
        assert_eq!(delivery.ack().await.unwrap(), Settled::Confirmed);
    }
    soon("all is settled", async {
        while client.cursor("t", "g").await.unwrap().partitions[0].next < 6 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_was_lost_doubles_nothing() {
    let spot = Spot::start();
    let wire = Wire::to(&spot.address).await;
    let live = Client::new(&wire.url(), None).unwrap().connect_with(quick()).await.unwrap();
    let publishing = live.clone();
    wire.lose_answers();
    let published = tokio::spawn(async move { publishing.publish("t", &numbered(7)).await });
    soon("the hub has answered", wire.an_answer_was_lost()).await;
    wire.cut();
    let published = soon("it is answered", published).await.unwrap().unwrap();
    assert_eq!((published.offset, published.duplicate), (0, true));
    assert_eq!(numbers_of(&spot.client(), "t").await, [7]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_is_not_called_again_for_an_ack_that_was_lost() {
    let spot = Spot::start();
    let wire = Wire::to(&spot.address).await;
    let live = Client::new(&wire.url(), None).unwrap().connect_with(quick()).await.unwrap();
    let handled = Handled::default();
    let (seen, cut) = (handled.clone(), Arc::new(tokio::sync::Semaphore::new(0)));
    let gate = cut.clone();
    // The handlers run while the line breaks and comes back, and all events are delivered a second time.
    let handler = move |delivery: Delivery| {
        *seen.lock().unwrap().entry(number(&delivery.event)).or_default() += 1;
        let gate = gate.clone();
        async move {
            gate.acquire().await.map_err(|error| error.to_string())?.forget();
            Ok::<(), String>(())
        }
    };
    let consumer =
        live.consume("t", "g", ConsumeOptions::earliest().with_concurrency(3), handler).await.unwrap();
    live.publish_batch("t", &[numbered(0), numbered(1), numbered(2)]).await.unwrap();
    let all_run = async {
        while handled.lock().unwrap().len() < 3 {
            tokio::task::yield_now().await;
        }
    };
    soon("all are being handled", all_run).await;
    let mut state = live.watch();
    wire.cut();
    soon("the line breaks", state.changed()).await.unwrap();
    cut.add_permits(1);
    reaches(&live, LiveState::is_connected).await;
    live.publish("t", &numbered(3)).await.unwrap();
    cut.add_permits(10);
    let client = spot.client();
    soon("all is settled", async {
        while client.cursor("t", "g").await.unwrap().partitions[0].next < 4 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    consumer.stop().await.unwrap();
    assert_eq!(*handled.lock().unwrap(), BTreeMap::from([(0, 1), (1, 1), (2, 1), (3, 1)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_source_is_asked_for_every_line_and_every_call() {
    let spot = Spot::start();
    let wire = Wire::to(&spot.address).await;
    let asked = Arc::new(AtomicU64::new(0));
    let counter = asked.clone();
    let token = Token::source(move || format!("token-{}", counter.fetch_add(1, Ordering::SeqCst)));
    let options = ClientOptions::default().with_token(token);
    let client = Client::with_options(&wire.url(), options).unwrap();
    let live = client.connect_with(quick()).await.unwrap();
    let mut state = live.watch();
    wire.cut();
    soon("the line breaks", state.changed()).await.unwrap();
    reaches(&live, LiveState::is_connected).await;
    client.topics().await.unwrap();
    let tokens: Vec<String> = wire
        .heads()
        .iter()
        .filter_map(|head| head.lines().find_map(|line| line.strip_prefix("authorization: Bearer ")))
        .map(str::to_owned)
        .collect();
    assert_eq!(tokens, ["token-0", "token-1", "token-2"]);
    assert!(!format!("{live:?} {client:?}").contains("token-"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_is_given_up_after_the_time_that_it_was_given() {
    let mut spot = Spot::start();
    let options = LiveOptions { give_up_after: Some(Duration::from_millis(200)), ..quick() };
    let live = spot.client().connect_with(options).await.unwrap();
    let mut events = live.subscribe("t", "g", SubscribeOptions::default()).await.unwrap();
    tokio::task::block_in_place(|| spot.kill());
    let state = reaches(&live, LiveState::is_ended).await;
    assert!(state.to_string().contains("gave up"), "{state}");
    assert!(matches!(live.publish("t", &numbered(0)).await, Err(ClientError::Ended(_))));
    assert!(events.next().await.is_none());
    assert!(matches!(events.error(), Some(ClientError::Ended(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_starts_late_is_waited_for() {
    let mut spot = Spot::start();
    tokio::task::block_in_place(|| spot.kill());
    let client = spot.client();
    let options = LiveOptions { wait_for_hub: Duration::from_secs(60), ..quick() };
    let connecting = tokio::spawn(async move { client.connect_with(options).await });
    tokio::task::block_in_place(|| spot.start_again());
    let live = soon("it is connected", connecting).await.unwrap().unwrap();
    live.publish("t", &numbered(0)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_source_that_panics_is_asked_again() {
    let spot = Spot::start();
    let wire = Wire::to(&spot.address).await;
    let asked = Arc::new(AtomicU64::new(0));
    let counter = asked.clone();
    let token = Token::source(move || match counter.fetch_add(1, Ordering::SeqCst) {
        1 | 2 => panic!("no token now"),
        n => n.to_string(),
    });
    let options = ClientOptions::default().with_token(token);
    let client = Client::with_options(&wire.url(), options).unwrap();
    let live = client.connect_with(quick()).await.unwrap();
    wire.cut();
    soon("it is published", live.publish("t", &numbered(0))).await.unwrap();
    let publisher = live.publisher("t", PublisherOptions { linger: Duration::MAX, ..Default::default() });
    publisher.send(numbered(1)).await.unwrap();
    soon("nothing lingers for ever", publisher.flush()).await.unwrap();
    assert_eq!(numbers_of(&spot.client(), "t").await, [0, 1]);
    assert!(asked.load(Ordering::SeqCst) >= 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_is_never_passed_while_the_hub_does_not_answer() {
    let spot = Spot::start();
    let wire = Wire::to(&spot.address).await;
    let live = Client::new(&wire.url(), None).unwrap().connect_with(quick()).await.unwrap();
    let publisher = live.publisher("t", PublisherOptions { window: 10, batch: 4, ..Default::default() });
    wire.lose_answers();
    let mut receipts = Vec::new();
    for n in 0..10 {
        receipts.push(soon("there is room", publisher.send(numbered(n))).await.unwrap());
    }
    soon("the hub has answered", wire.an_answer_was_lost()).await;
    let beyond = publisher.send(numbered(10));
    assert!(futures::FutureExt::now_or_never(beyond).is_none(), "ten are under way");
    wire.cut();
    for (receipt, n) in receipts.into_iter().zip(0..) {
        assert_eq!(soon("it is answered", receipt).await.unwrap().offset, n);
    }
    soon("there is room again", publisher.send(numbered(10))).await.unwrap();
    publisher.flush().await.unwrap();
    assert_eq!(numbers_of(&spot.client(), "t").await, (0..11).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_close_counts_no_attempt() {
    let spot = Spot::start();
    let client = spot.client();
    let live = client.connect_with(quick()).await.unwrap();
    live.publish("t", &numbered(0)).await.unwrap();
    let mut events = live.subscribe("t", "g", SubscribeOptions::earliest()).await.unwrap();
    let held = soon("it comes", events.next()).await.unwrap();
    assert_eq!(held.attempt, 1);
    soon("it is closed", live.close()).await;
    assert!(held.ack().await.is_err());
    let other = client.connect_with(quick()).await.unwrap();
    let mut events = other.subscribe("t", "g", SubscribeOptions::earliest()).await.unwrap();
    assert_eq!(soon("it comes again", events.next()).await.unwrap().attempt, 1);
}

#[test]
fn a_runtime_that_ends_leaves_nobody_waiting() {
    let mut spot = Spot::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let live = runtime.block_on(spot.client().connect_with(quick())).unwrap();
    let mut events = runtime.block_on(live.subscribe("t", "g", SubscribeOptions::default())).unwrap();
    spot.kill();
    let publisher = live.publisher("t", PublisherOptions::default());
    let receipt = runtime.block_on(publisher.send(numbered(0))).unwrap();
    drop(runtime);
    let other = tokio::runtime::Runtime::new().unwrap();
    other.block_on(async {
        assert!(live.state().is_ended(), "{}", live.state());
        assert!(matches!(soon("the receipt is answered", receipt).await, Err(ClientError::Ended(_))));
        let error = soon("the flush ends", publisher.flush()).await.unwrap_err();
        assert!(matches!(error.failed[0].error, ClientError::Ended(_)), "{error}");
        assert!(soon("the subscription ends", events.next()).await.is_none());
        assert!(matches!(live.publish("t", &numbered(1)).await, Err(ClientError::Ended(_))));
        soon("closing ends", live.close()).await;
    });
}
