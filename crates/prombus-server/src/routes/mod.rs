//! The handlers, one file per subject. Each parses a request, calls the hub, and builds the answer.

pub(crate) mod backups;
pub(crate) mod collections;
pub(crate) mod commit;
pub(crate) mod dlq;
pub(crate) mod document;
pub(crate) mod documents;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod groups;
pub(crate) mod keys;
pub(crate) mod lines;
pub(crate) mod live;
pub(crate) mod ndjson;
pub(crate) mod ops;
pub(crate) mod projections;
pub(crate) mod publish;
pub(crate) mod replays;
pub(crate) mod schemas;
pub(crate) mod states;
pub(crate) mod topics;
