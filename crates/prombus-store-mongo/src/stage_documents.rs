//! What was there before the documents that a commit writes: what earlier commits of the same transaction have left, and
//! else what is known of the database.

use crate::changes::Changes;
use crate::facts::Facts;
use bytes::Bytes;
use prombus_core::collection::{IndexState, PriorDocuments, RowBytes, Slot};
use prombus_core::{CollectionState, Document, ReadError};

/// What stands before a commit.
pub struct PriorState<'a> {
    pub facts: &'a Facts,
    pub before: &'a Changes,
}

impl PriorState<'_> {
    /// What a document holds of unique indexes.
    pub fn held(state: &CollectionState, document: &Document) -> Vec<Bytes> {
        let unique = state.indexes.iter().filter(|index| index.is_enforced());
        unique.filter_map(|index| prombus_rows::unique_values(state, index, document)).collect()
    }

    fn staged(&self, collection: u32, key: &str) -> Option<&Option<Document>> {
        self.before.documents.get(&(collection, key.to_owned()))
    }
}

impl PriorDocuments for PriorState<'_> {
    type Row = ();

    fn look_up(&self, state: &CollectionState, key: &str) -> Result<Slot<()>, ReadError> {
        let document = match self.staged(state.number, key) {
            Some(staged) => staged.clone(),
            None if !self.facts.is_old_collection(state.number) => None,
            None => self.facts.document(state.number, key).cloned(),
        };
        Ok(Slot { place: (), document, row_bytes: RowBytes::default() })
    }

    fn unique_values(
        &self,
        state: &CollectionState,
        unique: &IndexState,
        document: &Document,
    ) -> Option<Bytes> {
        prombus_rows::unique_values(state, unique, document)
    }

    fn holder(&self, values: Bytes, counts: &dyn Fn(&str) -> bool) -> Result<Option<String>, ReadError> {
        let number = prombus_rows::collection_of_row(&values).unwrap_or_default();
        // A commit with documents may have taken the values, and a later one have given them up again.
        let staged = self.before.holders.get(&values).into_iter().flatten().find(|key| {
            let still = self.staged(number, key).and_then(Option::as_ref);
            counts(key) && still.is_some_and(|document| self.holds(number, document, &values))
        });
        if let Some(key) = staged {
            return Ok(Some(key.clone()));
        }
        if !self.facts.is_old_collection(number) {
            return Ok(None);
        }
        let known = self.facts.holders(&values).iter();
        Ok(known.filter(|key| self.staged(number, key).is_none()).find(|key| counts(key)).cloned())
    }
}

impl PriorState<'_> {
    fn holds(&self, number: u32, document: &Document, values: &Bytes) -> bool {
        let staged = self.before.collections.values().flatten();
        let state = staged.into_iter().find(|state| state.number == number);
        state.is_some_and(|state| Self::held(state, document).contains(values))
    }
}
