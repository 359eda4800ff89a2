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
    /// How many connections and calls of it there are. It is there as long as one is.
    presences: usize,
    /// When a call of it last ended. A call is also a sign of life for a while after it; a connection that ends is not.
    heard: Option<Instant>,
}

impl Member {
    fn is_there(&self, ttl: Duration, now: Instant) -> bool {
        self.presences > 0 || self.heard.is_some_and(|heard| heard + ttl > now)
    }
}

/// The members of a group.
#[derive(Debug)]
pub struct Members {
    ttl: Duration,
    members: HashMap<Arc<str>, Member>,
    /// From how many members on some are looked for that can be forgotten.
    enough: usize,
}

impl Members {
    /// Nobody yet. Whoever is silent for `ttl` is gone.
    pub fn new(ttl: Duration) -> Self {
        Self { ttl, members: HashMap::new(), enough: KEPT_IDLE }
    }

    /// Whoever is silent for `ttl` is gone, from now on.
    pub fn set_ttl(&mut self, ttl: Duration) {
        self.ttl = ttl;
    }

    /// How many there are, silent ones included.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether nobody knows this member.
    pub fn is_new(&self, name: &str) -> bool {
        !self.members.contains_key(name)
    }

    /// A connection or call of a member starts. Says whether the member is new.
    pub fn enter(&mut self, name: &Arc<str>, now: Instant) -> bool {
        if let Some(member) = self.members.get_mut(name) {
            member.presences += 1;
            return false;
        }
        if self.members.len() >= self.enough {
            let ttl = self.ttl;
            self.members.retain(|_, member| member.in_flight > 0 || member.is_there(ttl, now));
            // Where most are still there, they are not all looked at for each one that comes.
            self.enough = KEPT_IDLE.max(2 * self.members.len());
        }
        self.members.insert(name.clone(), Member { in_flight: 0, presences: 1, heard: None });
        true
    }

    /// A call of a member is over.
    pub fn end_call(&mut self, name: &str, now: Instant) {
        if let Some(member) = self.members.get_mut(name) {
            member.presences = member.presences.saturating_sub(1);
            member.heard = Some(now);
        }
    }

    /// A connection of a member is over. Says whether the member is gone with it.
    pub fn end_connection(&mut self, name: &str, now: Instant) -> bool {
        let Some(member) = self.members.get_mut(name) else { return false };
        member.presences = member.presences.saturating_sub(1);
        !member.is_there(self.ttl, now)
    }

    /// Forgets a member.
    pub fn remove(&mut self, name: &str) {
        self.members.remove(name);
    }

    /// Drops members that are silent for too long. Says whether there were any.
    pub fn drop_silent(&mut self, now: Instant) -> bool {
        let (before, ttl) = (self.members.len(), self.ttl);
        self.members.retain(|_, member| member.is_there(ttl, now));
        self.members.len() < before
    }

    /// Forgets members that hold nothing and are not there right now.
    pub fn forget_idle(&mut self) {
        self.members.retain(|_, member| member.in_flight > 0 || member.presences > 0);
    }

    /// When the next member may have been silent for too long.
    pub fn next_silent(&self) -> Option<Instant> {
        let absent = self.members.values().filter(|member| member.presences == 0);
        absent.filter_map(|member| Some(member.heard? + self.ttl)).min()
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

    /// Who owns each partition, given who did before somebody `joined` or others went. Of an owner that is still there
    /// only the new one can take a partition, so all members are asked only about those whose owners are gone.
    pub fn owners<'a>(
        &self,
        before: impl Iterator<Item = Option<&'a Arc<str>>>,
        joined: Option<&Arc<str>>,
    ) -> Vec<Option<Arc<str>>> {
        let everyone: Vec<&str> = self.members.keys().map(|name| &**name).collect();
        let shared = |name: &str| self.members.get_key_value(name).map(|(name, _)| name.clone());
        let owner = |(partition, before): (u32, Option<&Arc<str>>)| {
            let stays = before.filter(|name| !self.is_new(name));
            let owner = match (stays, joined) {
                (None, _) => owner_of(Partition(partition), &everyone),
                (Some(before), None) => Some(&**before),
                (Some(before), Some(joined)) => owner_of(Partition(partition), &[before, joined]),
            };
            owner.and_then(shared)
        };
        (0..).zip(before).map(owner).collect()
    }

    /// The members that are there, by name, with how much each holds.
    pub fn list(&self, now: Instant) -> Vec<(Arc<str>, usize)> {
        let there = |member: &Member| member.in_flight > 0 || member.is_there(self.ttl, now);
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TTL: Duration = Duration::from_secs(15);

    fn members() -> (Members, Arc<str>, Instant) {
        (Members::new(TTL), "m".into(), Instant::now())
    }

    #[test]
    fn a_member_is_gone_with_its_last_connection() {
        let (mut members, name, now) = members();
        assert!(members.enter(&name, now), "it is new");
        assert!(!members.enter(&name, now), "a second connection is no new member");
        members.gave(&name, 3);
        assert!(!members.end_connection(&name, now), "the other one is still there");
        assert!(!members.drop_silent(now + 2 * TTL), "however long it says nothing");
        assert_eq!(members.in_flight(&name), 3);
        assert!(members.end_connection(&name, now), "at once: nothing is left to wait for");
    }

    const NAMES: usize = 20;

    proptest! {
        #[test]
        fn owners_are_the_same_however_members_came_and_went(
            steps in prop::collection::vec(0..NAMES, 1..100),
        ) {
            let (mut members, _, now) = members();
            let mut owners: Vec<Option<Arc<str>>> = vec![None; 64];
            let names: Vec<Arc<str>> = (0..NAMES).map(|n| format!("m{n}").into()).collect();
            for step in steps {
                let name = &names[step];
                let joined = if members.is_new(name) {
                    members.enter(name, now);
                    Some(name)
                } else {
                    members.remove(name);
                    None
                };
                owners = members.owners(owners.iter().map(Option::as_ref), joined);
                let there: Vec<&str> =
                    names.iter().map(|name| &**name).filter(|name| !members.is_new(name)).collect();
                for (partition, owner) in (0..).zip(&owners) {
                    prop_assert_eq!(owner.as_deref(), owner_of(Partition(partition), &there));
                }
            }
        }
    }

    #[test]
    fn calls_and_connections_of_a_member_hold_it_alike() {
        let (mut members, name, now) = members();
        members.enter(&name, now);
        members.enter(&name, now);
        assert!(!members.end_connection(&name, now), "a call goes on");
        members.end_call(&name, now);
        assert_eq!(members.next_silent(), Some(now + TTL));
        members.enter(&name, now);
        assert!(!members.end_connection(&name, now + TTL / 2), "its last call is a sign of life");
        assert!(!members.drop_silent(now + TTL / 2));
        assert!(members.drop_silent(now + TTL));
    }
}
