//! The members of a group: who is there, how much each holds, and which partitions each owns.

use hashbrown::HashMap;
use prombus_core::Partition;
use prombus_core::hashing::owner_of;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// From so many on, members that hold nothing and are silent are forgotten when another one comes.
const KEPT_IDLE: usize = 64;

#[derive(Debug)]
struct Member {
    in_flight: usize,
    /// How many of its calls are going on; it is not silent while one is.
    calls: usize,
    last_seen: Instant,
}

/// The members of a group.
#[derive(Debug)]
pub struct Members {
    ttl: Duration,
    members: HashMap<Arc<str>, Member>,
}

impl Members {
    /// Nobody yet. Whoever is silent for `ttl` is gone.
    pub fn new(ttl: Duration) -> Self {
        Self { ttl, members: HashMap::new() }
    }

    /// A call of a member starts. Says whether the member is new.
    pub fn enter(&mut self, name: &Arc<str>, now: Instant) -> bool {
        if let Some(member) = self.members.get_mut(name) {
            member.calls += 1;
            member.last_seen = now;
            return false;
        }
        if self.members.len() >= KEPT_IDLE {
            let ttl = self.ttl;
            self.members.retain(|_, m| m.in_flight > 0 || m.calls > 0 || m.last_seen + ttl > now);
        }
        self.members.insert(name.clone(), Member { in_flight: 0, calls: 1, last_seen: now });
        true
    }

    /// A call of a member is over.
    pub fn exit(&mut self, name: &str, now: Instant) {
        if let Some(member) = self.members.get_mut(name) {
            member.calls = member.calls.saturating_sub(1);
            member.last_seen = now;
        }
    }

    /// A member is gone. Says whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        self.members.remove(name).is_some()
    }

    /// Drops members that are silent for too long. Says whether there were any.
    pub fn drop_silent(&mut self, now: Instant) -> bool {
        let (before, ttl) = (self.members.len(), self.ttl);
        self.members.retain(|_, member| member.calls > 0 || member.last_seen + ttl > now);
        self.members.len() < before
    }

    /// When the next member may have been silent for too long.
    pub fn next_silent(&self) -> Option<Instant> {
        self.members
            .values()
            .filter(|member| member.calls == 0)
            .map(|member| member.last_seen + self.ttl)
            .min()
    }

    /// How many leases a member holds.
    pub fn in_flight(&self, name: &str) -> usize {
        self.members.get(name).map_or(0, |member| member.in_flight)
    }

    /// A member got leases.
    pub fn gave(&mut self, name: &str, leases: usize) {
        if let Some(member) = self.members.get_mut(name) {
            member.in_flight += leases;
        }
    }

    /// A lease of a member is closed.
    pub fn took_back(&mut self, name: &str) {
        if let Some(member) = self.members.get_mut(name) {
            member.in_flight = member.in_flight.saturating_sub(1);
        }
    }

    /// Who owns each of so many partitions.
    pub fn owners(&self, partitions: usize) -> Vec<Option<Arc<str>>> {
        let names: Vec<&str> = self.members.keys().map(|name| &**name).collect();
        let owner = |partition| owner_of(Partition(partition), &names);
        let shared = |name| self.members.get_key_value(name).map(|(name, _)| name.clone());
        (0..partitions as u32).map(|partition| owner(partition).and_then(shared)).collect()
    }

    /// The members that are there, by name, with how much each holds.
    pub fn list(&self, now: Instant) -> Vec<(Arc<str>, usize)> {
        let there = |m: &Member| m.in_flight > 0 || m.calls > 0 || m.last_seen + self.ttl > now;
        let mut list: Vec<_> = self
            .members
            .iter()
            .filter(|(_, member)| there(member))
            .map(|(name, member)| (name.clone(), member.in_flight))
            .collect();
        list.sort_unstable();
        list
    }
}
