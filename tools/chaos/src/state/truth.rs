//! What is stored: topics and collections, read in full over HTTP.

use super::producer::VALUES;
use super::setup::{DONE_FEED, FIELDS, IN, LATEST_FEED, OUT, SINGLES};
use crate::api::Api;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// The largest page of documents.
const PAGE: usize = 1_000;

/// An event of the topic that everything counts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Event {
    /// Its id.
    pub id: Uuid,
    /// Where it is.
    pub partition: u32,
    /// And where there.
    pub offset: u64,
    /// When it was recorded, as producers leave that to the hub.
    pub ts: u64,
    /// Its key.
    pub key: String,
    /// What it says.
    pub payload: Payload,
}

/// What an event says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Payload {
    /// Who published it.
    pub p: String,
    /// Which of theirs it is.
    pub n: u64,
    /// What is added up; projections cannot take an event without it.
    pub v: Option<i64>,
    /// The version.
    pub rev: Option<i64>,
    /// Whether the document is deleted.
    #[serde(default)]
    pub gone: bool,
}

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Letter {
    /// The projection that failed.
    pub of: String,
    /// The event.
    pub event: Uuid,
}

/// An event of a changefeed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Change {
    /// The key of the document.
    pub key: String,
    /// The document, or nothing.
    pub payload: Option<Document>,
    /// The event that changed it.
    #[serde(default)]
    pub caused_by: Vec<Uuid>,
}

/// A document.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Document {
    /// Its key.
    #[serde(rename = "_key")]
    pub key: String,
    /// Its version, where it has one.
    #[serde(rename = "_v")]
    pub version: Option<i64>,
    /// When it was written.
    #[serde(rename = "_ts")]
    pub ts: u64,
    /// Everything else.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

impl Document {
    /// A whole number in it.
    pub fn number(&self, field: &str) -> Option<i64> {
        self.fields.get(field).and_then(Value::as_i64)
    }
}

/// What a commit published.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ConfirmedCommit {
    /// The commit.
    pub by: String,
    /// The event that it settled, if there is one.
    pub of: Option<Uuid>,
}

/// The documents of a collection by key.
pub type Documents = BTreeMap<String, Document>;

/// Everything that is there.
#[derive(Debug, Clone, Default)]
pub struct FoundState {
    /// The events that everything counts, in the order of partitions and offsets.
    pub events: Vec<Event>,
    /// Their dead letters.
    pub letters: Vec<Letter>,
    /// All collections by name.
    pub collections: BTreeMap<String, Documents>,
    /// The documents of `latest` that are found by their `v`.
    pub by_value: BTreeMap<i64, BTreeSet<String>>,
    /// The changes of `latest`.
    pub latest_feed: Vec<Change>,
    /// The changes of `done`.
    pub done_feed: Vec<Change>,
    /// What consumers published.
    pub out: Vec<ConfirmedCommit>,
    /// What writers published.
    pub singles: Vec<ConfirmedCommit>,
}

#[derive(Deserialize)]
struct Line<T> {
    payload: T,
}

#[derive(Deserialize)]
struct LetterPayload {
    /// Who failed it: a group, or a projection.
    #[serde(alias = "projection")]
    group: String,
    original: Event,
}

#[derive(Deserialize)]
struct Collections {
    collections: Vec<Collection>,
}

#[derive(Deserialize)]
struct Collection {
    name: String,
    count: usize,
}

#[derive(Deserialize)]
struct Page {
    items: Vec<Box<RawValue>>,
    next: Option<usize>,
}

/// Reads everything. Nobody may write meanwhile.
pub async fn read(api: &Api) -> Result<FoundState, String> {
    let letters = lines::<Line<LetterPayload>>(api, &format!("dlq.{IN}")).await?;
    let letter =
        |line: Line<LetterPayload>| Letter { of: line.payload.group, event: line.payload.original.id };
    let mut found = FoundState {
        events: lines(api, IN).await?,
        letters: letters.into_iter().map(letter).collect(),
        latest_feed: lines(api, LATEST_FEED).await?,
        done_feed: lines(api, DONE_FEED).await?,
        out: told(api, OUT).await?,
        singles: told(api, SINGLES).await?,
        ..FoundState::default()
    };
    let text = api.get("/v1/collections", "application/json").await?;
    let listed: Collections = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    for Collection { name, count } in listed.collections {
        let documents = documents(api, &name, "sort=_key").await?;
        if documents.len() != count {
            return Err(format!("{name} says that it has {count} documents, and lists {}", documents.len()));
        }
        found.collections.insert(name, documents);
    }
    for value in 0..VALUES {
        let matching = documents(api, "latest", &format!("v={value}")).await?;
        found.by_value.insert(value, matching.into_keys().collect());
    }
    Ok(found)
}

async fn told(api: &Api, topic: &str) -> Result<Vec<ConfirmedCommit>, String> {
    Ok(lines::<Line<ConfirmedCommit>>(api, topic).await?.into_iter().map(|line| line.payload).collect())
}

/// The events of all partitions of a topic; none where there is no topic.
async fn lines<T: DeserializeOwned>(api: &Api, topic: &str) -> Result<Vec<T>, String> {
    let listed = api.topics().await?;
    let partitions = listed.iter().find(|listed| listed.topic == topic).map_or(0, |l| l.bounds.len());
    let mut found = Vec::new();
    for partition in 0..partitions as u32 {
        let text = api.export(topic, partition, 0).await?;
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let parsed = serde_json::from_slice(line)
                .map_err(|error| format!("{topic}: {error}: {}", String::from_utf8_lossy(line)))?;
            found.push(parsed);
        }
    }
    Ok(found)
}

/// The documents of a collection that a query has, as texts and in their order.
pub async fn list(api: &Api, collection: &str, query: &str) -> Result<Vec<Box<RawValue>>, String> {
    let (mut items, mut offset) = (Vec::new(), 0);
    loop {
        let path = format!("/v1/collections/{collection}/list?limit={PAGE}&offset={offset}&{query}");
        let text = api.get(&path, "application/json").await?;
        let page: Page = serde_json::from_slice(&text).map_err(|error| format!("GET {path}: {error}"))?;
        items.extend(page.items);
        match page.next {
            Some(next) => offset = next,
            None => return Ok(items),
        }
    }
}

async fn documents(api: &Api, collection: &str, query: &str) -> Result<Documents, String> {
    let mut documents = Documents::new();
    for item in list(api, collection, query).await? {
        let document: Document = serde_json::from_str(item.get())
            .map_err(|error| format!("{collection}: {error}: {}", item.get()))?;
        if let Some(twice) = documents.insert(document.key.clone(), document) {
            return Err(format!("{collection} lists {:?} twice", twice.key));
        }
    }
    Ok(documents)
}

/// What a changelog keeps of a payload.
pub fn kept(payload: &Payload) -> Map<String, Value> {
    let Payload { p, n, v, rev, .. } = payload;
    let values = [Value::from(p.as_str()), Value::from(*n), Value::from(*v), Value::from(*rev)];
    FIELDS.iter().map(|name| (*name).to_owned()).zip(values).collect()
}
