//! Queries of collections: the plan and the order are those of all stores, and MongoDB walks the indexes.
//!
//! A row of an index is a string in its document, so whoever asks for rows of an index gets the documents with them, and
//! looking one up afterwards costs nothing. What the conditions rule out for sure, MongoDB leaves out itself.

use crate::document_doc::{self, OWN, VALUES, row_bytes, row_path, row_text};
use crate::failure::{NO_PRIMARY, unreadable};
use crate::primary::PrimaryLost;
use crate::reads::damaged;
use crate::shared::Shared;
use bytes::Bytes;
use mongodb::bson::{Bson, Document as BsonDocument, RawDocumentBuf, doc};
use mongodb::{ClientSession, SessionCursor};
use prombus_core::collection::{Condition, Operand, Test};
use prombus_core::{CollectionState, Document, FieldPath, Find, FoundDocuments, ReadError};
use prombus_rows::{RowRange, Rows, RowsIter};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::HashMap;
use tokio::runtime::Handle;

/// How many documents that were read with rows are kept, for when they are looked up.
const KEPT: usize = 64;
/// How many documents the first batch of a walk has: most are asked for a page.
const BATCH: u32 = 200;

/// The rows of one collection, in one snapshot.
pub struct MongoRows<'a> {
    pub shared: &'a Shared,
    pub state: &'a CollectionState,
    /// What every document that is wanted meets, and many others may, too.
    pub filter: BsonDocument,
    session: RefCell<ClientSession>,
    runtime: Handle,
    kept: RefCell<HashMap<Bytes, Bytes>>,
}

/// Finds documents. Blocks the thread.
pub fn find(
    shared: &Shared,
    session: ClientSession,
    state: &CollectionState,
    request: &Find,
) -> Result<FoundDocuments, ReadError> {
    let rows = MongoRows {
        shared,
        state,
        filter: surely(&request.conditions),
        session: RefCell::new(session),
        runtime: Handle::current(),
        kept: RefCell::default(),
    };
    prombus_rows::find(&rows, state, request)
}

impl MongoRows<'_> {
    /// What the database answers.
    fn answer<T>(&self, asked: impl Future<Output = mongodb::error::Result<T>>) -> Result<T, ReadError> {
        match self.runtime.block_on(self.shared.primary.unless_lost(None, asked)) {
            Ok(answer) => answer.map_err(unreadable),
            Err(PrimaryLost) => Err(ReadError::Unavailable(NO_PRIMARY.into())),
        }
    }

    fn open(
        &self,
        bounds: BsonDocument,
        sort: BsonDocument,
    ) -> Result<SessionCursor<RawDocumentBuf>, ReadError> {
        let filter = match self.filter.is_empty() {
            true => bounds,
            false => doc! { "$and": [bounds, self.filter.clone()] },
        };
        let documents = self.shared.names.documents(self.state.number);
        let mut session = self.session.borrow_mut();
        let find =
            documents.find(filter).sort(sort.clone()).hint(mongodb::options::Hint::Keys(ascending(&sort)));
        let mut wanted = document_doc::exact_fields();
        wanted.insert(format!("{OWN}.rows"), 1);
        let find = find.projection(wanted).batch_size(BATCH).session(&mut *session);
        self.answer(async { find.await })
    }

    /// Goes on with a cursor. Gives the document, and its string in an index.
    fn step(
        &self,
        cursor: &mut SessionCursor<RawDocumentBuf>,
        field: Option<&str>,
    ) -> Result<Option<(Document, Option<String>)>, ReadError> {
        let mut session = self.session.borrow_mut();
        let is_there = self.answer(cursor.advance(&mut session))?;
        if !is_there {
            return Ok(None);
        }
        let raw = cursor.current();
        let document = document_doc::of_bson(raw).ok_or_else(|| damaged("a collection"))?;
        let row = field.and_then(|field| {
            let rows = raw.get_document(OWN).ok()?.get_document("rows").ok()?;
            rows.get_str(field).ok().map(str::to_owned)
        });
        Ok(Some((document, row)))
    }

    fn keep(&self, document: &Document) -> (Bytes, Bytes) {
        let key = prombus_rows::document_row(self.state.number, &document.key);
        let row = prombus_rows::row_of_document(document);
        let mut kept = self.kept.borrow_mut();
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(key.clone(), row.clone());
        (key, row)
    }

    fn documents(&self, range: &RowRange, reverse: bool) -> Result<RowsIter<'_>, ReadError> {
        let prefix = prombus_rows::document_prefix(self.state.number);
        let mut bounds = BsonDocument::new();
        if let Some(from) =
            range.start.strip_prefix(&prefix[..]).and_then(|key| std::str::from_utf8(key).ok())
        {
            bounds.insert("$gte", from);
        }
        if let Some(to) = range.end.strip_prefix(&prefix[..]).and_then(|key| std::str::from_utf8(key).ok()) {
            bounds.insert("$lt", to);
        }
        let bounds = if bounds.is_empty() {
            doc! {}
        } else {
            doc! { "_id": bounds }
        };
        let mut cursor = self.open(bounds, doc! { "_id": if reverse { -1 } else { 1 } })?;
        let range = range.clone();
        Ok(Box::new(std::iter::from_fn(move || {
            loop {
                let (key, row) = match self.step(&mut cursor, None) {
                    Ok(Some((document, _))) => self.keep(&document),
                    Ok(None) => return None,
                    Err(error) => return Some(Err(error)),
                };
                // A bound that is no text has no place in the order of keys: these are beyond it.
                let (is_early, is_late) = (key < range.start, key >= range.end);
                match (is_early, is_late) {
                    (false, false) => return Some(Ok((key, row))),
                    (true, _) if reverse => return None,
                    (_, true) if !reverse => return None,
                    _ => {}
                }
            }
        })))
    }

    fn index(&self, range: &RowRange, reverse: bool) -> Result<RowsIter<'_>, ReadError> {
        let prefix = range.start.slice(..VALUES);
        let path = row_path(&prefix);
        let mut bounds = doc! { "$gte": row_text(&range.start[VALUES..]) };
        if let Some(to) = range.end.strip_prefix(&prefix[..]) {
            bounds.insert("$lt", row_text(to));
        }
        let sort = doc! { &path: if reverse { -1 } else { 1 } };
        let mut cursor = self.open(doc! { &path: bounds }, sort)?;
        let field = document_doc::row_field(&prefix);
        Ok(Box::new(std::iter::from_fn(move || {
            let (document, row) = match self.step(&mut cursor, Some(&field)) {
                Ok(next) => next?,
                Err(error) => return Some(Err(error)),
            };
            self.keep(&document);
            let values = row.as_deref().and_then(row_bytes);
            let key = values.map(|values| Bytes::from([&prefix[..], &values].concat()));
            Some(key.map(|key| (key, Bytes::new())).ok_or_else(|| damaged("a collection")))
        })))
    }
}

fn ascending(sort: &BsonDocument) -> BsonDocument {
    sort.keys().map(|key| (key.clone(), Bson::Int32(1))).collect()
}

impl Rows for MongoRows<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        if let Some(kept) = self.kept.borrow().get(key) {
            return Ok(Some(kept.clone()));
        }
        let prefix = prombus_rows::document_prefix(self.state.number);
        let name = key.strip_prefix(&prefix[..]).and_then(|key| std::str::from_utf8(key).ok());
        let Some(name) = name else { return Ok(None) };
        let documents = self.shared.names.documents(self.state.number);
        let mut session = self.session.borrow_mut();
        let find = documents.find_one(doc! { "_id": name }).session(&mut *session);
        let found = self.answer(async { find.await })?;
        let read = |raw: RawDocumentBuf| document_doc::of_bson(&raw).ok_or_else(|| damaged("a collection"));
        Ok(found.map(read).transpose()?.as_ref().map(prombus_rows::row_of_document))
    }

    fn range(&self, range: RowRange, reverse: bool) -> RowsIter<'_> {
        if range.start >= range.end {
            return Box::new(std::iter::empty());
        }
        let rows = match range.start.first() {
            Some(&prombus_rows::DOCUMENT) => self.documents(&range, reverse),
            _ => self.index(&range, reverse),
        };
        rows.unwrap_or_else(|error| Box::new(std::iter::once(Err(error))))
    }
}

/// What holds in MongoDB for every document that meets the conditions. Others may meet it, too: its comparisons reach into
/// arrays, and its numbers are rounded.
fn surely(conditions: &[Condition]) -> BsonDocument {
    let all: Vec<Bson> = conditions.iter().filter_map(one).map(Bson::Document).collect();
    if all.is_empty() {
        return doc! {};
    }
    // Of documents with fields that MongoDB cannot have, nothing is sure.
    doc! { "$or": [{ "$and": all }, { format!("{OWN}.partial"): true }] }
}

fn one(condition: &Condition) -> Option<BsonDocument> {
    let path = plain_path(&condition.field)?;
    let any = |operands: &[Operand], make: &dyn Fn(&Value) -> Option<Bson>| {
        let values: Option<Vec<Bson>> = operands.iter().flat_map(Operand::values).map(make).collect();
        values.filter(|values| !values.is_empty())
    };
    let ordering = |operand: &Operand, with: &str| {
        let values = any(std::slice::from_ref(operand), &ordered)?;
        let each: Vec<Bson> =
            values.into_iter().map(|value| Bson::Document(doc! { &path: { with: value } })).collect();
        Some(doc! { "$or": each })
    };
    match &condition.test {
        Test::Eq(operand) => {
            any(std::slice::from_ref(operand), &equal).map(|values| doc! { &path: { "$in": values } })
        }
        Test::In(operands) => any(operands, &equal).map(|values| doc! { &path: { "$in": values } }),
        Test::Gt(operand) | Test::Gte(operand) => ordering(operand, "$gte"),
        Test::Lt(operand) | Test::Lte(operand) => ordering(operand, "$lte"),
        Test::Ne(_) => None,
    }
}

/// The path as MongoDB has it, where it means the same.
fn plain_path(field: &FieldPath) -> Option<String> {
    let is_odd = |name: &String| {
        // `+1` and `01` are places in an array here, and names there.
        let is_odd_place = name.parse::<usize>().is_ok_and(|place| place.to_string() != *name);
        name.is_empty() || name.contains(['.', '\0']) || name.starts_with('$') || is_odd_place
    };
    (!field.segments().iter().any(is_odd)).then(|| field.segments().join("."))
}

fn equal(value: &Value) -> Option<Bson> {
    match value {
        Value::Null => Some(Bson::Null),
        Value::Bool(bool) => Some(Bson::Boolean(*bool)),
        value => ordered(value),
    }
}

fn ordered(value: &Value) -> Option<Bson> {
    match value {
        Value::Number(n) => match n.as_i64() {
            // As its document may have it, where it was too big for an exact one.
            Some(int) if int.unsigned_abs() < 1 << 53 => Some(Bson::Int64(int)),
            _ => None,
        },
        Value::String(text) => Some(Bson::String(text.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(field: &str, test: Test) -> Condition {
        Condition { field: FieldPath::parse(field).unwrap(), test }
    }

    #[test]
    fn what_is_sure_is_left_to_mongodb() {
        let eq = condition("a.b", Test::Eq(Operand::text("7")));
        let sure = surely(std::slice::from_ref(&eq));
        let wanted = doc! { "$or": [
            { "$and": [{ "a.b": { "$in": ["7", 7_i64] } }] },
            { "_prombus.partial": true },
        ] };
        assert_eq!(sure, wanted);
        for unsure in [
            condition("a", Test::Ne(Operand::text("x"))),
            condition("a\\.b", Test::Eq(Operand::text("x"))),
            condition("a.01", Test::Eq(Operand::text("x"))),
            condition("a", Test::Eq(Operand::text("[1]"))),
            condition("a", Test::Gt(Operand::value(1.5.into()))),
        ] {
            assert_eq!(surely(&[unsure]), doc! {});
        }
    }
}
