//! Queries over the rows of a collection, by an index where one fits.
//!
//! A [`Query`](query::Query) says which values of each column are wanted and what the order is. A plan says which rows
//! to go over for that. A walk gives the rows, each is looked at as far as the plan has left something to look at, and
//! what has no order yet is sorted.

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
use prombus_core::{CollectionState, Find, Found, ReadError};

/// Runs a query over the rows of a collection.
pub fn find(rows: &dyn Rows, state: &CollectionState, request: &Find) -> Result<Found, ReadError> {
    match query::Query::of(request) {
        Some(query) => run::run(rows, state, run::Asked { query: &query, page: request }),
        None => Ok(Found::default()),
    }
}
