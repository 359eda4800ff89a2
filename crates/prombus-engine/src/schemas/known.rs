//! What is known of schemas: read from the store when it is needed, and kept within bounds.

use super::stored::{self, Head, StoredSchema};
use super::work;
use crate::cache::Cache;
use parking_lot::Mutex;
use prombus_core::{Documents, ReadError, TopicNumber, TopicState};
use prombus_schema::{Schema, Validator};
use std::sync::Arc;

/// What all heads that are kept take at most.
const HEADS_BYTES: usize = 16 << 20;
/// What all validators that are kept take at most, about, with the texts of their schemas.
const VALIDATORS_BYTES: usize = 128 << 20;
/// What a validator counts for beside these.
const VALIDATOR_BYTES: usize = 512;

/// Schemas of all topics.
pub(crate) struct SchemaCache {
    documents: Arc<dyn Documents>,
    /// By the name of the topic: its number, its revision, and what there was for it then.
    heads: Mutex<Cache<(TopicNumber, u64, Arc<Head>)>>,
    validators: Mutex<Cache<Validator>>,
}

impl SchemaCache {
    pub fn new(documents: Arc<dyn Documents>) -> Self {
        let heads = Mutex::new(Cache::new(HEADS_BYTES));
        Self { documents, heads, validators: Mutex::new(Cache::new(VALIDATORS_BYTES)) }
    }

    /// What there is for a topic, at the revision that it was seen at or later; `None` if there are no schemas. Whatever is
    /// registered moves the revision on, so that nothing is read again before that.
    pub async fn head(&self, topic: &TopicState) -> Result<Option<Arc<Head>>, ReadError> {
        if topic.revision == TopicState::FIRST_REVISION {
            return Ok(None);
        }
        let known = self.heads.lock().get(topic.name.as_str());
        let seen = (topic.number, topic.revision);
        let head = match known {
            Some((number, revision, head)) if (number, revision) == seen => head,
            _ => {
                let head = Arc::new(stored::load_head(&*self.documents, topic).await?.head);
                let entry = (topic.number, topic.revision, head.clone());
                self.heads.lock().insert(&topic.name.as_str().into(), entry, head.size());
                head
            }
        };
        Ok(Some(head).filter(|head| !head.versions.is_empty()))
    }

    /// A version that is registered, as it was given.
    pub async fn schema(&self, head: &Head, version: u32) -> Result<Option<StoredSchema>, ReadError> {
        stored::load_version(&*self.documents, head, version).await
    }

    /// What checks documents of a version; `None` if it is not registered.
    pub async fn validator(&self, head: &Head, version: u32) -> Result<Option<Validator>, ReadError> {
        let key: Arc<str> = format!("{}:{version}", head.topic().0).into();
        if let Some(validator) = self.validators.lock().get(&key) {
            return Ok(Some(validator));
        }
        let Some(schema) = self.schema(head, version).await? else { return Ok(None) };
        let text = schema.text.len();
        let parsed = work::run(move || parse(&schema.text)).await?;
        let validator = parsed.map_err(|error| ReadError::Corrupt(error.to_string()))?.validator().clone();
        let bytes = text + validator.bytes() + VALIDATOR_BYTES;
        let gone = self.validators.lock().insert(&key, validator.clone(), bytes);
        // Outside of the lock, because it may take a while.
        drop(gone);
        Ok(Some(validator))
    }
}

/// Reads the text of a schema.
pub(crate) fn parse(text: &prombus_core::Json) -> Result<Schema, prombus_schema::SchemaError> {
    // What is JSON is UTF-8.
    Schema::parse(&String::from_utf8_lossy(text.as_bytes()))
}
