//! Whose documents have a past: those that a changelog makes of single events.

use super::super::MAX_WAIT;
use super::{COMPILING, Projections};
use crate::projections::batch::Projector;
use crate::projections::{Plan, ProjectionError};
use prombus_core::{ReadError, TopicName};
use std::sync::Arc;

impl Projections {
    /// The plan of the changelog that fills a collection, and its topic.
    pub(crate) async fn changelog_of(
        &self,
        collection: &str,
    ) -> Result<(Arc<Plan>, TopicName), ProjectionError> {
        let reason = match self.filler_of(collection).await? {
            Some((Projector::Plan(plan), _)) if plan.normalize => format!(
                "collection {collection} is filled from events upgraded to the latest version of their schema, and which version that was at a given time is unknown"
            ),
            Some((Projector::Plan(plan), topic)) if plan.is_changelog() => return Ok((plan, topic)),
            Some((Projector::Halted(reason), _)) => reason,
            Some((Projector::Plan(_) | Projector::Code(_), _)) => format!(
                "collection {collection} is not filled by a changelog: a document may depend on events of any key"
            ),
            None => format!("no projection writes collection {collection}, so its documents have no history"),
        };
        Err(ProjectionError::Bad(reason))
    }

    /// What fills a collection, and from which topic.
    async fn filler_of(&self, collection: &str) -> Result<Option<(Projector, TopicName)>, ProjectionError> {
        let found = {
            let running = self.running.lock();
            let owner = running.iter().find(|(_, handle)| handle.writes(collection));
            owner.map(|(name, owner)| {
                (name.clone(), owner.setup.clone(), owner.record.borrow().definition.topic.clone())
            })
        };
        let Some((name, setup, topic)) = found else { return Ok(None) };
        let started = tokio::time::timeout(MAX_WAIT, setup.projector(&self.hub, &name)).await;
        let projector = started.map_err(|_| ReadError::Unavailable(COMPILING.to_owned()))?;
        Ok(Some((projector.clone(), topic)))
    }
}
