//! Why an index could not be made of the documents that are there.

use super::MAX_INDEX_VALUE_BYTES;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What documents speak against an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Record", into = "Record")]
pub enum IndexFailure {
    /// It is unique, and these two have the same values.
    SameValues {
        /// Their keys.
        keys: [String; 2],
    },
    /// This one has values that are longer than [`MAX_INDEX_VALUE_BYTES`].
    TooLong {
        /// Its key.
        key: String,
        /// What the values take, all together.
        bytes: usize,
    },
}

impl IndexFailure {
    /// The keys of the documents.
    pub fn keys(&self) -> &[String] {
        match self {
            Self::SameValues { keys } => keys,
            Self::TooLong { key, .. } => std::slice::from_ref(key),
        }
    }
}

impl fmt::Display for IndexFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameValues { keys: [first, second] } => {
                write!(f, "{first:?} and {second:?} have the same values")
            }
            Self::TooLong { key, bytes } => write!(
                f,
                "the values of {key:?} take {bytes} bytes, more than the {MAX_INDEX_VALUE_BYTES} that an index takes of a document"
            ),
        }
    }
}

/// A failure as it is logged. Builds that know only of equal values read any other one as those of a document and
/// itself: so they open such a folder, and do not use the index either.
#[derive(Serialize, Deserialize)]
struct Record {
    keys: [String; 2],
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
}

impl From<Record> for IndexFailure {
    fn from(Record { keys, bytes }: Record) -> Self {
        match bytes {
            None => Self::SameValues { keys },
            Some(bytes) => {
                let [key, _] = keys;
                Self::TooLong { key, bytes }
            }
        }
    }
}

impl From<IndexFailure> for Record {
    fn from(failure: IndexFailure) -> Self {
        match failure {
            IndexFailure::SameValues { keys } => Self { keys, bytes: None },
            IndexFailure::TooLong { key, bytes } => Self { keys: [key.clone(), key], bytes: Some(bytes) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collection::Progress;
    use serde_json::json;

    #[test]
    fn failures_are_logged_so_that_earlier_builds_can_read_them() {
        let same = Progress::Failed(IndexFailure::SameValues { keys: ["a".into(), "b".into()] });
        let long = Progress::Failed(IndexFailure::TooLong { key: "a".into(), bytes: 5_000 });
        let table = [
            (same, json!({"failed": {"keys": ["a", "b"]}})),
            (long, json!({"failed": {"keys": ["a", "a"], "bytes": 5_000}})),
        ];
        for (progress, logged) in table {
            assert_eq!(serde_json::to_value(&progress).unwrap(), logged);
            assert_eq!(serde_json::from_value::<Progress>(logged).unwrap(), progress);
        }
    }
}
