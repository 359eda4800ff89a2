//! Commits, one test a rule.

use super::*;
use crate::live::command::Committing;
use crate::live::delivery::Delivery;
use crate::{Commit, Committed};

/// A subscription with one delivery, which is taken.
fn held(hand: &mut Hand) -> (Arc<Feed>, Delivery) {
    let feed = hand.subscribed();
    hand.deliver("a", "l-a");
    let delivery = feed.try_next().unwrap().unwrap();
    (feed, delivery)
}

fn commit(hand: &mut Hand, commit: &Commit) -> Answer<Committed> {
    let (done, answer) = oneshot::channel();
    let (body, leases) = (commit.to_json(Some("id")).unwrap(), commit.held().cloned().collect());
    hand.session.command(
        Command::Commit(Committing { body, leases, patience: RetryState::default(), done }),
        hand.now,
    );
    answer
}

fn done(hand: &mut Hand, request: &Value) {
    let event = json!({"id": id_of(1), "topic": "t", "partition": 0, "offset": 5, "ts": 1, "duplicate": false, "durability": "sync"});
    hand.hear(json!({"op": "OK", "corr": request["corr"], "events": [event], "versions": {"c": {"k": 2}}}));
}

fn drain(hand: &mut Hand, feed: &Feed) -> Answer<()> {
    let (done, drained) = oneshot::channel();
    hand.session.command(Command::Drain { feed: feed.number, done }, hand.now);
    drained
}

#[test]
fn a_commit_settles_its_deliveries_once_it_is_answered() {
    let mut hand = Hand::connected();
    let (feed, mut delivery) = held(&mut hand);
    let mut answer = commit(&mut hand, &Commit::new().ack(&delivery).delete("c", "k"));
    let frames = hand.sent();
    let expected = json!({"op": "COMMIT", "corr": frames[0]["corr"], "commit_id": "id", "ack": ["l-a"],
        "writes": [{"collection": "c", "key": "k", "delete": true}]});
    assert_eq!(frames, [expected]);
    let mut drained = drain(&mut hand, &feed);
    assert!(drained.try_recv().is_err() && !delivery.lease.token.is_settled());
    let late = delivery.lease.deadline - Duration::from_secs(1);
    assert!(delivery.lease.extension("a", ExtendPolicy::HANDLED, late).is_some(), "it is still to be kept");

    done(&mut hand, &frames[0]);
    let committed = answer.try_recv().unwrap().unwrap();
    assert_eq!((committed.events[0].offset, committed.version("c", "k")), (5, Some(2)));
    assert!(drained.try_recv().unwrap().is_ok() && delivery.lease.token.is_settled());
    let late = delivery.lease.deadline - Duration::from_secs(1);
    assert!(delivery.lease.extension("a", ExtendPolicy::HANDLED, late).is_none());
    assert!(hand.session.is_idle());
}

#[test]
fn a_refused_commit_leaves_its_deliveries_as_they_were() {
    let mut hand = Hand::connected();
    let (feed, delivery) = held(&mut hand);
    let mut answer = commit(&mut hand, &Commit::new().ack(&delivery).delete("c", "k").if_version(1));
    let frames = hand.sent();
    hand.err(&frames[0], "version_conflict");
    assert!(matches!(answer.try_recv().unwrap(), Err(Failure::Hub(error)) if error.status == 409));
    assert!(!delivery.lease.token.is_settled());
    assert!(drain(&mut hand, &feed).try_recv().unwrap().is_ok());
}

#[test]
fn a_commit_that_comes_too_late_marks_its_deliveries_and_an_ack_is_not_remembered() {
    let mut hand = Hand::connected();
    let (feed, delivery) = held(&mut hand);
    delivery.lease.token.bind();
    let mut answer = commit(&mut hand, &Commit::new().ack(&delivery));
    hand.break_line();
    let (done, mut acked) = oneshot::channel();
    let (token, made, event) = (delivery.lease.token.clone(), delivery.lease.made, "a".to_owned());
    let settle = Settle { kind: SettleKind::Ack, token, made, event, kept: None, done: Some(done) };
    hand.session.command(Command::Settle { feed: feed.number, settle }, hand.now);
    assert!(matches!(acked.try_recv().unwrap(), Ok(Settled::Unconfirmed)));
    hand.reconnect();
    let frames = hand.sent();
    hand.err(&frames[0], "lease_expired");
    assert!(answer.try_recv().unwrap().is_err() && delivery.lease.token.is_refused());
    hand.ok(&frames[1]);
    hand.deliver("a", "l-new");
    assert!(feed.try_next().unwrap().is_some(), "it is given out again");
}

#[test]
fn a_commit_that_the_hub_cannot_do_now_is_sent_again_as_it_was() {
    let mut hand = Hand::connected();
    let (feed, delivery) = held(&mut hand);
    let mut answer = commit(&mut hand, &Commit::new().ack(&delivery));
    let mut first = hand.sent();
    hand.err(&first[0], "unavailable");
    let mut drained = drain(&mut hand, &feed);
    assert!(hand.sent().is_empty() && drained.try_recv().is_err());
    hand.now = hand.session.deadline().unwrap();
    let again = hand.sent();
    first[0]["corr"] = again[0]["corr"].clone();
    assert_eq!(again, first);
    done(&mut hand, &again[0]);
    assert!(answer.try_recv().unwrap().is_ok() && delivery.lease.token.is_settled());
    assert!(drained.try_recv().unwrap().is_ok());
}

#[test]
fn a_commit_that_is_not_answered_is_sent_again_as_it_was() {
    let mut hand = Hand::connected();
    let (feed, delivery) = held(&mut hand);
    let mut answer = commit(&mut hand, &Commit::new().ack(&delivery));
    let first = hand.sent();
    hand.break_line();
    assert!(answer.try_recv().is_err());
    let mut later = commit(&mut hand, &Commit::new().delete("c", "k"));
    hand.reconnect();
    let again = hand.sent();
    assert_eq!(again[0], first[0]);
    assert_eq!((&again[1]["op"], &again[2]["op"]), (&json!("COMMIT"), &json!("SUBSCRIBE")));
    done(&mut hand, &again[0]);
    hand.ok(&again[2]);
    assert!(answer.try_recv().unwrap().is_ok() && delivery.lease.token.is_settled());
    assert!(drain(&mut hand, &feed).try_recv().unwrap().is_ok());
    hand.session.end(&Failure::ended("closed"));
    assert!(matches!(later.try_recv().unwrap(), Err(Failure::Ended(_))));
}

#[test]
fn a_lease_of_another_connection_or_of_nobody_here_does_no_harm() {
    let mut hand = Hand::connected();
    let (feed, _delivery) = held(&mut hand);
    let mut other = Hand::connected();
    let (_other_feed, foreign) = held(&mut other);
    let mut answer = commit(&mut hand, &Commit::new().ack(&foreign).ack("somebody's"));
    let frames = hand.sent();
    assert_eq!(frames[0]["ack"], json!(["l-a", "somebody's"]));
    assert!(drain(&mut hand, &feed).try_recv().unwrap().is_ok());
    done(&mut hand, &frames[0]);
    assert!(answer.try_recv().unwrap().is_ok() && foreign.lease.token.is_settled());
}

#[test]
fn an_answer_that_cannot_be_read_still_means_that_it_has_happened() {
    let mut hand = Hand::connected();
    let (_feed, delivery) = held(&mut hand);
    let mut answer = commit(&mut hand, &Commit::new().ack(&delivery));
    let frames = hand.sent();
    hand.hear(json!({"op": "OK", "corr": frames[0]["corr"], "events": 7}));
    assert!(
        matches!(answer.try_recv().unwrap(), Err(Failure::Hub(error)) if error.message.contains("has happened"))
    );
    assert!(delivery.lease.token.is_settled());
}

#[test]
fn a_commit_that_is_too_large_fails_and_nothing_else_does() {
    let mut hand = Hand::connected();
    let mut published = hand.publish(1);
    let mut answer = commit(&mut hand, &Commit::new().set("c", "k", &"x".repeat(10_000)));
    assert_eq!(hand.sent().len(), 2);
    hand.session.too_large(hand.now);
    assert!(matches!(answer.try_recv().unwrap(), Err(Failure::Hub(error)) if error.status == 413));
    hand.break_line();
    hand.reconnect();
    let again = hand.sent();
    assert_eq!(again.len(), 1);
    hand.ok(&again[0]);
    assert!(published.try_recv().unwrap().is_ok());
}

#[tokio::test]
async fn a_delivery_that_a_commit_has_settled_needs_no_ack_and_takes_no_nack() {
    let mut hand = Hand::connected();
    let (feed, delivery) = held(&mut hand);
    delivery.lease.token.settle();
    delivery.ack().await.unwrap();
    hand.deliver("b", "l-b");
    let mut delivery = feed.try_next().unwrap().unwrap();
    delivery.lease.token.settle();
    assert_eq!(
        delivery.extend(Duration::from_secs(1)).await.unwrap_err().hub().unwrap().code,
        "lease_expired"
    );
    assert_eq!(delivery.nack("no", None).await.unwrap_err().hub().unwrap().code, "lease_expired");
}
