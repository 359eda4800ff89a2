//! Subscriptions: the deliveries of a group, one after the other.

use super::command::Command;
use super::delivery::Delivery;
use super::failure::Failure;
use super::feed::{Feed, FeedEnd, NewFeed};
use super::lease_extension::{EXTEND_UP_TO, extend_leases};
use super::{Live, Shared};
use crate::{ClientError, GroupOptionsRequest, HubError};
use prombus_wire::{ErrorCode, SubscribeOptions as WireOptions};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

/// The default number of deliveries that a subscription holds.
const DEFAULT_IN_FLIGHT: usize = 1_000;
/// Why patterns are refused: their deliveries name topics that this client does not expect.
const ONE_TOPIC: &str = "this client subscribes to one topic at a time; follow patterns with Client::tail";

/// Options of a subscription.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// Options of the group, if it does not exist yet. An existing group keeps its options, and refuses different ones.
    pub group: GroupOptionsRequest,
    /// The name of the member; by default, the connection has its own.
    pub member: Option<String>,
    /// Maximum number of deliveries per frame (100).
    pub batch_size: Option<usize>,
    /// Maximum number of unsettled deliveries held here (1,000).
    pub max_in_flight: Option<usize>,
}

impl SubscribeOptions {
    /// As the hub expects them.
    fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(&WireOptions {
            batch: Some(true),
            member: self.member.clone(),
            batch_size: self.batch_size,
            max_in_flight: Some(self.max_in_flight.unwrap_or(DEFAULT_IN_FLIGHT)),
            ..self.group.clone().into()
        })
    }
}

/// Deliveries of a group. It survives reconnects; dropping it ends it.
///
/// Leases of buffered deliveries are extended, as long as [`Subscription::next`] is called at least every 10 minutes.
/// Once it has returned a delivery, you have the group's `ack_timeout_ms` to process it; if you need longer, use
/// [`Delivery::extend`].
#[must_use = "dropping it ends it"]
#[derive(Debug)]
pub struct Subscription {
    pub(super) feed: Arc<Feed>,
    /// Keeps the connection up.
    live: Live,
    /// Extends leases; it ends with the subscription.
    pub(super) keeper: JoinSet<()>,
    _close_on_drop: CloseOnDrop,
}

/// Notifies the connection that the user is gone.
#[derive(Debug)]
struct CloseOnDrop(Arc<Feed>, Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.gone.store(true, Ordering::SeqCst);
        self.1.left.notify_one();
    }
}

impl Live {
    /// Consumes a topic as a member of a group, which is created if it does not exist. It takes a single topic: to
    /// follow patterns, see [`Client::tail`](crate::Client::tail).
    pub async fn subscribe(
        &self,
        topic: &str,
        group: &str,
        options: SubscribeOptions,
    ) -> Result<Subscription, ClientError> {
        let mut subscription = self.open(topic, group, options).await?;
        subscription.keeper.spawn(extend_leases(subscription.feed.clone(), EXTEND_UP_TO, |_| Vec::new()));
        Ok(subscription)
    }

    /// A subscription whose leases are not extended yet.
    pub(super) async fn open(
        &self,
        topic: &str,
        group: &str,
        options: SubscribeOptions,
    ) -> Result<Subscription, ClientError> {
        if topic.contains('*') {
            return Err(Failure::from(HubError::of_code(ErrorCode::BadRequest, ONE_TOPIC)).into());
        }
        let feed = Arc::new(Feed::new(NewFeed {
            number: self.number(),
            topic,
            group,
            opts: options.to_json()?,
            max_in_flight: options.max_in_flight.unwrap_or(DEFAULT_IN_FLIGHT).max(1),
            commands: self.control.downgrade(),
        }));
        // Made before it is asked for, so that it is ended even where nobody waits for the answer any more.
        let close_on_drop = CloseOnDrop(feed.clone(), self.shared.clone());
        let subscription = Subscription {
            feed: feed.clone(),
            live: self.clone(),
            keeper: JoinSet::new(),
            _close_on_drop: close_on_drop,
        };
        let (done, answered) = oneshot::channel();
        self.tell(Command::Subscribe { feed, done }).await?;
        answered.await.unwrap_or_else(|_| Err(self.ended()))?;
        Ok(subscription)
    }
}

impl Subscription {
    /// The next delivery; `None` if there will be no more: see [`Subscription::error`]. Deliveries whose lease expired
    /// in the buffer, because nothing was taken for too long, are skipped and logged; the hub redelivers them.
    pub async fn next(&mut self) -> Option<Delivery> {
        self.feed.next().await
    }

    /// The next delivery, if there is one now.
    pub fn try_next(&mut self) -> Option<Delivery> {
        self.feed.try_next().flatten()
    }

    /// Why there will be no more deliveries, unless that was requested.
    pub fn error(&self) -> Option<ClientError> {
        match self.feed.ended()? {
            FeedEnd::Closed => None,
            FeedEnd::Failed(failure) => Some(failure.into()),
        }
    }

    /// The partitions assigned to this member, in a group with the mode `partitioned`. Empty while disconnected.
    pub fn assigned(&self) -> watch::Receiver<Vec<u32>> {
        self.feed.assigned.subscribe()
    }

    /// Pauses deliveries. What was delivered stays.
    pub async fn pause(&self) -> Result<(), ClientError> {
        self.set_pause(true).await
    }

    /// Resumes deliveries.
    pub async fn resume(&self) -> Result<(), ClientError> {
        self.set_pause(false).await
    }

    async fn set_pause(&self, pause: bool) -> Result<(), ClientError> {
        Ok(self.ask(|done| Command::Pause { feed: self.feed.number, pause, done }).await?)
    }

    /// Waits until everything that was settled is answered, or its connection is gone.
    pub(super) async fn drain(&self) -> Result<(), Failure> {
        self.ask(|done| Command::Drain { feed: self.feed.number, done }).await
    }

    /// Ends the subscription. Unsettled events go to other members at once.
    pub async fn close(self) -> Result<(), ClientError> {
        Ok(self.ask(|done| Command::Unsubscribe { feed: self.feed.number, done }).await?)
    }

    async fn ask(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<(), Failure>>) -> Command,
    ) -> Result<(), Failure> {
        let (done, answered) = oneshot::channel();
        self.live.tell(command(done)).await?;
        answered.await.unwrap_or_else(|_| Err(self.live.ended()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LiveState;
    use futures::FutureExt;
    use std::sync::atomic::AtomicU64;
    use tokio::sync::{Notify, mpsc};

    /// A connection, and what it would ask of its task.
    fn live() -> (Live, mpsc::Receiver<Command>) {
        let (control, asked) = mpsc::channel(8);
        let shared = Shared {
            state: watch::channel(LiveState::Connected).1,
            closing: watch::channel(false).0,
            left: Arc::new(Notify::new()),
            numbers: AtomicU64::new(1),
        };
        (Live { commands: control.clone(), control, shared: Arc::new(shared) }, asked)
    }

    #[test]
    fn a_pattern_is_refused_before_anything_is_sent() {
        let (live, mut asked) = live();
        for topic in ["orders.*", "orders.**", "*"] {
            let subscribed = live.subscribe(topic, "g", SubscribeOptions::default()).now_or_never();
            let error = subscribed.expect("nothing to wait for").unwrap_err();
            assert_eq!(error.hub().unwrap().code, "bad_request");
            assert!(error.to_string().contains("Client::tail"), "{error}");
            assert!(asked.try_recv().is_err());
        }
    }

    #[test]
    fn options_are_what_the_hub_takes() {
        let options = SubscribeOptions::earliest().partitioned().with_filter("true").with_max_in_flight(7);
        let parsed: WireOptions = serde_json::from_str(&options.to_json().unwrap()).unwrap();
        assert_eq!((parsed.batch, parsed.max_in_flight), (Some(true), Some(7)));
        assert_eq!(GroupOptionsRequest::from(parsed.clone()), options.group);
        let plain: WireOptions =
            serde_json::from_str(&SubscribeOptions::default().to_json().unwrap()).unwrap();
        assert_eq!(GroupOptionsRequest::from(plain), GroupOptionsRequest::default());
    }
}
