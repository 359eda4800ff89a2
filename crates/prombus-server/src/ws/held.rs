//! The deliveries that a subscription of a connection holds: an ack may name them by event or by lease.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use prombus_engine::groups::{Delivery, LeaseToken};
use tokio::time::Instant;
use uuid::Uuid;

/// What is held, by event and by lease.
#[derive(Debug, Default)]
pub(super) struct Held {
    by_lease: HashMap<LeaseToken, One>,
    by_id: HashMap<Uuid, LeaseToken>,
}

#[derive(Debug)]
struct One {
    id: Uuid,
    /// When the lease ends, unless it is extended.
    deadline: Instant,
}

/// What was held under a lease, while something is said of it.
#[derive(Debug)]
pub(crate) struct Taken {
    pub lease: LeaseToken,
    one: One,
}

impl Held {
    /// Holds these too. Those whose leases have ended are forgotten where there are more than `enough`.
    pub fn add(&mut self, deliveries: &[Delivery], enough: usize) {
        if self.by_lease.len() > enough {
            let now = Instant::now();
            self.by_lease.retain(|_, one| one.deadline > now);
            self.by_id.retain(|_, lease| self.by_lease.contains_key(lease));
        }
        for Delivery { event, lease, deadline, .. } in deliveries {
            self.by_lease.insert(*lease, One { id: event.id, deadline: *deadline });
            if let Some(before) = self.by_id.insert(event.id, *lease) {
                // It came again, so that one has ended.
                self.by_lease.remove(&before);
            }
        }
    }

    /// The lease on an event.
    pub fn lease_of(&self, id: Uuid) -> Option<LeaseToken> {
        self.by_id.get(&id).copied()
    }

    pub fn remove(&mut self, lease: LeaseToken) {
        self.take(lease);
    }

    /// Lets go of a lease, for as long as it is not known what comes of that.
    pub fn take(&mut self, lease: LeaseToken) -> Option<Taken> {
        let one = self.by_lease.remove(&lease)?;
        self.by_id.remove(&one.id);
        Some(Taken { lease, one })
    }

    /// Holds a lease as before.
    pub fn put_back(&mut self, taken: Taken) {
        let Taken { lease, one } = taken;
        // Where the event came again meanwhile, the lease has ended.
        if let Entry::Vacant(free) = self.by_id.entry(one.id) {
            free.insert(lease);
            self.by_lease.insert(lease, one);
        }
    }

    pub fn extend(&mut self, lease: LeaseToken, until: Instant) {
        if let Some(one) = self.by_lease.get_mut(&lease) {
            one.deadline = until;
        }
    }

    pub fn leases(&self) -> Vec<LeaseToken> {
        self.by_lease.keys().copied().collect()
    }
}
