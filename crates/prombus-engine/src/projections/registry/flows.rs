//! The ways that events take through the projections that run and to snapshot topics, and whether one more of them would
//! lead in a circle. Projections do not change while that is decided.

use super::super::circle::{self, Flow};
use super::{ProjectionError, Projections};
use prombus_core::collection::CollectionConfig;
use prombus_core::{ReadError, TopicConfig, TopicName, TopicState};
use std::sync::Arc;
use tokio::sync::MutexGuard;

impl Projections {
    /// How events that a projection makes of a topic would come back to it through those that run, and `snapshots`.
    pub(super) fn circle(
        &self,
        name: &str,
        (topic, collections): (&TopicName, &[(Arc<str>, CollectionConfig)]),
        snapshots: &[Flow],
    ) -> Option<String> {
        let mut others = self.running_flows(Some(name));
        others.extend_from_slice(snapshots);
        circle::through(&Flow::of(name, topic, collections), &others)
    }

    /// The ways through all projections that run but one, and do not stand still.
    fn running_flows(&self, but: Option<&str>) -> Vec<Flow> {
        let running = self.running.lock();
        let others = running
            .iter()
            .filter(|(name, handle)| Some(name.as_str()) != but && handle.setup.halted().is_none());
        let way = |(name, handle): (&String, &super::Handle)| {
            Flow::of(name, &handle.record.borrow().definition.topic, &handle.setup.collections)
        };
        others.map(way).collect()
    }

    /// The ways to snapshot topics. Those of the configuration count too, as topics are made by it whenever they are made
    /// anew.
    pub(super) async fn snapshot_flows(&self) -> Result<Vec<Flow>, ReadError> {
        Ok(self.flows_to_snapshots(&self.hub.log.topics().await?))
    }

    fn flows_to_snapshots(&self, topics: &[TopicState]) -> Vec<Flow> {
        let stored = topics.iter().map(|topic| (&topic.name, &topic.config));
        let all = stored.chain(&self.hub.new_topics.configs);
        all.filter_map(|(name, config)| Flow::of_snapshots(name, config)).collect()
    }

    /// Refuses settings of a topic whose snapshots would lead back to it through projections that run. None is made or
    /// changed until what this gives is dropped. Gives all topics, too.
    pub(crate) async fn allow_snapshots(
        &self,
        name: &TopicName,
        config: &TopicConfig,
    ) -> Result<(MutexGuard<'_, bool>, Vec<TopicState>), ProjectionError> {
        let unchanged = self.turn().await?;
        let topics = self.hub.log.topics().await?;
        let mut others = self.flows_to_snapshots(&topics);
        others.extend(self.running_flows(None));
        let way = Flow::of_snapshots(name, config);
        match way.and_then(|way| circle::through(&way, &others)) {
            Some(circle) => Err(ProjectionError::Bad(circle)),
            None => Ok((unchanged, topics)),
        }
    }
}
