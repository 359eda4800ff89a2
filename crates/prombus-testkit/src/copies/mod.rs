//! What [`Copies`] promise, of a store that has files. One that has none is put through
//! [`no_copies_conformance!`](crate::no_copies_conformance).

mod content;
mod reading;

pub use content::*;
pub use reading::*;

use crate::Subject;
use crate::subject::must;
use prombus_core::{Copies, HeldCopy};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A piece of a file is read at a time, of a length that nothing else has.
const PIECE: usize = 997;

/// Files by name.
pub type Files = BTreeMap<String, Vec<u8>>;

/// A fresh, empty store that can be copied.
pub struct CopiesSubject {
    /// The store.
    pub store: Subject,
    /// What copies it.
    pub copies: Arc<dyn Copies>,
    /// Opens a folder that has these files and no others.
    pub open: Box<dyn Fn(&Files) -> Subject + Send + Sync>,
}

impl CopiesSubject {
    async fn hold(&self) -> Arc<dyn HeldCopy> {
        must(self.copies.hold().await, "a store that is open can be copied")
    }

    /// The store as of now, copied.
    async fn copied(&self) -> Subject {
        (self.open)(&fetched(&*self.hold().await).await)
    }
}

/// All files of a copy, read piece by piece.
async fn fetched(copy: &dyn HeldCopy) -> Files {
    let mut files = Files::new();
    for file in copy.files() {
        let mut bytes = Vec::new();
        while bytes.len() < file.bytes as usize {
            let piece = copy.read(&file.name, bytes.len() as u64, PIECE).await;
            bytes.extend_from_slice(&must(piece, "a file of a copy can be read"));
        }
        files.insert(file.name.clone(), bytes);
    }
    files
}
