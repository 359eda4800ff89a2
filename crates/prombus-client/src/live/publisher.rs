//! Publishing many events without waiting for each answer, within a window.

use super::command::{Command, Entry, Failed, Producer, Window, WindowSlot};
use super::event_text::EventText;
use super::failure::Failure;
use super::{Live, Shared};
use crate::{ClientError, FailedEvent, FlushError, NewEvent, Published};
use parking_lot::Mutex;
use std::borrow::Borrow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// The default window.
const DEFAULT_WINDOW: u32 = 1_000;
/// The default maximum number of events per frame: half a window, so that one half accumulates while the other is in
/// flight.
const DEFAULT_BATCH: usize = 500;
/// The largest window.
const MAX_WINDOW: u32 = 1_000_000;

/// Options of a publisher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublisherOptions {
    /// Maximum number of events in flight (1,000); beyond that, [`Publisher::send`] waits.
    pub window: u32,
    /// Maximum number of events per frame (500). A frame takes whatever is queued; it does not wait to fill up unless
    /// `linger` says so. With 1, every event has its own frame, which is slow together with `ordered`.
    pub batch: usize,
    /// How long a frame waits to fill up; by default not at all. A flush, and closing the connection, send at once.
    pub linger: Duration,
    /// Whether events are stored in the order in which they were sent even if some are refused, permanently or
    /// temporarily (the default). Each frame is then answered before the next one is sent. Without it, frames are
    /// pipelined, and retried events may end up behind later ones.
    pub ordered: bool,
}

impl Default for PublisherOptions {
    fn default() -> Self {
        Self { window: DEFAULT_WINDOW, batch: DEFAULT_BATCH, linger: Duration::ZERO, ordered: true }
    }
}

/// Publishes a stream of events to a topic. Clones share the window.
///
/// While the hub is busy (`rate_limited`, `unavailable`), events are resent, with the same ids and in the same order,
/// until [`LiveOptions::give_up_after`](crate::LiveOptions::give_up_after); meanwhile the window fills up, and
/// [`Publisher::send`] waits.
///
/// ```no_run
/// # async fn example(live: prombus_client::Live) -> Result<(), prombus_client::ClientError> {
/// use prombus_client::{NewEvent, PublisherOptions};
///
/// let publisher = live.publisher("measurements", PublisherOptions::default());
/// for n in 0..1_000_000 {
///     publisher.send(NewEvent::of(&n)?).await?;
/// }
/// publisher.flush().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Publisher {
    live: Live,
    producer: Arc<Producer>,
    window: Arc<Window>,
    size: u32,
    _close_on_drop: Arc<CloseOnDrop>,
}

/// Marks that someone waits for everything to be answered.
struct Flushing<'a>(&'a Producer);

impl<'a> Flushing<'a> {
    fn new(producer: &'a Producer) -> Self {
        producer.flushing.fetch_add(1, Ordering::SeqCst);
        Self(producer)
    }
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        self.0.flushing.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Notifies the connection when the last clone is dropped.
#[derive(Debug)]
struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.left.notify_one();
    }
}

impl Live {
    /// A publisher of many events to a topic.
    pub fn publisher(&self, topic: &str, options: PublisherOptions) -> Publisher {
        let size = options.window.clamp(1, MAX_WINDOW);
        let producer = Producer {
            number: self.number(),
            topic: topic.into(),
            // More than the window never gathers, so a frame with a window's worth is full.
            batch: options.batch.clamp(1, size as usize),
            linger: options.linger,
            ordered: options.ordered,
            flushing: AtomicUsize::new(0),
        };
        Publisher {
            live: self.clone(),
            producer: Arc::new(producer),
            window: Arc::new(Window { room: Semaphore::new(size as usize), failed: Mutex::default() }),
            size,
            _close_on_drop: Arc::new(CloseOnDrop(self.shared.clone())),
        }
    }
}

impl Publisher {
    /// Sends an event, and waits only for room in the window. What it returns has the outcome; if that is dropped,
    /// [`Publisher::flush`] still reports a failure.
    pub async fn send(&self, event: impl Borrow<NewEvent>) -> Result<PendingPublish, ClientError> {
        let event = EventText::new(event.borrow())?;
        // The window is never closed.
        let room = self.window.room.acquire().await.map_err(|_| self.live.ended())?;
        let permit = self.live.commands.reserve().await.map_err(|_| self.live.ended())?;
        room.forget();
        let place = Some(WindowSlot(self.window.clone()));
        let (done, answered) = oneshot::channel();
        permit
            .send(Command::Stream { producer: self.producer.clone(), entry: Entry::new(event, done, place) });
        Ok(PendingPublish(answered))
    }

    /// Waits until everything that was sent is answered. The error lists what has failed since the last flush, each
    /// event with its id. Frames do not wait to fill up in the meantime.
    pub async fn flush(&self) -> Result<(), FlushError> {
        let _flushing = Flushing::new(&self.producer);
        self.live.shared.left.notify_one();
        // Whoever has the whole window, which is never closed, knows that nothing is in flight.
        drop(self.window.room.acquire_many(self.size).await);
        let Failed { first, more } = std::mem::take(&mut *self.window.failed.lock());
        if first.is_empty() {
            return Ok(());
        }
        let told = |(id, failure): (String, Failure)| FailedEvent { id, error: failure.into() };
        Err(FlushError { failed: first.into_iter().map(told).collect(), more })
    }
}

/// The outcome of a publish: await it, or drop it if you do not need to know.
#[derive(Debug)]
pub struct PendingPublish(pub(super) oneshot::Receiver<Result<Published, Failure>>);

impl Future for PendingPublish {
    type Output = Result<Published, ClientError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = std::task::ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(Ok(answer.unwrap_or(Err(Failure::Closed))?))
    }
}
