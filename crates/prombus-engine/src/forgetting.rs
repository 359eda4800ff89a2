//! Forgetting a key, wherever the hub itself has put its events: in the topic, in the dead letters of that, in the topics of
//! its versions and in its snapshots, wherever those went; and the documents that projections have made of them.
//!
//! Whoever has read events of the key and not yet committed what comes of them would bring it back. So projections of the
//! topic stand still meanwhile, no dead letter goes back to it, and before the dead letters are looked at, groups have
//! written those that they had read the events for.

use crate::cleaning::{CleanError, Cleaning, Forget, snapshots};
use crate::groups::Groups;
use crate::projections::Projections;
use crate::schemas::Schemas;
use prombus_core::{EventLog, ReadError, TopicName, TopicState};
use std::collections::HashSet;
use std::sync::Arc;

/// What forgetting needs of the hub.
#[derive(Clone)]
pub(crate) struct Forgetting {
    pub log: Arc<dyn EventLog>,
    pub cleaning: Arc<Cleaning>,
    pub groups: Arc<Groups>,
    pub projections: Arc<Projections>,
    pub schemas: Arc<Schemas>,
}

impl Forgetting {
    /// Forgets a key, and says how many events of the topic that were. Goes on when the caller gives up.
    pub async fn forget(self, topic: &TopicName, key: &str) -> Result<u64, CleanError> {
        let (topic, key) = (topic.clone(), key.to_owned());
        let work = tokio::spawn(async move { self.forget_everywhere(&topic, &key).await });
        work.await.unwrap_or_else(|error| Err(CleanError::Failed(error.to_string())))
    }

    async fn forget_everywhere(&self, topic: &TopicName, key: &str) -> Result<u64, CleanError> {
        let first = self.log.topic(topic).await?.ok_or_else(|| ReadError::TopicNotFound(topic.clone()))?;
        let (mut known, mut waiting, mut forgotten) = (HashSet::new(), vec![first], None);
        // Where snapshots went before may lead back to here, so nothing is kept of one topic while another is waited for.
        while let Some(topic) = waiting.pop() {
            let (events, former) = self.forget_with_copies(topic, key, &mut known).await?;
            forgotten.get_or_insert(events);
            waiting.extend(former);
        }
        Ok(forgotten.unwrap_or(0))
    }

    /// Forgets a key in a topic and wherever the hub copies its events to. Says how many events of the topic that were, and
    /// where copies were made before.
    async fn forget_with_copies(
        &self,
        first: TopicState,
        key: &str,
        known: &mut HashSet<TopicName>,
    ) -> Result<(u64, Vec<TopicState>), CleanError> {
        let (mut waiting, mut forgotten, mut former) = (vec![first], None, Vec::new());
        // Kept until all copies are gone: a dead letter that is still there must not go back to where the key was forgotten.
        // Copies never lead back, so nobody waits for one who waits for it.
        let mut replaying = Vec::new();
        while let Some(topic) = waiting.pop() {
            if !known.insert(topic.name.clone()) {
                continue;
            }
            replaying.push(self.groups.replaying_turn(&topic.name).await);
            let events = self.forget_in(&topic.name, key).await?;
            forgotten.get_or_insert(events);
            let versions = self.schemas.copies_of(&topic).await?;
            for name in copies_of(&topic).chain(versions) {
                waiting.extend(self.log.topic(&name).await?);
            }
            former.extend(snapshots::holders_of(&*self.log, &topic).await?);
        }
        Ok((forgotten.unwrap_or(0), former))
    }

    /// Forgets a key in one topic. When this returns, no copy of its events that the hub makes is under way any more.
    async fn forget_in(&self, topic: &TopicName, key: &str) -> Result<u64, CleanError> {
        // A pass may take a while, and projections must not stand still for that long.
        let turn = self.cleaning.turn(topic).await;
        let held = self.projections.hold(topic).await?;
        let documents = held.deletions(key).await?;
        let events = self.cleaning.forget_in_turn(topic, Forget { key: key.into(), documents }).await?;
        drop((held, turn));
        self.groups.until_written(topic).await;
        Ok(events)
    }
}

/// The topics that the hub copies events of a topic to.
fn copies_of(topic: &TopicState) -> impl Iterator<Item = TopicName> {
    let snapshots = topic.config.snapshot.as_ref().map(|snapshot| snapshot.topic.clone());
    topic.name.dead_letters().into_iter().chain(snapshots)
}
