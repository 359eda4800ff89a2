//! The document of a changelog projection at a time: its definition, as it is now, over the events of the document's key.
//!
//! That is the document only where events and documents have the same keys. A definition whose key is `event.key` sees to
//! that. Any other may: each event of the key is asked which document it writes, and one that writes another is a mistake of
//! the question. Whether events of other keys have written documents is known to their projection (`registry/past.rs`).

use super::reduce::{Effort, Reduced, Reducer};
use super::{TimeTravelError, walk};
use crate::projections::Plan;
use prombus_core::document::{self, MAX_BODY_BYTES};
use prombus_core::{Document, DocumentWrite, Event, EventLog, TopicState, Versioning, WriteOp};
use std::sync::Arc;

/// The document that the events of its key with `ts <= at` leave.
pub async fn document_of(
    log: &dyn EventLog,
    topic: &TopicState,
    (key, at): (&str, u64),
    plan: Arc<Plan>,
) -> Result<Option<Document>, TimeTravelError> {
    let reducer = Projected { plan, key };
    Ok(walk::state_of(log, topic, (key, at), &reducer).await?.map(|state| state.state))
}

struct Projected<'a> {
    plan: Arc<Plan>,
    key: &'a str,
}

impl Reducer for Projected<'_> {
    type State = Document;

    fn effort(&self) -> Effort {
        Effort::Evaluates { is_costly: self.plan.is_costly() }
    }

    fn needs_last_only(&self) -> bool {
        false
    }

    fn apply(&self, before: Option<Document>, event: &Event) -> Result<Reduced<Document>, TimeTravelError> {
        // An event that fails writes nothing, and goes to the dead letters.
        let untouched = |before| Ok(Reduced { state: before, is_whole: false });
        let applied = self.plan.time(|| (self.plan.apply(event), 1));
        let Some(write) = applied.ok().and_then(|writes| writes.into_iter().next()) else {
            return untouched(before);
        };
        if write.key != self.key {
            return Err(TimeTravelError::Bad(format!(
                "the events of key {:?} write document {:?}: a document at a time is known only where events have the key of the document they write",
                self.key, write.key
            )));
        }
        let is_whole = write.versioning == Versioning::None;
        let revision = before.as_ref().and_then(|document| document.revision);
        if let Versioning::Newer(new) = write.versioning
            && revision.is_some_and(|now| now >= new)
        {
            return untouched(before);
        }
        match written(&write, before.as_ref()) {
            Some(state) => Ok(Reduced { state, is_whole }),
            None => untouched(before),
        }
    }
}

/// The document after a write; `None` where a store would refuse it.
fn written(write: &DocumentWrite, before: Option<&Document>) -> Option<Option<Document>> {
    if write.op == WriteOp::Delete {
        return Some(None);
    }
    let body = document::apply(before.map(|document| &document.body), &write.op).ok()??;
    let revision = match write.versioning {
        Versioning::Newer(revision) => Some(revision),
        Versioning::None | Versioning::Count => None,
    };
    let version = before.map_or(0, |document| document.version) + 1;
    let document = Document::new(write.key.clone(), version, revision, write.ts, body);
    (document.size() <= MAX_BODY_BYTES).then_some(Some(document))
}
