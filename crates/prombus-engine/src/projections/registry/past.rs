//! Whose documents have a past: those that a changelog makes of events with the same key.
//!
//! A definition whose key is `event.key` sees to that. Any other is watched while it runs: the first event that is about a
//! document with another key leaves a note in the commit that applies it. What else decides over a document than its events
//! takes its past, too, such as an index that refuses what other documents have.

use super::super::MAX_WAIT;
use super::{COMPILING, Projections};
use crate::projections::batch::Projector;
use crate::projections::stored::{OTHER_KEYS, failures_of, record_of};
use crate::projections::{Plan, ProjectionError};
use prombus_core::{ReadError, TopicName, TopicState};
use std::sync::Arc;

/// A changelog that fills a collection.
pub(crate) struct ChangelogOf<'a> {
    collection: &'a str,
    /// The projection.
    name: String,
    /// What it does with an event.
    pub plan: Arc<Plan>,
    /// The topic that it reads.
    pub topic: TopicName,
}

impl Projections {
    /// The changelog that fills a collection.
    pub(crate) async fn changelog_of<'a>(
        &self,
        collection: &'a str,
    ) -> Result<ChangelogOf<'a>, ProjectionError> {
        let reason = match self.filler_of(collection).await? {
            Some((_, Projector::Plan(plan), _)) if plan.normalize => format!(
                "collection {collection} is filled from events upgraded to the latest version of their schema, and which version that was at a given time is unknown"
            ),
            Some((_, Projector::Plan(plan), _)) if plan.is_changelog() && plan.has_unique_index() => format!(
                "collection {collection} has a unique index, so whether an event wrote its document depended on other documents"
            ),
            Some((name, Projector::Plan(plan), topic)) if plan.is_changelog() => {
                return Ok(ChangelogOf { collection, name, plan, topic });
            }
            Some((_, Projector::Halted(reason), _)) => reason,
            Some((_, Projector::Plan(_) | Projector::Code(_), _)) => format!(
                "collection {collection} is not filled by a changelog: a document may depend on events of any key"
            ),
            None => format!("no projection writes collection {collection}, so its documents have no history"),
        };
        Err(ProjectionError::Bad(reason))
    }

    /// Refuses to say what documents of a changelog came from if some event of the topic, as it is now, is about a document
    /// with another key than its own, or may be.
    pub(crate) async fn check_keys(
        &self,
        changelog: &ChangelogOf<'_>,
        topic: &TopicState,
    ) -> Result<(), ProjectionError> {
        let ChangelogOf { collection, name, plan, .. } = changelog;
        if !plan.may_write_other_keys() {
            return Ok(());
        }
        // It is the projection that finds out.
        if !self.until_all_seen(collection, topic).await? {
            let why = format!("projection {name} has not seen all events of the topic yet; try again later");
            return Err(ReadError::Unavailable(why).into());
        }
        let documents = &*self.hub.documents;
        if documents.document(&failures_of(name), OTHER_KEYS).await?.is_some() {
            return Err(ProjectionError::Bad(format!(
                "collection {collection} has documents that events with another key have written: a document at a time is known only where all events have the key of the document they write"
            )));
        }
        match record_of(documents, name).await? {
            Some(record) if !record.keys_compared => Err(ProjectionError::Bad(format!(
                "whether all events had the key of the document they wrote is not known of collection {collection}, because an earlier version or definition has filled it: rebuild projection {name}"
            ))),
            _ => Ok(()),
        }
    }

    /// What fills a collection, and from which topic.
    async fn filler_of(
        &self,
        collection: &str,
    ) -> Result<Option<(String, Projector, TopicName)>, ProjectionError> {
        let found = {
            let running = self.running.lock();
            let owner = running.iter().find(|(_, handle)| handle.writes(collection));
            owner.map(|(name, owner)| {
                (name.clone(), owner.setup.clone(), owner.record.borrow().definition.topic.clone())
            })
        };
        let Some((name, setup, topic)) = found else { return Ok(None) };
        let started = tokio::time::timeout(MAX_WAIT, setup.projector(&self.hub, &name)).await;
        let projector = started.map_err(|_| ReadError::Unavailable(COMPILING.to_owned()))?.clone();
        Ok(Some((name, projector, topic)))
    }
}
