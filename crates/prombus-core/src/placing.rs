//! Which partition an event goes to, and which topics come into being by their first event.
//!
//! A store asks while it commits: then no topic can grow, go or come in between, so order per key rests on nobody's
//! memory of what a topic was like.

use crate::commit::{Append, Commit, Placement};
use crate::error::CommitError;
use crate::event::NewEvent;
use crate::hashing::partition_of;
use crate::position::Partition;
use crate::topic::{TopicConfig, TopicName};
use std::collections::{BTreeSet, HashMap};

/// Chooses partitions. A store has one for all of its commits.
#[derive(Debug, Clone, Default)]
pub struct Placer {
    /// Counts the events that nothing but their turn decides about.
    turns: u32,
}

impl Placer {
    /// The partition of the `index`th event of a commit, in a topic with so many: see [`Placement`].
    pub fn place(
        &mut self,
        index: usize,
        append: &Append,
        partitions: u32,
    ) -> Result<Partition, CommitError> {
        if let Placement::Named(partition) = append.placement {
            if partition.0 < partitions {
                return Ok(partition);
            }
            let topic = append.topic.clone();
            return Err(CommitError::NoSuchPartition { index, topic, partition, partitions });
        }
        Ok(match (&append.event.key, append.event.id) {
            _ if partitions == 1 => Partition(0),
            (Some(key), _) => partition_of(key.as_bytes(), partitions),
            (None, Some(id)) => partition_of(id.as_bytes(), partitions),
            (None, None) => {
                let turn = self.turns;
                self.turns = turn.wrapping_add(1);
                Partition(turn % partitions)
            }
        })
    }
}

/// The settings of topics that come into being, by whatever way: their first event, a group, a schema or a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewTopics {
    /// Their settings, where they are to have others than the usual ones.
    pub configs: HashMap<TopicName, TopicConfig>,
}

/// What a new topic is for, which its usual settings go by.
#[derive(Debug, Clone, Copy)]
pub enum MadeFor<'a> {
    /// Events of its own.
    Events,
    /// The snapshots of a topic with these settings.
    SnapshotsOf(&'a TopicConfig),
    /// Copies of the events of a topic with these settings.
    CopiesOf(&'a TopicConfig),
}

impl NewTopics {
    /// The settings of a new topic.
    pub fn config_of(&self, topic: &TopicName, made_for: MadeFor<'_>) -> TopicConfig {
        self.configs.get(topic).cloned().unwrap_or_else(|| match made_for {
            MadeFor::Events => TopicConfig::default(),
            MadeFor::SnapshotsOf(source) => {
                TopicConfig { partitions: source.partitions, compaction: true, ..TopicConfig::default() }
            }
            MadeFor::CopiesOf(source) => TopicConfig { dual_write: false, snapshot: None, ..source.clone() },
        })
    }
}

impl Commit {
    /// The settings of a topic that does not exist, if an event of this commit makes it.
    pub fn new_topic(&self, name: &TopicName) -> Result<TopicConfig, CommitError> {
        match &self.auto_create {
            // Only the hub itself publishes there, and it must be able to.
            _ if name.is_internal() => Ok(TopicConfig::default()),
            Some(new_topics) => Ok(new_topics.config_of(name, MadeFor::Events)),
            None => Err(CommitError::TopicNotFound(name.clone())),
        }
    }

    /// What changefeeds have to tell, as events to append. Refused where a topic of theirs does not exist and is not made
    /// either.
    pub fn changefeed_events(
        &self,
        changes: Vec<(TopicName, NewEvent)>,
        exists: impl Fn(&TopicName) -> bool,
    ) -> Result<Vec<Append>, CommitError> {
        let is_missing = |name: &&TopicName| !exists(name) && self.new_topic(name).is_err();
        let missing: BTreeSet<&TopicName> = changes.iter().map(|(name, _)| name).filter(is_missing).collect();
        if !missing.is_empty() {
            return Err(CommitError::ChangefeedsNotFound(missing.into_iter().cloned().collect()));
        }
        Ok(changes.into_iter().map(|(topic, event)| Append::new(topic, event)).collect())
    }
}
