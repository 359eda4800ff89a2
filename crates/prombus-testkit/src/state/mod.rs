//! Behaviours of documents and cursors, and of commits that mix them with events.

mod changefeeds;
mod collections;
mod cursors;
mod documents;
mod finding;
mod indexes;
mod lengths;
mod mixed;
mod scanning;
mod swapping;
mod versions;

pub use changefeeds::*;
pub use collections::*;
pub use cursors::*;
pub use documents::*;
pub use finding::*;
pub use indexes::*;
pub use lengths::*;
pub use mixed::*;
pub use scanning::*;
pub use swapping::*;
pub use versions::*;

use crate::Subject;
use crate::build::json;
use crate::subject::must;
use prombus_core::collection::{CollectionConfig, Condition, Index, Operand, SortKey, Test};
use prombus_core::{
    CollectionState, Commit, CommitError, ConfigChange, DocumentWrite, FieldPath, Find, FoundDocuments,
    Receipt, Sequence, Watched, WriteOp,
};

fn write(collection: &str, key: &str, op: WriteOp) -> DocumentWrite {
    DocumentWrite::new(collection, key, op)
}

fn set(key: &str, body: &str) -> DocumentWrite {
    write("c", key, WriteOp::Set(json(body)))
}

fn delete(key: &str) -> DocumentWrite {
    write("c", key, WriteOp::Delete)
}

fn inc(key: &str, amounts: &str) -> DocumentWrite {
    write("c", key, WriteOp::Inc(json(amounts)))
}

async fn commit(s: &Subject, documents: Vec<DocumentWrite>) -> Result<Receipt, CommitError> {
    s.commit(Commit { documents, ..Commit::default() }).await
}

/// Writes that nothing speaks against. Gives the versions.
async fn wrote(s: &Subject, writes: Vec<DocumentWrite>) -> Vec<u64> {
    must(commit(s, writes).await, "a write that nothing speaks against happens").versions
}

async fn body(s: &Subject, key: &str) -> Option<String> {
    let document = s.document("c", key).await?;
    Some(String::from_utf8_lossy(document.body.as_bytes()).into_owned())
}

fn field(path: &str) -> FieldPath {
    must(FieldPath::parse(path), "a path is one")
}

fn index(fields: &[&str]) -> Index {
    Index { fields: fields.iter().map(|path| field(path)).collect(), unique: false }
}

fn unique(fields: &[&str]) -> Index {
    Index { unique: true, ..index(fields) }
}

fn indexed(indexes: Vec<Index>) -> CollectionConfig {
    CollectionConfig { indexes, ..CollectionConfig::default() }
}

/// The change that gives a collection these settings.
fn put(name: &str, expect_revision: u64, config: CollectionConfig) -> ConfigChange {
    ConfigChange::PutCollection { name: name.into(), expect_revision, config }
}

/// The collection, if it is there.
async fn collection(s: &Subject, name: &str) -> Option<CollectionState> {
    must(s.documents().collection(name).await, "a collection can be looked up")
}

/// The collection once none of its indexes is being made any more.
async fn built(s: &Subject, name: &str) -> CollectionState {
    let mut seen = s.log.changed(&Watched::Everything, Sequence(0)).await;
    loop {
        match collection(s, name).await {
            Some(state) if state.building().is_none() => return state,
            Some(_) => seen = s.log.changed(&Watched::Everything, seen).await,
            None => panic!("collection {name} is there"),
        }
    }
}

/// Everything in a collection, newest first, in a page that is large enough.
fn all(name: &str) -> Find {
    let (collection, conditions, sort) = (name.to_owned(), Vec::new(), Vec::new());
    Find { collection, conditions, sort, offset: 0, limit: 1_000, max_bytes: usize::MAX, sort_bytes: 1 << 20 }
}

/// With one more condition.
fn when(mut find: Find, path: &str, test: Test) -> Find {
    find.conditions.push(Condition { field: field(path), test });
    find
}

/// Equality with a text.
fn is(text: &str) -> Test {
    Test::Eq(Operand::text(text))
}

/// Sorted by one more field, the greatest first where a minus leads.
fn by(mut find: Find, path: &str) -> Find {
    let (path, descending) = path.strip_prefix('-').map_or((path, false), |path| (path, true));
    find.sort.push(SortKey { field: field(path), descending });
    find
}

async fn found(s: &Subject, find: Find) -> FoundDocuments {
    must(s.documents().find(find).await, "a collection can be searched")
}

/// The keys of what is found.
async fn keys_of(s: &Subject, find: Find) -> Vec<String> {
    found(s, find).await.documents.into_iter().map(|document| document.key).collect()
}
