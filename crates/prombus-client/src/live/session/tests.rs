//! One test a rule, without a socket.

mod ack_retries;
mod committing;
mod publishing;
mod strays;

use super::*;
use crate::live::command::{Entry, Producer, Window};
use crate::live::event_text::EventText;
use crate::live::feed::{Feed, NewFeed};
use crate::live::settle::{ExtendPolicy, Lease, Settled};
use crate::{NewEvent, Published};
use parking_lot::Mutex;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;
use tokio::sync::oneshot::{self, Receiver};

/// Drives a session by hand.
struct Hand {
    session: Session,
    now: Instant,
}

type Answer<T> = Receiver<Result<T, Failure>>;

impl Hand {
    fn connected() -> Self {
        let now = Instant::now();
        let mut session = Session::new(SessionOptions::default());
        session.connected(now);
        Self { session, now }
    }

    /// What is sent next, as JSON.
    fn sent(&mut self) -> Vec<Value> {
        self.session.gather(self.now);
        self.session.outbox.drain(..).map(|(_, frame)| serde_json::from_str(&frame).unwrap()).collect()
    }

    fn hear(&mut self, frame: Value) {
        self.session.frame(&frame.to_string(), self.now).unwrap();
    }

    fn ok(&mut self, request: &Value) {
        let mut answer = json!({"op": "OK", "corr": request["corr"]});
        if let Some(events) = request["events"].as_array() {
            answer["events"] = events.iter().map(|event| place(&event["id"])).collect();
        } else if request["op"] == "PUBLISH" {
            answer
                .as_object_mut()
                .unwrap()
                .extend(place(&request["opts"]["id"]).as_object().unwrap().clone());
        }
        self.hear(answer);
    }

    fn err(&mut self, request: &Value, code: &str) {
        self.hear(
            json!({"op": "ERR", "corr": request["corr"], "code": code, "msg": "m", "partition": "odd"}),
        );
    }

    fn break_line(&mut self) {
        self.session.lost(self.now);
        assert!(self.sent().is_empty());
    }

    fn reconnect(&mut self) {
        self.session.connected(self.now);
    }

    fn publish(&mut self, n: u64) -> Answer<Published> {
        let (entry, answer) = entry(n);
        self.session.command(Command::Publish { topic: "t".into(), entry }, self.now);
        answer
    }

    fn stream(&mut self, producer: &Arc<Producer>, n: u64) -> Answer<Published> {
        let (entry, answer) = entry(n);
        self.session.command(Command::Stream { producer: producer.clone(), entry }, self.now);
        answer
    }

    fn subscribe(&mut self) -> (Arc<Feed>, Answer<()>) {
        let feed = Arc::new(Feed::for_tests("t", "g"));
        let (done, answer) = oneshot::channel();
        self.session.command(Command::Subscribe { feed: feed.clone(), done }, self.now);
        (feed, answer)
    }

    /// A subscription that the hub has made.
    fn subscribed(&mut self) -> Arc<Feed> {
        let (feed, mut answer) = self.subscribe();
        let frames = self.sent();
        self.ok(&frames[0]);
        assert!(answer.try_recv().unwrap().is_ok());
        feed
    }

    fn deliver(&mut self, id: &str, lease: &str) {
        let event = json!({"id": id, "ts": 1, "topic": "t", "partition": 0, "offset": 0, "payload": 1});
        let ctx = json!({"attempt": 1, "maxAttempts": 5, "ack_deadline_ms": 60_000, "lease": lease});
        self.hear(
            json!({"op": "EVENTS", "topic": "t", "group": "g", "deliveries": [{"event": event, "ctx": ctx}]}),
        );
    }

    fn settle(&mut self, feed: &Feed, kind: SettleKind) -> Answer<Settled> {
        let delivery = feed.try_next().unwrap().unwrap();
        let (done, answer) = oneshot::channel();
        let (token, made) = (delivery.lease.token, delivery.lease.made);
        let event = delivery.event.id.clone();
        let settle = Settle { kind, token, made, event, kept: None, done: Some(done) };
        self.session.command(Command::Settle { feed: feed.number, settle }, self.now);
        answer
    }
}

fn place(id: &Value) -> Value {
    json!({"id": id, "partition": 0, "offset": 7, "ts": 1, "duplicate": false})
}

fn id_of(n: u64) -> String {
    format!("0198c0de-5d00-7a3c-9c1e-{n:012}")
}

fn entry(n: u64) -> (Entry, Answer<Published>) {
    let (done, answer) = oneshot::channel();
    (Entry::new(text(n), done, None), answer)
}

/// An event that has a place in a window.
fn placed(n: u64, window: &Arc<Window>) -> (Entry, Answer<Published>) {
    let (done, answer) = oneshot::channel();
    (Entry::new(text(n), done, Some(WindowSlot(window.clone()))), answer)
}

fn text(n: u64) -> EventText {
    EventText::new(&NewEvent::of(&n).unwrap().with_id(id_of(n))).unwrap()
}

fn producer(batch: usize, linger_ms: u64, ordered: bool) -> Arc<Producer> {
    let linger = Duration::from_millis(linger_ms);
    Arc::new(Producer { number: 9, topic: "t".into(), batch, linger, ordered, flushing: AtomicUsize::new(0) })
}

/// The payloads of a frame.
fn payloads(frame: &Value) -> Vec<u64> {
    match frame["events"].as_array() {
        Some(events) => events.iter().map(|event| event["payload"].as_u64().unwrap()).collect(),
        None => vec![frame["payload"].as_u64().unwrap()],
    }
}

#[test]
fn acks_that_have_gathered_share_a_frame() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    ["a", "b", "c"].into_iter().for_each(|id| hand.deliver(id, id));
    let mut a = hand.settle(&feed, SettleKind::Ack);
    let mut b = hand.settle(&feed, SettleKind::Ack);
    let mut c = hand.settle(&feed, SettleKind::Nack { reason: Some("r".into()), delay_ms: None });
    let frames = hand.sent();
    assert_eq!((&frames[0]["op"], &frames[0]["leases"]), (&json!("ACK"), &json!(["a", "b"])));
    assert_eq!((&frames[1]["op"], &frames[1]["leases"]), (&json!("NACK"), &json!(["c"])));
    assert!(a.try_recv().is_err(), "nothing is answered yet");
    frames.iter().for_each(|frame| hand.ok(frame));
    assert!([&mut a, &mut b, &mut c].into_iter().all(|answer| answer.try_recv().unwrap().is_ok()));
}

#[test]
fn no_frame_extends_more_than_a_hub_takes() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    hand.deliver("a", "a");
    let Lease { token, made, .. } = feed.try_next().unwrap().unwrap().lease;
    let extension = || Settle {
        kind: SettleKind::Extend { ms: 1 },
        token: token.clone(),
        made,
        event: "a".into(),
        kept: None,
        done: None,
    };
    let extensions: Vec<Settle> = (0..10_001).map(|_| extension()).collect();
    hand.session.command(Command::Extend { feed: feed.number, extensions }, hand.now);
    let frames = hand.sent();
    let leases: Vec<usize> = frames.iter().map(|frame| frame["leases"].as_array().unwrap().len()).collect();
    assert!(
        leases.iter().sum::<usize>() == 10_001 && leases.iter().all(|count| *count <= 10_000),
        "{leases:?}"
    );
    frames.iter().for_each(|frame| hand.ok(frame));
}

#[test]
fn what_waits_under_a_lease_that_is_void_is_given_to_nobody() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    ["a", "b"].into_iter().for_each(|id| hand.deliver(id, id));
    let extensions = feed.extensions(Duration::MAX, hand.now + Duration::from_secs(10));
    hand.session.command(Command::Extend { feed: feed.number, extensions }, hand.now);
    let frames = hand.sent();
    assert_eq!(frames[0]["leases"], json!(["a", "b"]));
    hand.err(&frames[0], "lease_expired");
    let frames = hand.sent();
    hand.err(&frames[0], "lease_expired");
    hand.ok(&frames[1]);
    assert_eq!(feed.try_next().unwrap().unwrap().event.id, "b");
    assert!(feed.try_next().is_none());
}

#[test]
fn a_refused_frame_of_acks_is_said_one_by_one() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    ["a", "b"].into_iter().for_each(|id| hand.deliver(id, id));
    let (mut a, mut b) = (hand.settle(&feed, SettleKind::Ack), hand.settle(&feed, SettleKind::Ack));
    let frames = hand.sent();
    hand.err(&frames[0], "lease_expired");
    let frames = hand.sent();
    assert_eq!(frames.len(), 2);
    hand.err(&frames[0], "lease_expired");
    hand.ok(&frames[1]);
    assert!(a.try_recv().unwrap().is_err() && b.try_recv().unwrap().is_ok());
}

#[test]
fn an_ack_that_was_not_answered_is_said_again_when_its_event_comes_again() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    ["a", "b"].into_iter().for_each(|id| hand.deliver(id, id));
    let mut sent = hand.settle(&feed, SettleKind::Ack);
    assert_eq!(hand.sent().len(), 1);
    let held = feed.try_next().unwrap().unwrap();
    hand.break_line();
    assert!(matches!(sent.try_recv().unwrap(), Ok(Settled::Unconfirmed)));
    // One that is acked when its lease is void already counts as well.
    let settle = silent_ack(held.lease.token.text().to_owned(), held.event.id.clone(), held.lease.made);
    hand.session.command(Command::Settle { feed: feed.number, settle }, hand.now);
    hand.reconnect();
    let frames = hand.sent();
    assert_eq!(frames[0]["op"], "SUBSCRIBE");
    hand.ok(&frames[0]);
    ["b", "a", "c"].into_iter().for_each(|id| hand.deliver(id, &format!("new-{id}")));
    assert_eq!(hand.sent()[0]["leases"], json!(["new-b", "new-a"]));
    assert_eq!(feed.try_next().unwrap().unwrap().event.id, "c");
    assert!(feed.try_next().is_none());
}

#[test]
fn what_waited_when_the_line_broke_is_void() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    hand.deliver("a", "a");
    hand.hear(json!({"op": "ASSIGNED", "topic": "t", "group": "g", "partitions": [1, 2]}));
    assert_eq!(*feed.assigned.borrow(), [1, 2]);
    hand.break_line();
    assert!(feed.try_next().is_none() && feed.assigned.borrow().is_empty());
}

#[test]
fn deliveries_before_the_subscription_is_made_are_those_of_another() {
    let mut hand = Hand::connected();
    let (feed, _answer) = hand.subscribe();
    let frames = hand.sent();
    hand.deliver("old", "old");
    hand.ok(&frames[0]);
    hand.deliver("new", "new");
    assert_eq!(feed.try_next().unwrap().unwrap().event.id, "new");
}

#[test]
fn a_subscription_that_cannot_be_made_again_now_is_tried_later() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    hand.break_line();
    hand.reconnect();
    let frames = hand.sent();
    hand.err(&frames[0], "unavailable");
    assert!(hand.sent().is_empty());
    hand.now = hand.session.deadline().unwrap();
    let frames = hand.sent();
    assert_eq!(frames[0]["op"], "SUBSCRIBE");
    hand.err(&frames[0], "forbidden");
    assert!(matches!(feed.ended(), Some(FeedEnd::Failed(Failure::Hub(error))) if error.status == 403));
}

#[test]
fn an_error_that_names_nobody_ends_only_the_subscription_that_is_gone() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    hand.hear(json!({"op": "ERR", "code": "not_found", "msg": "the group is gone"}));
    let probes = hand.sent();
    assert_eq!(probes[0]["op"], "RESUME");
    hand.ok(&probes[0]);
    assert!(feed.ended().is_none());
    hand.hear(json!({"op": "ERR", "code": "not_found", "msg": "the group is gone"}));
    let probes = hand.sent();
    hand.err(&probes[0], "not_subscribed");
    assert!(
        matches!(feed.ended(), Some(FeedEnd::Failed(Failure::Hub(error))) if error.message == "the group is gone")
    );
}

#[test]
fn a_drain_waits_for_what_is_not_answered() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    hand.deliver("a", "a");
    let _ack = hand.settle(&feed, SettleKind::Ack);
    let (done, mut drained) = oneshot::channel();
    hand.session.command(Command::Drain { feed: feed.number, done }, hand.now);
    let frames = hand.sent();
    assert!(drained.try_recv().is_err());
    hand.ok(&frames[0]);
    assert!(drained.try_recv().unwrap().is_ok());
}

#[test]
fn a_user_who_left_is_unsubscribed() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    feed.gone.store(true, Ordering::SeqCst);
    hand.session.sweep(hand.now);
    assert_eq!(hand.sent()[0]["op"], "UNSUBSCRIBE");
    // Another one may take its place at once.
    let (_feed, _answer) = hand.subscribe();
    assert_eq!(hand.sent()[0]["op"], "SUBSCRIBE");
}

#[test]
fn the_end_is_told_to_everyone() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    let mut published = hand.publish(1);
    let producer = producer(1, 60_000, true);
    let mut queued = hand.stream(&producer, 2);
    hand.session.end(&Failure::ended("closed"));
    assert!(matches!(published.try_recv().unwrap(), Err(Failure::Ended(_))));
    assert!(matches!(queued.try_recv().unwrap(), Err(Failure::Ended(_))));
    assert!(matches!(feed.ended(), Some(FeedEnd::Failed(_))) && hand.session.is_idle());
}

#[test]
fn frames_that_are_none_are_told_and_unknown_ones_passed_over() {
    let mut hand = Hand::connected();
    for bad in ["", "[]", "{}", r#"{"op":7}"#, r#"{"op":"EVENTS","#] {
        assert!(hand.session.frame(bad, hand.now).is_err(), "{bad}");
    }
    hand.hear(json!({"op": "EVENTS", "deliveries": 7}));
    hand.hear(json!({"op": "EVENTS", "topic": "t", "group": "g", "deliveries": 7}));
    hand.hear(json!({"op": "ERR"}));
    hand.hear(json!({"op": "OK", "corr": 7, "partition": "odd"}));
    hand.hear(json!({"op": "NEWS", "of": "tomorrow"}));
    hand.hear(json!({"op": "OK", "corr": "999"}));
    hand.hear(json!({"op": "OK", "corr": "not a number"}));
}

#[test]
fn there_is_no_room_without_end() {
    let mut hand = Hand::connected();
    let producer = producer(10, 0, true);
    let _answers: Vec<_> = (0..MAX_WAITING as u64).map(|n| hand.stream(&producer, n)).collect();
    assert!(!hand.session.has_room());
    let first = hand.sent();
    hand.ok(&first[0]);
    hand.sent();
    assert!(hand.session.has_room());
}

#[test]
fn a_hub_is_stuck_only_if_it_answers_nothing() {
    let mut hand = Hand::connected();
    let _answers: Vec<_> = (0..3).map(|n| hand.publish(n)).collect();
    let frames = hand.sent();
    for frame in &frames[..2] {
        hand.now += ANSWER_TIME - Duration::from_secs(1);
        assert!(!hand.session.is_stuck(hand.now));
        hand.ok(frame);
    }
    hand.now += ANSWER_TIME + Duration::from_secs(1);
    assert!(hand.session.is_stuck(hand.now));
    hand.ok(&frames[2]);
    hand.now += ANSWER_TIME * 2;
    assert!(!hand.session.is_stuck(hand.now), "nothing is open");
    let _late = hand.publish(4);
    hand.sent();
    assert!(!hand.session.is_stuck(hand.now), "it has only just been asked");
}

#[test]
fn an_event_that_cannot_be_read_is_nacked_and_the_others_are_delivered() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    let event =
        |id: &str| json!({"id": id, "ts": 1, "topic": "t", "partition": 0, "offset": 0, "payload": 1});
    let ctx =
        |lease: &str| json!({"attempt": 1, "maxAttempts": 5, "ack_deadline_ms": 60_000, "lease": lease});
    let mut odd = event("b");
    odd["sid"] = json!(7);
    let deliveries = json!([{"event": event("a"), "ctx": ctx("a")}, {"event": odd, "ctx": ctx("b")},
        {"event": event("c"), "ctx": ctx("c")}, {"event": event("d"), "ctx": "odd"}]);
    hand.hear(json!({"op": "EVENTS", "topic": "t", "group": "g", "deliveries": deliveries}));
    let ids = [feed.try_next(), feed.try_next()].map(|next| next.unwrap().unwrap().event.id.clone());
    assert_eq!(ids, ["a", "c"]);
    assert!(feed.try_next().is_none());
    let frames = hand.sent();
    assert_eq!((frames.len(), &frames[0]["op"], &frames[0]["leases"]), (1, &json!("NACK"), &json!(["b"])));
    assert!(frames[0]["reason"].as_str().unwrap().contains("cannot read this event"));
    // So is one that comes by itself.
    hand.hear(json!({"op": "EVENT", "topic": "t", "group": "g", "event": {"id": 7}, "ctx": ctx("e")}));
    assert_eq!(hand.sent()[0]["leases"], json!(["e"]));
}

#[test]
fn an_answer_that_cannot_be_read_is_one_all_the_same() {
    let mut hand = Hand::connected();
    let mut published = hand.publish(1);
    let frames = hand.sent();
    hand.hear(json!({"op": "OK", "corr": frames[0]["corr"], "partition": "odd"}));
    assert!(matches!(published.try_recv().unwrap(), Err(Failure::Hub(error)) if error.status == 500));
}

#[test]
fn a_subscription_that_the_hub_names_ends_for_good_or_for_now() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    hand.deliver("a", "a");
    let ended = |code: &str| json!({"op": "ERR", "code": code, "msg": "m", "topic": "t", "group": "g"});
    hand.hear(ended("unavailable"));
    assert!(hand.sent().is_empty() && feed.ended().is_none());
    assert!(feed.try_next().is_none(), "its leases went with it");
    hand.now = hand.session.deadline().unwrap();
    let frames = hand.sent();
    assert_eq!(frames[0]["op"], "SUBSCRIBE");
    // This one is about the subscription before.
    hand.hear(ended("not_found"));
    assert!(feed.ended().is_none());
    hand.ok(&frames[0]);
    hand.deliver("a", "b");
    assert_eq!(feed.try_next().unwrap().unwrap().lease.token.text(), "b");
    hand.hear(json!({"op": "ERR", "code": "not_found", "msg": "m", "topic": "t", "group": "another"}));
    assert!(hand.sent().is_empty() && feed.ended().is_none());
    hand.hear(ended("not_found"));
    assert!(hand.sent().is_empty(), "nobody needs to be asked");
    assert!(matches!(feed.ended(), Some(FeedEnd::Failed(Failure::Hub(error))) if error.status == 404));
}

#[test]
fn a_probe_that_finds_a_subscription_ended_for_now_makes_it_again() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    hand.hear(json!({"op": "ERR", "code": "internal", "msg": "m"}));
    let probes = hand.sent();
    hand.err(&probes[0], "not_subscribed");
    assert!(feed.ended().is_none());
    hand.now = hand.session.deadline().unwrap();
    assert_eq!(hand.sent()[0]["op"], "SUBSCRIBE");
}

#[test]
fn nothing_lingers_when_someone_waits_for_it() {
    let mut hand = Hand::connected();
    let slow = producer(10, u64::MAX, false);
    let _first = hand.stream(&slow, 0);
    assert!(hand.sent().is_empty());
    assert!(hand.session.deadline().is_some(), "a linger without end is no overflow");
    slow.flushing.fetch_add(1, Ordering::SeqCst);
    assert_eq!(hand.sent().len(), 1);
    slow.flushing.fetch_sub(1, Ordering::SeqCst);
    let _second = hand.stream(&slow, 1);
    assert!(hand.sent().is_empty());
    hand.session.close(hand.now);
    assert_eq!(hand.sent().len(), 1);
}

#[test]
fn nothing_lingers_when_its_publisher_is_gone_or_the_session_is_full() {
    let mut hand = Hand::connected();
    let slow = producer(MAX_WAITING * 2, u64::MAX, false);
    let _first = hand.stream(&slow, 0);
    assert!(hand.sent().is_empty());
    drop(slow);
    assert_eq!(hand.sent().len(), 1);
    hand.session.sweep(hand.now);
    let slow = producer(MAX_WAITING * 2, u64::MAX, false);
    let _answers: Vec<_> = (0..MAX_WAITING as u64).map(|n| hand.stream(&slow, n)).collect();
    assert!(!hand.sent().is_empty());
    hand.session.batch_bytes = 1;
    let _more = hand.stream(&slow, 1);
    assert_eq!(hand.sent().len(), 1, "a frame that has its bytes is full");
}

#[test]
fn closing_unsubscribes_after_the_acks() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    ["a", "b"].into_iter().for_each(|id| hand.deliver(id, id));
    let mut ack = hand.settle(&feed, SettleKind::Ack);
    hand.session.close(hand.now);
    let frames = hand.sent();
    assert_eq!(frames.iter().map(|frame| &frame["op"]).collect::<Vec<_>>(), ["ACK", "UNSUBSCRIBE"]);
    assert!(!hand.session.is_idle());
    frames.iter().for_each(|frame| hand.ok(frame));
    assert!(ack.try_recv().unwrap().is_ok() && hand.session.is_idle());
    assert!(matches!(feed.ended(), Some(FeedEnd::Closed)), "its user has closed it: that is no failure");
}

#[test]
fn a_session_that_is_dropped_leaves_nobody_waiting() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    let window = Arc::new(Window { room: Semaphore::new(0), failed: Mutex::default() });
    let (entry, mut answer) = placed(1, &window);
    hand.session.command(Command::Publish { topic: "t".into(), entry }, hand.now);
    drop(hand);
    assert!(matches!(answer.try_recv().unwrap(), Err(Failure::Ended(_))));
    assert!(feed.ended().is_some());
    let failed =
        || std::mem::take(&mut window.failed.lock().first).into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!((failed(), window.room.available_permits()), (vec![id_of(1)], 1));
    // An event that is lost on its way to the session is no success either.
    drop(placed(2, &window));
    assert_eq!((failed(), window.room.available_permits()), (vec![id_of(2)], 2));
}

#[test]
fn a_user_who_left_unnoticed_makes_room_and_its_acks_go_out() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    hand.deliver("a", "a");
    let mut ack = hand.settle(&feed, SettleKind::Ack);
    feed.gone.store(true, Ordering::SeqCst);
    let second = Arc::new(Feed::new(NewFeed {
        number: 2,
        topic: "t",
        group: "g",
        opts: "{}".into(),
        max_in_flight: 1,
        commands: feed.commands.clone(),
    }));
    let (done, mut answer) = oneshot::channel();
    hand.session.command(Command::Subscribe { feed: second, done }, hand.now);
    let frames = hand.sent();
    assert_eq!(
        frames.iter().map(|frame| &frame["op"]).collect::<Vec<_>>(),
        ["ACK", "UNSUBSCRIBE", "SUBSCRIBE"]
    );
    frames.iter().for_each(|frame| hand.ok(frame));
    assert!(ack.try_recv().unwrap().is_ok() && answer.try_recv().unwrap().is_ok());
}

#[test]
fn a_token_that_is_no_longer_good_is_a_reason_for_a_new_line() {
    let mut hand = Hand::connected();
    let mut refused = hand.publish(1);
    let frames = hand.sent();
    hand.err(&frames[0], "unauthorized");
    assert!(matches!(refused.try_recv().unwrap(), Err(Failure::Hub(error)) if error.status == 401));
    hand.session.options.renews_token = true;
    let mut kept = hand.publish(2);
    let frames = hand.sent();
    let refusal = json!({"op": "ERR", "corr": frames[0]["corr"], "code": "unauthorized", "msg": "expired"});
    let bad = hand.session.frame(&refusal.to_string(), hand.now).unwrap_err();
    assert!(bad.0.contains("expired"), "{}", bad.0);
    hand.break_line();
    hand.reconnect();
    let again = hand.sent();
    hand.ok(&again[0]);
    assert!(kept.try_recv().unwrap().is_ok());
}
