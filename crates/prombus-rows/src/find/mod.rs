//! Queries over the rows of a collection, using an index if one fits.
//!
//! A [`Query`](query::Query) says which values of each column are wanted, and in which order. A plan says which rows to
//! scan for that. A walk yields the rows, each is checked for whatever the plan has left to check, and results that are not
//! in order yet are sorted.

mod best;
mod column;
mod plan;
mod query;
mod run;
mod seen;
mod spans;
#[cfg(test)]
mod tests;
mod walk;

use crate::rows::Rows;
use prombus_core::{CollectionState, Find, FoundDocuments, ReadError};

/// Runs a query over the rows of a collection.
pub fn find(rows: &dyn Rows, state: &CollectionState, request: &Find) -> Result<FoundDocuments, ReadError> {
    match query::Query::of(request) {
        Some(query) => run::run(rows, state, run::Asked { query: &query, page: request }),
        None => Ok(FoundDocuments::default()),
    }
}
