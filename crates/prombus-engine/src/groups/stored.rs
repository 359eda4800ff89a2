//! How a group is stored: a cursor for its options, one for each partition of its topic, and one for each chunk of a
//! partition in which something was settled out of order or has failed.

use super::lease::Leases;
use super::options::{GroupName, GroupOptions, Mode};
use super::partition_queue::PartitionQueue;
use super::progress::Progress;
use super::{
    GroupError,
    metrics::GroupMetrics,
    state::{GroupFilter, State},
};
use bytes::Bytes;
use prombus_core::{
    Cursor, CursorKey, CursorMove, CursorTarget, Epoch, EventLog, Offset, Partition, ReadError, ReaderLimit,
    TopicName, TopicNumber, TopicState,
};
use std::sync::Arc;

/// Whose cursor holds the options of a group.
const OPTIONS: &str = "group-options:";
/// Whose cursors say where a group is.
const PARTITIONS: &str = "group:";
/// Whose cursors say what is settled out of order, or has failed.
const CHUNKS: &str = "group-chunk:";

/// In the detail of a cursor: how many owners the partition has had comes first. Partitioned groups have that.
const OWNED: u8 = 3;
/// In the detail of a cursor: how many events were lost comes next, where some were.
const LOST: u8 = 4;

/// The detail of a partition's cursor.
pub fn cursor_detail(progress: Bytes, owners: Option<u64>, lost: u64) -> Bytes {
    let numbers = [(OWNED, owners), (LOST, Some(lost).filter(|lost| *lost > 0))];
    if numbers.iter().all(|(_, number)| number.is_none()) {
        return progress;
    }
    let mut detail = Vec::new();
    for (tag, number) in numbers.into_iter().filter_map(|(tag, number)| Some((tag, number?))) {
        detail.push(tag);
        detail.extend_from_slice(&number.to_le_bytes());
    }
    detail.extend_from_slice(&progress);
    detail.into()
}

/// A number that a detail starts with, and what it says beside.
fn number_of(tag: u8, detail: &[u8]) -> (Option<u64>, &[u8]) {
    let tagged = detail.split_first().filter(|(found, _)| **found == tag);
    match tagged.and_then(|(_, rest)| rest.split_first_chunk()) {
        Some((number, rest)) => (Some(u64::from_le_bytes(*number)), rest),
        None => (None, detail),
    }
}

/// The cursor that holds the options of a group.
pub fn options_key(topic: &TopicName, group: &GroupName) -> CursorKey {
    CursorKey { topic: topic.clone(), reader: format!("{OPTIONS}{group}"), partition: Partition(0) }
}

/// That all groups together have at most so many partitions.
pub fn partitions(most: usize) -> ReaderLimit {
    ReaderLimit { readers: PARTITIONS, most }
}

/// What a topic has to keep to when it grows, where it has groups: they get its new partitions too.
pub async fn growth_limit(
    log: &dyn EventLog,
    topic: &TopicName,
    most: usize,
) -> Result<Option<ReaderLimit>, ReadError> {
    Ok((!log.readers(topic, PARTITIONS).await?.is_empty()).then(|| partitions(most)))
}

/// The cursor that says where a group is in a partition.
pub fn cursor_key(topic: &TopicName, group: &GroupName, partition: u32) -> CursorKey {
    CursorKey {
        topic: topic.clone(),
        reader: format!("{PARTITIONS}{group}"),
        partition: Partition(partition),
    }
}

/// The cursor that says what a group has settled in a chunk of a partition.
pub fn chunk_key(topic: &TopicName, group: &GroupName, partition: u32, chunk: u64) -> CursorKey {
    let reader = format!("{}{partition}:{chunk}", chunks_prefix(group));
    CursorKey { topic: topic.clone(), reader, partition: Partition(partition) }
}

/// How the readers of a group's chunks begin, and of no other group's: no name has a slash in it.
fn chunks_prefix(group: &GroupName) -> String {
    format!("{CHUNKS}{group}/")
}

/// The partitions and chunks that a group has cursors for.
async fn chunks_of(
    log: &dyn EventLog,
    topic: &TopicName,
    group: &GroupName,
) -> Result<Vec<(u32, u64)>, GroupError> {
    let prefix = chunks_prefix(group);
    let chunk = |reader: &String| {
        let (partition, chunk) = reader.strip_prefix(&prefix)?.split_once(':')?;
        Some((partition.parse().ok()?, chunk.parse().ok()?))
    };
    Ok(log.readers(topic, &prefix).await?.iter().filter_map(chunk).collect())
}

/// The groups of a topic.
pub async fn group_names(log: &dyn EventLog, topic: &TopicName) -> Result<Vec<GroupName>, GroupError> {
    let readers = log.readers(topic, OPTIONS).await?;
    Ok(readers.iter().filter_map(|reader| GroupName::parse(reader.strip_prefix(OPTIONS)?).ok()).collect())
}

/// A group that is to be made.
pub struct NewGroup<'a> {
    /// Its topic.
    pub topic: &'a TopicName,
    /// The incarnation of that; `None` where it is made together with the group.
    pub incarnation: Option<TopicNumber>,
    /// Its name.
    pub group: &'a GroupName,
    /// The epoch that it is made in.
    pub epoch: Epoch,
}

/// What makes a group that starts at `starts`.
pub fn creation(new: &NewGroup<'_>, options: &GroupOptions, starts: &[u64]) -> Vec<CursorMove> {
    let NewGroup { topic, incarnation, group, epoch } = *new;
    let made = |key: CursorKey, next: u64, detail: Bytes| CursorMove {
        key,
        incarnation,
        expect_version: 0,
        epoch,
        to: Some(CursorTarget { next: Offset(next), detail }),
    };
    let detail = Bytes::from(serde_json::to_vec(options).unwrap_or_default());
    let owners = (options.mode == Mode::Partitioned).then_some(0);
    let start = cursor_detail(Bytes::new(), owners, 0);
    let partitions = (0..)
        .zip(starts)
        .map(|(partition, next)| made(cursor_key(topic, group, partition), *next, start.clone()));
    [made(options_key(topic, group), 0, detail)].into_iter().chain(partitions).collect()
}

/// What removes a group, as far as it is there, in the epochs that its cursors have.
pub async fn removal(
    log: &dyn EventLog,
    topic: &TopicState,
    group: &GroupName,
) -> Result<Vec<CursorMove>, GroupError> {
    let partitions = (0..topic.config.partitions).map(|partition| cursor_key(&topic.name, group, partition));
    let chunks = chunks_of(log, &topic.name, group).await?.into_iter();
    let chunks = chunks.map(|(partition, chunk)| chunk_key(&topic.name, group, partition, chunk));
    let mut moves = Vec::new();
    for key in [options_key(&topic.name, group)].into_iter().chain(partitions).chain(chunks) {
        if let Some(cursor) = log.cursor(&key).await? {
            let (expect_version, epoch) = (cursor.version, cursor.epoch);
            let incarnation = Some(topic.number);
            moves.push(CursorMove { key, incarnation, expect_version, epoch, to: None });
        }
    }
    Ok(moves)
}

/// A group as it is stored.
pub struct Stored {
    /// Its options.
    pub options: GroupOptions,
    filter: GroupFilter,
    /// The version of the cursor that holds them.
    pub options_version: u64,
    /// The latest epoch that its cursors have seen.
    pub epoch: Epoch,
    queues: Vec<PartitionQueue>,
}

impl Stored {
    /// The state of the group, whose leases are to be these.
    pub fn into_state(self, topic: &TopicState, leases: Leases, metrics: GroupMetrics) -> State {
        let mut state = State::new((Arc::new(self.options), self.filter), self.queues, leases, metrics);
        state.see_topic(topic);
        state
    }
}

/// The options of a group as they are stored, and the cursor that holds them, if there is such a group.
pub async fn options(
    log: &dyn EventLog,
    topic: &TopicName,
    group: &GroupName,
) -> Result<Option<(GroupOptions, Cursor)>, GroupError> {
    let Some(cursor) = log.cursor(&options_key(topic, group)).await? else { return Ok(None) };
    let options = serde_json::from_slice(&cursor.detail).map_err(|_| damaged(group))?;
    Ok(Some((options, cursor)))
}

fn damaged(group: &GroupName) -> GroupError {
    GroupError::Failed(format!("the cursors of group {group} cannot be read by this version"))
}

/// A group as it is stored, if there is such a group.
pub async fn load(
    log: &dyn EventLog,
    topic: &TopicState,
    group: &GroupName,
) -> Result<Option<Stored>, GroupError> {
    let Some((options, cursor)) = self::options(log, &topic.name, group).await? else { return Ok(None) };
    let (options_version, mut epoch) = (cursor.version, cursor.epoch);
    let filter = options.stored_filter().await?;
    let mut queues = Vec::new();
    for partition in 0..topic.config.partitions {
        // The topic has grown since: the rest is for the state to add.
        let Some(cursor) = log.cursor(&cursor_key(&topic.name, group, partition)).await? else { break };
        let (owners, detail) = number_of(OWNED, &cursor.detail);
        // Older builds had the owners as the epoch of the cursor.
        let owners = owners.or_else(|| (options.mode == Mode::Partitioned).then_some(cursor.epoch.0));
        let (lost, detail) = number_of(LOST, detail);
        let progress = Progress::decode(cursor.next.0, detail).ok_or_else(|| damaged(group))?;
        epoch = epoch.max(cursor.epoch);
        let mut queue = PartitionQueue::new(progress, cursor.version, cursor.epoch);
        (queue.owners, queue.lost) = (owners, lost.unwrap_or(0));
        queues.push(queue);
    }
    for (partition, chunk) in chunks_of(log, &topic.name, group).await? {
        let stored = log.cursor(&chunk_key(&topic.name, group, partition, chunk)).await?;
        let queue = queues.get_mut(partition as usize);
        let (Some(stored), Some(queue)) = (stored, queue) else { continue };
        if !queue.progress.add_chunk(chunk, &stored.detail) {
            return Err(damaged(group));
        }
        epoch = epoch.max(stored.epoch);
        queue.chunk_versions.insert(chunk, stored.version);
    }
    // What is in the chunks is known only now.
    queues.iter_mut().for_each(PartitionQueue::restart);
    Ok(Some(Stored { options, filter, options_version, epoch, queues }))
}
