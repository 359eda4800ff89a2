//! Turns of those who read what is to be delivered.

use super::super::state::Delivery;
use crate::filter::Cost;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What was delivered to one who has a turn.
#[derive(Debug)]
pub struct InTurn {
    /// What there was; empty when the wait is over.
    pub deliveries: Vec<Delivery>,
    /// Others may read when this is dropped.
    pub turn: Turn,
}

/// Turns of those who read what is to be delivered. Groups with a filter have some of their own, and those with a costly one,
/// so that the others do not wait for them.
#[derive(Debug, Clone)]
pub struct PullTurns {
    plain: Arc<Semaphore>,
    cheap: Arc<Semaphore>,
    costly: Arc<Semaphore>,
}

impl PullTurns {
    /// `turns` says how many there are, by what the filter of a group costs.
    pub fn new(turns: impl Fn(Cost) -> usize) -> Self {
        let of = |cost| Arc::new(Semaphore::new(turns(cost)));
        Self { plain: of(Cost::None), cheap: of(Cost::Cheap), costly: of(Cost::Costly) }
    }

    pub(super) fn of(&self, cost: Cost) -> &Arc<Semaphore> {
        match cost {
            Cost::None => &self.plain,
            Cost::Cheap => &self.cheap,
            Cost::Costly => &self.costly,
        }
    }
}

/// A turn among those who read, where they take turns.
pub type Turn = Option<OwnedSemaphorePermit>;
