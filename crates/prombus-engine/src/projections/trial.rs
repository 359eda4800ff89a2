//! A projection in Rust without a hub, for tests: what it writes is kept in memory and read back by it.

use super::batch::caught;
use super::tx::{Pending, Project, ProjectFailure, Scope, Tx};
use crate::hub::Limits;
use crate::layers::Checks;
use prombus_core::{Append, Documents, Event, Json, Owner, SystemClock};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A projection that is tried out. Each event is applied once, as the hub would, and does all that it asks for or nothing.
pub struct Trial {
    project: Arc<dyn Project>,
    collections: Vec<Arc<str>>,
    owner: Owner,
    checks: Checks,
    /// What was there before: what was written is pending for ever.
    documents: Arc<dyn Documents>,
    pending: Pending,
}

impl Trial {
    /// A projection that writes these collections, on documents that are there already.
    pub fn new(project: impl Project, collections: &[&str], documents: Arc<dyn Documents>) -> Self {
        Self {
            project: Arc::new(project),
            collections: collections.iter().map(|name| Arc::from(*name)).collect(),
            owner: Owner::projection("trial"),
            checks: Checks { limits: Limits::default(), clock: Arc::new(SystemClock) },
            documents,
            pending: Pending::default(),
        }
    }

    /// Applies an event. Where it fails, nothing has happened. It is not tried again.
    pub async fn apply(&mut self, event: &Event) -> Result<(), ProjectFailure> {
        let scope = Scope {
            documents: &*self.documents,
            owner: &self.owner,
            collections: &self.collections,
            checks: &self.checks,
            target: |name| name.into(),
            publishes: true,
        };
        let (writes, publishes) = (self.pending.writes.len(), self.pending.publishes.len());
        let mut tx = Tx { scope: &scope, pending: &mut self.pending, event };
        let applied = caught(self.project.apply(event, &mut tx)).await;
        match &applied {
            Ok(()) => self.pending.keep(),
            Err(_) => self.pending.go_back(writes, publishes),
        }
        applied
    }

    /// A document as it is now.
    pub fn document(&self, collection: &str, key: &str) -> Option<&Json> {
        self.pending.document(collection, key)
    }

    /// The keys of a collection as it is now.
    pub fn keys(&self, collection: &str) -> BTreeSet<&str> {
        self.pending.keys(collection)
    }

    /// What was published so far.
    pub fn published(&self) -> &[Append] {
        &self.pending.publishes
    }
}
