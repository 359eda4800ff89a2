//! A row that a walk has reached, and what is known of its document: from the row if possible, otherwise from the document,
//! of which only the fields that the query needs are read.

use super::column::{Column, Source};
use super::plan::{Order, Plan};
use super::query::Query;
use crate::documents::get;
use crate::encode;
use crate::rows::{Rows, document_of_row, key_of_index_row};
use bytes::Bytes;
use prombus_core::{CollectionState, Document, FieldPath, ReadError};
use serde_json::{Map, Value};
use std::cell::OnceCell;

/// The field that is not part of the body.
const REVISION: &str = "_v";

/// The context for looking at rows.
pub struct Viewer<'a> {
    pub rows: &'a dyn Rows,
    pub state: &'a CollectionState,
    source: Source<'a>,
    prefix_len: usize,
    /// What may be needed of a document's body.
    fields: Vec<&'a FieldPath>,
}

/// A row, and its document once that was needed.
pub struct Seen<'a> {
    viewer: &'a Viewer<'a>,
    row: Bytes,
    /// Where the values of fields end in the row of an index.
    values_end: usize,
    document: OnceCell<Document>,
    body: OnceCell<Map<String, Value>>,
}

impl<'a> Viewer<'a> {
    pub fn new(rows: &'a dyn Rows, state: &'a CollectionState, plan: &Plan<'a>, query: &'a Query) -> Self {
        let sorted_by = query.order.iter().filter(|_| plan.order == Order::None).map(|(column, _)| column);
        let needed = plan.left.iter().map(|(column, _)| *column).chain(sorted_by);
        let of_body = |column: &'a Column| match column {
            Column::Field(field) if field.as_str() != REVISION => Some(field),
            _ => None,
        };
        let fields = needed.filter_map(of_body).collect();
        Self { rows, state, source: plan.source, prefix_len: plan.source.prefix(state).len(), fields }
    }

    /// Looks at a row of the source.
    pub fn see(&'a self, (row, content): (Bytes, Bytes)) -> Result<Seen<'a>, ReadError> {
        let (document, values_end) = match self.source {
            Source::Documents => {
                let document = document_of_row(&row, &content).ok_or_else(|| self.damaged())?;
                (OnceCell::from(document), 0)
            }
            Source::Index(_) => {
                let past = |at, _: &FieldPath| Some(at + encode::first_end(row.get(at..)?)?);
                let end = self.source.fields().iter().try_fold(self.prefix_len, past);
                (OnceCell::new(), end.ok_or_else(|| self.damaged())?)
            }
        };
        Ok(Seen { viewer: self, row, values_end, document, body: OnceCell::new() })
    }

    pub fn damaged(&self) -> ReadError {
        ReadError::Corrupt(format!("a document or index of {} cannot be read", self.state.name))
    }
}

impl Seen<'_> {
    pub fn key(&self) -> Result<&str, ReadError> {
        match self.document.get() {
            Some(document) => Ok(&document.key),
            None => key_of_index_row(&self.row, self.values_end).ok_or_else(|| self.viewer.damaged()),
        }
    }

    fn ts(&self) -> Result<u64, ReadError> {
        if let Some(document) = self.document.get() {
            return Ok(document.ts);
        }
        let bytes = self.row.get(self.values_end..).and_then(<[u8]>::first_chunk);
        bytes.map(|bytes| u64::from_be_bytes(*bytes)).ok_or_else(|| self.viewer.damaged())
    }

    /// Appends the value of a column.
    pub fn encode(&self, column: &Column, out: &mut Vec<u8>) -> Result<(), ReadError> {
        match column {
            Column::Key => encode::string(out, self.key()?),
            Column::Ts => encode::unsigned(out, self.ts()?),
            Column::Field(field) => match self.viewer.source.fields().iter().position(|shown| shown == field)
            {
                Some(n) => out.extend_from_slice(self.shown(n).ok_or_else(|| self.viewer.damaged())?),
                None if field.as_str() == REVISION => {
                    encode::value(out, self.document()?.revision.map(Value::from).as_ref());
                }
                None => {
                    let first = self.body()?.get(&field.segments()[0]);
                    encode::value(out, first.and_then(|first| field.below(first)));
                }
            },
        }
        Ok(())
    }

    /// The value of the `n`th field of the row of an index.
    fn shown(&self, n: usize) -> Option<&[u8]> {
        let past = |at, _| Some(at + encode::first_end(self.row.get(at..)?)?);
        let start = (0..n).try_fold(self.viewer.prefix_len, past)?;
        self.row.get(start..past(start, n)?)
    }

    fn document(&self) -> Result<&Document, ReadError> {
        if let Some(document) = self.document.get() {
            return Ok(document);
        }
        let document = get(self.viewer.rows, self.viewer.state, self.key()?)?;
        let document = document.ok_or_else(|| self.viewer.damaged())?;
        Ok(self.document.get_or_init(|| document))
    }

    pub fn into_document(self) -> Result<Document, ReadError> {
        self.document()?;
        let viewer = self.viewer;
        self.document.into_inner().ok_or_else(|| viewer.damaged())
    }

    fn body(&self) -> Result<&Map<String, Value>, ReadError> {
        let document = self.document()?;
        Ok(self.body.get_or_init(|| document.fields(self.viewer.fields.iter().copied())))
    }
}
