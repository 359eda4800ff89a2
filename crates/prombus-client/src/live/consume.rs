//! Consuming with a handler, whose result decides whether the event is acked.

use super::Live;
use super::delivery::Delivery;
use super::feed::FeedEnd;
use super::handling::{HandlerState, work};
use super::lease_extension::{EXTEND_UP_TO, extend_leases};
use super::subscription::{SubscribeOptions, Subscription};
use crate::ClientError;
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Options of a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumeOptions {
    /// Options of its subscription.
    pub subscribe: SubscribeOptions,
    /// How long the lease of an event is extended while it is being handled (10 minutes), so that a slow handler does
    /// not get it twice. Leases of events queued for the handler are extended too, unless it has taken none for this
    /// long; then the hub redelivers them to other members.
    pub extend_up_to: Duration,
    /// Number of events handled in parallel (1). Events of the same key are still handled one at a time, unless the
    /// group's `ordering` says otherwise.
    pub concurrency: usize,
}

impl Default for ConsumeOptions {
    fn default() -> Self {
        Self { subscribe: SubscribeOptions::default(), extend_up_to: EXTEND_UP_TO, concurrency: 1 }
    }
}

impl ConsumeOptions {
    /// Sets the number of events handled in parallel.
    #[must_use]
    pub fn with_concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Sets how long the lease of an event is extended while it is being handled.
    #[must_use]
    pub fn with_extend_up_to(mut self, time: Duration) -> Self {
        self.extend_up_to = time;
        self
    }
}

/// A running handler. Dropping it stops it, without waiting for anything.
#[must_use = "dropping it ends it"]
#[derive(Debug)]
pub struct Consumer {
    subscription: Subscription,
    workers: JoinSet<()>,
    stopping: watch::Sender<bool>,
}

impl Live {
    /// Consumes a topic with a handler: `Ok` acks the event, `Err` nacks it with the error's text as the reason, and so
    /// does a panic. An event that the handler has acked with a [commit](crate::Commit) is settled, whatever it returns.
    ///
    /// An ack or nack that the hub refuses temporarily, because its disk is full for example, is retried while the
    /// lease lasts, which is extended like that of an event being handled
    /// ([`extend_up_to`](ConsumeOptions::extend_up_to)), and a warning is logged.
    ///
    /// An event whose handler had finished when the connection broke, and whose ack was unanswered, is not handled
    /// again when it is redelivered. If a commit that acks the event was refused because a lease has expired, or failed
    /// and the lease is gone, nothing of it has happened: whatever the handler returns then, the event is handled
    /// again, and no attempt is counted.
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
        let mut subscription = self.open(topic, group, options.subscribe).await?;
        let (stopping, stop) = watch::channel(false);
        let (handler, up_to) = (Arc::new(handler), options.extend_up_to);
        let desk = Arc::new(HandlerState::new(subscription.feed.clone(), stop, up_to));
        let mut workers = JoinSet::new();
        for _ in 0..options.concurrency.max(1) {
            workers.spawn(work(desk.clone(), handler.clone()));
        }
        let feed = subscription.feed.clone();
        subscription.keeper.spawn(extend_leases(feed, up_to, move |now| desk.extensions(now)));
        Ok(Consumer { subscription, workers, stopping })
    }
}

impl Consumer {
    /// Takes no more events, waits until those being handled are done and their acks answered, and ends the
    /// subscription. Acks that the hub refuses are no longer retried: their events go to other members.
    pub async fn stop(mut self) -> Result<(), ClientError> {
        self.stopping.send_replace(true);
        while self.workers.join_next().await.is_some() {}
        match self.subscription.feed.ended() {
            None => {
                self.subscription.drain().await?;
                self.subscription.close().await
            }
            // Where the connection has ended, there is nothing to wait for.
            Some(FeedEnd::Closed) => Ok(()),
            Some(FeedEnd::Failed(failure)) => Err(failure.into()),
        }
    }

    /// Waits until the consumer ends on its own, because the hub refuses it or the connection has ended, and returns
    /// the reason.
    pub async fn ended(&mut self) -> Option<ClientError> {
        while self.workers.join_next().await.is_some() {}
        self.subscription.error()
    }

    /// The partitions assigned to this member, in a group with the mode `partitioned`.
    pub fn assigned(&self) -> watch::Receiver<Vec<u32>> {
        self.subscription.assigned()
    }
}
