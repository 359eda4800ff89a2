//! Projections: status, defining, rebuilding and deleting them.

use crate::{Client, ClientError};
use prombus_wire::{ProjectionAnswer, ProjectionsAnswer, RebuildRequest};
use reqwest::Method;
use serde::Serialize;

impl Client {
    /// All projections, by name.
    pub async fn projections(&self) -> Result<Vec<ProjectionAnswer>, ClientError> {
        let response = self.call(self.request(Method::GET, &["v1", "projections"])?).await?;
        Ok(self.answer::<ProjectionsAnswer>(response).await?.projections)
    }

    /// One projection, if it exists.
    pub async fn projection(&self, name: &str) -> Result<Option<ProjectionAnswer>, ClientError> {
        self.optional(self.request(Method::GET, &["v1", "projections", name])?).await
    }

    /// Creates or redefines a projection: a new definition applies to new events, and the projection is `stale` until
    /// it is rebuilt.
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
        let call = self.request(Method::PUT, &["v1", "projections", name])?;
        let response = self.call(Self::with_json(call, definition)?).await?;
        self.answer(response).await
    }

    /// Deletes a projection with its collections.
    pub async fn delete_projection(&self, name: &str) -> Result<(), ClientError> {
        self.call(self.request(Method::DELETE, &["v1", "projections", name])?).await.map(drop)
    }

    /// Starts a rebuild of the collections of a projection. Readers see the old ones until the new ones have caught up;
    /// [`Client::projection`] reports the progress. If part of the history is no longer retained, it is refused unless
    /// `partial` is set.
    pub async fn rebuild(&self, name: &str, partial: bool) -> Result<ProjectionAnswer, ClientError> {
        let call = self.request(Method::POST, &["v1", "projections", name, "rebuild"])?;
        let response = self.call(Self::with_json(call, &RebuildRequest { partial: Some(partial) })?).await?;
        self.answer(response).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prombus_wire::{ProjectionState, RebuildAnswer};
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
