//! What early builds kept of commits with an id: the answer, and nothing of the request.

use prombus_core::{Commit, Json};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// What an answer tells of the commit that it was given to.
#[derive(Deserialize)]
pub(super) struct EarlyAnswer {
    events: Vec<EarlyEvent>,
    /// By collection and key.
    versions: BTreeMap<String, BTreeMap<String, u64>>,
}

#[derive(Deserialize)]
struct EarlyEvent {
    topic: String,
}

impl EarlyAnswer {
    /// The answer that a document keeps; `None` where the document is something else.
    pub fn parse(body: &Json) -> Option<Self> {
        serde_json::from_slice(body.as_bytes()).ok()
    }

    /// Whether it may be the answer to this commit: it publishes to the same topics and writes the same documents.
    pub fn may_be_of(&self, commit: &Commit) -> bool {
        let told = self.events.iter().map(|event| event.topic.as_str());
        let told_documents: BTreeSet<(&str, &str)> = (self.versions.iter())
            .flat_map(|(collection, keys)| keys.keys().map(|key| (collection.as_str(), key.as_str())))
            .collect();
        let documents = commit.documents.iter().map(|write| (&*write.collection, write.key.as_str()));
        told.eq(commit.events.iter().map(|append| append.topic.as_str()))
            && told_documents == documents.collect::<BTreeSet<_>>()
    }
}
