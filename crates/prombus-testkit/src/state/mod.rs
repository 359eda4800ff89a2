//! Behaviours of documents and cursors, and of commits that mix them with events.

mod cursors;
mod documents;
mod mixed;
mod scanning;

pub use cursors::*;
pub use documents::*;
pub use mixed::*;
pub use scanning::*;

use crate::Subject;
use crate::build::json;
use prombus_core::{Commit, CommitError, DocumentWrite, Receipt, WriteOp};

fn write(collection: &str, key: &str, op: WriteOp) -> DocumentWrite {
    DocumentWrite::new(collection, key, op)
}

fn set(key: &str, body: &str) -> DocumentWrite {
    write("c", key, WriteOp::Set(json(body)))
}

fn inc(key: &str, amounts: &str) -> DocumentWrite {
    write("c", key, WriteOp::Inc(json(amounts)))
}

async fn commit(s: &Subject, documents: Vec<DocumentWrite>) -> Result<Receipt, CommitError> {
    s.commit(Commit { documents, ..Commit::default() }).await
}
