//! Collections and projections: what is asked of them, and what they answer.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// A collection as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectionAnswer {
    /// Its name.
    pub name: String,
    /// How many documents it has.
    pub count: u64,
    /// What they take, in bytes.
    pub size: u64,
    /// Who writes it.
    pub owner: CollectionOwner,
    /// Its indexes.
    pub indexes: Vec<IndexAnswer>,
    /// The topic that its changes are published to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changefeed: Option<String>,
}

/// Who writes a collection: `"commits"` or `{"projection": name}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CollectionOwner {
    /// Commits do.
    Commits,
    /// This projection does.
    Projection(String),
}

/// An index of a collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectionIndex {
    /// Its fields, in order.
    pub fields: Vec<String>,
    /// Whether no two documents have the same values in all of them.
    #[serde(default)]
    pub unique: bool,
}

/// An index of a collection, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexAnswer {
    /// The index.
    #[serde(flatten)]
    pub index: CollectionIndex,
    /// How far it is.
    #[serde(flatten)]
    pub state: IndexState,
}

/// How far an index is made: `"state": "ready"`, `"building"` or `"failed"`, with what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum IndexState {
    /// It is used.
    Ready,
    /// It is being made, and not used yet.
    Building {
        /// How many documents have been gone over.
        done: u64,
        /// How many there are to go over.
        of: u64,
    },
    /// Documents speak against it. It is neither used nor enforced.
    Failed {
        /// The keys of two that have the same values, where it is unique; or that of one whose values are too long.
        keys: Vec<String>,
        /// What is wrong with them.
        #[serde(default)]
        reason: String,
    },
}

/// All collections, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collections {
    /// The collections.
    pub collections: Vec<CollectionAnswer>,
}

/// The body of `PUT /v1/collections/{collection}`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectionRequest {
    /// The indexes that it is to have; none where they are absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indexes: Option<Vec<IndexRequest>>,
    /// The topic that its changes are to be published to; none where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changefeed: Option<String>,
}

/// An index: its fields, or those and whether they are unique.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "an index must be an array of fields, or an object with fields and optionally unique"
)]
pub enum IndexRequest {
    /// The fields.
    Fields(Vec<String>),
    /// The fields, and more.
    Full(FullIndexRequest),
}

/// An index with all that can be said of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FullIndexRequest {
    /// Its fields, in order.
    pub fields: Vec<String>,
    /// Whether no two documents may have the same values in all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<bool>,
}

/// A page of `GET /v1/collections/{collection}/list`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DocumentsPage {
    /// How many documents were passed over.
    pub offset: usize,
    /// The most that the page may have.
    pub limit: usize,
    /// How many it has.
    pub count: usize,
    /// The documents, as they are stored.
    pub items: Vec<Box<RawValue>>,
    /// The offset of the next page; `None` at the end.
    pub next: Option<usize>,
}

/// How a projection is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProjectionAnswer {
    /// Its name.
    pub name: String,
    /// `changelog` or `transactional`.
    pub kind: String,
    /// The topic whose events it takes.
    pub topic: String,
    /// The collections that it writes.
    pub collections: Vec<String>,
    /// What it is, as it was put; null where `truncated`.
    pub definition: Value,
    /// What it does.
    pub state: ProjectionState,
    /// Why it waits or has stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether its collections were made by another definition in part.
    pub stale: bool,
    /// How many events it is behind.
    pub lag: u64,
    /// Where it is.
    pub partitions: Vec<ProjectionPartition>,
    /// How many events it has failed on since the hub was started.
    pub errors: u64,
    /// What the last of them failed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// How far a rebuild is, while there is one.
    pub rebuild: Option<RebuildAnswer>,
    /// Why the last rebuild since the hub was started was given up; absent where it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild_error: Option<String>,
    /// Whether its definition and its partitions are left out, because the answer is about many projections.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// What a projection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProjectionState {
    /// It runs.
    Running,
    /// It waits for its topic to be made, or for its expressions to be compiled when the hub starts.
    Waiting,
    /// It has stopped until it is rebuilt or defined anew.
    Stopped,
}

impl std::fmt::Display for ProjectionState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Stopped => "stopped",
        })
    }
}

/// Where a projection is in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectionPartition {
    /// The partition.
    pub partition: u32,
    /// The first offset that it has not seen.
    pub next: u64,
    /// The first offset that does not exist yet.
    pub tail: u64,
    /// How many offsets lie between.
    pub lag: u64,
}

/// How far a rebuild is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebuildAnswer {
    /// How many events are to be done yet.
    pub lag: u64,
    /// How many events failed in it.
    pub failed: u64,
}

/// All projections, by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProjectionsAnswer {
    /// The projections.
    pub projections: Vec<ProjectionAnswer>,
}

/// The body of `POST /v1/projections/{name}/rebuild`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RebuildRequest {
    /// Whether to do it even where part of the history is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_object;
    use serde_json::json;

    #[test]
    fn owners_are_a_word_or_an_object() {
        assert_eq!(json!(CollectionOwner::Commits), json!("commits"));
        assert_eq!(json!(CollectionOwner::Projection("p".into())), json!({"projection": "p"}));
    }

    #[test]
    fn an_index_says_how_far_it_is() {
        let of = |state: IndexState| IndexAnswer {
            index: CollectionIndex { fields: vec!["a".into()], unique: true },
            state,
        };
        let told = [
            (IndexState::Ready, json!({"fields": ["a"], "unique": true, "state": "ready"})),
            (
                IndexState::Building { done: 1, of: 2 },
                json!({"fields": ["a"], "unique": true, "state": "building", "done": 1, "of": 2}),
            ),
            (
                IndexState::Failed { keys: vec!["x".into(), "y".into()], reason: "r".into() },
                json!({"fields": ["a"], "unique": true, "state": "failed", "keys": ["x", "y"], "reason": "r"}),
            ),
        ];
        for (state, expected) in told {
            assert_eq!(json!(of(state.clone())), expected);
            assert_eq!(serde_json::from_value::<IndexAnswer>(expected).unwrap(), of(state));
        }
    }

    #[test]
    fn indexes_are_fields_or_more() {
        let parse = |text: &str| parse_object::<CollectionRequest>(text.as_bytes());
        let both =
            parse(r#"{"indexes":[["a","b"],{"fields":["c"],"unique":true}],"changefeed":"t"}"#).unwrap();
        let full = FullIndexRequest { fields: vec!["c".into()], unique: Some(true) };
        let fields = IndexRequest::Fields(vec!["a".into(), "b".into()]);
        assert_eq!(both.indexes, Some(vec![fields, IndexRequest::Full(full)]));
        assert_eq!(parse("{}").unwrap(), CollectionRequest::default());
        for bad in [
            r#"{"indexes":["a"]}"#,
            r#"{"indexes":[[1]]}"#,
            r#"{"indexes":[{"unique":true}]}"#,
            r#"{"indexes":[{"fields":["a"],"uniqe":true}]}"#,
            r#"{"index":[]}"#,
            r#"{"changefeed":1}"#,
        ] {
            assert!(parse(bad).unwrap_err().is_data(), "{bad}");
        }
    }

    #[test]
    fn a_rebuild_that_there_is_not_is_null() {
        let text = r#"{"name":"p","kind":"changelog","topic":"t","collections":["c"],"definition":{},"state":"running",
            "stale":false,"lag":0,"partitions":[],"errors":0,"rebuild":null}"#;
        let answer: ProjectionAnswer = serde_json::from_str(text).unwrap();
        assert_eq!(json!(answer), serde_json::from_str::<Value>(text).unwrap());
    }
}
