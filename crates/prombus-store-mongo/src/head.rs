//! Topics and collections as documents: what a commit reads of them, and moves.
//!
//! Each has a revision that every commit raises which changes anything of it, so that a commit that was made from an older
//! one does not happen.

use mongodb::bson::{Array, Bson, Document, doc};
use prombus_core::collection::{IndexState, Progress};
use prombus_core::{
    Bounds, CollectionConfig, CollectionState, Kept, Offset, ReadError, TopicConfig, TopicName, TopicNumber,
    TopicState,
};
use std::sync::Arc;

/// A topic, with what it holds by partition.
#[derive(Debug, Clone)]
pub struct Head {
    pub state: Arc<TopicState>,
    pub rev: i64,
    pub parts: Vec<Part>,
}

/// What a partition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Part {
    pub first: u64,
    pub next: u64,
    /// When its last event was recorded, or later.
    pub recorded_ts: u64,
    /// The greatest `ts` that it ever had.
    pub max_ts: u64,
    pub bytes: u64,
    pub horizon_ts: u64,
    pub has_holes: bool,
}

impl Part {
    pub fn bounds(&self) -> Bounds {
        Bounds { first: Offset(self.first), next: Offset(self.next) }
    }

    pub fn kept(&self) -> Kept {
        let Self { bytes, horizon_ts, has_holes, .. } = *self;
        Kept { bounds: self.bounds(), bytes, horizon_ts, has_holes }
    }

    /// What a document of a topic has for this partition, by field.
    pub fn fields(&self) -> [(&'static str, Bson); 7] {
        let int = |n: u64| Bson::Int64(n as i64);
        [
            ("next", int(self.next)),
            ("first", int(self.first)),
            ("recorded_ts", int(self.recorded_ts)),
            ("max_ts", int(self.max_ts)),
            ("bytes", int(self.bytes)),
            ("horizon_ts", int(self.horizon_ts)),
            ("holes", Bson::Boolean(self.has_holes)),
        ]
    }
}

fn damaged(what: &str, document: &Document) -> ReadError {
    let id = document.get("_id").map(ToString::to_string).unwrap_or_default();
    ReadError::Corrupt(format!("{what} {id} in the database is not as the hub wrote it"))
}

impl Head {
    pub fn number(&self) -> u32 {
        self.state.number.0
    }

    /// One of its partitions.
    pub fn part(&self, partition: u32) -> Part {
        self.parts.get(partition as usize).copied().unwrap_or_default()
    }

    pub fn to_document(&self) -> Document {
        let TopicState { name, number, revision, config, growths } = &*self.state;
        let ends = |ends: &[Offset]| ends.iter().map(|end| Bson::Int64(end.0 as i64)).collect::<Array>();
        let mut document = doc! {
            "_id": name.as_str(),
            "number": i64::from(number.0),
            "rev": self.rev,
            "revision": *revision as i64,
            "partitions": i64::from(config.partitions),
            // All of it is texts and numbers.
            "config": serde_json::to_string(config).unwrap_or_default(),
            "growths": growths.iter().map(|growth| Bson::Array(ends(growth))).collect::<Array>(),
        };
        for (n, (field, _)) in Part::default().fields().into_iter().enumerate() {
            let values = self.parts.iter().map(|part| part.fields()[n].1.clone());
            document.insert(field, values.collect::<Array>());
        }
        document
    }

    pub fn of_document(document: &Document) -> Result<Self, ReadError> {
        Self::read(document).ok_or_else(|| damaged("topic", document))
    }

    fn read(document: &Document) -> Option<Self> {
        let config: TopicConfig = serde_json::from_str(document.get_str("config").ok()?).ok()?;
        let growth = |growth: &Bson| {
            let ends = growth.as_array()?.iter();
            ends.map(|end| Some(Offset(end.as_i64()? as u64))).collect::<Option<Arc<[Offset]>>>()
        };
        let growths = document.get_array("growths").ok()?.iter().map(growth).collect::<Option<_>>()?;
        let state = TopicState {
            name: TopicName::parse(document.get_str("_id").ok()?).ok()?,
            number: TopicNumber(u32::try_from(document.get_i64("number").ok()?).ok()?),
            revision: document.get_i64("revision").ok()? as u64,
            config,
            growths,
        };
        let [next, first, recorded_ts, max_ts, bytes, horizon_ts, holes] =
            Part::default().fields().map(|(field, _)| document.get_array(field).ok());
        let int = |values: Option<&Array>, n: usize| Some(values?.get(n)?.as_i64()? as u64);
        let part = |n: usize| {
            Some(Part {
                next: int(next, n)?,
                first: int(first, n)?,
                recorded_ts: int(recorded_ts, n)?,
                max_ts: int(max_ts, n)?,
                bytes: int(bytes, n)?,
                horizon_ts: int(horizon_ts, n)?,
                has_holes: holes?.get(n)?.as_bool()?,
            })
        };
        let parts = (0..state.config.partitions as usize).map(part).collect::<Option<_>>()?;
        Some(Self { rev: document.get_i64("rev").ok()?, state: Arc::new(state), parts })
    }
}

/// A collection.
#[derive(Debug, Clone)]
pub struct CollectionHead {
    pub state: CollectionState,
    pub rev: i64,
}

impl CollectionHead {
    pub fn to_document(&self) -> Document {
        let CollectionState { name, number, revision, config, indexes, documents, bytes } = &self.state;
        let index = |index: &IndexState| {
            // All of it is texts and numbers.
            let progress = serde_json::to_string(&index.progress).unwrap_or_default();
            Bson::Document(doc! { "number": index.number as i64, "progress": progress })
        };
        doc! {
            "_id": &**name,
            "number": i64::from(*number),
            "rev": self.rev,
            "revision": *revision as i64,
            "config": serde_json::to_string(&**config).unwrap_or_default(),
            "indexes": indexes.iter().map(index).collect::<Array>(),
            "documents": *documents as i64,
            "bytes": *bytes as i64,
        }
    }

    pub fn of_document(document: &Document) -> Result<Self, ReadError> {
        Self::read(document).ok_or_else(|| damaged("collection", document))
    }

    fn read(document: &Document) -> Option<Self> {
        let config: CollectionConfig = serde_json::from_str(document.get_str("config").ok()?).ok()?;
        let known = document.get_array("indexes").ok()?;
        let index = |(index, known): (&prombus_core::collection::Index, &Bson)| {
            let known = known.as_document()?;
            let progress: Progress = serde_json::from_str(known.get_str("progress").ok()?).ok()?;
            Some(IndexState { index: index.clone(), number: known.get_i64("number").ok()? as u64, progress })
        };
        let indexes: Vec<IndexState> = config.indexes.iter().zip(known).map(index).collect::<Option<_>>()?;
        let state = CollectionState {
            name: document.get_str("_id").ok()?.into(),
            number: u32::try_from(document.get_i64("number").ok()?).ok()?,
            revision: document.get_i64("revision").ok()? as u64,
            indexes: indexes.into(),
            config: Arc::new(config),
            documents: document.get_i64("documents").ok()? as u64,
            bytes: document.get_i64("bytes").ok()? as u64,
        };
        Some(Self { state, rev: document.get_i64("rev").ok()? })
    }
}

/// What is counted for the whole database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Catalog {
    pub rev: i64,
    pub next_topic: u32,
    pub next_collection: u32,
    pub topics: usize,
    pub collections: usize,
}

/// The key of the catalog among what is kept about the database.
pub const CATALOG: &str = "catalog";

impl Catalog {
    pub fn to_document(self) -> Document {
        doc! {
            "_id": CATALOG,
            "rev": self.rev,
            "next_topic": i64::from(self.next_topic),
            "next_collection": i64::from(self.next_collection),
            "topics": self.topics as i64,
            "collections": self.collections as i64,
        }
    }

    pub fn of_document(document: &Document) -> Result<Self, ReadError> {
        let int = |field: &str| document.get_i64(field).ok();
        let read = || {
            Some(Self {
                rev: int("rev")?,
                next_topic: u32::try_from(int("next_topic")?).ok()?,
                next_collection: u32::try_from(int("next_collection")?).ok()?,
                topics: usize::try_from(int("topics")?).ok()?,
                collections: usize::try_from(int("collections")?).ok()?,
            })
        };
        read().ok_or_else(|| damaged("the entry", document))
    }
}
