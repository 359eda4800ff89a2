//! Waiting for projections: until one is compiled, and until one has seen an event, so that whoever has published it reads
//! what came of it.

use super::super::actor::{COMPILING, Positions};
use super::super::{MAX_WAIT, MinOffset, ProjectionError};
use super::Projections;
use prombus_core::{EventLogExt, Partition, ReadError, TopicState};
use tokio::sync::watch;

impl Projections {
    /// Waits until a projection is compiled, for [`MAX_WAIT`] at most.
    pub(in super::super) async fn until_started(&self, name: &str) -> Result<(), ProjectionError> {
        let setup = self.running.lock().get(name).map(|handle| handle.setup.clone());
        let Some(setup) = setup else { return Ok(()) };
        let started = tokio::time::timeout(MAX_WAIT, setup.projector(&self.hub, name)).await;
        Ok(started.map(drop).map_err(|_| ReadError::Unavailable(COMPILING.to_owned()))?)
    }

    /// Waits until the owner of a collection has seen an offset, for [`MAX_WAIT`] at most; whether it has.
    /// A collection that no projection owns, or a place that its topic cannot have, is [`ProjectionError::Bad`].
    pub async fn until_seen(&self, collection: &str, at: MinOffset) -> Result<bool, ProjectionError> {
        let seen = async {
            while !self.until_seen_or_ended(collection, at).await? {
                // Whoever deletes it, or defines it anew, has the turn until that is done.
                drop(self.turn().await?);
            }
            Ok(true)
        };
        tokio::time::timeout(MAX_WAIT, seen).await.unwrap_or(Ok(false))
    }

    /// Waits until the owner of a collection has seen all that its topic has at the moment, for [`MAX_WAIT`] at most; whether
    /// it has.
    pub(crate) async fn until_all_seen(
        &self,
        collection: &str,
        topic: &TopicState,
    ) -> Result<bool, ProjectionError> {
        let mut ends = Vec::new();
        for partition in 0..topic.config.partitions {
            ends.push(self.hub.log.bounds(&topic.pinned(), Partition(partition)).await?.next.0);
        }
        let has_seen = |now: &Positions| {
            let is_past = |(next, end): (&u64, &u64)| next >= end;
            let is_whole = now.next.len() >= ends.len() && now.next.iter().zip(&ends).all(is_past);
            now.topic == Some(topic.number) && is_whole
        };
        let seen = async {
            loop {
                let mut positions = self.positions_of(collection)?;
                if positions.wait_for(has_seen).await.is_ok() {
                    return Ok(true);
                }
                drop(self.turn().await?);
            }
        };
        tokio::time::timeout(MAX_WAIT, seen).await.unwrap_or(Ok(false))
    }

    /// Where the owner of a collection is in its topic.
    fn positions_of(&self, collection: &str) -> Result<watch::Receiver<Positions>, ProjectionError> {
        let running = self.running.lock();
        let owner = running.values().find(|handle| handle.writes(collection));
        owner.map(|handle| handle.cell.positions.subscribe()).ok_or_else(|| {
            ProjectionError::Bad(format!(
                "no projection writes collection {collection}, so it has no offset to wait for"
            ))
        })
    }

    /// Waits until the owner of a collection has seen an offset, or does not run any more; whether it has.
    async fn until_seen_or_ended(&self, collection: &str, at: MinOffset) -> Result<bool, ProjectionError> {
        let bad = |message: String| Err(ProjectionError::Bad(message));
        let found = {
            let running = self.running.lock();
            let owner = running.values().find(|handle| handle.writes(collection));
            owner.map(|handle| {
                (handle.cell.positions.subscribe(), handle.record.borrow().definition.topic.clone())
            })
        };
        let Some((mut positions, topic)) = found else {
            return bad(format!(
                "no projection writes collection {collection}, so it has no offset to wait for"
            ));
        };
        let state = self.hub.log.topic(&topic).await?;
        let partitions = state.as_ref().map_or(1, |state| state.config.partitions);
        let partition = match at.partition {
            Some(partition) if partition.0 < partitions => partition.0,
            Some(partition) => return bad(format!("topic {topic} has no partition {partition}")),
            None if partitions == 1 => 0,
            None => {
                return bad(format!(
                    "topic {topic} has {partitions} partitions: name one, as in 0:{}",
                    at.offset
                ));
            }
        };
        let has_seen = |now: &Positions| {
            // What it has seen of a topic that is gone does not count.
            let is_same = state.as_ref().is_none_or(|state| now.topic == Some(state.number));
            is_same && now.next.get(partition as usize).is_some_and(|next| *next > at.offset.0)
        };
        Ok(positions.wait_for(has_seen).await.is_ok())
    }
}
