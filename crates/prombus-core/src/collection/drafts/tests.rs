//! Drafts over a store that is nothing like rows: what they ask of one is enough.

use super::*;
use crate::collection::{CollectionConfig, FieldPath, Index, RowBytes};
use crate::commit::{Commit, Receipt};
use crate::error::ReadError;
use crate::json::Json;
use crate::position::Sequence;
use crate::topic::Durability;
use serde_json::Value;

/// A store without rows, or any order: one collection with a unique index.
struct Plain {
    state: CollectionState,
    documents: Vec<Document>,
}

impl Plain {
    fn with(documents: &[(&str, &'static str)]) -> Self {
        let index = Index { fields: vec![FieldPath::parse("v").unwrap()], unique: true };
        let config = CollectionConfig { indexes: vec![index], ..CollectionConfig::default() };
        let document = |(key, body): &(&str, &'static str)| {
            Document::new((*key).into(), 1, None, 0, Json::parse((*body).into()).unwrap())
        };
        let documents = documents.iter().map(document).collect();
        Self { state: CollectionState::new("c".into(), 1, config), documents }
    }

    /// What the writes of one commit leave: of each document its last write, and its version.
    fn written(&self, writes: Vec<DocumentWrite>) -> Result<Vec<(usize, u64)>, CommitError> {
        let commit = Commit { documents: writes, ..Commit::default() };
        let (events, versions, durability) = (Vec::new(), Vec::new(), Durability::Sync);
        let receipt = Receipt { events, versions, durability, sequence: Sequence(0) };
        let (mut drafts, mut bytes) = (Drafts::default(), ResultBytes::new(usize::MAX));
        for _round in 0..2 {
            for index in 0..commit.documents.len() {
                let base = Base { prior: self, state: &self.state, bytes: &mut bytes };
                drafts.take(base, Written { commit: &commit, index, receipt: &receipt })?;
            }
            drafts.begin_writing();
        }
        let version = |document: Option<Document>| document.map_or(0, |document| document.version);
        Ok(drafts.finish().0.into_iter().map(|it| (it.write, version(it.document))).collect())
    }
}

impl PriorDocuments for Plain {
    type Row = ();

    fn look_up(&self, _: &CollectionState, key: &str) -> Result<Slot<()>, ReadError> {
        let document = self.documents.iter().find(|document| document.key == key).cloned();
        Ok(Slot { place: (), document, row_bytes: RowBytes::default() })
    }

    fn unique_values(&self, _: &CollectionState, unique: &IndexState, document: &Document) -> Option<Bytes> {
        let fields = &unique.index.fields;
        let body = document.fields(fields.iter());
        let values: Option<Vec<Value>> = fields.iter().map(|field| document.value(&body, field)).collect();
        values.map(|values| Value::from(values).to_string().into())
    }

    fn holder(&self, values: Bytes, counts: &dyn Fn(&str) -> bool) -> Result<Option<String>, ReadError> {
        let has = |document: &&Document| {
            let own = self.unique_values(&self.state, &self.state.indexes[0], document);
            own.as_ref() == Some(&values) && counts(&document.key)
        };
        Ok(self.documents.iter().find(has).map(|document| document.key.clone()))
    }
}

fn set(key: &str, body: &'static str) -> DocumentWrite {
    DocumentWrite::new("c", key, WriteOp::Set(Json::parse(body.into()).unwrap()))
}

fn delete(key: &str) -> DocumentWrite {
    DocumentWrite::new("c", key, WriteOp::Delete)
}

#[test]
fn a_document_that_is_written_many_times_is_one_draft() {
    let store = Plain::with(&[("a", "{}")]);
    let writes = vec![set("a", "{}"), set("b", "{}"), set("a", "{}"), delete("b")];
    assert_eq!(store.written(writes).unwrap(), [(2, 3), (3, 0)]);
}

#[test]
fn writes_see_the_versions_that_those_before_them_made() {
    let store = Plain::with(&[("a", "{}")]);
    let at = |version| DocumentWrite { if_version: Some(version), ..set("a", "{}") };
    assert_eq!(store.written(vec![at(1), at(2)]).unwrap(), [(1, 3)]);
    let refused = store.written(vec![at(1), at(1)]).unwrap_err();
    assert!(matches!(refused, CommitError::VersionConflict { actual: 2, .. }), "{refused:?}");
}

#[test]
fn values_are_free_once_their_document_has_let_go_of_them() {
    let store = Plain::with(&[("a", r#"{"v":1}"#)]);
    let holder = |writes| match store.written(writes) {
        Ok(_) => None,
        Err(CommitError::NotUnique { other, .. }) => Some(other),
        Err(other) => panic!("{other:?}"),
    };
    let (one, two) = (r#"{"v":1}"#, r#"{"v":2}"#);
    assert_eq!(holder(vec![set("b", one)]).as_deref(), Some("a"));
    assert_eq!(holder(vec![delete("a"), set("b", one)]), None);
    assert_eq!(holder(vec![set("a", two), set("b", one), set("c", two)]).as_deref(), Some("a"));
    assert_eq!(holder(vec![set("b", two), set("c", two)]).as_deref(), Some("b"));
    assert_eq!(holder(vec![set("b", two), delete("b"), set("c", two)]), None);
}
