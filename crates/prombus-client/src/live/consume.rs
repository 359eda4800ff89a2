//! Consuming with a handler: what it returns decides what becomes of the event.

use super::Live;
use super::command::Command;
use super::delivery::{Delivery, nack};
use super::done_events::DoneEvents;
use super::feed::Feed;
use super::settle::{Lease, Settle, Verb};
use super::subscription::{SubscribeOptions, Subscription};
use crate::ClientError;
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
use tokio::task::JoinSet;
use tokio::time::Instant;

/// For how long leases are extended where nothing is said.
const EXTEND_UP_TO: Duration = Duration::from_secs(600);
/// How often leases are looked at while one holds.
const LOOKS_PER_LEASE: u32 = 8;
/// They are looked at no more often than this.
const MIN_LOOK: Duration = Duration::from_millis(10);
/// And no less often.
const MAX_LOOK: Duration = Duration::from_secs(5);

/// How a handler consumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumeOptions {
    /// What the subscription asks for.
    pub subscribe: SubscribeOptions,
    /// For so long the leases of events that wait for the handler, or are in it, are extended (10 minutes from when
    /// they came), so that a slow handler does not get them twice. After that the hub gives them to others.
    pub extend_up_to: Duration,
    /// How many events are handled at once (1). Whatever it is, events of one key follow each other, unless the group
    /// has another `ordering`.
    pub concurrency: usize,
}

impl Default for ConsumeOptions {
    fn default() -> Self {
        Self { subscribe: SubscribeOptions::default(), extend_up_to: EXTEND_UP_TO, concurrency: 1 }
    }
}

impl ConsumeOptions {
    /// A new group starts at the first event that is kept.
    pub fn earliest() -> Self {
        Self { subscribe: SubscribeOptions::earliest(), ..Self::default() }
    }

    /// So many events are handled at once.
    #[must_use]
    pub fn with_concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }
}

/// What the workers know together. Where the line broke, an event may come again while its handler still runs, or when
/// it has finished and nobody could be told: its handler is not called twice.
#[derive(Debug, Default)]
struct Handled {
    /// Events in a handler, with the last lease that came for them.
    running: HashMap<String, Lease>,
    /// Events whose handler had finished when their lease was void.
    done: DoneEvents,
}

type Shared = Arc<Mutex<Handled>>;

/// A handler that consumes. Dropping it ends it, without waiting for anything.
#[must_use = "dropping it ends it"]
#[derive(Debug)]
pub struct Consumer {
    subscription: Subscription,
    workers: JoinSet<()>,
    /// Keeps leases from running out; it ends with the consumer.
    _keeper: JoinSet<()>,
    stopping: watch::Sender<bool>,
}

impl Live {
    /// Consumes a topic with a handler: `Ok` acks the event, `Err` nacks it with the error's text as the reason, and so
    /// does a panic. An event that the handler has acked with a [commit](crate::Commit) is settled, whatever it returns.
    ///
    /// An event whose handler had finished when the line broke, and whose ack was not answered, is not handled again
    /// when it comes again.
    ///
    /// ```no_run
    /// # async fn example(live: prombus_client::Live) -> Result<(), prombus_client::ClientError> {
    /// use prombus_client::{ClientError, ConsumeOptions, Delivery};
    ///
    /// async fn bill(delivery: Delivery) -> Result<(), ClientError> {
    ///     let order: serde_json::Value = delivery.payload()?;
    ///     println!("{} owes {}", order["customer"], order["total"]);
    ///     Ok(())
    /// }
    ///
    /// let consumer = live.consume("orders", "billing", ConsumeOptions::earliest(), bill).await?;
    /// tokio::signal::ctrl_c().await.ok();
    /// consumer.stop().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn consume<H, F, E>(
        &self,
        topic: &str,
        group: &str,
        options: ConsumeOptions,
        handler: H,
    ) -> Result<Consumer, ClientError>
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        let subscription = self.subscribe(topic, group, options.subscribe).await?;
        let (stopping, stop) = watch::channel(false);
        let (handler, handled) = (Arc::new(handler), Shared::default());
        let mut workers = JoinSet::new();
        for _ in 0..options.concurrency.max(1) {
            let feed = subscription.feed.clone();
            workers.spawn(work(feed, handler.clone(), handled.clone(), stop.clone()));
        }
        let mut keeper = JoinSet::new();
        keeper.spawn(keep(subscription.feed.clone(), handled, options.extend_up_to));
        Ok(Consumer { subscription, workers, _keeper: keeper, stopping })
    }
}

impl Consumer {
    /// Takes no more events, waits until those in the handler are done and their acks answered, and ends the
    /// subscription.
    pub async fn stop(mut self) -> Result<(), ClientError> {
        self.stopping.send_replace(true);
        while self.workers.join_next().await.is_some() {}
        // Where the connection has ended, there is nothing to wait for.
        let failed = self.subscription.error();
        if failed.is_none() {
            self.subscription.drain().await?;
            return self.subscription.close().await;
        }
        failed.map_or(Ok(()), Err)
    }

    /// Waits until the consumer ends by itself, because the hub refuses it or the connection has ended, and says why.
    pub async fn ended(&mut self) -> Option<ClientError> {
        while self.workers.join_next().await.is_some() {}
        self.subscription.error()
    }

    /// The partitions that this member has, in a group with the mode `partitioned`.
    pub fn assigned(&self) -> watch::Receiver<Vec<u32>> {
        self.subscription.assigned()
    }
}

/// Extends leases of events that wait for the handler or are in it.
async fn keep(feed: Arc<Feed>, handled: Shared, up_to: Duration) {
    loop {
        let pause = feed.lease_time().await / LOOKS_PER_LEASE;
        // Leases run out by the clock, and that is what is waited for.
        tokio::time::sleep(pause.clamp(MIN_LOOK, MAX_LOOK)).await;
        let now = Instant::now();
        let mut extensions = feed.extensions(up_to, now);
        let running = |handled: &mut Handled| -> Vec<Settle> {
            handled.running.iter_mut().filter_map(|(id, lease)| lease.extension(id, up_to, now)).collect()
        };
        extensions.append(&mut running(&mut handled.lock()));
        if extensions.is_empty() {
            continue;
        }
        if feed.tell(Command::Extend { feed: feed.number, extensions }).await.is_err() {
            return;
        }
    }
}

/// Handles one event after the other.
async fn work<H, F, E>(feed: Arc<Feed>, handler: Arc<H>, handled: Shared, mut stop: watch::Receiver<bool>)
where
    H: Fn(Delivery) -> F,
    F: Future<Output = Result<(), E>>,
    E: Display,
{
    loop {
        let delivery = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            delivery = feed.next() => delivery,
        };
        let Some(delivery) = delivery else { return };
        let (id, lease) = (delivery.event.id.clone(), delivery.lease.clone());
        let settle = match begin(&mut handled.lock(), &id, &lease) {
            Begin::Elsewhere => continue,
            Begin::Done => Some((Verb::Ack, lease.clone())),
            Begin::Handle => None,
        };
        let (verb, lease) = match settle {
            Some(settle) => settle,
            None => {
                let verb = handle(&*handler, delivery).await;
                let lease = finish(&mut handled.lock(), &id, &verb, lease);
                (verb, lease)
            }
        };
        if lease.token.is_settled() {
            // The handler has acked it with a commit.
            continue;
        }
        let settle = Settle { verb, token: lease.token, line: lease.line, event: id, done: None };
        if feed.tell(Command::Settle { feed: feed.number, settle }).await.is_err() {
            return;
        }
    }
}

/// What to do with an event that has come.
enum Begin {
    Handle,
    /// Another worker has it, and settles it with this lease.
    Elsewhere,
    /// It needs only to be acked.
    Done,
}

fn begin(handled: &mut Handled, id: &str, lease: &Lease) -> Begin {
    if let Some(newer) = handled.running.get_mut(id) {
        *newer = lease.clone();
        return Begin::Elsewhere;
    }
    if handled.done.take(id, Instant::now()) {
        return Begin::Done;
    }
    handled.running.insert(id.to_owned(), lease.clone());
    Begin::Handle
}

/// The lease to settle an event with that was handled.
fn finish(handled: &mut Handled, id: &str, verb: &Verb, lease: Lease) -> Lease {
    let lease = handled.running.remove(id).unwrap_or(lease);
    if lease.token.is_settled() {
        return lease;
    }
    if *verb == Verb::Ack && lease.line != lease.feed.line.load(Ordering::SeqCst) {
        handled.done.remember(id.to_owned(), Instant::now());
    }
    lease
}

/// What the handler makes of a delivery.
async fn handle<H, F, E>(handler: &H, delivery: Delivery) -> Verb
where
    H: Fn(Delivery) -> F,
    F: Future<Output = Result<(), E>>,
    E: Display,
{
    let work = AssertUnwindSafe(async { handler(delivery).await });
    match work.catch_unwind().await {
        Ok(Ok(())) => Verb::Ack,
        Ok(Err(error)) => nack(&error.to_string(), None),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            nack(&format!("the handler panicked: {text}"), None)
        }
    }
}
