//! Rebuilds, as they are asked for: what they are refused for before they begin.

use super::super::actor::Command;
use super::super::{ProjectionError, ProjectionStatus};
use super::{Holdings, Projections};
use prombus_core::{EventLogExt, Offset, Partition};
use tokio::sync::oneshot;

impl Projections {
    /// Starts to make the collections of a projection anew.
    pub async fn rebuild(&self, name: &str, partial: bool) -> Result<ProjectionStatus, ProjectionError> {
        self.rebuild_if(name, partial, |_| Ok(())).await
    }

    /// The same, if `may_rebuild` takes what the projection is. It is asked twice: before what takes long, and where nothing
    /// changes meanwhile.
    pub async fn rebuild_if<E: From<ProjectionError>>(
        &self,
        name: &str,
        partial: bool,
        may_rebuild: impl Fn(&Holdings) -> Result<(), E> + Send + Sync,
    ) -> Result<ProjectionStatus, E> {
        let not_found = || ProjectionError::NotFound(name.to_owned());
        may_rebuild(&self.holdings(name).await?.ok_or_else(not_found)?)?;
        self.until_started(name).await?;
        let _changing = self.turn().await?;
        may_rebuild(&self.holdings(name).await?.ok_or_else(not_found)?)?;
        Ok(self.rebuild_now(name, partial).await?)
    }

    /// Whoever calls this has the turn.
    async fn rebuild_now(&self, name: &str, partial: bool) -> Result<ProjectionStatus, ProjectionError> {
        let record = self.record(name).ok_or_else(|| ProjectionError::NotFound(name.to_owned()))?;
        if record.rebuilding {
            return Err(ProjectionError::Rebuilding(name.to_owned()));
        }
        if let Some(topic) = self.hub.log.topic(&record.definition.topic).await? {
            for partition in (0..topic.config.partitions).map(Partition) {
                let first = self.hub.log.bounds(&topic.pinned(), partition).await?.first;
                if first > Offset(0) && !partial {
                    return Err(ProjectionError::Incomplete { partition, first });
                }
            }
        }
        let halted = self.running.lock().get(name).and_then(|handle| handle.setup.halted());
        if let Some(reason) = halted {
            return Err(ProjectionError::Bad(format!("{reason}; redefine it first")));
        }
        let commands = self.commands(name);
        let ended = || ProjectionError::Bad(format!("projection {name:?} has ended; the log says why"));
        let (answer, answered) = oneshot::channel();
        let commands = commands.ok_or_else(ended)?;
        commands.send(Command::Rebuild { partial, answer }).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())??;
        self.status(name).await
    }
}
