//! JSON Schema for prombus, as pure functions: nothing here is stored, and nothing is fetched.
//!
//! - [`Schema::parse`] reads a schema in draft 2020-12, 2019-09 or 7, and says where it is wrong.
//! - [`check()`] decides whether every document of one schema is taken by another: it is *proved*, *refuted* with
//!   counterexamples that both validators confirm, or *unknown*, with what could not be decided.
//! - [`Validator::faults`] checks documents, and tells every failing place.
//! - [`example()`] makes a document that a schema takes.
//! - [`lint::lint`] looks over a folder of schemas.
//!
//! `docs/schemas.md` explains the verdicts.

mod allowance;
mod check;
mod compiling;
mod decimal;
mod deep;
mod demand;
mod draft;
mod error;
mod example;
mod formats;
mod fuel;
mod graph;
mod json;
mod limits;
pub mod lint;
mod metaschemas;
mod outline;
mod pattern;
mod plain;
mod refs;
mod schema;
mod solve;
mod uri;
mod validator;

pub use allowance::Allowance;
pub use check::{
    BUDGET, Comparison, Compat, Policy, VIOLATIONS_LIMIT, Verdict, Violation, check, check_within,
};
pub use demand::{Demand, UnknownWord};
pub use draft::Draft;
pub use error::SchemaError;
pub use example::{WantedDocuments, documents, example};
pub use json::is_same_json;
pub use schema::{BYTES_LIMIT, DEPTH_LIMIT, Schema};
pub use solve::Budget;
pub use validator::{FAULTS_LIMIT, Fault, Validator};
