//! Upcasters: what raises payloads of one version of a topic's schema to the next.
//!
//! Pure functions of a payload, under the budgets of expressions, and with a limit on what they make. Bytes that no
//! operation names stay as they are.

mod apply;
mod compile;
mod ops;
mod path;
mod tree;

#[cfg(test)]
mod tests;

pub(crate) use apply::with_field;
pub use apply::{Chain, Hop};
pub use ops::{Assignments, Op, Upcaster};

use crate::filter::BadFilter;
use prombus_core::ReadError;

/// Why an upcaster is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum UpcastError {
    /// It makes no sense.
    #[error("{0}")]
    Bad(String),
    /// An expression does not compile.
    #[error("{place}: {error}")]
    BadExpression {
        /// Where it stands.
        place: String,
        /// What is wrong with it.
        error: BadFilter,
    },
    /// Nothing can be compiled at the moment.
    #[error(transparent)]
    Unavailable(#[from] ReadError),
}

/// Why a payload cannot be raised.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it cannot be upgraded from version {from}: {why}")]
pub struct NotRaised {
    /// The version from which it does not go on.
    pub from: u32,
    /// Why not.
    pub why: String,
}
