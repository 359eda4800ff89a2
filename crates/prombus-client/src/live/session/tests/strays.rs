//! Deliveries that no subscription takes.

use super::*;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Counts what is logged.
struct Counter(Arc<AtomicUsize>);

impl Subscriber for Counter {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// How many lines `work` logs.
pub fn logged(work: impl FnOnce()) -> usize {
    let count = Arc::new(AtomicUsize::new(0));
    tracing::subscriber::with_default(Counter(count.clone()), work);
    count.load(Ordering::SeqCst)
}

#[test]
fn deliveries_that_nobody_has_subscribed_to_are_logged_once() {
    let mut hand = Hand::connected();
    assert_eq!(logged(|| ["a", "b"].into_iter().for_each(|id| hand.deliver(id, id))), 1);
    // Also where they cannot be read.
    let mut hand = Hand::connected();
    let odd = json!({"op": "EVENTS", "topic": "t", "group": "g", "deliveries": [{"event": 1, "ctx": 2}]});
    assert_eq!(logged(|| hand.hear(odd)), 1);
}

#[test]
fn deliveries_that_come_while_a_subscription_ends_are_not_logged() {
    let mut hand = Hand::connected();
    let feed = hand.subscribed();
    let (done, mut answer) = oneshot::channel();
    hand.session.command(Command::Unsubscribe { feed: feed.number, done }, hand.now);
    let frames = hand.sent();
    assert_eq!(logged(|| hand.deliver("a", "a")), 0);
    hand.ok(&frames[0]);
    assert!(answer.try_recv().unwrap().is_ok());
    assert_eq!(logged(|| hand.deliver("b", "b")), 1);
}
