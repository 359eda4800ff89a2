//! How a group is stored: a cursor for its options, one for each partition of its topic, and one for each chunk of a
//! partition in which something was settled out of order or has failed.

use super::lane::Lane;
use super::options::{GroupName, GroupOptions};
use super::progress::Progress;
use super::{GroupError, metrics::GroupMetrics, state::State};
use crate::filter::Filter;
use bytes::Bytes;
use prombus_core::{
    CursorKey, CursorMove, CursorTarget, Epoch, EventLog, Offset, Partition, ReadError, ReaderLimit,
    TopicName, TopicState,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whose cursor holds the options of a group.
const OPTIONS: &str = "group-options:";
/// Whose cursors say where a group is.
const LANES: &str = "group:";
/// Whose cursors say what is settled out of order, or has failed.
const CHUNKS: &str = "group-chunk:";

/// The cursor that holds the options of a group.
pub fn options_key(topic: &TopicName, group: &GroupName) -> CursorKey {
    CursorKey { topic: topic.clone(), reader: format!("{OPTIONS}{group}"), partition: Partition(0) }
}

/// That all groups together have at most so many partitions.
pub fn partitions(most: usize) -> ReaderLimit {
    ReaderLimit { readers: LANES, most }
}

/// What a topic has to keep to when it grows, where it has groups: they get its new partitions too.
pub async fn growth_limit(
    log: &dyn EventLog,
    topic: &TopicName,
    most: usize,
) -> Result<Option<ReaderLimit>, ReadError> {
    Ok((!log.readers(topic, LANES).await?.is_empty()).then(|| partitions(most)))
}

/// The cursor that says where a group is in a partition.
pub fn lane_key(topic: &TopicName, group: &GroupName, partition: u32) -> CursorKey {
    CursorKey { topic: topic.clone(), reader: format!("{LANES}{group}"), partition: Partition(partition) }
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

/// What makes a group that starts at `starts`.
pub fn creation(
    topic: &TopicState,
    group: &GroupName,
    options: &GroupOptions,
    starts: &[u64],
) -> Vec<CursorMove> {
    let mut moves = creation_in_new(&topic.name, group, options, starts);
    moves.iter_mut().for_each(|step| step.incarnation = Some(topic.number));
    moves
}

/// What makes a group of a topic that is made with it.
pub fn creation_in_new(
    topic: &TopicName,
    group: &GroupName,
    options: &GroupOptions,
    starts: &[u64],
) -> Vec<CursorMove> {
    let made = |key: CursorKey, next: u64, detail: Bytes| CursorMove {
        key,
        incarnation: None,
        expect_version: 0,
        epoch: Epoch(0),
        to: Some(CursorTarget { next: Offset(next), detail }),
    };
    let detail = Bytes::from(serde_json::to_vec(options).unwrap_or_default());
    let lanes = (0..).zip(starts);
    let lanes = lanes.map(|(partition, next)| made(lane_key(topic, group, partition), *next, Bytes::new()));
    [made(options_key(topic, group), 0, detail)].into_iter().chain(lanes).collect()
}

/// What removes a group, as far as it is there.
pub async fn removal(
    log: &dyn EventLog,
    topic: &TopicState,
    group: &GroupName,
) -> Result<Vec<CursorMove>, GroupError> {
    let lanes = (0..topic.config.partitions).map(|partition| lane_key(&topic.name, group, partition));
    let chunks = chunks_of(log, &topic.name, group).await?.into_iter();
    let chunks = chunks.map(|(partition, chunk)| chunk_key(&topic.name, group, partition, chunk));
    let mut moves = Vec::new();
    for key in [options_key(&topic.name, group)].into_iter().chain(lanes).chain(chunks) {
        if let Some(cursor) = log.cursor(&key).await? {
            let (expect_version, epoch) = (cursor.version, cursor.epoch);
            let incarnation = Some(topic.number);
            moves.push(CursorMove { key, incarnation, expect_version, epoch, to: None });
        }
    }
    Ok(moves)
}

/// The state of a group as it is stored, if there is such a group.
pub async fn load(
    log: &dyn EventLog,
    topic: &TopicState,
    group: &GroupName,
    metrics: GroupMetrics,
) -> Result<Option<State>, GroupError> {
    let damaged =
        || GroupError::Failed(format!("the cursors of group {group} cannot be read by this version"));
    let Some(options) = log.cursor(&options_key(&topic.name, group)).await? else { return Ok(None) };
    let options: GroupOptions = serde_json::from_slice(&options.detail).map_err(|_| damaged())?;
    // Of many that are loaded at once, a few at a time are compiled. One that does not compile any more is told later.
    let _ = Filter::compile_in_turn(options.filter.as_deref()).await;
    let mut lanes = Vec::new();
    for partition in 0..topic.config.partitions {
        // The topic has grown since: the rest is for the state to add.
        let Some(cursor) = log.cursor(&lane_key(&topic.name, group, partition)).await? else { break };
        let progress = Progress::decode(cursor.next.0, &cursor.detail).ok_or_else(damaged)?;
        lanes.push((cursor, progress, BTreeMap::new()));
    }
    for (partition, chunk) in chunks_of(log, &topic.name, group).await? {
        let stored = log.cursor(&chunk_key(&topic.name, group, partition, chunk)).await?;
        let lane = lanes.get_mut(partition as usize);
        let (Some(stored), Some((_, progress, versions))) = (stored, lane) else { continue };
        if !progress.add_chunk(chunk, &stored.detail) {
            return Err(damaged());
        }
        versions.insert(chunk, stored.version);
    }
    let lanes = lanes.into_iter().map(|(cursor, progress, chunk_versions)| {
        let mut lane = Lane::new(progress, cursor.version, cursor.epoch.0);
        lane.chunk_versions = chunk_versions;
        lane
    });
    let lanes = lanes.collect();
    let mut state = State::new(Arc::new(options), lanes, metrics);
    state.see_topic(topic);
    Ok(Some(state))
}
