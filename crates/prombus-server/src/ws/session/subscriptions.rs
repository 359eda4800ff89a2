//! The subscriptions of a connection and their limits: their number, the partitions that patterns cover, and memory.

use super::patterns::ByPattern;
use super::{Effect, Flow, Key};
use crate::error::ApiError;
use crate::memory::{ConnectionReservation, Memory};
use crate::ws::held::Held;
use prombus_core::Partition;
use prombus_engine::MAX_PARTITIONS;
use prombus_engine::groups::Pull;
use std::collections::HashMap;

/// The most subscriptions of a connection.
pub(super) const MAX_SUBSCRIPTIONS: usize = 10_000;
/// What a subscription takes, about, with the pull that waits for its events. Deliveries are counted as they come.
pub(super) const SUBSCRIPTION_BYTES: usize = 3 << 10;

#[derive(Debug)]
pub(super) struct Subscription {
    /// The pattern that it comes from, if it comes from one.
    pub by: Option<ByPattern>,
    /// Whether the group is there.
    pub made: bool,
    pub batch: bool,
    pub paused: bool,
    pub pull: Pull,
    pub held: Held,
    pub owned: Option<Vec<Partition>>,
}

impl Subscription {
    pub fn new(batch: bool, pull: Pull) -> Self {
        Self { by: None, made: false, batch, paused: false, pull, held: Held::default(), owned: None }
    }

    /// Pauses it or goes on with it: what is to be done.
    pub fn pause(&mut self, key: Key, flow: Flow) -> Option<Effect> {
        let pause = flow == Flow::Paused;
        if std::mem::replace(&mut self.paused, pause) == pause {
            None
        } else if pause {
            Some(Effect::Stop(key))
        } else {
            self.made.then(|| Effect::Pull(key, self.pull.clone()))
        }
    }

    fn partitions(&self) -> usize {
        self.by.as_ref().map_or(0, |by| by.partitions as usize)
    }
}

/// What a connection has subscribed to.
#[derive(Debug)]
pub(super) struct Subscriptions {
    all: HashMap<Key, Subscription>,
    /// How many partitions the topics have that patterns stand for.
    partitions: usize,
    reservation: ConnectionReservation,
}

impl Subscriptions {
    pub fn new(memory: &Memory) -> Self {
        Self { all: HashMap::new(), partitions: 0, reservation: ConnectionReservation::new(memory) }
    }

    /// Makes room for more of them, or refuses what a connection may not have. Whoever has it inserts them.
    pub fn reserve(&mut self, more: usize) -> Result<(), ApiError> {
        let count = self.all.len() + more;
        if count > MAX_SUBSCRIPTIONS {
            let message = format!("a connection may have at most {MAX_SUBSCRIPTIONS} subscriptions");
            return Err(ApiError::too_large(message));
        }
        self.reservation.resize(count * SUBSCRIPTION_BYTES)
    }

    /// The same for one topic that a pattern stands for.
    pub fn reserve_matching(&mut self, partitions: u32) -> Result<(), ApiError> {
        if self.partitions + partitions as usize > MAX_PARTITIONS {
            return Err(ApiError::too_large(format!(
                "the patterns of a connection may stand for {MAX_PARTITIONS} partitions; use narrower patterns, or \
                 several connections"
            )));
        }
        self.reserve(1)
    }

    pub fn insert(&mut self, key: Key, subscription: Subscription) {
        self.partitions += subscription.partitions();
        if let Some(before) = self.all.insert(key, subscription) {
            self.partitions -= before.partitions();
        }
    }

    pub fn remove(&mut self, key: &Key) -> Option<Subscription> {
        let subscription = self.all.remove(key)?;
        self.partitions -= subscription.partitions();
        // Less is never refused.
        let _ = self.reservation.resize(self.all.len() * SUBSCRIPTION_BYTES);
        Some(subscription)
    }

    pub fn contains(&self, key: &Key) -> bool {
        self.all.contains_key(key)
    }

    pub fn get_mut(&mut self, key: &Key) -> Option<&mut Subscription> {
        self.all.get_mut(key)
    }

    pub fn get(&self, key: &Key) -> Option<&Subscription> {
        self.all.get(key)
    }

    /// What all of them hold.
    pub fn all_held(&mut self) -> impl Iterator<Item = &mut Held> {
        self.all.values_mut().map(|subscription| &mut subscription.held)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Subscription)> {
        self.all.iter()
    }

    /// All of them, at the end of the connection.
    pub fn into_all(self) -> HashMap<Key, Subscription> {
        self.all
    }
}
