//! Subscriptions: a handler that gets the events of a group, in this process.

use super::group::Group;
use super::handler::{Handler, HandlerError};
use super::pull::{MAX_WAIT, Present, Pull};
use super::registry::{GroupCall, Groups};
use super::settling::SettleCall;
use super::state::{Delivery, Settle};
use super::{GroupError, GroupName};
use prombus_core::{Event, Partition, TopicName};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// How long to wait before a group that failed is asked for again.
const FAILURE_PAUSE: Duration = Duration::from_millis(200);

/// Who acks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// What a handler did without an error is acked, everything else nacked.
    Automatic,
    /// The handler does it itself; a failure that it returns is still nacked.
    Manual,
}

/// Is told when a member of a partitioned group gets and loses partitions.
pub trait Rebalance: Send + Sync + 'static {
    /// These are the member's now.
    fn assigned(&self, partitions: &[Partition]);
    /// These no longer are; leases on their events are void.
    fn revoked(&self, partitions: &[Partition]);
}

/// How a handler consumes.
#[derive(Clone)]
pub struct ConsumerOptions {
    /// What the group is to be, and where a new one starts.
    pub group: GroupCall,
    /// Who this is.
    pub member: Option<String>,
    /// How many events are fetched at once.
    pub batch: usize,
    /// How many are handled at once.
    pub max_in_flight: usize,
    /// Who acks.
    pub acks: Acks,
    /// Who is told of partitions that come and go.
    pub rebalance: Option<Arc<dyn Rebalance>>,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self {
            group: GroupCall::default(),
            member: None,
            batch: 100,
            max_in_flight: 1_000,
            acks: Acks::Automatic,
            rebalance: None,
        }
    }
}

/// An event as a handler gets it. Cheap to clone.
#[derive(Clone)]
pub struct Received {
    delivery: Arc<Delivery>,
    group: Arc<Group>,
}

impl Received {
    /// The event.
    pub fn event(&self) -> &Event {
        &self.delivery.event
    }

    /// Counts its deliveries, from 1.
    pub fn attempt(&self) -> u32 {
        self.delivery.attempt
    }

    /// Says that it is done. `false`: the lease has expired, and someone else may get the event.
    pub async fn ack(&self) -> Result<bool, GroupError> {
        self.settle(Settle::Ack(self.delivery.lease)).await
    }

    /// Says that it failed.
    pub async fn nack(&self, error: HandlerError) -> Result<bool, GroupError> {
        let HandlerError { reason, delay, hopeless } = error;
        let lease = self.delivery.lease;
        self.settle(match hopeless {
            true => Settle::Bury { lease, reason },
            false => Settle::Nack { lease, reason: Some(reason.into()), delay },
        })
        .await
    }

    /// Asks for more time.
    pub async fn extend(&self, by: Option<Duration>) -> Result<bool, GroupError> {
        self.settle(Settle::Extend { lease: self.delivery.lease, by }).await
    }

    async fn settle(&self, settle: Settle) -> Result<bool, GroupError> {
        let results = self.group.settle(SettleCall { settles: vec![Some(settle)] }).await?;
        Ok(results.first().is_some_and(|result| result.is_done()))
    }
}

/// A handler at work.
pub struct Subscription {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Subscription {
    /// Fetches no more, and waits until what is in flight is handled.
    pub async fn unsubscribe(self) {
        self.stop.send_replace(true);
        // It ends by itself, and a panic in it was told already.
        let _ = self.task.await;
    }
}

/// What one subscription needs.
pub struct Consumer<H> {
    groups: Arc<Groups>,
    topic: TopicName,
    name: GroupName,
    handler: Arc<H>,
    options: ConsumerOptions,
    owned: Vec<Partition>,
}

impl<H: Handler> Consumer<H> {
    /// A consumer of a group.
    pub fn new(
        groups: Arc<Groups>,
        topic: TopicName,
        name: GroupName,
        handler: H,
        options: ConsumerOptions,
    ) -> Self {
        Self { groups, topic, name, handler: Arc::new(handler), options, owned: Vec::new() }
    }

    /// Starts it. Fails at once where the group cannot be had.
    pub async fn start(self) -> Result<Subscription, GroupError> {
        let (group, _) = self.groups.get_or_make(&self.topic, &self.name, &self.options.group).await?;
        let present = group.enter(self.options.member.as_deref().unwrap_or_default())?;
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(self.run(present, stopped));
        Ok(Subscription { stop, task })
    }

    async fn run(mut self, mut present: Present, mut stopped: watch::Receiver<bool>) {
        let mut handling = JoinSet::new();
        let member = self.options.member.clone().unwrap_or_default();
        let mut group = present.group().clone();
        let mut moves = group.assignments();
        // It has partitions already.
        moves.mark_changed();
        while !*stopped.borrow() && !self.groups.is_closing() {
            while handling.try_join_next().is_some() {}
            if handling.len() >= self.options.max_in_flight {
                handling.join_next().await;
                continue;
            }
            let pull = self.pull(self.options.max_in_flight - handling.len());
            let pulled = tokio::select! {
                pulled = present.pull(&pull) => pulled,
                _ = moves.changed() => {
                    self.tell_moves(&group);
                    continue;
                }
                _ = stopped.changed() => break,
            };
            self.tell_moves(&group);
            match pulled {
                Ok(deliveries) => {
                    for delivery in deliveries {
                        let received = Received { delivery: Arc::new(delivery), group: group.clone() };
                        handling.spawn(handle(self.handler.clone(), received, self.options.acks));
                    }
                }
                Err(error) => {
                    tracing::warn!(topic = %self.topic, group = %self.name, %error, "a subscription was refused events; resolving its group again");
                    // The group is read anew; if that is in vain, too, there is no hurry.
                    tokio::time::sleep(FAILURE_PAUSE).await;
                    let rejoined = self.groups.rejoin(&self.topic, &self.name, &self.options.group).await;
                    if let Ok(entered) = rejoined.and_then(|group| group.enter(&member)) {
                        group = entered.group().clone();
                        (moves, present) = (group.assignments(), entered);
                        moves.mark_changed();
                    }
                }
            }
        }
        while handling.join_next().await.is_some() {}
        drop(present);
        self.tell(Vec::new());
    }

    fn pull(&self, room: usize) -> Pull {
        Pull {
            member: self.options.member.clone(),
            max: self.options.batch.min(room).max(1),
            wait: MAX_WAIT,
            max_in_flight: self.options.max_in_flight,
        }
    }

    fn tell_moves(&mut self, group: &Group) {
        if self.options.rebalance.is_some() {
            self.tell(group.owned_by(self.options.member.as_deref().unwrap_or_default()));
        }
    }

    fn tell(&mut self, owned: Vec<Partition>) {
        let Some(rebalance) = &self.options.rebalance else { return };
        let without = |all: &[Partition], others: &[Partition]| -> Vec<Partition> {
            all.iter().copied().filter(|partition| !others.contains(partition)).collect()
        };
        let (lost, gained) = (without(&self.owned, &owned), without(&owned, &self.owned));
        if !lost.is_empty() {
            rebalance.revoked(&lost);
        }
        if !gained.is_empty() {
            rebalance.assigned(&gained);
        }
        self.owned = owned;
    }
}

async fn handle<H: Handler>(handler: Arc<H>, received: Received, acks: Acks) {
    let settled = match (handler.handle(received.clone()).await, acks) {
        (Ok(()), Acks::Manual) => return,
        (Ok(()), Acks::Automatic) => received.ack().await,
        (Err(error), _) => received.nack(error).await,
    };
    if let Err(error) = settled {
        tracing::warn!(event = %received.event().id, %error, "failed to settle an event after its handler finished");
    }
}
