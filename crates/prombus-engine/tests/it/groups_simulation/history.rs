//! What everyone saw, in the order in which they saw it.

use parking_lot::Mutex;
use prombus_core::Epoch;
use prombus_engine::groups::{LeaseToken, Settle};
use std::fmt;
use std::time::Duration;

/// Partition and offset.
pub type EventPosition = (u32, u64);

/// One delivery.
#[derive(Clone)]
pub struct Delivered {
    pub place: EventPosition,
    /// What the payload says.
    pub number: u64,
    pub member: Option<String>,
    pub lease: LeaseToken,
    pub attempt: u32,
    pub deadline: Duration,
    pub max_in_flight: usize,
    /// When it was asked for.
    pub asked: Duration,
    /// Whether the group said, at that moment, that the member owns the partition.
    pub owned: bool,
}

/// One thing that happened.
#[derive(Clone)]
pub enum Entry {
    /// The group was loaded, for the first time or anew, in this epoch of its home, and is now seen for the first time.
    Loaded(Epoch),
    Delivered(Delivered),
    /// Someone starts to say something of deliveries.
    Said {
        call: usize,
        settles: Vec<Settle>,
    },
    /// What was answered; `None` is an error.
    Answered {
        call: usize,
        results: Option<Vec<bool>>,
    },
    GaveBack {
        leases: Vec<LeaseToken>,
        lost_connection: bool,
    },
    /// The hub is gone, with everything that it did.
    Killed,
}

/// With when, and which load of the group it went through.
#[derive(Clone)]
pub struct Stamped {
    pub at: Duration,
    pub load: usize,
    /// How often the partitions of that load had got other owners.
    pub moves: u64,
    pub entry: Entry,
}

impl Stamped {
    /// Whether this has to do with an event.
    pub fn is_about(&self, place: EventPosition, all: &[Stamped]) -> bool {
        let delivered = |lease: &LeaseToken| {
            all.iter().any(|other| match &other.entry {
                Entry::Delivered(d) => d.place == place && d.lease == *lease,
                _ => false,
            })
        };
        match &self.entry {
            Entry::Delivered(d) => d.place == place,
            Entry::Said { settles, .. } => settles.iter().any(|settle| delivered(&lease_of(settle))),
            Entry::Answered { call, .. } => all.iter().any(|other| match &other.entry {
                Entry::Said { call: said, .. } if said == call => other.is_about(place, all),
                _ => false,
            }),
            Entry::GaveBack { leases, .. } => leases.iter().any(delivered),
            Entry::Loaded(_) | Entry::Killed => true,
        }
    }
}

/// The lease that something is said of.
pub fn lease_of(settle: &Settle) -> LeaseToken {
    match settle {
        Settle::Ack(lease)
        | Settle::Nack { lease, .. }
        | Settle::Bury { lease, .. }
        | Settle::Extend { lease, .. } => *lease,
    }
}

impl fmt::Debug for Stamped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9.1?} load {} {:?}", self.at, self.load, self.entry)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |lease: &LeaseToken| format!("{}-{}", lease.session.epoch, lease.number);
        match self {
            Self::Loaded(epoch) => write!(f, "loaded in epoch {epoch}"),
            Self::Delivered(d) => write!(
                f,
                "{:?} (number {}) to {:?}: attempt {}, lease {} until {:?}",
                d.place,
                d.number,
                d.member,
                d.attempt,
                short(&d.lease),
                d.deadline
            ),
            Self::Said { call, settles } => {
                write!(f, "call {call}:")?;
                settles.iter().try_for_each(|settle| match settle {
                    Settle::Ack(lease) => write!(f, " ack {}", short(lease)),
                    Settle::Nack { lease, delay, .. } => write!(f, " nack {} {delay:?}", short(lease)),
                    Settle::Bury { lease, .. } => write!(f, " bury {}", short(lease)),
                    Settle::Extend { lease, by } => write!(f, " extend {} {by:?}", short(lease)),
                })
            }
            Self::Answered { call, results } => write!(f, "call {call} answered {results:?}"),
            Self::GaveBack { leases, lost_connection } => {
                let leases: Vec<String> = leases.iter().map(short).collect();
                write!(f, "gave back {leases:?}, lost connection: {lost_connection}")
            }
            Self::Killed => write!(f, "killed"),
        }
    }
}

/// The history of one group while it is written.
#[derive(Default)]
pub struct History(Mutex<Vec<Stamped>>);

impl History {
    pub fn note(&self, entry: Stamped) {
        self.0.lock().push(entry);
    }

    pub fn all(&self) -> Vec<Stamped> {
        self.0.lock().clone()
    }

    /// A lease of long ago or just now.
    pub fn some_lease(&self, rng: &mut fastrand::Rng) -> Option<LeaseToken> {
        let entries = self.0.lock();
        let start = rng.usize(..entries.len().max(1));
        entries[start..].iter().find_map(|entry| match &entry.entry {
            Entry::Delivered(delivered) => Some(delivered.lease),
            _ => None,
        })
    }

    /// A number for a call.
    pub fn next_call(&self) -> usize {
        self.0.lock().len()
    }
}
