//! The deliveries that a subscription currently holds: an ack may name them by event id or by lease.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use prombus_engine::groups::{Delivery, LeaseToken};
use tokio::time::Instant;
use uuid::Uuid;

/// What is held.
#[derive(Debug, Default)]
pub(super) struct Held {
    by_lease: HashMap<LeaseToken, One>,
    /// The same by event, from when the client first names one: most name leases, and do not pay for this.
    by_id: Option<HashMap<Uuid, LeaseToken>>,
    /// How many deliveries there were.
    count: u64,
}

#[derive(Debug)]
struct One {
    id: Uuid,
    /// Counts the deliveries of the subscription.
    count: u64,
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
            if let Some(by_id) = &mut self.by_id {
                by_id.retain(|_, lease| self.by_lease.contains_key(lease));
            }
        }
        for Delivery { event, lease, deadline, .. } in deliveries {
            self.count += 1;
            self.by_lease.insert(*lease, One { id: event.id, count: self.count, deadline: *deadline });
            if let Some(by_id) = &mut self.by_id
                && let Some(before) = by_id.insert(event.id, *lease)
            {
                // It came again, so that one has ended.
                self.by_lease.remove(&before);
            }
        }
    }

    /// The lease on an event.
    pub fn lease_of(&mut self, id: Uuid) -> Option<LeaseToken> {
        self.by_id.get_or_insert_with(|| index(&mut self.by_lease)).get(&id).copied()
    }

    pub fn remove(&mut self, lease: LeaseToken) {
        self.take(lease);
    }

    /// Lets go of a lease, for as long as it is not known what comes of that.
    pub fn take(&mut self, lease: LeaseToken) -> Option<Taken> {
        let one = self.by_lease.remove(&lease)?;
        if let Some(by_id) = &mut self.by_id {
            by_id.remove(&one.id);
        }
        Some(Taken { lease, one })
    }

    /// Holds a lease as before.
    pub fn put_back(&mut self, taken: Taken) {
        let Taken { lease, one } = taken;
        if let Some(by_id) = &mut self.by_id {
            match by_id.entry(one.id) {
                Entry::Vacant(free) => free.insert(lease),
                // The event came again meanwhile, so the lease has ended.
                Entry::Occupied(_) => return,
            };
        }
        self.by_lease.insert(lease, one);
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

/// The leases by event. Of one that came again only the last lease is good, and the others go.
fn index(by_lease: &mut HashMap<LeaseToken, One>) -> HashMap<Uuid, LeaseToken> {
    let mut last: HashMap<Uuid, (u64, LeaseToken)> = HashMap::with_capacity(by_lease.len());
    for (lease, one) in &*by_lease {
        let known = last.entry(one.id).or_insert((one.count, *lease));
        if known.0 < one.count {
            *known = (one.count, *lease);
        }
    }
    by_lease.retain(|lease, one| last.get(&one.id).is_some_and(|(_, last)| last == lease));
    last.into_iter().map(|(id, (_, lease))| (id, lease)).collect()
}
