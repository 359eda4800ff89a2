//! Acks that are part of a larger commit, of groups here and on other hubs.

use super::pledged::{PledgeOutcome, PledgedLeases};
use super::{Groups, LeaseToken};
use crate::bus::{Bus, BusError};
use crate::commits::{CommitRefused, Pending};
use crate::room::Admitted;
use async_trait::async_trait;
use prombus_core::{CommitError, CursorMove, Receipt, TopicName};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Leases of a topic that is at home on another hub. That hub has looked whether whoever asks may settle them.
#[async_trait]
pub trait LeasesElsewhere: Send + Sync {
    /// Has that hub pledge them, all or none of them, and gives what settles them in the commit. From then on until it is told,
    /// it lets nobody else settle them, and moves none of these cursors.
    async fn pledge(&self) -> Result<Vec<CursorMove>, CommitRefused>;

    /// Tells that hub what came of the commit, also where `pledge` has failed. Where it cannot be told, it takes care that
    /// nothing comes of the commit if it has not happened, and finds out whether it has.
    async fn tell(&self, outcome: PledgeOutcome);
}

/// The part of a commit's leases that is at home on another hub.
#[derive(Clone)]
pub struct ElsewhereShare {
    /// Their topic.
    pub topic: TopicName,
    /// Which they are.
    pub leases: Vec<LeaseToken>,
    /// How they are pledged.
    pub at: Arc<dyn LeasesElsewhere>,
}

/// The leases that a commit settles.
#[derive(Clone, Default)]
pub(crate) struct CommitLeases {
    pub here: Vec<LeaseToken>,
    pub elsewhere: Vec<ElsewhereShare>,
}

/// The leases of a topic.
enum Step {
    Here(Vec<LeaseToken>),
    Elsewhere(ElsewhereShare),
}

/// What is pledged to a commit.
#[derive(Default)]
struct AllPledged {
    here: Vec<PledgedLeases>,
    elsewhere: Vec<(ElsewhereShare, Vec<CursorMove>)>,
}

impl Groups {
    /// Settles leases together with all else that `commit` does, or does nothing of it. When this has returned, its place
    /// in the order is fixed, or it has none and is refused.
    pub(crate) async fn enqueue(
        self: &Arc<Self>,
        leases: CommitLeases,
        admitted: Admitted,
        bus: Arc<dyn Bus>,
    ) -> Result<Pending<Receipt>, CommitRefused> {
        let CommitLeases { here, elsewhere } = &leases;
        if here.is_empty() && elsewhere.is_empty() && admitted.room.is_none() {
            let ticket = bus.enqueue(&mut Arc::new(admitted.commit)).await?;
            return Ok(Box::pin(async move { Ok(ticket.await.map_err(BusError::from)?) }));
        }
        // It is refused at once where one of them is not known here.
        self.groups_of(here)?;
        let (enqueued, is_enqueued) = oneshot::channel();
        // On its own, because it must come to its end even if nobody waits for it any more.
        let done = tokio::spawn(commit_with((self.clone(), leases), admitted, bus, enqueued));
        // One that is refused before that says so at its end.
        let _ = is_enqueued.await;
        Ok(Box::pin(async move {
            done.await.unwrap_or_else(|error| {
                let given_up = CommitError::Unknown(format!("the commit was given up: {error}"));
                Err(BusError::Commit(given_up).into())
            })
        }))
    }

    /// Pledges all leases of a commit, topic by topic in the order of their names, so that two commits never wait for each
    /// other, whichever hubs they are done on.
    async fn pledge_all(
        self: &Arc<Self>,
        CommitLeases { here, elsewhere }: CommitLeases,
    ) -> Result<AllPledged, CommitRefused> {
        let mut pledged = AllPledged::default();
        if elsewhere.is_empty() {
            // Those that are all here are in order anyway.
            pledged.here.push(self.pledge(&here).await?);
            return Ok(pledged);
        }
        let mut steps: BTreeMap<TopicName, Step> = BTreeMap::new();
        for (lease, group) in here.iter().zip(self.groups_of(&here)?) {
            let step = steps.entry(group.topic.name.clone()).or_insert_with(|| Step::Here(Vec::new()));
            if let Step::Here(leases) = step {
                leases.push(*lease);
            }
        }
        steps.extend(elsewhere.into_iter().map(|share| (share.topic.clone(), Step::Elsewhere(share))));
        for step in steps.into_values() {
            let refused = match step {
                Step::Here(leases) => match self.pledge(&leases).await {
                    Ok(leases) => {
                        pledged.here.push(leases);
                        continue;
                    }
                    Err(refused) => refused,
                },
                Step::Elsewhere(share) => match share.at.pledge().await {
                    Ok(moves) => {
                        pledged.elsewhere.push((share, moves));
                        continue;
                    }
                    Err(refused) => {
                        share.at.tell(PledgeOutcome::NotDone).await;
                        refused
                    }
                },
            };
            pledged.settle(PledgeOutcome::NotDone).await;
            return Err(refused);
        }
        Ok(pledged)
    }
}

impl AllPledged {
    fn moves(&self) -> Vec<CursorMove> {
        let here = self.here.iter().flat_map(PledgedLeases::moves);
        here.chain(self.elsewhere.iter().flat_map(|(_, moves)| moves.iter().cloned())).collect()
    }

    async fn settle(self, outcome: PledgeOutcome) {
        self.here.into_iter().for_each(|leases| leases.settle(outcome));
        tell(&self.elsewhere, outcome).await;
    }

    /// The commit was refused. Gives a lease of a group that is no longer what it was, where that is why.
    async fn refused(self, error: &CommitError) -> Option<LeaseToken> {
        let lost = |(share, moves): &(ElsewhereShare, Vec<CursorMove>)| {
            has_moved(moves, error).then(|| share.leases.first().copied()).flatten()
        };
        let elsewhere = self.elsewhere.iter().find_map(lost);
        let here: Vec<Option<LeaseToken>> =
            self.here.into_iter().map(|leases| leases.refused(error)).collect();
        // A hub whose group was moved by somebody else has to look what there is.
        let outcome = if elsewhere.is_some() { PledgeOutcome::Unknown } else { PledgeOutcome::NotDone };
        tell(&self.elsewhere, outcome).await;
        here.into_iter().flatten().next().or(elsewhere)
    }
}

async fn tell(elsewhere: &[(ElsewhereShare, Vec<CursorMove>)], outcome: PledgeOutcome) {
    futures::future::join_all(elsewhere.iter().map(|(share, _)| share.at.tell(outcome))).await;
}

/// Whether an error says that someone else has moved one of these cursors, or that their topic is another one.
fn has_moved(moves: &[CursorMove], error: &CommitError) -> bool {
    moves.iter().any(|step| match error {
        CommitError::CursorMoved { reader, .. } | CommitError::EpochOver { reader, .. } => {
            *reader == step.key.reader
        }
        CommitError::TopicReplaced(topic) | CommitError::TopicNotFound(topic) => *topic == step.key.topic,
        _ => false,
    })
}

async fn commit_with(
    (groups, leases): (Arc<Groups>, CommitLeases),
    admitted: Admitted,
    bus: Arc<dyn Bus>,
    enqueued: oneshot::Sender<()>,
) -> Result<Receipt, CommitRefused> {
    let Admitted { mut commit, room } = admitted;
    let pledged = groups.pledge_all(leases).await?;
    commit.cursors.extend(pledged.moves());
    let ticket = bus.enqueue(&mut Arc::new(commit)).await;
    // Whoever no longer waits does not want to know.
    let _ = enqueued.send(());
    let answer = async { Ok::<_, BusError>(ticket?.await?) }.await;
    if let Some(room) = room {
        room.give_back();
    }
    match answer {
        Ok(receipt) => {
            pledged.settle(PledgeOutcome::Done).await;
            Ok(receipt)
        }
        Err(BusError::Commit(error @ CommitError::Unknown(_))) => {
            pledged.settle(PledgeOutcome::Unknown).await;
            Err(BusError::Commit(error).into())
        }
        Err(BusError::Commit(error)) => match pledged.refused(&error).await {
            Some(lease) => Err(CommitRefused::LeaseExpired(lease)),
            None => Err(BusError::Commit(error).into()),
        },
        Err(error) => {
            pledged.settle(PledgeOutcome::NotDone).await;
            Err(error.into())
        }
    }
}
