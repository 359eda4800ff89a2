//! How projections are doing.

use super::super::actor::Positions;
use super::super::stored::cursor_key;
use super::super::{
    ProjectionError, ProjectionFigures, ProjectionPartition, ProjectionState, ProjectionStatus, RebuildStatus,
};
use super::Projections;
use prombus_core::{EventLogExt, Offset, Partition, TopicName};

impl Projections {
    /// The names of all projections, in order. What each is may be much, so it is asked for one by one.
    pub fn names(&self) -> Vec<String> {
        self.running.lock().keys().cloned().collect()
    }

    /// The figures of all projections, by name.
    pub async fn figures(&self) -> Result<Vec<ProjectionFigures>, ProjectionError> {
        let mut all = Vec::new();
        for name in self.names() {
            let known = self.running.lock().get(&name).map(|handle| {
                let topic = handle.record.borrow().definition.topic.clone();
                let errors = handle.cell.status.lock().errors;
                (topic, errors, handle.cell.positions.borrow().clone())
            });
            // It may have been deleted meanwhile.
            let Some((topic, errors, positions)) = known else { continue };
            let lag = lag_of(&self.partitions(&topic, &name, false, &positions).await?);
            all.push(ProjectionFigures { name, topic, errors, lag });
            // There may be many, and none of this may ever wait.
            tokio::task::yield_now().await;
        }
        Ok(all)
    }

    /// How a projection is doing.
    pub async fn get(&self, name: &str) -> Result<ProjectionStatus, ProjectionError> {
        self.status(name).await
    }

    pub(super) async fn status(&self, name: &str) -> Result<ProjectionStatus, ProjectionError> {
        let (record, status, positions, collections) = {
            let running = self.running.lock();
            let handle = running.get(name).ok_or_else(|| ProjectionError::NotFound(name.to_owned()))?;
            // Before how it is doing: why a rebuild was given up is noted before it is stored that it was.
            let record = handle.record.borrow().clone();
            let mut status = handle.cell.status.lock().clone();
            if handle.task.is_finished() {
                status.state = ProjectionState::Stopped("it has ended; the log says why".into());
            }
            let positions = handle.cell.positions.borrow().clone();
            let collections = handle.setup.collections.iter().map(|(name, _)| name.to_string());
            (record, status, positions, collections.collect())
        };
        let partitions = self.partitions(&record.definition.topic, name, false, &positions).await?;
        let rebuild = match record.rebuilding {
            false => None,
            true => {
                let (positions, failed) = status.rebuild.unwrap_or_default();
                let behind = self.partitions(&record.definition.topic, name, true, &positions).await?;
                Some(RebuildStatus { lag: lag_of(&behind), failed })
            }
        };
        Ok(ProjectionStatus {
            name: name.to_owned(),
            collections,
            state: status.state,
            stale: record.is_stale(),
            definition: record.definition,
            lag: lag_of(&partitions),
            partitions,
            errors: status.errors,
            last_error: status.last_error,
            rebuild,
            rebuild_error: status.rebuild_error,
        })
    }

    async fn partitions(
        &self,
        topic: &TopicName,
        name: &str,
        rebuild: bool,
        positions: &Positions,
    ) -> Result<Vec<ProjectionPartition>, ProjectionError> {
        let Some(topic) = self.hub.log.topic(topic).await? else { return Ok(Vec::new()) };
        let mut partitions = Vec::new();
        for partition in 0..topic.config.partitions {
            let bounds = self.hub.log.bounds(&topic.pinned(), Partition(partition)).await?;
            let known =
                positions.next.get(partition as usize).filter(|_| positions.topic == Some(topic.number));
            let next = match known {
                Some(next) => Offset(*next),
                // It has not looked yet.
                None => {
                    let cursor =
                        self.hub.log.cursor(&cursor_key(&topic.name, name, rebuild, partition)).await?;
                    cursor.map_or(bounds.first, |cursor| cursor.next)
                }
            };
            partitions.push(ProjectionPartition { partition: Partition(partition), next, tail: bounds.next });
        }
        Ok(partitions)
    }
}

fn lag_of(partitions: &[ProjectionPartition]) -> u64 {
    partitions.iter().map(|at| at.tail.0.saturating_sub(at.next.0)).sum()
}
