//! Projections: looking at them, defining, rebuilding and deleting them.

use crate::{Client, ClientError};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// What it is, as it was put.
    pub definition: Value,
    /// What it does now.
    pub state: ProjectionState,
    /// Why it waits or has stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether its collections were made by another definition in part: a rebuild makes them anew.
    pub stale: bool,
    /// How many events it is behind, over all partitions.
    pub lag: u64,
    /// Where it is.
    pub partitions: Vec<ProjectionPartition>,
    /// How many events went to the dead letters since the hub was started.
    pub errors: u64,
    /// What the last of them failed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// How far a rebuild is, while there is one.
    pub rebuild: Option<RebuildAnswer>,
}

/// What a projection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProjectionState {
    /// It runs.
    Running,
    /// It waits for its topic to be made.
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
    /// How many events it is behind.
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

#[derive(Deserialize)]
struct Projections {
    projections: Vec<ProjectionAnswer>,
}

#[derive(Serialize)]
struct RebuildRequest {
    partial: bool,
}

impl Client {
    /// All projections, by name.
    pub async fn projections(&self) -> Result<Vec<ProjectionAnswer>, ClientError> {
        let response = self.call(self.request(Method::GET, &["v1", "projections"])).await?;
        Ok(self.answer::<Projections>(response).await?.projections)
    }

    /// One projection, if it exists.
    pub async fn projection(&self, name: &str) -> Result<Option<ProjectionAnswer>, ClientError> {
        self.optional(self.request(Method::GET, &["v1", "projections", name])).await
    }

    /// Makes a projection, or defines it anew: from then on, events are taken as the new definition says, and the
    /// projection is `stale` until it is rebuilt.
    ///
    /// ```no_run
    /// # async fn example(client: prombus_client::Client) -> Result<(), prombus_client::ClientError> {
    /// let definition = serde_json::json!({
    ///     "topic": "process.state",
    ///     "collection": "processes",
    ///     "key": "event.payload.processId",
    ///     "indexes": [["host", "name"], ["status"]],
    /// });
    /// client.put_projection("processes", &definition).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn put_projection<D: Serialize + ?Sized>(
        &self,
        name: &str,
        definition: &D,
    ) -> Result<ProjectionAnswer, ClientError> {
        let call = self.request(Method::PUT, &["v1", "projections", name]);
        let response = self.call(Self::with_json(call, definition)?).await?;
        self.answer(response).await
    }

    /// Deletes a projection with its collections.
    pub async fn delete_projection(&self, name: &str) -> Result<(), ClientError> {
        self.call(self.request(Method::DELETE, &["v1", "projections", name])).await.map(drop)
    }

    /// Starts to make the collections of a projection anew. Readers see the old ones until the new ones have caught up;
    /// [`Client::projection`] says how far that is. Where part of the history is no longer kept, it is refused, unless a
    /// `partial` one is wanted.
    pub async fn rebuild(&self, name: &str, partial: bool) -> Result<ProjectionAnswer, ClientError> {
        let call = self.request(Method::POST, &["v1", "projections", name, "rebuild"]);
        let response = self.call(Self::with_json(call, &RebuildRequest { partial })?).await?;
        self.answer(response).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_is_read_as_it_was_written() {
        let mut text = json!({"name": "p", "kind": "changelog", "topic": "t", "collections": ["c"],
            "definition": {"topic": "t", "collection": "c"}, "state": "running", "stale": false, "lag": 3,
            "partitions": [{"partition": 0, "next": 1, "tail": 4, "lag": 3}], "errors": 0, "rebuild": null});
        let answer: ProjectionAnswer = serde_json::from_value(text.clone()).unwrap();
        assert_eq!((answer.state, &answer.rebuild), (ProjectionState::Running, &None));
        assert_eq!(serde_json::to_value(&answer).unwrap(), text);
        text["state"] = json!("stopped");
        text["reason"] = json!("r");
        text["last_error"] = json!("e");
        text["rebuild"] = json!({"lag": 7, "failed": 1});
        let answer: ProjectionAnswer = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(answer.rebuild, Some(RebuildAnswer { lag: 7, failed: 1 }));
        assert_eq!(serde_json::to_value(&answer).unwrap(), text);
    }
}
