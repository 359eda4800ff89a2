//! Acks that are part of a larger commit.

use super::group::Group;
use super::state::Pledge;
use super::stored::cursor_key;
use super::{GroupError, Groups, LeaseToken, Session};
use crate::bus::{Bus, BusError};
use crate::commits::{CommitRefused, LeaseOf, Pending};
use crate::room::Admitted;
use prombus_core::{CommitError, HomesError, Receipt};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::oneshot;

/// A group, and the leases of it that a commit settles.
type Share = (Arc<Group>, Vec<LeaseToken>);

impl Groups {
    /// The groups that leases belong to, in order.
    pub(crate) fn leases(&self, leases: &[LeaseToken]) -> Result<Vec<LeaseOf>, CommitRefused> {
        let groups = self.groups_of(leases)?;
        let of = |group: Arc<Group>| LeaseOf { topic: group.topic.name.clone(), group: group.name.clone() };
        Ok(groups.into_iter().map(of).collect())
    }

    fn groups_of(&self, leases: &[LeaseToken]) -> Result<Vec<Arc<Group>>, CommitRefused> {
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

    /// Settles leases together with all else that `commit` does, or does nothing of it. When this has returned, its place
    /// in the order is fixed, or it has none and is refused.
    pub(crate) async fn enqueue(
        &self,
        acks: &[LeaseToken],
        admitted: Admitted,
        bus: Arc<dyn Bus>,
    ) -> Result<Pending<Receipt>, CommitRefused> {
        if acks.is_empty() && admitted.room.is_none() {
            let ticket = bus.enqueue(&mut Arc::new(admitted.commit)).await?;
            return Ok(Box::pin(async move { Ok(ticket.await.map_err(BusError::from)?) }));
        }
        // In the order of their names, so that two commits never wait for each other.
        let mut shares: BTreeMap<(String, String), Share> = BTreeMap::new();
        for (lease, group) in acks.iter().zip(self.groups_of(acks)?) {
            let place = (group.topic.name.to_string(), group.name.to_string());
            shares.entry(place).or_insert_with(|| (group, Vec::new())).1.push(*lease);
        }
        let shares: Vec<Share> = shares.into_values().collect();
        let (enqueued, is_enqueued) = oneshot::channel();
        // On its own, because it must come to its end even if nobody waits for it any more.
        let done = tokio::spawn(commit_with(shares, admitted, bus, enqueued));
        // One that is refused before that says so at its end.
        let _ = is_enqueued.await;
        Ok(Box::pin(async move {
            done.await.unwrap_or_else(|error| {
                let given_up = CommitError::Unknown(format!("the commit was given up: {error}"));
                Err(BusError::Commit(given_up).into())
            })
        }))
    }
}

async fn commit_with(
    shares: Vec<Share>,
    admitted: Admitted,
    bus: Arc<dyn Bus>,
    enqueued: oneshot::Sender<()>,
) -> Result<Receipt, CommitRefused> {
    let Admitted { mut commit, room } = admitted;
    let mut turns = Vec::with_capacity(shares.len());
    for (group, _) in &shares {
        turns.push(group.writing.clone().lock_owned().await);
    }
    for (group, leases) in &shares {
        match (group.check_home().await, leases.first()) {
            (Err(GroupError::Home(HomesError::Lost(_))), Some(lease)) => {
                return Err(CommitRefused::LeaseExpired(*lease));
            }
            (checked, _) => checked?,
        }
    }
    let pledges = pledge_all(&shares)?;
    for ((group, _), pledge) in shares.iter().zip(&pledges) {
        commit.cursors.extend(pledge.moves.iter().flat_map(|step| group.partition_moves(step)));
    }
    let ticket = bus.enqueue(&mut Arc::new(commit)).await;
    // Whoever no longer waits does not want to know.
    let _ = enqueued.send(());
    let answer = async { Ok::<_, BusError>(ticket?.await?) }.await;
    if let Some(room) = room {
        room.give_back();
    }
    let mut spent = None;
    for ((group, leases), pledge) in shares.iter().zip(pledges) {
        {
            let mut state = group.state.lock();
            match &answer {
                Ok(_) => state.redeem(pledge, group.now()),
                Err(_) => state.unpledge(pledge),
            }
        }
        if let Err(BusError::Commit(error)) = &answer
            && has_lost(group, error)
        {
            // Someone else has the group now, and its leases with it.
            group.fail_for(error.clone().into());
            spent = spent.or(leases.first().copied());
        }
        group.wake_keeper();
    }
    drop(turns);
    match spent {
        Some(lease) => Err(CommitRefused::LeaseExpired(lease)),
        None => Ok(answer?),
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

/// Pledges the leases of all groups, or of none.
fn pledge_all(shares: &[Share]) -> Result<Vec<Pledge>, CommitRefused> {
    let mut pledges = Vec::with_capacity(shares.len());
    for (group, leases) in shares {
        let pledged = {
            let mut state = group.state.lock();
            state.tick(group.now());
            match leases.first() {
                Some(lease) if group.has_failed() => Err(*lease),
                _ => state.pledge(leases),
            }
        };
        match pledged {
            Ok(pledge) => pledges.push(pledge),
            Err(spent) => {
                for ((group, _), pledge) in shares.iter().zip(pledges) {
                    group.state.lock().unpledge(pledge);
                    group.wake_keeper();
                }
                return Err(CommitRefused::LeaseExpired(spent));
            }
        }
    }
    Ok(pledges)
}
