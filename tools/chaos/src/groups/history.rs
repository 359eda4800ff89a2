//! Calls to groups and their answers, with the time before and after each call. The hub acted at some moment between the
//! two.

use std::collections::HashMap;
use std::time::Instant;
use uuid::Uuid;

/// Microseconds since the run started.
pub type Micros = u64;

/// The one clock that all times are of.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time.
    pub fn now(&self) -> Micros {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// Where an event is: its partition and its offset.
pub type EventPosition = (u32, u64);

/// When a call was made: in which life of the hub, counted from 0, and between which times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The life.
    pub life: u32,
    /// Before the call.
    pub start: Micros,
    /// After it.
    pub end: Micros,
}

/// An event that a pull brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The pull.
    pub pull: Span,
    /// Who pulled.
    pub member: String,
    /// Where the event is.
    pub spot: EventPosition,
    /// Its id.
    pub id: Uuid,
    /// Counts deliveries.
    pub attempt: u32,
    /// The token.
    pub lease: String,
}

/// A pull that may have brought something, and nobody knows what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostPull {
    /// From before the call until it is certainly over.
    pub pull: Span,
    /// Whether the one who pulled went away, and not the hub.
    pub dropped: bool,
}

/// What is said of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// It is done.
    Ack,
    /// It failed.
    Nack,
    /// It takes so many microseconds longer.
    Extend(u64),
}

/// The outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It was accepted.
    Ok,
    /// It was refused.
    Refused,
    /// Nobody knows.
    Unanswered,
}

/// Something that was said of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// When.
    pub call: Span,
    /// The token.
    pub lease: String,
    /// What.
    pub verb: Verb,
    /// Why, where it is a nack.
    pub reason: String,
    /// When to try again, in microseconds, where it is a nack that says so.
    pub delay_us: Option<u64>,
    /// The outcome.
    pub answer: Answer,
}

/// All that happened with one group.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// What it delivered.
    pub deliveries: Vec<Delivery>,
    /// What it may have delivered.
    pub lost: Vec<LostPull>,
    /// What it was told.
    pub said: Vec<Said>,
}

impl History {
    /// Takes in what someone else recorded.
    pub fn absorb(&mut self, other: Self) {
        self.deliveries.extend(other.deliveries);
        self.lost.extend(other.lost);
        self.said.extend(other.said);
    }
}

/// An event that is in a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Where it is.
    pub spot: EventPosition,
    /// Its id.
    pub id: Uuid,
    /// Its key.
    pub key: Option<String>,
    /// Who published it.
    pub producer: String,
    /// Counts what that one published.
    pub number: u64,
    /// Before it was published.
    pub since: Micros,
}

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// The group that failed.
    pub group: String,
    /// The event.
    pub spot: EventPosition,
    /// Its id.
    pub id: Uuid,
    /// What caused the letter.
    pub caused_by: Vec<Uuid>,
    /// How often it was delivered.
    pub attempts: u32,
    /// Why it failed.
    pub err: String,
}

/// What producers sent: who, and which of theirs; before when, and whether that was answered.
pub type Published = HashMap<(String, u64), (Micros, bool)>;
