//! The workers of a handler, whose result decides what happens to its event, unless a commit was to settle it.
//!
//! If the connection breaks, an event may be redelivered while its handler is still running, or after it has finished
//! without being able to report. The handler is then not called twice: its result counts for the newer delivery. The
//! exception is a handler that commits, because its effects depend on a lease. If such a commit failed and the lease is
//! gone, the result says nothing about the newer delivery, and the event is handled again.

use super::command::Command;
use super::delivery::{Delivery, nack};
use super::done_events::DoneEvents;
use super::feed::Feed;
use super::later::later;
use super::options::{Backoff, LiveOptions};
use super::settle::{ExtendPolicy, KeptLease, Lease, Settle, SettleKind, Settled};
use futures::FutureExt;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt::Display;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The state that the workers of a handler share.
pub(super) struct HandlerState {
    feed: Arc<Feed>,
    stop: watch::Receiver<bool>,
    /// How long leases of taken deliveries are extended.
    extend_up_to: Duration,
    handled: Mutex<Handled>,
}

#[derive(Debug, Default)]
struct Handled {
    /// Events in a handler, each with the last delivery of it that came.
    running: HashMap<String, Delivery>,
    /// Events whose handler had finished when their lease became void.
    done: DoneEvents,
}

/// What to do with an event that has been delivered.
#[derive(Debug, PartialEq, Eq)]
enum Begin {
    Handle,
    /// Another worker has it, and sees to it that this delivery is settled.
    Elsewhere,
    /// It only needs to be acked.
    Done,
}

/// What to do with an event whose handler has returned.
enum Finish {
    /// Settle it with this lease.
    Settle(Lease),
    /// Nothing: a commit has settled it.
    Settled,
    /// A commit that was to settle it has not happened.
    Again,
}

impl Handled {
    fn begin(&mut self, delivery: &Delivery) -> Begin {
        let id = &delivery.event.id;
        if let Some(newer) = self.running.get_mut(id) {
            *newer = delivery.copy();
            return Begin::Elsewhere;
        }
        if self.done.take(id, Instant::now()) {
            return Begin::Done;
        }
        self.running.insert(id.clone(), delivery.copy());
        Begin::Handle
    }

    /// The handler has finished with the event that it was `given` under a lease. One that is to run again stays among
    /// those that run.
    fn finish(&mut self, id: &str, kind: &SettleKind, given: &Lease) -> Finish {
        let newest = self.running.get(id).map_or_else(|| given.clone(), |newest| newest.lease.clone());
        let is_void = newest.made != newest.feed.made.load(Ordering::SeqCst);
        let is_replaced = !newest.token.is(&given.token);
        let is_settled = given.token.is_settled();
        if !is_settled && given.token.is_bound() && (given.token.is_refused() || is_replaced || is_void) {
            return Finish::Again;
        }
        self.running.remove(id);
        if is_settled {
            return Finish::Settled;
        }
        if *kind == SettleKind::Ack && is_void {
            self.done.remember(id.to_owned(), Instant::now());
        }
        Finish::Settle(newest)
    }

    /// Gives up on an event, unless another delivery than `last` has come for it.
    fn leave(&mut self, last: &Delivery) -> bool {
        let id = &last.event.id;
        let is_last = self.running.get(id).is_some_and(|newest| newest.lease.token.is(&last.lease.token));
        if is_last {
            self.running.remove(id);
        }
        is_last
    }
}

impl HandlerState {
    pub fn new(feed: Arc<Feed>, stop: watch::Receiver<bool>, extend_up_to: Duration) -> Self {
        Self { feed, stop, extend_up_to, handled: Mutex::default() }
    }

    /// What settles an event, without anybody waiting for it.
    fn settle(&self, event: String, kind: SettleKind, lease: Lease) -> Settle {
        let (token, made) = (lease.token.clone(), lease.made);
        let until = later(lease.since, self.extend_up_to);
        Settle { kind, token, made, event, kept: Some(KeptLease { lease, until }), done: None }
    }

    /// The words that let events in a handler hold longer, where it is time for that and they are not in it for too long.
    pub fn extensions(&self, now: Instant) -> Vec<Settle> {
        let due = |(id, delivery): (&String, &mut Delivery)| {
            let is_wanted = now.saturating_duration_since(delivery.lease.since) <= self.extend_up_to;
            is_wanted.then(|| delivery.lease.extension(id, ExtendPolicy::HANDLED, now)).flatten()
        };
        self.handled.lock().running.iter_mut().filter_map(due).collect()
    }

    /// The next delivery; `None` when there will be none, or no more are wanted.
    async fn next(&self) -> Option<Delivery> {
        tokio::select! {
            biased;
            () = self.stopped() => None,
            delivery = self.feed.next() => delivery,
        }
    }

    async fn stopped(&self) {
        // Where the consumer is gone, its workers are as well.
        let _ = self.stop.clone().wait_for(|stop| *stop).await;
    }

    /// The event once more whose handler could not commit, where a lease on it holds. Otherwise the hub gives it out
    /// again; that is also how one is given back when the consumer stops.
    async fn again(&self, id: &str, given: &Lease, pauses: &mut Backoff) -> Option<Delivery> {
        loop {
            let newest = self.handled.lock().running.get(id)?.copy();
            if newest.lease.token.is(&given.token) {
                // It failed under a lease that may hold, so it may well fail once more.
                // The pause is cut short where nobody wants it to run again.
                let _ = tokio::time::timeout(pauses.next(fastrand::f64()), self.stopped()).await;
            }
            let wanted = !*self.stop.borrow();
            if wanted && holds(&newest).await {
                // Where the handler commits nothing this time, what it returns counts.
                newest.lease.token.begin_anew();
                return Some(newest);
            }
            if self.handled.lock().leave(&newest) || !wanted {
                return None;
            }
        }
    }
}

/// Whether the hub says that the lease of a delivery holds. It then does for its full time.
async fn holds(delivery: &Delivery) -> bool {
    let time = delivery.lease.time;
    matches!(delivery.copy().extend(time).await, Ok(Settled::Confirmed))
}

/// Handles one event after the other.
pub(super) async fn work<H, F, E>(desk: Arc<HandlerState>, handler: Arc<H>)
where
    H: Fn(Delivery) -> F,
    F: Future<Output = Result<(), E>>,
    E: Display,
{
    while let Some(delivery) = desk.next().await {
        let event = delivery.event.id.clone();
        let begin = desk.handled.lock().begin(&delivery);
        let settle = match begin {
            Begin::Elsewhere => None,
            Begin::Done => Some((SettleKind::Ack, delivery.lease)),
            Begin::Handle => run(&desk, &*handler, delivery).await,
        };
        let Some((kind, lease)) = settle else { continue };
        let settle = desk.settle(event, kind, lease);
        if desk.feed.tell(Command::Settle { feed: desk.feed.number, settle }).await.is_err() {
            return;
        }
    }
}

/// Calls the handler with an event, again where its commit came too late; says how to settle it then, if that is left
/// to do.
async fn run<H, F, E>(desk: &HandlerState, handler: &H, mut delivery: Delivery) -> Option<(SettleKind, Lease)>
where
    H: Fn(Delivery) -> F,
    F: Future<Output = Result<(), E>>,
    E: Display,
{
    let mut pauses = Backoff::new(&LiveOptions::default());
    loop {
        let (id, given) = (delivery.event.id.clone(), delivery.lease.clone());
        let kind = handle(handler, delivery).await;
        let finish = desk.handled.lock().finish(&id, &kind, &given);
        delivery = match finish {
            Finish::Settle(lease) => return Some((kind, lease)),
            Finish::Settled => return None,
            Finish::Again => desk.again(&id, &given, &mut pauses).await?,
        };
    }
}

/// What the handler makes of a delivery.
async fn handle<H, F, E>(handler: &H, delivery: Delivery) -> SettleKind
where
    H: Fn(Delivery) -> F,
    F: Future<Output = Result<(), E>>,
    E: Display,
{
    let work = AssertUnwindSafe(async { handler(delivery).await });
    match work.catch_unwind().await {
        Ok(Ok(())) => SettleKind::Ack,
        Ok(Err(error)) => nack(&error.to_string(), None),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            nack(&format!("the handler panicked: {text}"), None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::delivery::tests::delivery;
    use crate::live::feed::NewFeed;
    use std::sync::atomic::AtomicUsize;
    use tokio::sync::mpsc;

    /// A feed whose first making is current.
    fn feed() -> Arc<Feed> {
        let feed = Arc::new(Feed::for_tests("t", "g"));
        feed.clear(1);
        feed
    }

    fn given(feed: &Arc<Feed>) -> Delivery {
        delivery(feed, 7, Instant::now() + Duration::from_secs(60))
    }

    /// The same event over the next connection.
    fn again(feed: &Arc<Feed>) -> Delivery {
        feed.clear(2);
        let mut again = given(feed);
        again.lease.made = 2;
        again
    }

    #[test]
    fn what_a_handler_without_a_commit_returns_settles_the_newer_delivery() {
        let (feed, mut handled) = (feed(), Handled::default());
        let first = given(&feed);
        assert_eq!(handled.begin(&first), Begin::Handle);
        let newer = again(&feed);
        assert_eq!(handled.begin(&newer), Begin::Elsewhere);
        let finish = handled.finish("id-7", &SettleKind::Ack, &first.lease);
        assert!(matches!(finish, Finish::Settle(lease) if lease.token.is(&newer.lease.token)));
        // Where the newer one comes later, it is only acked.
        assert_eq!(handled.begin(&newer), Begin::Handle);
        feed.clear(3);
        assert!(matches!(handled.finish("id-7", &SettleKind::Ack, &newer.lease), Finish::Settle(_)));
        assert_eq!(handled.begin(&given(&feed)), Begin::Done);
    }

    #[test]
    fn what_a_handler_returns_whose_commit_failed_says_nothing_about_a_newer_delivery() {
        for kind in [SettleKind::Ack, nack("no", None)] {
            let (feed, mut handled) = (feed(), Handled::default());
            let first = given(&feed);
            handled.begin(&first);
            first.lease.token.bind();
            assert_eq!(handled.begin(&again(&feed)), Begin::Elsewhere);
            assert!(matches!(handled.finish("id-7", &kind, &first.lease), Finish::Again));
            // Nor where the newer one has not come yet.
            handled.leave(&first);
            let (feed, mut handled) = (self::feed(), Handled::default());
            let first = given(&feed);
            handled.begin(&first);
            first.lease.token.bind();
            feed.clear(0);
            assert!(matches!(handled.finish("id-7", &kind, &first.lease), Finish::Again));
            assert!(handled.leave(&first));
            assert_eq!(handled.begin(&again(&feed)), Begin::Handle);
        }
    }

    #[test]
    fn a_commit_that_failed_leaves_the_say_to_the_handler_while_its_lease_holds() {
        let (feed, mut handled) = (feed(), Handled::default());
        let first = given(&feed);
        handled.begin(&first);
        first.lease.token.bind();
        assert!(matches!(handled.finish("id-7", &SettleKind::Ack, &first.lease), Finish::Settle(_)));
        // Unless it was refused because a lease has expired.
        handled.begin(&first);
        first.lease.token.refuse();
        assert!(matches!(handled.finish("id-7", &SettleKind::Ack, &first.lease), Finish::Again));
        // A later commit may have settled it.
        first.lease.token.settle();
        assert!(matches!(handled.finish("id-7", &SettleKind::Ack, &first.lease), Finish::Settled));
        assert!(handled.running.is_empty());
    }

    /// A feed whose leases hold: every command is answered so.
    fn held_feed(commands: &mpsc::Sender<Command>) -> Arc<Feed> {
        let commands = commands.downgrade();
        let (topic, group, opts) = ("t", "g", String::new());
        let feed = Feed::new(NewFeed { number: 1, topic, group, opts, max_in_flight: 10, commands });
        feed.clear(1);
        Arc::new(feed)
    }

    #[tokio::test]
    async fn a_handler_that_is_called_again_and_commits_nothing_has_the_say() {
        for failed in [None, Some("bad data")] {
            let (commands, mut asked) = mpsc::channel(8);
            tokio::spawn(async move {
                while let Some(Command::Settle { settle, .. }) = asked.recv().await {
                    settle.answer(Ok(Settled::Confirmed));
                }
            });
            let feed = held_feed(&commands);
            let (stopping, stop) = watch::channel(false);
            let desk = HandlerState::new(feed.clone(), stop, Duration::MAX);
            let first = given(&feed);
            desk.handled.lock().begin(&first);
            let calls = AtomicUsize::new(0);
            let handler = async |delivery: Delivery| match calls.fetch_add(1, Ordering::SeqCst) {
                0 => {
                    delivery.lease.token.bind();
                    delivery.lease.token.refuse();
                    Err("the commit was refused")
                }
                1 => failed.map_or(Ok(()), Err),
                _ => {
                    stopping.send_replace(true);
                    Ok(())
                }
            };
            let settle = run(&desk, &handler, first).await;
            assert_eq!(calls.load(Ordering::SeqCst), 2);
            let expected = failed.map_or(SettleKind::Ack, |why| nack(why, None));
            assert_eq!(settle.map(|(kind, _)| kind), Some(expected));
        }
    }
}
