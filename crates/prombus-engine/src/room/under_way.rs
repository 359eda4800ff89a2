//! What commits that are not decided yet make of documents: an upper bound of how large these may be for whoever comes next.

use parking_lot::Mutex;
use prombus_core::{DocumentWrite, WriteOp};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A collection, and a key in it.
type DocumentId = Arc<(Arc<str>, String)>;

/// The documents that commits under way write.
#[derive(Debug, Default)]
pub(super) struct UnderWay(Mutex<HashMap<DocumentId, Size>>);

/// How large commits under way may make a document.
#[derive(Debug, Default)]
struct Size {
    /// How large those documents are that take its place, and how many are of each size.
    sets: BTreeMap<usize, usize>,
    /// How much is added to it at most.
    added: usize,
}

/// How large commits before this one may have made a document.
#[derive(Debug, Clone, Copy)]
pub(super) struct Earlier {
    set: usize,
    added: usize,
}

impl Earlier {
    /// On a document that everybody sees so large.
    pub fn on(self, visible: usize) -> usize {
        visible.max(self.set).saturating_add(self.added)
    }
}

/// How large a write may make its document.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    /// As large as this, whatever it was.
    Set(usize),
    /// Larger by this.
    Add(usize),
}

impl Change {
    /// What a write may do at most.
    pub fn of(write: &DocumentWrite) -> Self {
        match &write.op {
            WriteOp::Set(_) => Self::Set(write.size()),
            WriteOp::Merge(_) | WriteOp::Inc(_) | WriteOp::Update { .. } => Self::Add(write.size()),
            WriteOp::Delete | WriteOp::Receipt(_) => Self::Add(0),
        }
    }

    /// The document after it, which was so large before. It may also be as it was: its commit may be refused.
    pub fn on(self, before: usize) -> usize {
        match self {
            Self::Set(bytes) => before.max(bytes),
            Self::Add(bytes) => before.saturating_add(bytes),
        }
    }
}

impl Size {
    fn earlier(&self) -> Earlier {
        let set = self.sets.last_key_value().map_or(0, |(bytes, _)| *bytes);
        Earlier { set, added: self.added }
    }

    fn enter(&mut self, change: Change) {
        match change {
            Change::Set(bytes) => *self.sets.entry(bytes).or_default() += 1,
            Change::Add(bytes) => self.added += bytes,
        }
    }

    fn leave(&mut self, change: Change) {
        match change {
            Change::Set(bytes) => {
                if let Some(count) = self.sets.get_mut(&bytes) {
                    *count -= 1;
                    if *count == 0 {
                        self.sets.remove(&bytes);
                    }
                }
            }
            Change::Add(bytes) => self.added -= bytes,
        }
    }

    fn is_nothing(&self) -> bool {
        self.sets.is_empty() && self.added == 0
    }
}

/// What one commit does to documents, known to others until it is dropped.
#[derive(Debug)]
pub(super) struct Changes {
    all: Arc<UnderWay>,
    own: Vec<(DocumentId, Change)>,
}

impl Changes {
    pub fn none(all: &Arc<UnderWay>) -> Self {
        Self { all: all.clone(), own: Vec::new() }
    }

    /// Takes one more write in, and says what those before it may have made of its document.
    pub fn enter(&mut self, write: &DocumentWrite) -> Earlier {
        let change = Change::of(write);
        let name = Arc::new((write.collection.clone(), write.key.clone()));
        let mut all = self.all.0.lock();
        let size = all.entry(name.clone()).or_default();
        let earlier = size.earlier();
        size.enter(change);
        self.own.push((name, change));
        earlier
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        for (name, change) in self.own.drain(..) {
            if let Some(size) = all.get_mut(&name) {
                size.leave(change);
                if size.is_nothing() {
                    all.remove(&name);
                }
            }
        }
    }
}
