//! Events that are gone before a group got to them: it moves up to what is kept.

use super::group::Group;
use crate::layers::RemovedEvents;
use prombus_core::{Bounds, Offset};
use std::sync::Arc;

impl Group {
    /// Moves a partition up to the first event that is kept. Whether something is lost by that.
    pub(super) fn keep_partition_to(self: &Arc<Self>, partition: usize, first: Offset) -> bool {
        let lost = {
            let mut state = self.locked();
            if first.0 == 0 || partition >= state.queues.len() {
                return false;
            }
            state.move_up(partition, first.0)
        };
        self.warn_of(partition, lost);
        self.wake_keeper();
        lost > 0
    }

    /// Moves the group up to what is kept.
    pub(super) fn keep_to(self: &Arc<Self>, bounds: &[Bounds]) {
        let moved = self.locked().keep_to(bounds);
        moved.into_iter().for_each(|(partition, lost)| self.warn_of(partition, lost));
        self.wake_keeper();
    }

    /// Events were given up. When this has returned, none of them is delivered that was not before.
    pub(super) fn events_removed(self: &Arc<Self>, events: &RemovedEvents) {
        let partition = events.partition.0 as usize;
        {
            let mut state = self.locked();
            state.give_up(partition, events.single.as_deref());
            state.trim();
        }
        self.keep_partition_to(partition, events.first);
        self.wake_keeper();
    }

    pub(super) fn warn_of(&self, partition: usize, lost: u64) {
        if lost > 0 {
            tracing::warn!(
                topic = %self.topic.name, group = %self.name, partition, lost,
                "events were removed by retention before the group reached them"
            );
        }
    }
}
