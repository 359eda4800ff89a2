//! Requests and answers: everything that the hub itself cannot be asked about.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// The outcome of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was answered that it happened.
    Done,
    /// It was answered that nothing of it happened.
    Refused,
    /// Nobody knows.
    Unknown,
}

/// A commit of a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The events that it settles.
    pub takes: BTreeSet<Uuid>,
    /// The outcome.
    pub fate: Fate,
}

/// A commit that was not answered and will be repeated.
#[derive(Debug, Clone)]
pub struct Pending {
    /// Its name.
    pub name: String,
    /// The whole request, with its `commit_id`.
    pub body: Value,
}

/// What was asked and answered.
#[derive(Debug, Default)]
pub struct Ledger {
    /// What producers sent: who, and which of theirs; whether it was answered.
    pub published: BTreeMap<(String, u64), bool>,
    /// What consumers committed, by name.
    pub commits: BTreeMap<String, Commit>,
    /// Commits of consumers that are to be repeated.
    pub pending: Vec<Pending>,
    /// How many commits of each writer were answered, by writer.
    pub singles: BTreeMap<String, u64>,
    /// The counters that readers have seen, which never go back.
    pub seen: BTreeMap<String, i64>,
}

impl Ledger {
    /// Notes the outcome of a commit that was not answered before.
    pub fn settle(&mut self, name: &str, fate: Fate) {
        if let Some(commit) = self.commits.get_mut(name) {
            commit.fate = fate;
        }
    }
}
