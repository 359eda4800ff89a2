//! Why a schema is not taken.

use crate::{decimal::DIGITS_LIMIT, deep::NO_STACK, json::JsonError};

/// Why a schema is not taken. Places are JSON pointers into the schema; the schema itself is ``.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The text is not JSON.
    #[error("the schema is not valid JSON at byte {at}: {message}")]
    Json {
        /// The byte at which reading stopped.
        at: usize,
        /// What is wrong there.
        message: String,
    },
    /// An object has the same name twice, of which different readers would take different ones.
    #[error("the schema has an object with the name `{name}` twice, again at byte {at}; keep one of them")]
    Twice {
        /// The byte at which it comes the second time.
        at: usize,
        /// The name.
        name: String,
    },
    /// The text is too long.
    #[error("the schema has {bytes} bytes, and at most {limit} are taken; split it up")]
    TooLarge {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
    /// It is nested too deep.
    #[error("the schema is nested deeper than {limit} levels; move its inner parts to `$defs`")]
    TooDeep {
        /// How deep it may be.
        limit: usize,
    },
    /// A number has too many digits.
    #[error("the schema has a number of more than {DIGITS_LIMIT} digits at byte {at}")]
    Number {
        /// The byte at which it begins.
        at: usize,
    },
    /// `$schema` names something else than a draft that is known.
    #[error(
        "`$schema` at `{path}` is `{found}`, which is not known; use https://json-schema.org/draft/2020-12/schema, \
         https://json-schema.org/draft/2019-09/schema or http://json-schema.org/draft-07/schema#, and one in a document"
    )]
    Draft {
        /// Where it is.
        path: String,
        /// What it says.
        found: String,
    },
    /// A keyword has a value that it cannot have.
    #[error("the schema is not valid at `{path}`: {message}")]
    Invalid {
        /// Where it is.
        path: String,
        /// What is wrong there.
        message: String,
    },
    /// A reference leads nowhere, or into another document.
    #[error("the reference `{reference}` at `{path}` {why}")]
    Reference {
        /// Where it is.
        path: String,
        /// What it says.
        reference: String,
        /// What is wrong with it, and what to do.
        why: &'static str,
    },
    /// There is no memory to read it.
    #[error("the schema could not be read: {NO_STACK}")]
    NoStack,
    /// A schema is defined by itself, without a step into a property or an item on the way.
    #[error(
        "the schema at `{path}` refers to itself for the same value, so that no value can ever be checked against it"
    )]
    Endless {
        /// Where it is.
        path: String,
    },
}

impl SchemaError {
    pub(crate) fn of_json(error: JsonError, depth: usize) -> Self {
        match error {
            JsonError::Syntax { at, message } => Self::Json { at, message },
            JsonError::Depth => Self::TooDeep { limit: depth },
            JsonError::Number { at } => Self::Number { at },
            JsonError::Twice { at, name } => Self::Twice { at, name },
        }
    }
}
