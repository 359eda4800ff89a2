//! Leases that are pledged to a commit: nobody else can settle them, and the cursors of their groups stand still, until it is
//! known what came of the commit. Whoever does not learn that makes sure that nothing can come of it any more, and reads
//! anew what is stored.

use super::group::Group;
use super::state::Pledge;
use super::stored::cursor_key;
use super::{GroupError, Groups, LeaseToken, Session};
use crate::commits::{CommitRefused, LeaseOf};
use prombus_core::{CommitError, CursorMove, HomesError};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

/// What came of the commit that leases were pledged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PledgeOutcome {
    /// It has happened.
    Done,
    /// It has not happened, and never will.
    NotDone,
    /// Nobody knows, or it may still happen.
    Unknown,
}

/// Leases of groups of this hub that are pledged to a commit. Dropped without being settled, they count as
/// [`PledgeOutcome::Unknown`].
pub struct PledgedLeases {
    groups: Arc<Groups>,
    shares: Vec<Share>,
}

/// The leases of one group.
struct Share {
    group: Arc<Group>,
    leases: Vec<LeaseToken>,
    pledge: Pledge,
    /// Nobody else writes the cursors of the group.
    _turn: OwnedMutexGuard<()>,
}

impl Groups {
    /// The groups that leases belong to, in order.
    pub(super) fn groups_of(&self, leases: &[LeaseToken]) -> Result<Vec<Arc<Group>>, CommitRefused> {
        let mut known: HashMap<Session, Arc<Group>> = HashMap::new();
        let mut groups = Vec::with_capacity(leases.len());
        for lease in leases {
            let group = match known.get(&lease.session) {
                Some(group) => group.clone(),
                None => self.with_session(lease.session).ok_or(CommitRefused::LeaseExpired(*lease))?,
            };
            groups.push(known.entry(lease.session).or_insert(group).clone());
        }
        Ok(groups)
    }

    /// The groups that leases belong to, in order.
    pub(crate) fn leases(&self, leases: &[LeaseToken]) -> Result<Vec<LeaseOf>, CommitRefused> {
        let groups = self.groups_of(leases)?;
        let of = |group: Arc<Group>| LeaseOf { topic: group.topic.name.clone(), group: group.name.clone() };
        Ok(groups.into_iter().map(of).collect())
    }

    /// Pledges leases of this hub to a commit: all of them or none.
    pub(crate) async fn pledge(
        self: &Arc<Self>,
        leases: &[LeaseToken],
    ) -> Result<PledgedLeases, CommitRefused> {
        // In the order of their names, so that two commits never wait for each other.
        let mut shares: BTreeMap<(String, String), (Arc<Group>, Vec<LeaseToken>)> = BTreeMap::new();
        for (lease, group) in leases.iter().zip(self.groups_of(leases)?) {
            let place = (group.topic.name.to_string(), group.name.to_string());
            shares.entry(place).or_insert_with(|| (group, Vec::new())).1.push(*lease);
        }
        let mut ready = Vec::with_capacity(shares.len());
        for (group, leases) in shares.into_values() {
            let turn = group.writing.clone().lock_owned().await;
            ready.push((group, leases, turn));
        }
        for (group, leases, _) in &ready {
            match (group.check_home().await, leases.first()) {
                (Err(GroupError::Home(HomesError::Lost(_))), Some(lease)) => {
                    return Err(CommitRefused::LeaseExpired(*lease));
                }
                (checked, _) => checked?,
            }
        }
        let mut pledged = PledgedLeases { groups: self.clone(), shares: Vec::with_capacity(ready.len()) };
        for (group, leases, turn) in ready {
            match pledge(&group, &leases) {
                Ok(pledge) => pledged.shares.push(Share { group, leases, pledge, _turn: turn }),
                Err(spent) => {
                    pledged.settle(PledgeOutcome::NotDone);
                    return Err(CommitRefused::LeaseExpired(spent));
                }
            }
        }
        Ok(pledged)
    }
}

/// Pledges the leases of a group, unless one of them is not open.
fn pledge(group: &Group, leases: &[LeaseToken]) -> Result<Pledge, LeaseToken> {
    let mut state = group.state.lock();
    state.tick(group.now());
    match leases.first() {
        Some(lease) if group.has_failed() => Err(*lease),
        _ => state.pledge(leases),
    }
}

impl PledgedLeases {
    /// The cursors that settle them.
    pub fn moves(&self) -> Vec<CursorMove> {
        let moves = |Share { group, pledge, .. }: &Share| -> Vec<CursorMove> {
            pledge.moves.iter().flat_map(|step| group.partition_moves(step)).collect()
        };
        self.shares.iter().flat_map(moves).collect()
    }

    /// Settles them, or gives them back as they were; or makes sure that the commit cannot happen any more if it has not,
    /// under a later epoch of the home of their topics, which voids what is open.
    pub fn settle(mut self, outcome: PledgeOutcome) {
        std::mem::take(&mut self.shares).into_iter().for_each(|share| share.settle(&self.groups, outcome));
    }

    /// The commit was refused. If that says that one of the groups is no longer what it was when it gave its leases, someone
    /// else has it now, and a lease with it: that one is given.
    pub(super) fn refused(mut self, error: &CommitError) -> Option<LeaseToken> {
        let mut spent = None;
        for share in std::mem::take(&mut self.shares) {
            let group = share.group.clone();
            let lease = share.leases.first().copied();
            share.settle(&self.groups, PledgeOutcome::NotDone);
            if has_lost(&group, error) {
                group.fail_for(error.clone().into());
                spent = spent.or(lease);
            }
        }
        spent
    }
}

impl Drop for PledgedLeases {
    fn drop(&mut self) {
        self.shares.drain(..).for_each(|share| share.settle(&self.groups, PledgeOutcome::Unknown));
    }
}

impl Share {
    fn settle(self, groups: &Groups, outcome: PledgeOutcome) {
        let Self { group, pledge, _turn: turn, .. } = self;
        if outcome == PledgeOutcome::Unknown {
            groups.fence(&group);
        }
        {
            let mut state = group.state.lock();
            match outcome {
                PledgeOutcome::Done => state.redeem(pledge, group.now()),
                PledgeOutcome::NotDone | PledgeOutcome::Unknown => state.unpledge(pledge),
            }
        }
        group.wake_keeper();
        drop(turn);
    }
}

impl Groups {
    /// Ends a group in memory. It is loaded again under a later epoch than any of its cursors has, and delivers nothing before all
    /// of them have that: so whatever still moves them as they were is refused from then on, or is known.
    fn fence(&self, group: &Group) {
        self.is_ours_no_more(group);
        group.fail(HomesError::Lost(group.topic.name.clone()).into());
    }
}

/// Whether an error says that a group is no longer what it was when it gave its leases.
fn has_lost(group: &Group, error: &CommitError) -> bool {
    match error {
        CommitError::CursorMoved { reader, .. } | CommitError::EpochOver { reader, .. } => {
            *reader == cursor_key(&group.topic.name, &group.name, 0).reader
        }
        CommitError::TopicReplaced(topic) | CommitError::TopicNotFound(topic) => *topic == group.topic.name,
        _ => false,
    }
}
