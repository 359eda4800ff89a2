//! A long-lived connection that reconnects automatically, for windowed publishing and subscriptions.
//!
//! ```no_run
//! # async fn example() -> Result<(), prombus_client::ClientError> {
//! use prombus_client::{Client, NewEvent, SubscribeOptions};
//!
//! let live = Client::new("http://127.0.0.1:7070", None)?.connect().await?;
//! live.publish("orders", &NewEvent::of("hello")?.with_key("7")).await?;
//!
//! let mut orders = live.subscribe("orders", "billing", SubscribeOptions::earliest()).await?;
//! while let Some(delivery) = orders.next().await {
//!     println!("{}", delivery.event.payload);
//!     delivery.ack().await?;
//! }
//! # Ok(())
//! # }
//! ```

mod command;
mod commit;
mod consume;
mod delivery;
mod dial;
mod done_events;
mod driver;
mod event_text;
mod failure;
mod feed;
mod group_options;
mod handling;
mod inbox;
mod later;
mod lease_extension;
mod options;
mod publisher;
mod session;
pub(crate) mod settle;
mod state;
mod subscription;

pub use consume::{ConsumeOptions, Consumer};
pub use delivery::Delivery;
pub use options::{Backoff, LiveOptions};
pub use publisher::{PendingPublish, Publisher, PublisherOptions};
pub use settle::Settled;
pub use state::LiveState;
pub use subscription::{SubscribeOptions, Subscription};

use crate::{Client, ClientError, NewEvent, Published};
use command::{Command, Entry};
use dial::dial;
use driver::Driver;
use event_text::EventText;
use failure::Failure;
use inbox::Inbox;
use later::later;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;

/// Maximum number of commands that wait for the connection's task; beyond that, their senders wait.
const MAX_COMMANDS: usize = 4_096;

/// A connection to a hub over a WebSocket, which a single task owns. Cheap to clone; clones share it.
///
/// If the WebSocket breaks, the task reconnects with the current token, resubscribes, and resends whatever was
/// unanswered. The connection ends when it is closed, when the last clone (with its publishers and subscriptions) is
/// dropped, or when the hub refuses it permanently.
#[derive(Debug, Clone)]
pub struct Live {
    /// For publishes.
    commands: mpsc::Sender<Command>,
    /// For everything else, which must not wait behind publishes.
    control: mpsc::Sender<Command>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: watch::Receiver<LiveState>,
    closing: watch::Sender<bool>,
    left: Arc<Notify>,
    numbers: AtomicU64,
}

impl Client {
    /// Opens a long-lived connection. If the hub does not answer, that is an error here; later, the client keeps
    /// reconnecting.
    pub async fn connect(&self) -> Result<Live, ClientError> {
        self.connect_with(LiveOptions::default()).await
    }

    /// The same as [`Client::connect`], with options.
    pub async fn connect_with(&self, options: LiveOptions) -> Result<Live, ClientError> {
        let give_up = later(Instant::now(), options.wait_for_hub);
        let mut backoff = Backoff::new(&options);
        let line = loop {
            let error = match dial(self).await {
                Ok(line) => break line,
                Err(error) => error,
            };
            let left = give_up.saturating_duration_since(Instant::now());
            if error.is_final() || left.is_zero() {
                return Err(error.into_error(self.url()));
            }
            // The hub may be starting.
            tokio::time::sleep(backoff.next(fastrand::f64()).min(left)).await;
        };
        let (commands, publishes) = mpsc::channel(MAX_COMMANDS);
        let (control, asked) = mpsc::channel(MAX_COMMANDS);
        let (state, seen) = watch::channel(LiveState::Connected);
        let (closing, close) = watch::channel(false);
        let left = Arc::new(Notify::new());
        let driver = Driver {
            client: self.clone(),
            options,
            inbox: Inbox { publishes, control: asked },
            left: left.clone(),
            closing: close,
            state,
        };
        tokio::spawn(driver.run(line));
        let shared = Shared { state: seen, closing, left, numbers: AtomicU64::new(1) };
        Ok(Live { commands, control, shared: Arc::new(shared) })
    }
}

impl Live {
    /// The state of the connection.
    pub fn state(&self) -> LiveState {
        self.shared.state.borrow().clone()
    }

    /// The state of the connection, and notification of changes.
    ///
    /// ```no_run
    /// # async fn example(live: prombus_client::Live) {
    /// let mut state = live.watch();
    /// while state.changed().await.is_ok() {
    ///     println!("{}", *state.borrow_and_update());
    /// }
    /// # }
    /// ```
    pub fn watch(&self) -> watch::Receiver<LiveState> {
        self.shared.state.clone()
    }

    /// Publishes one event. An event without an id gets one, so that it can be resent if the connection breaks or the
    /// hub is busy (`rate_limited`, `unavailable`) and is still stored once; `duplicate` then says that the first
    /// attempt had arrived. Retries continue until [`LiveOptions::give_up_after`].
    pub async fn publish(&self, topic: &str, event: &NewEvent) -> Result<Published, ClientError> {
        let (done, answered) = oneshot::channel();
        let entry = Entry::new(EventText::new(event)?, done, None);
        self.send(Command::Publish { topic: topic.into(), entry }).await?;
        PendingPublish(answered).await
    }

    /// Publishes several events, all or none. They are resent like those of [`Live::publish`].
    pub async fn publish_batch(
        &self,
        topic: &str,
        events: &[NewEvent],
    ) -> Result<Vec<Published>, ClientError> {
        let (mut entries, mut pending) = (Vec::new(), Vec::new());
        for event in events {
            let (done, answered) = oneshot::channel();
            entries.push(Entry::new(EventText::new(event)?, done, None));
            pending.push(PendingPublish(answered));
        }
        if !entries.is_empty() {
            self.send(Command::PublishAll { topic: topic.into(), entries }).await?;
        }
        let mut published = Vec::with_capacity(pending.len());
        for pending in pending {
            published.push(pending.await?);
        }
        Ok(published)
    }

    /// Waits for outstanding answers, returns the events that subscriptions hold, and closes the connection for all of
    /// its clones.
    pub async fn close(self) {
        self.shared.closing.send_replace(true);
        let mut state = self.shared.state.clone();
        drop((self.commands, self.control));
        // The task may be gone already, and the state with it.
        let _ = state.wait_for(LiveState::is_ended).await;
    }

    /// A number for a publisher or a subscription.
    fn number(&self) -> u64 {
        self.shared.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Hands a publish to the connection's task.
    async fn send(&self, publish: Command) -> Result<(), Failure> {
        self.commands.send(publish).await.map_err(|_| self.ended())
    }

    /// Hands anything else to the connection's task.
    async fn tell(&self, command: Command) -> Result<(), Failure> {
        self.control.send(command).await.map_err(|_| self.ended())
    }

    /// Why the connection accepts no more commands.
    fn ended(&self) -> Failure {
        match self.state() {
            LiveState::Ended { reason } => Failure::ended(reason),
            _ => Failure::Closed,
        }
    }
}
