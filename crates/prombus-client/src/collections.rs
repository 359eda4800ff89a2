//! Collections: listing them, and the settings of those that commits write.

use crate::{Client, ClientError};
use prombus_wire::{
    CollectionAnswer, CollectionIndex, CollectionRequest, Collections, FullIndexRequest, IndexRequest,
};
use reqwest::Method;

/// The settings of a collection that commits write. They replace all previous settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectionSettings {
    /// Its indexes.
    pub indexes: Vec<CollectionIndex>,
    /// The topic that its changes are published to.
    pub changefeed: Option<String>,
}

impl CollectionSettings {
    /// Adds an index on these fields.
    #[must_use]
    pub fn with_index<F: Into<String>>(self, fields: impl IntoIterator<Item = F>) -> Self {
        self.indexed(fields.into_iter().map(Into::into).collect(), false)
    }

    /// Adds a unique index on these fields.
    #[must_use]
    pub fn with_unique_index<F: Into<String>>(self, fields: impl IntoIterator<Item = F>) -> Self {
        self.indexed(fields.into_iter().map(Into::into).collect(), true)
    }

    fn indexed(mut self, fields: Vec<String>, unique: bool) -> Self {
        self.indexes.push(CollectionIndex { fields, unique });
        self
    }

    /// Publishes changes to this topic, in the commit that makes them.
    #[must_use]
    pub fn with_changefeed(mut self, topic: impl Into<String>) -> Self {
        self.changefeed = Some(topic.into());
        self
    }

    fn request(&self) -> CollectionRequest {
        let index = |CollectionIndex { fields, unique }: &CollectionIndex| {
            IndexRequest::Full(FullIndexRequest { fields: fields.clone(), unique: Some(*unique) })
        };
        let indexes = self.indexes.iter().map(index).collect();
        CollectionRequest { indexes: Some(indexes), changefeed: self.changefeed.clone() }
    }
}

impl Client {
    /// All collections, by name.
    pub async fn collections(&self) -> Result<Vec<CollectionAnswer>, ClientError> {
        let response = self.call(self.request(Method::GET, &["v1", "collections"])?).await?;
        Ok(self.answer::<Collections>(response).await?.collections)
    }

    /// One collection, if it exists.
    pub async fn collection(&self, name: &str) -> Result<Option<CollectionAnswer>, ClientError> {
        self.optional(self.request(Method::GET, &["v1", "collections", name])?).await
    }

    /// Creates a collection that commits write, or replaces its settings.
    pub async fn put_collection(
        &self,
        name: &str,
        settings: &CollectionSettings,
    ) -> Result<CollectionAnswer, ClientError> {
        let call = self.request(Method::PUT, &["v1", "collections", name])?;
        let response = self.call(Self::with_json(call, &settings.request())?).await?;
        self.answer(response).await
    }

    /// Deletes a collection that commits write, with all its documents.
    pub async fn delete_collection(&self, name: &str) -> Result<(), ClientError> {
        self.call(self.request(Method::DELETE, &["v1", "collections", name])?).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prombus_wire::CollectionOwner;
    use serde_json::json;

    #[test]
    fn both_kinds_of_owners_are_understood() {
        let text = json!({"name": "c", "count": 1, "size": 2, "owner": "commits", "indexes": []});
        let answer: CollectionAnswer = serde_json::from_value(text.clone()).unwrap();
        assert_eq!((&answer.owner, &answer.changefeed), (&CollectionOwner::Commits, &None));
        assert_eq!(serde_json::to_value(&answer).unwrap(), text);
        let text = json!({"name": "c", "count": 1, "size": 2, "owner": {"projection": "p"},
            "indexes": [{"fields": ["a"], "unique": false, "state": "ready"}], "changefeed": "t"});
        let answer: CollectionAnswer = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(answer.owner, CollectionOwner::Projection("p".into()));
        assert_eq!(serde_json::to_value(&answer).unwrap(), text);
    }

    #[test]
    fn settings_are_what_was_said() {
        let settings = CollectionSettings::default().with_index(["a", "b"]).with_unique_index(["c"]);
        let expected =
            json!({"indexes": [{"fields": ["a", "b"], "unique": false}, {"fields": ["c"], "unique": true}]});
        assert_eq!(serde_json::to_value(settings.request()).unwrap(), expected);
        assert_eq!(serde_json::to_value(settings.with_changefeed("t").request()).unwrap()["changefeed"], "t");
    }
}
