//! Schemas: registering, checking and reading them, and their upcasters.

use crate::{Client, ClientError, HubError};
use prombus_wire::{
    SchemaAnswer, SchemaChecked, SchemaRegistered, SchemaRequest, SchemaViolation, SchemasAnswer,
    TopicSchemas, UpcasterAnswer,
};
use reqwest::Method;
use serde::Serialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// A schema that is to become a version of a topic's schema.
#[derive(Debug, Clone)]
pub struct NewSchema<'a> {
    schema: &'a RawValue,
    version: Option<u32>,
    compat: Option<&'a str>,
    policy: Option<&'a str>,
}

impl<'a> NewSchema<'a> {
    /// A schema, which is sent as it is written.
    ///
    /// ```
    /// use prombus_client::NewSchema;
    ///
    /// # fn main() -> Result<(), serde_json::Error> {
    /// let text = r#"{"type": "object", "required": ["id"]}"#;
    /// let schema = NewSchema::new(serde_json::from_str(text)?).with_compat("full");
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(schema: &'a RawValue) -> Self {
        Self { schema, version: None, compat: None, policy: None }
    }

    /// Sets the version that it shall have. Without it, it is the next one.
    #[must_use]
    pub fn with_version(mut self, version: u32) -> Self {
        self.version = Some(version);
        self
    }

    /// Sets its required compatibility with earlier versions: `none`, `backward` (the default), `forward` or `full`, or one of these
    /// with `_transitive`.
    #[must_use]
    pub fn with_compat(mut self, compat: &'a str) -> Self {
        self.compat = Some(compat);
        self
    }

    /// Sets how properties are read that a schema does not name: `lenient` (the default) or `strict`.
    #[must_use]
    pub fn with_policy(mut self, policy: &'a str) -> Self {
        self.policy = Some(policy);
        self
    }

    fn request(&self) -> SchemaRequest<'a> {
        let (compat, policy) = (self.compat.map(Cow::Borrowed), self.policy.map(Cow::Borrowed));
        SchemaRequest { version: self.version, compat, policy, schema: self.schema }
    }
}

impl HubError {
    /// Why a schema is not compatible, if that is the error.
    pub fn violations(&self) -> Vec<SchemaViolation> {
        let violations = self.details.get("violations").cloned().unwrap_or_default();
        serde_json::from_value(violations).unwrap_or_default()
    }
}

impl Client {
    /// Registers a schema as a version of a topic's schema. If it is not compatible with earlier versions, the
    /// error is `incompatible`, and [`HubError::violations`] tells why.
    pub async fn register_schema(
        &self,
        topic: &str,
        schema: &NewSchema<'_>,
    ) -> Result<SchemaRegistered, ClientError> {
        let call = self.request(Method::POST, &["v1", "schemas", topic])?;
        let response = self.call(Self::with_json(call, &schema.request())?).await?;
        self.answer(response).await
    }

    /// Asks whether a schema could be registered.
    pub async fn check_schema(
        &self,
        topic: &str,
        schema: &NewSchema<'_>,
    ) -> Result<SchemaChecked, ClientError> {
        let call = self.request(Method::POST, &["v1", "schemas", topic, "check"])?;
        let response = self.call(Self::with_json(call, &schema.request())?).await?;
        self.answer(response).await
    }

    /// All topics that have schemas, by name.
    pub async fn schemas(&self) -> Result<Vec<TopicSchemas>, ClientError> {
        let response = self.call(self.request(Method::GET, &["v1", "schemas"])?).await?;
        Ok(self.answer::<SchemasAnswer>(response).await?.schemas)
    }

    /// The versions and upcasters of a topic, if it has any.
    pub async fn topic_schemas(&self, topic: &str) -> Result<Option<TopicSchemas>, ClientError> {
        self.optional(self.request(Method::GET, &["v1", "schemas", topic])?).await
    }

    /// A version of a topic's schema, if it exists; `None` asks for the latest.
    pub async fn schema(
        &self,
        topic: &str,
        version: Option<u32>,
    ) -> Result<Option<SchemaAnswer>, ClientError> {
        let version = version_name(version);
        self.optional(self.request(Method::GET, &["v1", "schemas", topic, "versions", &version])?).await
    }

    /// A document that a version of a topic's schema takes; `None` asks for the latest.
    pub async fn schema_example(
        &self,
        topic: &str,
        version: Option<u32>,
    ) -> Result<Option<Box<RawValue>>, ClientError> {
        let path = ["v1", "schemas", topic, "versions", &version_name(version), "example"];
        self.optional(self.request(Method::GET, &path)?).await
    }

    /// Sets the upcaster that upgrades events from a version to the next one: `{"ops": [...]}`.
    pub async fn put_upcaster<U: Serialize + ?Sized>(
        &self,
        topic: &str,
        from: u32,
        upcaster: &U,
    ) -> Result<UpcasterAnswer, ClientError> {
        let path = ["v1", "schemas", topic, "upcasters", &from.to_string()];
        let response = self.call(Self::with_json(self.request(Method::PUT, &path)?, upcaster)?).await?;
        self.answer(response).await
    }

    /// The upcaster that upgrades events from a version to the next one, if one is set.
    pub async fn upcaster(&self, topic: &str, from: u32) -> Result<Option<UpcasterAnswer>, ClientError> {
        let path = ["v1", "schemas", topic, "upcasters", &from.to_string()];
        self.optional(self.request(Method::GET, &path)?).await
    }

    /// Deletes the upcaster that upgrades events from a version to the next one.
    pub async fn delete_upcaster(&self, topic: &str, from: u32) -> Result<(), ClientError> {
        let path = ["v1", "schemas", topic, "upcasters", &from.to_string()];
        self.call(self.request(Method::DELETE, &path)?).await.map(drop)
    }
}

fn version_name(version: Option<u32>) -> String {
    version.map_or_else(|| "latest".to_owned(), |version| version.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::parse;

    #[test]
    fn a_schema_is_sent_as_it_is_written() {
        let text = r#"{"maximum": 1e400,  "const":0.10}"#;
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        let sent = serde_json::to_string(&NewSchema::new(raw).with_version(3).request()).unwrap();
        assert_eq!(sent, format!(r#"{{"version":3,"schema":{text}}}"#));
        let sent = NewSchema::new(raw).with_compat("full").with_policy("strict").request();
        let sent: serde_json::Value =
            serde_json::from_str(&serde_json::to_string(&sent).unwrap().replace("1e400", "1")).unwrap();
        assert_eq!((&sent["compat"], &sent["policy"]), (&"full".into(), &"strict".into()));
    }

    #[test]
    fn an_error_tells_why_a_schema_does_not_fit() {
        let error = parse(
            409,
            br#"{"error":"incompatible","message":"no","violations":[{"path":"/n","rule":"type","message":"m","counterexample":{"n":0.5}},
                {"path":"","rule":"undecided","message":"u","counterexample":null}]}"#,
        );
        let violations = error.violations();
        assert_eq!((violations[0].path.as_str(), violations[1].rule.as_str()), ("/n", "undecided"));
        assert_eq!(violations[0].counterexample.as_ref().unwrap()["n"], 0.5);
        assert!(parse(404, b"{}").violations().is_empty());
    }
}
