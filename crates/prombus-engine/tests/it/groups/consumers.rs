//! Handlers that get the events of a group.

use crate::groups::stage::{LONG, Stage, Use, drain, group_name, number};
use parking_lot::Mutex;
use prombus_core::Partition;
use prombus_engine::groups::{
    Acks, ConsumerOptions, GroupCall, HandlerError, Mode, OptionsPatch, Rebalance, Received,
};
use prombus_engine::query::From;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};

/// From the first event on.
pub fn options(options: OptionsPatch) -> ConsumerOptions {
    let group = GroupCall { from: From::Earliest, options };
    ConsumerOptions { group, member: Some("m".into()), ..ConsumerOptions::default() }
}

/// The next thing that a handler tells.
pub async fn told<T>(receiver: &mut mpsc::UnboundedReceiver<T>) -> T {
    let told = tokio::time::timeout(LONG, receiver.recv()).await;
    told.expect("the handler is called in time").expect("the handler is there")
}

fn defaults() -> OptionsPatch {
    OptionsPatch { backoff_ms: Some(0), ..OptionsPatch::default() }
}

pub async fn what_a_handler_did_is_acked(s: Stage) {
    let topic = s.topic("handled", 2).await;
    s.publish_numbers(&topic, None, 0..3).await;
    let (seen, mut handled) = mpsc::unbounded_channel();
    let handler = move |received: Received| {
        let _ = seen.send((number(received.event()), received.attempt()));
        async { Ok(()) }
    };
    let subscription = s.hub.subscribe(&topic, &group_name("g"), handler, options(defaults())).await.unwrap();
    s.publish_numbers(&topic, None, 3..6).await;
    let mut all = Vec::new();
    for _ in 0..6 {
        all.push(told(&mut handled).await);
    }
    all.sort_unstable();
    assert_eq!(all, (0..6).map(|n| (n, 1)).collect::<Vec<_>>(), "those that were there, and new ones");
    subscription.unsubscribe().await;
    let status = s.found(&topic, "g").await.status().await.unwrap();
    assert!(
        status.partitions.iter().all(|partition| partition.lag == 0 && partition.in_flight == 0),
        "all are acked"
    );
    let s = s.restart().await;
    assert!(drain(&s.found(&topic, "g").await, "m").await.is_empty());
}

pub async fn what_a_handler_could_not_do_is_tried_again(s: Stage) {
    let topic = s.topic("failing", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let (seen, mut handled) = mpsc::unbounded_channel();
    let handler = move |received: Received| {
        let _ = seen.send(received.attempt());
        async { Err(HandlerError::new("not today")) }
    };
    let few = options(OptionsPatch { max_attempts: Some(3), ..defaults() });
    let subscription = s.hub.subscribe(&topic, &group_name("g"), handler, few).await.unwrap();
    for attempt in 1..=3 {
        assert_eq!(told(&mut handled).await, attempt);
    }
    subscription.unsubscribe().await;
    let letter = s.letters(&topic).await.remove(0).payload.to_value().unwrap();
    assert_eq!((&letter["err"], &letter["attempts"]), (&"not today".into(), &3.into()));
}

pub async fn with_manual_acks_the_handler_decides(s: Stage) {
    let topic = s.topic("manual", 1).await;
    s.publish_numbers(&topic, None, 0..3).await;
    let (seen, mut handled) = mpsc::unbounded_channel();
    let handler = move |received: Received| {
        let _ = seen.send(received);
        async { Ok(()) }
    };
    let manual = ConsumerOptions { acks: Acks::Manual, ..options(defaults()) };
    let subscription = s.hub.subscribe(&topic, &group_name("g"), handler, manual).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(told(&mut handled).await);
    }
    held.sort_by_key(|received| received.event().offset);
    let group = s.found(&topic, "g").await;
    assert_eq!(group.status().await.unwrap().partitions[0].lag, 3, "what it returned acks nothing");
    assert!(held[0].ack().await.unwrap() && held[0].ack().await.unwrap());
    assert!(held[1].nack(HandlerError::new("later")).await.unwrap());
    let again = told(&mut handled).await;
    assert_eq!((number(again.event()), again.attempt()), (1, 2));
    assert!(!held[1].ack().await.unwrap(), "the first delivery is over");
    assert!(again.nack(HandlerError::hopeless("never")).await.unwrap());
    assert_eq!(s.letters(&topic).await.len(), 1, "a hopeless failure is the last one");
    subscription.unsubscribe().await;
    assert!(held[2].ack().await.unwrap(), "what is held can be acked after unsubscribing");
    assert_eq!(group.status().await.unwrap().partitions[0].lag, 0);
}

pub async fn a_failure_is_nacked_even_with_manual_acks(s: Stage) {
    let topic = s.topic("manual.failure", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let (seen, mut handled) = mpsc::unbounded_channel();
    let handler = move |received: Received| {
        let _ = seen.send(received.clone());
        async move { if received.attempt() == 1 { Err(HandlerError::new("once")) } else { Ok(()) } }
    };
    let manual = ConsumerOptions { acks: Acks::Manual, ..options(defaults()) };
    let subscription = s.hub.subscribe(&topic, &group_name("g"), handler, manual).await.unwrap();
    assert_eq!(told(&mut handled).await.attempt(), 1);
    let again = told(&mut handled).await;
    assert_eq!(again.attempt(), 2);
    assert!(again.ack().await.unwrap());
    subscription.unsubscribe().await;
}

pub async fn unsubscribing_waits_for_what_is_in_flight(s: Stage) {
    let topic = s.topic("in.flight", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let gate = Arc::new(Semaphore::new(0));
    let (seen, mut handled) = mpsc::unbounded_channel();
    let handler = {
        let gate = gate.clone();
        move |received: Received| {
            let (seen, gate) = (seen.clone(), gate.clone());
            async move {
                let _ = seen.send(number(received.event()));
                drop(gate.acquire().await);
                Ok(())
            }
        }
    };
    let subscription = s.hub.subscribe(&topic, &group_name("g"), handler, options(defaults())).await.unwrap();
    assert_eq!(told(&mut handled).await, 1);
    let mut ending = tokio::spawn(subscription.unsubscribe());
    let early = tokio::time::timeout(Duration::from_millis(100), &mut ending).await;
    assert!(early.is_err(), "it waits for the handler");
    s.publish_numbers(&topic, None, [2]).await;
    gate.add_permits(1);
    ending.await.unwrap();
    let group = s.found(&topic, "g").await;
    assert_eq!(group.status().await.unwrap().partitions[0].next, 1, "what was in flight is acked");
    assert!(handled.try_recv().is_err(), "and nothing more was fetched");
    group.take_just("n", 2, 1).await;
}

pub async fn no_more_than_allowed_is_handled_at_once(s: Stage) {
    let topic = s.topic("at.once", 1).await;
    s.publish_numbers(&topic, None, 0..30).await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let handler = {
        let (now, most) = (now.clone(), most.clone());
        move |_: Received| {
            let (now, most) = (now.clone(), most.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        }
    };
    let three = ConsumerOptions { max_in_flight: 3, batch: 10, ..options(defaults()) };
    let subscription = s.hub.subscribe(&topic, &group_name("g"), handler, three).await.unwrap();
    let group = s.found(&topic, "g").await;
    group.until("all are handled", |status| status.partitions[0].lag == 0).await;
    subscription.unsubscribe().await;
    assert!(most.load(Ordering::SeqCst) <= 3, "{most:?} at once");
}

pub async fn a_handler_that_panics_gets_the_event_again(s: Stage) {
    let topic = s.topic("panics", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let (seen, mut handled) = mpsc::unbounded_channel();
    let handler = move |received: Received| {
        let _ = seen.send(received.attempt());
        async move {
            assert!(received.attempt() > 1, "this panic is part of the test");
            Ok(())
        }
    };
    let short = options(OptionsPatch { ack_timeout_ms: Some(500), ..defaults() });
    let subscription = s.hub.subscribe(&topic, &group_name("g"), handler, short).await.unwrap();
    assert_eq!((told(&mut handled).await, told(&mut handled).await), (1, 2));
    subscription.unsubscribe().await;
    assert_eq!(s.found(&topic, "g").await.status().await.unwrap().partitions[0].lag, 0);
}

pub async fn a_handler_can_ask_for_more_time(s: Stage) {
    let topic = s.topic("more.time", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let (seen, mut handled) = mpsc::unbounded_channel();
    let handler = move |received: Received| {
        let seen = seen.clone();
        async move {
            let extended = received.extend(Some(LONG * 4)).await;
            let _ = seen.send((received.attempt(), extended.is_ok_and(|taken| taken)));
            // The work, which takes longer than the lease was given for.
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            Ok(())
        }
    };
    let short = options(OptionsPatch { ack_timeout_ms: Some(1_000), ..defaults() });
    let subscription = s.hub.subscribe(&topic, &group_name("g"), handler, short).await.unwrap();
    assert_eq!(told(&mut handled).await, (1, true));
    subscription.unsubscribe().await;
    let group = s.found(&topic, "g").await;
    assert_eq!((group.counters().acked.get(), group.counters().redelivered.get()), (1, 0));
}

pub async fn a_subscription_outlives_a_store_that_refuses(s: Stage) {
    let topic = s.topic("outlives", 1).await;
    let (seen, mut handled) = mpsc::unbounded_channel();
    let handler = move |received: Received| {
        let _ = seen.send(number(received.event()));
        async { Ok(()) }
    };
    let subscription = s.hub.subscribe(&topic, &group_name("g"), handler, options(defaults())).await.unwrap();
    s.publish_numbers(&topic, None, [1]).await;
    assert_eq!(told(&mut handled).await, 1);
    s.found(&topic, "g").await.until("it is acked", |status| status.partitions[0].lag == 0).await;
    s.publish_numbers(&topic, None, [2]).await;
    s.log.refuse_all(true);
    // Whether acks were written before the store refused is not known; if not, the event comes again.
    while told(&mut handled).await != 2 {}
    s.log.refuse_all(false);
    s.publish_numbers(&topic, None, [3]).await;
    while told(&mut handled).await != 3 {}
    subscription.unsubscribe().await;
    s.found(&topic, "g").await.until("all are acked", |status| status.partitions[0].lag == 0).await;
}

struct Ledger(Arc<Mutex<Vec<Partition>>>, mpsc::UnboundedSender<(&'static str, Vec<Partition>)>);

impl Rebalance for Ledger {
    fn assigned(&self, partitions: &[Partition]) {
        self.0.lock().extend(partitions);
        let _ = self.1.send(("assigned", partitions.to_vec()));
    }

    fn revoked(&self, partitions: &[Partition]) {
        self.0.lock().retain(|partition| !partitions.contains(partition));
        let _ = self.1.send(("revoked", partitions.to_vec()));
    }
}

pub async fn members_hear_of_their_partitions(s: Stage) {
    let topic = s.topic("rebalanced", 8).await;
    let owned = Arc::new(Mutex::new(Vec::new()));
    let (tell, mut heard) = mpsc::unbounded_channel();
    let partitioned =
        OptionsPatch { mode: Some(Mode::Partitioned), member_ttl_ms: Some(3_600_000), ..defaults() };
    let rebalance: Arc<dyn Rebalance> = Arc::new(Ledger(owned.clone(), tell));
    let hooked = ConsumerOptions { rebalance: Some(rebalance), ..options(partitioned) };
    let subscription =
        s.hub.subscribe(&topic, &group_name("g"), |_: Received| async { Ok(()) }, hooked).await.unwrap();
    let all: Vec<Partition> = (0..8).map(Partition).collect();
    assert_eq!(told(&mut heard).await, ("assigned", all.clone()), "it is alone");
    let group = s.found(&topic, "g").await;
    let other = group.enter("other").unwrap();
    let others = group.owned_by("other");
    assert!(!others.is_empty());
    assert_eq!(told(&mut heard).await, ("revoked", others.clone()), "what it lost, and nothing else");
    drop(other);
    assert_eq!(told(&mut heard).await, ("assigned", others), "what it got back");
    subscription.unsubscribe().await;
    assert_eq!(told(&mut heard).await, ("revoked", all), "in the end it has nothing");
    assert!(owned.lock().is_empty());
    assert!(group.owned_by("m").is_empty(), "and the group knows");
}
