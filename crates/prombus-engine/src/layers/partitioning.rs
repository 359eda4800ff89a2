//! Decides which partition each event goes to, and makes topics that do not exist yet, those of changefeeds included.
//!
//! A decision holds for one layout of the topic. The log refuses it once the topic has grown or was made
//! anew, and then it is taken again, so that all events of a key are always placed by the same rule.

use crate::bus::{Bus, BusError, Layer};
use async_trait::async_trait;
use parking_lot::RwLock;
use prombus_core::hashing::partition_of;
use prombus_core::{
    Append, Commit, CommitError, CommitLimits, ConfigChange, EventLog, Layout, Partition, Placement,
    ReadError, Receipt, TopicConfig, TopicName,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How often a decision is taken again before the commit is given up: each time, someone else must have
/// changed the topic in between.
const MAX_TRIES: usize = 16;

/// The layer.
pub struct Partitioning {
    /// Where topics are looked up. Reading is not reaching around the bus: what is decided here is checked there.
    pub log: Arc<dyn EventLog>,
    /// The settings of topics that come into being by their first publish; `None` where they don't.
    pub auto_create: Option<AutoCreate>,
    /// What every commit may come to, whoever it is from.
    pub limits: CommitLimits,
}

/// How topics come into being.
#[derive(Debug, Clone)]
pub struct AutoCreate {
    /// Their settings, where the configuration names them.
    pub configs: HashMap<TopicName, TopicConfig>,
    /// At most so many topics.
    pub max_topics: usize,
}

impl Layer for Partitioning {
    fn wrap(self, inner: Arc<dyn Bus>) -> Arc<dyn Bus> {
        Arc::new(Partitioned {
            rules: self,
            inner,
            layouts: RwLock::default(),
            round_robin: AtomicU32::new(0),
        })
    }
}

struct Partitioned {
    rules: Partitioning,
    inner: Arc<dyn Bus>,
    /// What was last seen; never trusted, since the log checks it.
    layouts: RwLock<HashMap<TopicName, Layout>>,
    round_robin: AtomicU32,
}

/// What a topic's events are placed by.
#[derive(Clone)]
enum Basis {
    /// The topic as it was last seen.
    Known(Layout),
    /// The settings of a topic that the commit has to make.
    New(TopicConfig),
}

impl Basis {
    fn partitions(&self) -> u32 {
        match self {
            Self::Known(layout) => layout.partitions,
            Self::New(config) => config.partitions,
        }
    }

    fn placed(&self, partition: Partition) -> Placement {
        match self {
            Self::Known(layout) => Placement::Placed(partition, *layout),
            Self::New(_) => Placement::PlacedInNew(partition),
        }
    }
}

#[async_trait]
impl Bus for Partitioned {
    async fn commit(&self, mut commit: Arc<Commit>) -> Result<Receipt, BusError> {
        let asked: Vec<Placement> = commit.events.iter().map(|append| append.placement).collect();
        let changes = commit.config.len();
        // Only the log knows which documents have changed, and which changefeeds tell of them.
        let mut feeds: Vec<TopicName> = Vec::new();
        for _ in 0..MAX_TRIES {
            self.place(Arc::make_mut(&mut commit), &asked, &feeds).await?;
            match self.inner.commit(commit.clone()).await {
                // Only what was decided here can be decided anew.
                Err(BusError::Commit(
                    CommitError::StaleLayout(topic)
                    | CommitError::TopicNotFound(topic)
                    | CommitError::TopicExists(topic),
                )) if feeds.contains(&topic) || commit.events.iter().any(|append| append.topic == topic) => {
                    self.layouts.write().remove(&topic);
                    Arc::make_mut(&mut commit).config.truncate(changes);
                }
                Err(BusError::Commit(CommitError::ChangefeedsNotFound(missing)))
                    if self.rules.auto_create.is_some() =>
                {
                    self.layouts.write().retain(|topic, _| !missing.contains(topic));
                    feeds.extend(missing);
                    Arc::make_mut(&mut commit).config.truncate(changes);
                }
                answer => return answer,
            }
        }
        Err(BusError::Commit(CommitError::Busy))
    }
}

impl Partitioned {
    /// Decides all placements, and adds the topics that have to be made.
    async fn place(
        &self,
        commit: &mut Commit,
        asked: &[Placement],
        feeds: &[TopicName],
    ) -> Result<(), BusError> {
        commit.limits = commit.limits.and(self.rules.limits);
        // Most commits are about few topics, mostly the same as the event before.
        let mut seen: Vec<(TopicName, Basis)> = Vec::new();
        for (index, (append, asked)) in commit.events.iter_mut().zip(asked).enumerate() {
            append.placement = *asked;
            let known = seen.iter().rposition(|(topic, _)| *topic == append.topic);
            let at = match known {
                Some(at) => at,
                None => {
                    seen.push((append.topic.clone(), self.basis(&append.topic).await?));
                    seen.len() - 1
                }
            };
            if matches!(asked, Placement::Named(partition) if partition.0 >= seen[at].1.partitions()) {
                // The topic may have grown since it was looked at.
                self.layouts.write().remove(&append.topic);
                seen[at].1 = self.basis(&append.topic).await?;
            }
            let partition = self.choose(index, append, seen[at].1.partitions())?;
            append.placement = seen[at].1.placed(partition);
        }
        for feed in feeds {
            if seen.iter().all(|(topic, _)| topic != feed) {
                seen.push((feed.clone(), self.basis(feed).await?));
            }
        }
        for (name, basis) in seen {
            if let Basis::New(config) = basis {
                commit.config.push(ConfigChange::CreateTopic { name, config });
            }
        }
        Ok(())
    }

    fn choose(&self, index: usize, append: &Append, partitions: u32) -> Result<Partition, BusError> {
        if let Placement::Named(partition) = append.placement {
            if partition.0 >= partitions {
                let topic = append.topic.clone();
                return Err(BusError::NoSuchPartition { index, topic, partition, partitions });
            }
            return Ok(partition);
        }
        Ok(match (&append.event.key, append.event.id) {
            _ if partitions == 1 => Partition(0),
            (Some(key), _) => partition_of(key.as_bytes(), partitions),
            (None, Some(id)) => partition_of(id.as_bytes(), partitions),
            (None, None) => Partition(self.round_robin.fetch_add(1, Ordering::Relaxed) % partitions),
        })
    }

    async fn basis(&self, topic: &TopicName) -> Result<Basis, BusError> {
        if let Some(layout) = self.layouts.read().get(topic) {
            return Ok(Basis::Known(*layout));
        }
        let Some(state) = self.rules.log.topic(topic).await.map_err(unavailable)? else {
            return self.new_topic(topic).await.map(Basis::New);
        };
        let layout = Layout { topic: state.number, partitions: state.config.partitions };
        self.layouts.write().insert(topic.clone(), layout);
        Ok(Basis::Known(layout))
    }

    /// The settings of a topic that is to come into being.
    async fn new_topic(&self, topic: &TopicName) -> Result<TopicConfig, BusError> {
        // The checks before this layer let nobody but the hub itself publish there.
        if topic.is_internal() {
            return Ok(TopicConfig::default());
        }
        let Some(auto_create) = &self.rules.auto_create else {
            return Err(CommitError::TopicNotFound(topic.clone()).into());
        };
        if self.rules.log.topics().await.map_err(unavailable)?.len() >= auto_create.max_topics {
            return Err(BusError::TooManyTopics { limit: auto_create.max_topics });
        }
        Ok(auto_create.configs.get(topic).cloned().unwrap_or_default())
    }
}

fn unavailable(error: ReadError) -> BusError {
    BusError::Commit(CommitError::Unavailable(error.to_string()))
}
