//! What can be put around a handler.

use crate::groups::consumers::{options, told};
use crate::groups::stage::{Stage, Use, group_name, number};
use parking_lot::Mutex;
use prombus_engine::groups::{HandlerError, OptionsPatch, Received, Retry, ToDeadLetters};
use prombus_engine::query::From;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

const PAUSE: Duration = Duration::from_millis(1);

fn once() -> OptionsPatch {
    OptionsPatch { max_attempts: Some(1), ..OptionsPatch::default() }
}

fn settled(status: &prombus_engine::groups::GroupStatus) -> bool {
    status.partitions.iter().all(|partition| partition.lag == 0)
}

pub async fn a_retry_keeps_failures_from_the_group(s: Stage) {
    let topic = s.topic("retried", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let (seen, mut handled) = mpsc::unbounded_channel();
    let calls = Arc::new(Mutex::new(0));
    let handler = move |received: Received| {
        *calls.lock() += 1;
        let call = *calls.lock();
        let _ = seen.send((call, received.attempt()));
        async move { if call < 3 { Err(HandlerError::new("not yet")) } else { Ok(()) } }
    };
    let retry = Retry { handler, times: 2, pause: PAUSE };
    let subscription = s.hub.subscribe(&topic, &group_name("g"), retry, options(once())).await.unwrap();
    for call in 1..=3 {
        assert_eq!(told(&mut handled).await, (call, 1), "the group still thinks it is the first attempt");
    }
    subscription.unsubscribe().await;
    let group = s.found(&topic, "g").await;
    assert!(settled(&group.status().await.unwrap()) && group.counters().nacked.get() == 0);
}

pub async fn a_retry_ends(s: Stage) {
    let topic = s.topic("retry.ends", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let (seen, mut handled) = mpsc::unbounded_channel();
    let handler = move |received: Received| {
        let _ = seen.send(received.attempt());
        async { Err(HandlerError::new("never")) }
    };
    let two = OptionsPatch { max_attempts: Some(2), ..OptionsPatch::default() };
    let retry = Retry { handler, times: 1, pause: PAUSE };
    let subscription = s.hub.subscribe(&topic, &group_name("g"), retry, options(two)).await.unwrap();
    for attempt in [1, 1, 2, 2] {
        assert_eq!(told(&mut handled).await, attempt, "each attempt is tried twice");
    }
    subscription.unsubscribe().await;
    assert_eq!(s.letters(&topic).await.len(), 1);
}

pub async fn hopeless_failures_are_not_retried(s: Stage) {
    let topic = s.topic("hopeless", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let (seen, mut handled) = mpsc::unbounded_channel();
    let handler = move |received: Received| {
        let _ = seen.send(received.attempt());
        async { Err(HandlerError::hopeless("bad data")) }
    };
    let retry = Retry { handler, times: 5, pause: PAUSE };
    let subscription =
        s.hub.subscribe(&topic, &group_name("g"), retry, options(OptionsPatch::default())).await.unwrap();
    assert_eq!(told(&mut handled).await, 1);
    s.found(&topic, "g").await.until("it is a dead letter", settled).await;
    subscription.unsubscribe().await;
    assert!(handled.try_recv().is_err(), "it is not tried again");
    let letter = s.letters(&topic).await.remove(0).payload.to_value().unwrap();
    assert_eq!((&letter["err"], &letter["attempts"]), (&"bad data".into(), &1.into()));
}

pub async fn every_failure_can_be_the_last(s: Stage) {
    let topic = s.topic("last", 1).await;
    s.publish_numbers(&topic, Some("k"), [1, 2]).await;
    let handler = ToDeadLetters(|received: Received| async move {
        if number(received.event()) == 1 { Err(HandlerError::new("no")) } else { Ok(()) }
    });
    let subscription =
        s.hub.subscribe(&topic, &group_name("g"), handler, options(OptionsPatch::default())).await.unwrap();
    s.found(&topic, "g").await.until("all is done", settled).await;
    subscription.unsubscribe().await;
    let letters = s.letters(&topic).await;
    assert_eq!(letters.len(), 1, "only what failed");
    assert_eq!(letters[0].payload.to_value().unwrap()["original"]["payload"]["n"], 1);
}

pub async fn a_deduped_handler_does_nothing_twice(s: Stage) {
    let topic = s.topic("deduped", 1).await;
    s.publish_numbers(&topic, None, 0..5).await;
    let done = Arc::new(Mutex::new(Vec::new()));
    let mut s = s;
    for _ in 0..3 {
        let handler = {
            let done = done.clone();
            move |received: Received| {
                done.lock().push(number(received.event()));
                async { Ok(()) }
            }
        };
        let handler = s.hub.deduped(handler, "done");
        let subscription = s
            .hub
            .subscribe(&topic, &group_name("g"), handler, options(OptionsPatch::default()))
            .await
            .unwrap();
        let group = s.found(&topic, "g").await;
        group.until("all is settled", settled).await;
        subscription.unsubscribe().await;
        // Everything is delivered once more.
        group.set_cursor(From::Earliest, None).await.unwrap();
        s = s.restart().await;
    }
    let mut done = done.lock().clone();
    done.sort_unstable();
    assert_eq!(done, [0, 1, 2, 3, 4], "however often it was delivered");
}

pub async fn a_deduped_handler_does_again_what_failed(s: Stage) {
    let topic = s.topic("deduped.failure", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let (seen, mut handled) = mpsc::unbounded_channel();
    let handler = move |received: Received| {
        let _ = seen.send(received.attempt());
        async move { if received.attempt() == 1 { Err(HandlerError::new("once")) } else { Ok(()) } }
    };
    let handler = s.hub.deduped(handler, "done");
    let subscription =
        s.hub.subscribe(&topic, &group_name("g"), handler, options(OptionsPatch::default())).await.unwrap();
    assert_eq!((told(&mut handled).await, told(&mut handled).await), (1, 2), "a failure is not done");
    s.found(&topic, "g").await.until("all is settled", settled).await;
    subscription.unsubscribe().await;
}
