//! Acks of handlers that the hub cannot take for now.

use super::strays::logged;
use super::*;
use crate::live::delivery::nack;
use crate::live::settle::KeptLease;

/// How long leases hold.
const LEASE: Duration = Duration::from_secs(60);

impl Hand {
    /// Settles the next delivery as a handler does, whose leases are extended for so long.
    fn handled(&mut self, feed: &Feed, kind: SettleKind, up_to: Duration) {
        let delivery = feed.try_next().unwrap().unwrap();
        let (event, lease) = (delivery.event.id.clone(), delivery.lease);
        let (token, made, until) = (lease.token.clone(), lease.made, lease.since + up_to);
        let settle = Settle { kind, token, made, event, kept: Some(KeptLease { lease, until }), done: None };
        self.session.command(Command::Settle { feed: feed.number, settle }, self.now);
    }

    /// Lets time pass until the session has something to do.
    fn wait(&mut self) -> Duration {
        let at = self.session.deadline().expect("there is something to do later");
        let pause = at - self.now;
        self.now = at;
        pause
    }

    fn drain(&mut self, feed: &Feed) -> Answer<()> {
        let (done, answer) = oneshot::channel();
        self.session.command(Command::Drain { feed: feed.number, done }, self.now);
        answer
    }
}

#[test]
fn what_a_handler_made_of_an_event_is_said_again() {
    for code in ["disk_full", "unavailable", "rate_limited"] {
        let mut hand = Hand::connected();
        let feed = hand.subscribed();
        ["a", "b", "c"].into_iter().for_each(|id| hand.deliver(id, id));
        hand.handled(&feed, SettleKind::Ack, LEASE);
        hand.handled(&feed, SettleKind::Ack, LEASE);
        hand.handled(&feed, nack("no", None), LEASE);
        let frames = hand.sent();
        assert_eq!(frames.len(), 2);
        frames.iter().for_each(|frame| hand.err(frame, code));
        for _ in 0..3 {
            assert!(hand.sent().is_empty(), "not before a while has passed");
            hand.wait();
            let again = hand.sent();
            assert_eq!(again.len(), 2, "{code}: {again:?}");
            for (again, frame) in again.iter().zip(&frames) {
                assert_eq!((&again["op"], &again["leases"]), (&frame["op"], &frame["leases"]));
                hand.err(again, code);
            }
        }
        hand.wait();
        hand.sent().iter().for_each(|frame| hand.ok(frame));
        assert!(hand.drain(&feed).try_recv().unwrap().is_ok(), "all is answered");
    }
}

#[test]
fn that_it_is_said_again_is_logged_now_and_then() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    hand.deliver("a", "a");
    hand.handled(&feed, SettleKind::Ack, 10 * LEASE);
    let start = hand.now;
    let lines = logged(|| {
        while hand.now < start + 2 * LEASE {
            let frames = hand.sent();
            let (extensions, acks): (Vec<_>, Vec<_>) =
                frames.iter().partition(|frame| frame["op"] == "MODACK");
            extensions.into_iter().for_each(|frame| hand.ok(frame));
            acks.into_iter().for_each(|frame| hand.err(frame, "disk_full"));
            hand.wait();
        }
    });
    assert!((1..=3).contains(&lines), "{lines} lines in two minutes");
}

#[test]
fn its_lease_is_kept_meanwhile() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    hand.deliver("a", "a");
    hand.handled(&feed, SettleKind::Ack, 3 * LEASE);
    let (start, mut extended) = (hand.now, Vec::new());
    let mut acks = hand.sent();
    // It is extended until then, and holds for its time after that.
    while let [ack] = &acks[..] {
        assert_eq!((&ack["op"], &ack["leases"]), (&json!("ACK"), &json!(["a"])));
        hand.err(ack, "disk_full");
        for frame in hand.sent() {
            assert_eq!((&frame["op"], &frame["leases"]), (&json!("MODACK"), &json!(["a"])));
            hand.ok(&frame);
            extended.push(hand.now - start);
        }
        if hand.session.deadline().is_none() {
            break;
        }
        assert!(hand.wait() <= LEASE / 4);
        acks = hand.sent();
    }
    let gaps = extended.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(extended[0] < LEASE && gaps.max().unwrap() < LEASE, "it never runs out: {extended:?}");
    assert!(*extended.last().unwrap() <= 3 * LEASE, "{extended:?}");
    let end = hand.now - start;
    assert!((3 * LEASE..=4 * LEASE + LEASE / 4).contains(&end), "it was given up after {end:?}");
    assert!(hand.drain(&feed).try_recv().unwrap().is_ok(), "nothing waits any more");
}

#[test]
fn a_lease_that_is_gone_is_the_end_of_it() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    hand.deliver("a", "a");
    hand.handled(&feed, SettleKind::Ack, LEASE);
    let frames = hand.sent();
    hand.err(&frames[0], "disk_full");
    hand.wait();
    let frames = hand.sent();
    hand.err(&frames[0], "lease_expired");
    assert_eq!((hand.sent().len(), hand.session.deadline()), (0, None));
}

#[test]
fn whoever_waits_for_an_answer_is_told() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    hand.deliver("a", "a");
    let mut answer = hand.settle(&feed, SettleKind::Ack);
    let frames = hand.sent();
    hand.err(&frames[0], "disk_full");
    assert!(answer.try_recv().unwrap().is_err());
    assert_eq!(hand.session.deadline(), None);
}

#[test]
fn who_stops_does_not_wait_for_room() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    hand.deliver("a", "a");
    hand.handled(&feed, SettleKind::Ack, LEASE);
    let frames = hand.sent();
    hand.err(&frames[0], "disk_full");
    let mut drained = hand.drain(&feed);
    let frames = hand.sent();
    assert_eq!(frames[0]["leases"], json!(["a"]), "it has one more chance");
    assert!(drained.try_recv().is_err());
    hand.err(&frames[0], "disk_full");
    assert!(drained.try_recv().unwrap().is_ok());
    assert_eq!(hand.session.deadline(), None);
}

#[test]
fn what_waits_to_be_said_again_when_the_line_breaks_is_done() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    hand.deliver("a", "a");
    hand.handled(&feed, SettleKind::Ack, LEASE);
    let frames = hand.sent();
    hand.err(&frames[0], "disk_full");
    hand.break_line();
    hand.reconnect();
    let frames = hand.sent();
    hand.ok(&frames[0]);
    hand.deliver("a", "new");
    let frames = hand.sent();
    assert_eq!((&frames[0]["op"], &frames[0]["leases"]), (&json!("ACK"), &json!(["new"])));
    assert!(feed.try_next().is_none(), "it is not handled again");
}
