//! Dead letters: what becomes of an event that has failed for the last time.

use crate::groups::stage::{Stage, Use, begins_to_wait, drain, ids};
use prombus_core::Partition;
use prombus_engine::groups::{
    DeadLetter, FailedBy, GivenBack, OptionsPatch, Settle, SettleCall, SettleResult,
};
use prombus_engine::query::From;
use std::pin::pin;

fn attempts(max: u32) -> OptionsPatch {
    OptionsPatch { max_attempts: Some(max), backoff_ms: Some(0), ..OptionsPatch::default() }
}

pub async fn after_its_last_attempt_an_event_is_a_dead_letter(s: Stage) {
    let topic = s.topic("deadly", 2).await;
    let id = s.publish_numbers(&topic, Some("k"), [1]).await[0].id;
    let group = s.group(&topic, "g \"quoted\"", attempts(3)).await;
    for attempt in 1..=3 {
        assert!(s.letters(&topic).await.is_empty(), "not before the last attempt has failed");
        let lease = group.take_just("m", 1, attempt).await.lease;
        let reason = Some(format!("reason \"{attempt}\"").into());
        assert!(group.say(Settle::Nack { lease, reason, delay: None }).await);
    }
    // The answer to the nack says that the letter is written.
    let letters = s.letters(&topic).await;
    assert_eq!(letters.len(), 1);
    let (letter, original) = (&letters[0], s.hub.by_id(&topic, id).await.unwrap().unwrap());
    let mut wanted = Vec::new();
    original.write_json(&mut wanted);
    let wanted: serde_json::Value = serde_json::from_slice(&wanted).unwrap();
    let now = prombus_core::Clock::now_ms(&*s.clock);
    assert_eq!(
        letter.payload.to_value().unwrap(),
        serde_json::json!({
            "topic": "deadly", "group": "g \"quoted\"", "original": wanted,
            "err": "reason \"3\"", "ts": now, "attempts": 3
        })
    );
    assert_eq!(letter.caused_by.as_ref().unwrap().to_value().unwrap(), serde_json::json!([id.to_string()]));
    assert_eq!(letter.topic.as_str(), "dlq.deadly");
    let parsed = DeadLetter::parse(letter.clone()).expect("a letter can be read back");
    let failed_by = FailedBy::Group("g \"quoted\"".into());
    assert_eq!((parsed.original_id, parsed.failed_by, parsed.offset), (id, failed_by, 0));
    let status = group.status().await.unwrap();
    assert!(status.partitions.iter().all(|partition| partition.lag == 0), "the cursor has moved with it");
    assert_eq!(group.counters().dead_lettered.get(), 1);
}

pub async fn a_group_goes_on_after_a_dead_letter(s: Stage) {
    let topic = s.topic("goes.on", 1).await;
    s.publish_numbers(&topic, Some("k"), [1, 2]).await;
    let group = s.group(&topic, "g", attempts(1)).await;
    let lease = group.take_just("m", 1, 1).await.lease;
    assert!(group.take_now("m", 1).await.is_empty(), "the key waits");
    assert!(group.nack(lease, None).await);
    assert!(group.nack(lease, None).await, "repeating it makes no second letter");
    group.take_just("m", 2, 1).await;
    assert_eq!(s.letters(&topic).await.len(), 1);
}

pub async fn a_dead_letter_is_there_once_whatever_happens(s: Stage) {
    let topic = s.topic("once", 1).await;
    s.publish_numbers(&topic, None, [1, 2]).await;
    let group = s.group(&topic, "g", attempts(1)).await;
    let deliveries = group.take("m", 2).await;
    s.log.refuse_all(true);
    assert!(group.settle(SettleCall::nack(deliveries[0].lease, None, None)).await.is_err());
    s.log.refuse_all(false);
    assert!(s.letters(&topic).await.is_empty(), "letter and cursor are one commit: neither happened");
    let group = s.found(&topic, "g").await;
    let lease = group.take_just("m", 1, 1).await.lease;
    assert!(group.nack(lease, None).await);
    let s = s.restart().await;
    assert_eq!(s.letters(&topic).await.len(), 1, "and here both did");
    assert_eq!(drain(&s.found(&topic, "g").await, "m").await, [2]);
    assert_eq!(s.letters(&topic).await.len(), 1);
}

pub async fn expired_leases_lead_to_dead_letters(s: Stage) {
    let topic = s.topic("expired", 1).await;
    s.publish_numbers(&topic, Some("k"), [1, 2]).await;
    let options = OptionsPatch { ack_timeout_ms: Some(30), ..attempts(2) };
    let group = s.group(&topic, "g", options).await;
    group.take_just("m", 1, 1).await;
    group.take_just("m", 1, 2).await;
    let next = group.take_one("m").await;
    assert_eq!(next.event.offset.0, 1, "the second event comes when the first is dead");
    let letters = s.letters(&topic).await;
    assert_eq!(letters[0].payload.to_value().unwrap()["attempts"], 2);
}

pub async fn lost_connections_lead_to_dead_letters(s: Stage) {
    let topic = s.topic("lost", 1).await;
    let ids = ids(&s.publish_numbers(&topic, None, [1, 2]).await);
    let group = s.group(&topic, "g", attempts(2)).await;
    for _ in 0..2 {
        let mut held = Vec::new();
        while held.len() < 2 {
            held.extend(group.take("m", 2).await);
        }
        held.sort_by_key(|delivery| delivery.event.offset);
        // The first event is always the one that was delivered first.
        let first = held.remove(0);
        group.give_back(&[held[0].lease], GivenBack::Unused);
        group.give_back(&[first.lease], GivenBack::ConnectionLost);
    }
    // Nobody waits for an answer here, so the letter comes when it comes.
    let mut letters = s.letters(&topic).await;
    while letters.is_empty() {
        tokio::task::yield_now().await;
        letters = s.letters(&topic).await;
    }
    assert_eq!(group.status().await.unwrap().partitions[0].lag, 1);
    assert_eq!(DeadLetter::parse(letters[0].clone()).unwrap().original_id, ids[0]);
}

pub async fn many_events_die_at_once(s: Stage) {
    let topic = s.topic("many", 3).await;
    s.publish_numbers(&topic, None, 0..400).await;
    let group = s.group(&topic, "g", attempts(1)).await;
    let mut held = Vec::new();
    while held.len() < 400 {
        held.extend(group.take("m", 400).await);
    }
    let nack = |lease| Some(Settle::Nack { lease, reason: None, delay: None });
    let settles = held.iter().map(|delivery| nack(delivery.lease)).collect();
    assert!(group.settle(SettleCall { settles }).await.unwrap().into_iter().all(SettleResult::is_done));
    assert_eq!(s.letters(&topic).await.len(), 400, "the answer comes when all letters are written");
    let s = s.restart().await;
    assert!(drain(&s.found(&topic, "g").await, "m").await.is_empty());
}

pub async fn a_last_nack_has_lapsed_where_a_hand_was_faster(s: Stage) {
    for by_skip in [false, true] {
        let topic = s.topic(&format!("lapsing-{by_skip}"), 1).await;
        s.publish_numbers(&topic, None, [1, 2]).await;
        let group = s.group(&topic, "g", attempts(1)).await;
        let leases = group.take("m", 2).await;
        let [first, second] = [&leases[0], &leases[1]].map(|delivery| delivery.lease);
        // What comes now has to wait for this one to be written.
        s.log.hold(|commit| !commit.cursors.is_empty());
        let mut acking = pin!(group.settle(SettleCall::acks([first])));
        begins_to_wait(acking.as_mut()).await;
        s.log.until_held(1).await;
        let mut nacking = pin!(group.settle(SettleCall::nack(second, None, None)));
        begins_to_wait(nacking.as_mut()).await;
        let deciding = async {
            match by_skip {
                true => assert!(group.skip(Partition(0), 1).await.unwrap()),
                false => group.set_cursor(From::Latest, None).await.unwrap(),
            }
        };
        let mut deciding = pin!(deciding);
        begins_to_wait(deciding.as_mut()).await;
        s.log.release();
        deciding.await;
        assert_eq!(acking.await.unwrap(), [SettleResult::Done]);
        assert_eq!(nacking.await.unwrap(), [SettleResult::Expired]);
        let again = group.settle(SettleCall::nack(second, None, None)).await;
        assert_eq!(again.unwrap(), [SettleResult::Expired]);
        assert!(s.letters(&topic).await.is_empty());
    }
}

pub async fn a_last_nack_is_answered_by_what_came_of_it_although_its_group_goes(s: Stage) {
    let topic = s.topic("going", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let group = s.group(&topic, "g", attempts(1)).await;
    let lease = group.take_just("m", 1, 1).await.lease;
    s.log.hold(|commit| !commit.events.is_empty());
    let mut nacking = pin!(group.settle(SettleCall::nack(lease, None, None)));
    begins_to_wait(nacking.as_mut()).await;
    s.log.until_held(1).await;
    let mut deleting = pin!(s.hub.groups().delete(&topic, group.name()));
    begins_to_wait(deleting.as_mut()).await;
    s.log.release();
    assert_eq!(nacking.await.unwrap(), [SettleResult::Done]);
    deleting.await.unwrap();
    assert_eq!(s.letters(&topic).await.len(), 1);
}
