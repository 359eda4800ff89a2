//! What is given up before the group has settled it.

use super::State;
use prombus_core::{Bounds, Offset, Offsets};
use roaring::RoaringTreemap;

impl State {
    /// How often events were given up, as far as is known. What was read before the last time may be of them.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Events of a partition were given up, perhaps `single` ones: what was read and not delivered is read again, and
    /// nothing waits for the retry of one that is gone.
    pub fn give_up(&mut self, partition: usize, single: Option<&Offsets>) {
        self.given_up += 1;
        if let Some(queue) = self.queues.get_mut(partition) {
            queue.forget_bodies();
            queue.end_pauses(|offset| single.is_some_and(|single| single.contains(Offset(offset))));
        }
        self.stirred = true;
    }

    /// Moves partitions up to what is kept of them. Says for each how many events are lost by that.
    pub fn keep_to(&mut self, bounds: &[Bounds]) -> Vec<(usize, u64)> {
        let kept = self.queues.iter().zip(bounds).enumerate();
        let behind = kept.filter(|(_, (queue, kept))| queue.progress.is_open_below(kept.first.0));
        let behind: Vec<(usize, u64)> =
            behind.map(|(partition, (_, kept))| (partition, kept.first.0)).collect();
        behind.into_iter().map(|(partition, first)| (partition, self.move_up(partition, first))).collect()
    }

    /// Moves a partition up to the first event that is kept, and says how many unsettled ones are lost by that. What
    /// someone has a lease on can still be settled.
    pub fn move_up(&mut self, partition: usize, first: u64) -> u64 {
        let open = self.leases.iter().filter(|(_, lease)| lease.partition == partition);
        let mut held: RoaringTreemap = open.map(|(_, lease)| lease.offset).collect();
        let dying = self.dying.iter().chain(&self.unburied).filter(|dying| dying.partition == partition);
        held.extend(dying.map(|dying| dying.offset));
        held |= &self.queues[partition].pledged;
        let lost = self.queues[partition].move_up(first, &held);
        if lost > 0 {
            self.version += 1;
            // Others may have waited for what is lost.
            self.stirred = true;
        }
        lost
    }
}
