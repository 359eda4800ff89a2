//! Consuming with a handler: what it returns decides what becomes of the event.

use super::Live;
use super::delivery::Delivery;
use super::handling::{Desk, keep, work};
use super::subscription::{SubscribeOptions, Subscription};
use crate::ClientError;
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// For how long leases are extended where nothing is said.
const EXTEND_UP_TO: Duration = Duration::from_secs(600);

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
    /// So many events are handled at once.
    #[must_use]
    pub fn with_concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// For so long the leases of events that wait for the handler, or are in it, are extended.
    #[must_use]
    pub fn with_extend_up_to(mut self, time: Duration) -> Self {
        self.extend_up_to = time;
        self
    }
}

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
    /// when it comes again. Where a commit that acks the event was refused because a lease has expired, or failed and
    /// the lease is gone, nothing of it has happened: whatever the handler returns then, the event is handled again,
    /// and no attempt is counted.
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
        let (handler, desk) = (Arc::new(handler), Arc::new(Desk::new(subscription.feed.clone(), stop)));
        let mut workers = JoinSet::new();
        for _ in 0..options.concurrency.max(1) {
            workers.spawn(work(desk.clone(), handler.clone()));
        }
        let mut keeper = JoinSet::new();
        keeper.spawn(keep(desk, options.extend_up_to));
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
