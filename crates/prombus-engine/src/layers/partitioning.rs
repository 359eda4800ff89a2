//! Decides which partition each event goes to, and makes topics that do not exist yet.
//!
//! A decision holds for one layout of the topic. The log refuses it once the topic has grown or was made
//! anew, and then it is taken again, so that all events of a key are always placed by the same rule.

use crate::bus::{Bus, BusError, Layer};
use async_trait::async_trait;
use parking_lot::RwLock;
use prombus_core::hashing::partition_of;
use prombus_core::{
    Append, Commit, CommitError, ConfigChange, EventLog, Layout, Partition, Placement, ReadError, Receipt,
    TopicConfig, TopicName,
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

#[async_trait]
impl Bus for Partitioned {
    async fn commit(&self, mut commit: Arc<Commit>) -> Result<Receipt, BusError> {
        let named: Vec<Placement> = commit.events.iter().map(|append| append.placement).collect();
        for _ in 0..MAX_TRIES {
            let placing = Arc::make_mut(&mut commit);
            // Most commits are about one topic, so the last answer is worth keeping.
            let mut last: Option<(TopicName, Layout)> = None;
            for (index, (append, placement)) in placing.events.iter_mut().zip(&named).enumerate() {
                append.placement = *placement;
                let mut layout = match &last {
                    Some((topic, layout)) if *topic == append.topic => *layout,
                    _ => self.layout(&append.topic).await?,
                };
                if matches!(placement, Placement::Named(partition) if partition.0 >= layout.partitions) {
                    // The topic may have grown since it was looked at.
                    self.layouts.write().remove(&append.topic);
                    layout = self.layout(&append.topic).await?;
                }
                append.placement = Placement::Placed(self.choose(index, append, layout)?, layout);
                last = Some((append.topic.clone(), layout));
            }
            match self.inner.commit(commit.clone()).await {
                // Only what was decided here can be decided anew.
                Err(BusError::Commit(
                    CommitError::StaleLayout(topic) | CommitError::TopicNotFound(topic),
                )) if commit.events.iter().any(|append| append.topic == topic) => {
                    self.layouts.write().remove(&topic);
                }
                answer => return answer,
            }
        }
        Err(BusError::Commit(CommitError::Busy))
    }
}

impl Partitioned {
    fn choose(&self, index: usize, append: &Append, layout: Layout) -> Result<Partition, BusError> {
        let partitions = layout.partitions;
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

    async fn layout(&self, topic: &TopicName) -> Result<Layout, BusError> {
        if let Some(layout) = self.layouts.read().get(topic) {
            return Ok(*layout);
        }
        let log = &self.rules.log;
        let state = match log.topic(topic).await.map_err(unavailable)? {
            Some(state) => state,
            None => {
                self.create(topic).await?;
                let state = log.topic(topic).await.map_err(unavailable)?;
                state.ok_or_else(|| CommitError::TopicNotFound(topic.clone()))?
            }
        };
        let layout = Layout { topic: state.number, partitions: state.config.partitions };
        self.layouts.write().insert(topic.clone(), layout);
        Ok(layout)
    }

    async fn create(&self, topic: &TopicName) -> Result<(), BusError> {
        let Some(auto_create) = &self.rules.auto_create else {
            return Err(CommitError::TopicNotFound(topic.clone()).into());
        };
        if self.rules.log.topics().await.map_err(unavailable)?.len() >= auto_create.max_topics {
            return Err(BusError::TooManyTopics { limit: auto_create.max_topics });
        }
        let config = auto_create.configs.get(topic).cloned().unwrap_or_default();
        let change = ConfigChange::CreateTopic { name: topic.clone(), config };
        let commit = Commit { config: vec![change], ..Commit::default() };
        match self.inner.commit(Arc::new(commit)).await {
            // Someone else was faster: just as good.
            Ok(_) | Err(BusError::Commit(CommitError::TopicExists(_))) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn unavailable(error: ReadError) -> BusError {
    BusError::Commit(CommitError::Unavailable(error.to_string()))
}
