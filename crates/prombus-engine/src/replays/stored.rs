//! How bulk replays are stored: a document for each in a collection of the hub's own. What is published and the document that
//! says how far that goes are one commit, which is refused if the document was changed since. So nothing is copied twice or
//! left out by a crash, a replay that was paused or cancelled publishes nothing more, and of two hubs that go on with the same
//! one, one is refused.

use super::definition::{Definition, Left};
use super::step::Step;
use super::{Counts, ReplayError, ReplayState};
use prombus_core::collection;
use prombus_core::{Document, DocumentWrite, Documents, Json, ReadError, ScanRequest, WriteOp};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How many are read at once.
const PAGE: usize = 100;
/// How many of the last events that were left out are told.
const TOLD_ERRORS: usize = 20;

/// A replay and how far it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub definition: Definition,
    /// The incarnation of the topic that is read.
    pub topic: u32,
    /// The incarnation of the topic that copies go to, once there is one.
    #[serde(default)]
    pub target: Option<u32>,
    pub state: ReplayState,
    /// Why it has failed.
    #[serde(default)]
    pub reason: Option<String>,
    /// What is left of each partition.
    pub left: Vec<Left>,
    pub counts: Counts,
    pub last_errors: Vec<ReplayError>,
    /// When it was begun and when it ended, in epoch milliseconds.
    pub began_ms: u64,
    #[serde(default)]
    pub ended_ms: Option<u64>,
    /// How long it has worked, in milliseconds.
    pub worked_ms: u64,
}

impl Record {
    /// One that begins, of a topic with this number and this much to copy.
    pub fn begun(definition: Definition, (topic, left): (u32, Vec<Left>), now_ms: u64) -> Self {
        Self {
            definition,
            topic,
            target: None,
            state: ReplayState::Running,
            reason: None,
            left,
            counts: Counts::default(),
            last_errors: Vec::new(),
            began_ms: now_ms,
            ended_ms: None,
            worked_ms: 0,
        }
    }

    /// How many offsets are left.
    pub fn left(&self) -> u64 {
        self.left.iter().map(|left| left.count()).sum()
    }

    /// The replay after a step.
    pub fn after(&self, step: &Step, (worked_ms, now_ms): (u64, u64)) -> Self {
        let mut after = self.clone();
        after.worked_ms = worked_ms;
        match step.partition {
            Some(partition) => after.left[partition.0 as usize].next = step.next,
            None => after.end(ReplayState::Done, None, now_ms),
        }
        after.counts.read += step.read;
        after.counts.copied += step.copies.len() as u64;
        after.counts.errors += step.errors.len() as u64;
        after.counts.lost += step.lost;
        after.last_errors.extend(step.errors.iter().cloned());
        after.last_errors.drain(..after.last_errors.len().saturating_sub(TOLD_ERRORS));
        after
    }

    /// It is over.
    pub fn end(&mut self, state: ReplayState, reason: Option<String>, now_ms: u64) {
        (self.state, self.reason, self.ended_ms) = (state, reason, Some(now_ms));
    }

    /// What stores it in place of what is stored with that version.
    pub fn write(&self, name: &str, version: u64) -> DocumentWrite {
        let body = Json::from_stored(serde_json::to_vec(self).unwrap_or_default().into());
        DocumentWrite {
            if_version: Some(version),
            ..DocumentWrite::new(&collection_name(), name, WriteOp::Set(body))
        }
    }
}

/// A record, and the version that it has in the store.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub record: Record,
    pub version: u64,
}

fn parse(document: &Document) -> Result<Stored, ReadError> {
    let record = serde_json::from_slice(document.body.as_bytes())
        .map_err(|error| ReadError::Corrupt(format!("replay {:?}: {error}", document.key)))?;
    Ok(Stored { record, version: document.version })
}

/// The collection that says which replays there are.
pub(super) fn collection_name() -> Arc<str> {
    collection::internal_name("hub", "replays")
}

/// What is stored of a replay.
pub(super) async fn find(documents: &dyn Documents, name: &str) -> Result<Option<Stored>, ReadError> {
    documents.document(&collection_name(), name).await?.as_ref().map(parse).transpose()
}

/// What removes one that is stored with that version.
pub(super) fn removal(name: &str, version: u64) -> DocumentWrite {
    DocumentWrite {
        if_version: Some(version),
        ..DocumentWrite::new(&collection_name(), name, WriteOp::Delete)
    }
}

/// Some replays behind `after`, by name; none at the end.
pub(super) async fn page(
    documents: &dyn Documents,
    after: Option<String>,
) -> Result<Vec<(String, Stored)>, ReadError> {
    let request = ScanRequest { collection: collection_name().to_string(), after, limit: PAGE };
    let page = documents.scan(request).await?;
    page.into_iter().map(|document| Ok((document.key.clone(), parse(&document)?))).collect()
}
