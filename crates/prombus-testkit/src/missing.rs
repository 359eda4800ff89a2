//! What a test is told whose document does not come: what is there instead.

use prombus_client::{Client, ClientError, ProjectionAnswer};
use serde_json::Value;

/// How many keys, collections or projections are named.
const MAX_NAMED: usize = 20;

/// Why a document cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It does not come.
    #[error("there is no document {key:?} in collection {collection:?} after 5 s; {found}; {projections}")]
    Missing {
        /// The collection.
        collection: String,
        /// The key.
        key: String,
        /// The keys of the collection, or the collections that there are.
        found: String,
        /// How the projections are doing.
        projections: String,
    },
    /// The hub could not be asked, or the document cannot be read.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Looks at what is there instead of a document.
pub(crate) async fn missing(
    client: &Client,
    collection: &str,
    key: &str,
) -> Result<DocumentError, ClientError> {
    let found = match client.collection(collection).await? {
        Some(_) => keys(client, collection).await?,
        None => {
            let collections = client.collections().await?;
            let names = named(collections.into_iter().map(|found| found.name));
            format!("there is no such collection, but these: {names}")
        }
    };
    let projections = client.projections().await?;
    let projections = format!("projections: {}", named(projections.iter().map(told)));
    Ok(DocumentError::Missing { collection: collection.to_owned(), key: key.to_owned(), found, projections })
}

async fn keys(client: &Client, collection: &str) -> Result<String, ClientError> {
    let page = client.list(collection).sort("_key").limit(MAX_NAMED as u64 + 1).page().await?;
    let keys = page.parse::<Value>()?.into_iter().map(|document| document["_key"].to_string());
    Ok(format!("its keys are {}", named(keys)))
}

/// A projection, and what may keep it from writing.
fn told(projection: &ProjectionAnswer) -> String {
    let ProjectionAnswer { name, topic, state, lag, errors, .. } = projection;
    let why = projection.reason.iter().chain(&projection.last_error).map(|why| format!(": {why}"));
    let why: String = why.collect();
    format!("{name} of {topic} ({state}, {lag} events behind, {errors} failed{why})")
}

/// The first of these, and whether there are more.
fn named(all: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = all.take(MAX_NAMED + 1).collect();
    if all.is_empty() {
        return "none".to_owned();
    }
    if all.len() > MAX_NAMED {
        all.truncate(MAX_NAMED);
        all.push("and more".to_owned());
    }
    all.join(", ")
}
