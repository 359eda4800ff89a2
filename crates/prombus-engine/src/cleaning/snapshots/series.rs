//! How far the compactor has come, and whose a snapshot topic is: two cursors, one in each of the two topics, which move in
//! every commit that publishes records.

use bytes::Bytes;
use prombus_core::{
    Cursor, CursorKey, CursorMove, CursorTarget, Epoch, EventLog, Offset, Partition, ReadError, TopicName,
    TopicNumber, TopicState,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Whose cursor says how far the records of a topic have come.
const COMPACTOR: &str = "snapshots";
/// Whose cursor says whose a snapshot topic is.
const OWNER: &str = "snapshots-of";

/// The records of one topic in another.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Series {
    /// The incarnation of the topic that is read.
    source: u32,
    /// That of its snapshot topic.
    target: u32,
    /// When it began.
    pub since: u64,
    /// How many passes have ended.
    pub pass: u64,
    /// By partition, up to where the last pass that has ended came.
    pub through: Vec<Offset>,
    /// By partition, up to where records are published. Partitions that were added since are not there.
    pub at: Vec<Offset>,
}

impl Series {
    /// One that is about to begin.
    fn new(source: &TopicState, target: &TopicState, since: u64) -> Self {
        Self { source: source.number.0, target: target.number.0, since, ..Self::default() }
    }

    /// What is stored about the topic, and where.
    pub async fn load(
        log: &dyn EventLog,
        source: &TopicState,
    ) -> Result<(Option<Self>, Option<Cursor>), ReadError> {
        load(log, source, COMPACTOR).await
    }

    /// Whether it is of these incarnations.
    pub fn is_of(&self, source: &TopicState, target: &TopicState) -> bool {
        (self.source, self.target) == (source.number.0, target.number.0)
    }

    /// Up to where the records of a partition go.
    pub fn at(&self, partition: Partition) -> Offset {
        self.at.get(partition.0 as usize).copied().unwrap_or_default()
    }

    /// They go up to here now.
    pub fn advance(&mut self, partition: Partition, to: Offset) {
        let at = partition.0 as usize;
        self.at.resize(self.at.len().max(at + 1), Offset(0));
        self.at[at] = to.max(self.at[at]);
    }
}

/// Whose records a snapshot topic holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SnapshotOwner {
    /// The name of the topic.
    pub topic: TopicName,
    number: u32,
}

impl SnapshotOwner {
    fn of(source: &TopicState) -> Self {
        Self { topic: source.name.clone(), number: source.number.0 }
    }

    /// What is stored about the snapshot topic, and where.
    pub async fn load(
        log: &dyn EventLog,
        target: &TopicState,
    ) -> Result<(Option<Self>, Option<Cursor>), ReadError> {
        load(log, target, OWNER).await
    }
}

async fn load<T: DeserializeOwned>(
    log: &dyn EventLog,
    topic: &TopicState,
    reader: &str,
) -> Result<(Option<T>, Option<Cursor>), ReadError> {
    let cursor = log.cursor(&key(topic, reader)).await?;
    // What cannot be read is begun anew.
    let detail = cursor.as_ref().and_then(|cursor| serde_json::from_slice(&cursor.detail).ok());
    Ok((detail, cursor))
}

fn key(topic: &TopicState, reader: &str) -> CursorKey {
    CursorKey { topic: topic.name.clone(), reader: reader.to_owned(), partition: Partition(0) }
}

/// A series with the cursors that it is stored in.
#[derive(Debug)]
pub(super) struct StoredSeries {
    /// As it is now.
    pub now: Series,
    /// Whether it is stored already, rather than begun anew.
    pub goes_on: bool,
    owner: SnapshotOwner,
    /// Of the cursors: how far it has come, and whose the snapshot topic is.
    versions: (u64, u64),
    pub epoch: Epoch,
}

impl StoredSeries {
    /// What is stored of these topics, or else one that is about to begin.
    pub async fn load(
        log: &dyn EventLog,
        (source, target): (&TopicState, &TopicState),
        now_ms: u64,
    ) -> Result<Self, ReadError> {
        let (series, cursor) = Series::load(log, source).await?;
        let (owner, owner_cursor) = SnapshotOwner::load(log, target).await?;
        let last_began = series.as_ref().map_or(0, |series| series.since);
        let goes_on =
            series.filter(|series| series.is_of(source, target) && owner == Some(SnapshotOwner::of(source)));
        let of = |cursor: &Option<Cursor>| {
            cursor.as_ref().map_or((0, Epoch(0)), |cursor| (cursor.version, cursor.epoch))
        };
        let (cursor, owner_cursor) = (of(&cursor), of(&owner_cursor));
        Ok(Self {
            goes_on: goes_on.is_some(),
            now: goes_on.unwrap_or_else(|| Series::new(source, target, now_ms.max(last_began + 1))),
            owner: SnapshotOwner::of(source),
            versions: (cursor.0, owner_cursor.0),
            epoch: cursor.1.max(owner_cursor.1),
        })
    }

    /// What stores it.
    pub fn steps(&self, (source, target): (&TopicState, &TopicState), epoch: Epoch) -> [CursorMove; 2] {
        let step = |topic: &TopicState, reader, (expect_version, detail)| CursorMove {
            key: key(topic, reader),
            incarnation: Some(TopicNumber(topic.number.0)),
            expect_version,
            epoch,
            to: Some(CursorTarget { next: Offset(0), detail }),
        };
        [
            step(source, COMPACTOR, (self.versions.0, text(&self.now))),
            step(target, OWNER, (self.versions.1, text(&self.owner))),
        ]
    }

    /// Takes note that the [steps](Self::steps) were committed.
    pub fn stepped(&mut self, epoch: Epoch) {
        self.versions = (self.versions.0 + 1, self.versions.1 + 1);
        (self.epoch, self.goes_on) = (epoch, true);
    }
}

fn text(value: &impl Serialize) -> Bytes {
    // Numbers and names: there is nothing that could not be written.
    serde_json::to_vec(value).unwrap_or_default().into()
}
