//! The commands that the users of a connection send to its task.

use super::event_text::EventText;
use super::failure::Failure;
use super::feed::Feed;
use super::session::RetryState;
use super::settle::{Lease, Settle};
use crate::{Committed, Published};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

/// What an event of a frame has beside its own text.
const EXTRA_BYTES: usize = 16;
/// Maximum number of failures that are kept for a flush; further ones are counted.
const MAX_TOLD: usize = 1_000;

/// Tells one caller that something is done.
pub(crate) type Done = oneshot::Sender<Result<(), Failure>>;

/// The window of a publisher: how much may be in flight.
#[derive(Debug)]
pub(crate) struct Window {
    pub room: Semaphore,
    /// Failures that no flush has reported yet.
    pub failed: Mutex<Failed>,
}

/// Events that failed.
#[derive(Debug, Default)]
pub(crate) struct Failed {
    /// The first of them, with their ids.
    pub first: Vec<(String, Failure)>,
    /// How many more there are.
    pub more: u64,
}

/// A slot in a window, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct WindowSlot(pub Arc<Window>);

impl WindowSlot {
    fn fail(&self, event: &EventText, failure: &Failure) {
        let mut failed = self.0.failed.lock();
        if failed.first.len() < MAX_TOLD {
            failed.first.push((event.id(), failure.clone()));
        } else {
            failed.more += 1;
        }
    }
}

impl Drop for WindowSlot {
    fn drop(&mut self) {
        self.0.room.add_permits(1);
    }
}

/// An event in flight.
#[derive(Debug)]
pub(crate) struct Entry {
    pub event: EventText,
    /// Since when it waits in its stream.
    pub since: Option<Instant>,
    /// `None` once it is known what came of it.
    done: Option<oneshot::Sender<Result<Published, Failure>>>,
    place: Option<WindowSlot>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.done.is_some()
            && let Some(place) = &self.place
        {
            // A flush must not take an event for done that was lost on its way.
            place.fail(&self.event, &Failure::ended("it ended before this was answered"));
        }
    }
}

impl Entry {
    /// An event, who wants to know the outcome, and the place that it takes in a window.
    pub fn new(
        event: EventText,
        done: oneshot::Sender<Result<Published, Failure>>,
        place: Option<WindowSlot>,
    ) -> Self {
        Self { event, since: None, done: Some(done), place }
    }

    /// About how many bytes it has in a frame of several.
    pub fn bytes(&self) -> usize {
        self.event.len() + EXTRA_BYTES
    }

    /// Reports the outcome, and returns its slot, which is free when that is dropped.
    pub fn answer(mut self, result: Result<Published, Failure>) -> Option<WindowSlot> {
        if let (Some(place), Err(failure)) = (&self.place, &result) {
            place.fail(&self.event, failure);
        }
        if let Some(done) = self.done.take() {
            // Nobody may be waiting any more.
            let _ = done.send(result);
        }
        self.place.take()
    }
}

/// Who publishes a stream of events.
#[derive(Debug)]
pub(crate) struct Producer {
    pub number: u64,
    pub topic: Arc<str>,
    /// Maximum number of events in a frame.
    pub batch: usize,
    /// How long a frame waits to get full.
    pub linger: Duration,
    /// Whether a frame is waited for before the next one is sent.
    pub ordered: bool,
    /// How many wait for everything to be answered; then no frame waits to get full.
    pub flushing: AtomicUsize,
}

/// A commit in flight.
#[derive(Debug)]
pub(crate) struct Committing {
    /// What is sent, as JSON. It has an id, so that it can be sent again and happens once.
    pub body: String,
    /// The leases that it settles and this process holds.
    pub leases: Vec<Lease>,
    pub patience: RetryState,
    pub done: oneshot::Sender<Result<Committed, Failure>>,
}

impl Committing {
    /// Tells the outcome.
    pub fn answer(self, result: Result<Committed, Failure>) {
        let is_refused = matches!(&result, Err(Failure::Hub(error)) if error.is_lease_expired());
        for lease in &self.leases {
            if result.is_ok() {
                lease.token.settle();
            } else if is_refused {
                lease.token.refuse();
            }
        }
        // Nobody may be waiting any more.
        let _ = self.done.send(result);
    }
}

/// A command for a connection.
#[derive(Debug)]
pub(crate) enum Command {
    /// Publish one event.
    Publish {
        topic: Arc<str>,
        entry: Entry,
    },
    /// Publish events, all or none.
    PublishAll {
        topic: Arc<str>,
        entries: Vec<Entry>,
    },
    /// Publish an event of a stream.
    Stream {
        producer: Arc<Producer>,
        entry: Entry,
    },
    /// Let several things happen together, or not at all.
    Commit(Committing),
    Subscribe {
        feed: Arc<Feed>,
        done: Done,
    },
    Unsubscribe {
        feed: u64,
        done: Done,
    },
    Settle {
        feed: u64,
        settle: Settle,
    },
    /// Let leases hold longer.
    Extend {
        feed: u64,
        extensions: Vec<Settle>,
    },
    /// Say when all that was settled is answered.
    Drain {
        feed: u64,
        done: Done,
    },
    Pause {
        feed: u64,
        pause: bool,
        done: Done,
    },
}
