//! Whose documents have a past: those that a changelog makes of single events.

use super::batch::Projector;
use super::{Plan, ProjectionError, Projections};
use prombus_core::TopicName;
use std::sync::Arc;

impl Projections {
    /// The plan of the changelog that fills a collection, and its topic.
    pub(crate) fn changelog_of(&self, collection: &str) -> Result<(Arc<Plan>, TopicName), ProjectionError> {
        let reason = match self.filler_of(collection) {
            Some((Projector::Plan(plan), topic)) if plan.is_changelog() => return Ok((plan, topic)),
            Some((Projector::Halted(reason), _)) => reason,
            Some((Projector::Plan(_) | Projector::Code(_), _)) => format!(
                "collection {collection} is not filled by a changelog: a document may depend on events of any key"
            ),
            None => format!("no projection writes collection {collection}, so its documents have no history"),
        };
        Err(ProjectionError::Bad(reason))
    }
}
