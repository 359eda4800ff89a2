//! Forgetting a key, wherever the hub itself has put its events: in the topic, in the dead letters of that, in the topics of
//! its versions and in its snapshots, wherever those went; and the documents that projections have made of them.
//!
//! Whoever has read events of the key and not yet committed what comes of them would bring it back. So projections of the
//! topic stand still meanwhile, no dead letter goes back to it, and before the dead letters are looked at, groups have
//! written those that they had read the events for.
//!
//! Each topic is dealt with by its home. So those that are at home on other hubs are only named, and it is for these to go on
//! with them.

use crate::cleaning::{CleanError, Cleaning, Forget, snapshots};
use crate::groups::Groups;
use crate::homes::{Claims, Place};
use crate::projections::Projections;
use crate::schemas::Schemas;
use prombus_core::{EventLog, ReadError, TopicName, TopicState};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What was forgotten by one hub.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// How many events of the topic that were.
    pub events: u64,
    /// The topics in which nothing is left of the key.
    pub done: BTreeSet<TopicName>,
    /// Those at home on other hubs in which there may be copies.
    pub elsewhere: BTreeSet<TopicName>,
}

/// What forgetting needs of the hub.
#[derive(Clone)]
pub(crate) struct Forgetting {
    pub log: Arc<dyn EventLog>,
    pub cleaning: Arc<Cleaning>,
    pub groups: Arc<Groups>,
    pub projections: Arc<Projections>,
    pub schemas: Arc<Schemas>,
    pub claims: Arc<Claims>,
}

impl Forgetting {
    /// Forgets a key in a topic that is at home here, and in all others here that it leads to, but for those where that was `done`.
    /// Goes on when the caller gives up.
    pub async fn forget(
        self,
        topic: &TopicName,
        key: &str,
        done: BTreeSet<TopicName>,
    ) -> Result<Forgotten, CleanError> {
        let (topic, key) = (topic.clone(), key.to_owned());
        let work = tokio::spawn(async move { self.forget_everywhere(&topic, &key, done).await });
        work.await.unwrap_or_else(|error| Err(CleanError::Failed(error.to_string())))
    }

    async fn forget_everywhere(
        &self,
        topic: &TopicName,
        key: &str,
        done: BTreeSet<TopicName>,
    ) -> Result<Forgotten, CleanError> {
        let first = self.log.topic(topic).await?.ok_or_else(|| ReadError::TopicNotFound(topic.clone()))?;
        self.claims.check_place(topic)?;
        let (mut waiting, mut events) = (vec![first], None);
        let mut forgotten = Forgotten { done, ..Forgotten::default() };
        // Where snapshots went before may lead back to here, so nothing is kept of one topic while another is waited for.
        while let Some(topic) = waiting.pop() {
            let (count, former) = self.forget_with_copies(topic, key, &mut forgotten).await?;
            events.get_or_insert(count);
            waiting.extend(former);
        }
        Ok(Forgotten { events: events.unwrap_or(0), ..forgotten })
    }

    /// Forgets a key in a topic and wherever the hub copies its events to. Says how many events of the topic that were, and
    /// where copies were made before.
    async fn forget_with_copies(
        &self,
        first: TopicState,
        key: &str,
        so_far: &mut Forgotten,
    ) -> Result<(u64, Vec<TopicState>), CleanError> {
        let (mut waiting, mut forgotten, mut former) = (vec![first], None, Vec::new());
        // Kept until all copies are gone: a dead letter that is still there must not go back to where the key was forgotten.
        // Copies never lead back, so nobody waits for one who waits for it.
        let mut replaying = Vec::new();
        while let Some(topic) = waiting.pop() {
            if so_far.done.contains(&topic.name) {
                continue;
            }
            if self.claims.place(&topic.name) != Place::Here {
                so_far.elsewhere.insert(topic.name);
                continue;
            }
            so_far.done.insert(topic.name.clone());
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
