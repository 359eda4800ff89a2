//! Whether two states are equal, row by row, however their rows are stored.

use crate::state::checkpoint::Checkpoint;
use crate::state::view::{PartitionExtent, View, index_prefixes};
use bytes::Bytes;
use prombus_core::CollectionConfig;
use prombus_core::CollectionState;
use std::io;

/// What rows start with that only says which collection they belong to.
const PREFIX: usize = 5;

/// What is compared.
pub struct Comparison<'a> {
    /// A checkpoint.
    pub stored: &'a Checkpoint,
    /// What the journal gives.
    pub replayed: &'a View,
    /// Whether both count the same bytes. Those that were written before format 4 are not in checkpoints, and in the journal
    /// they are.
    pub counts_bytes: bool,
}

/// Whether a checkpoint holds the state that the journal gives.
pub fn is_same(comparison: Comparison<'_>) -> io::Result<bool> {
    let Comparison { stored, replayed, counts_bytes } = comparison;
    let View { sequence, end, topics, holes, forgotten, collections, rows, cursors, .. } = &stored.view;
    let counters = |view: &View| (view.next_topic, view.last_hub_id);
    // Recorded time also moves without a commit, or with one that changed nothing.
    let is_same = (*sequence, *end) == (replayed.sequence, replayed.end)
        && counters(&stored.view) == counters(replayed)
        && *topics == replayed.topics
        && is_same_extents(&stored.view, replayed, counts_bytes)
        && *holes == replayed.holes
        && *forgotten == replayed.forgotten
        && *cursors == replayed.cursors
        && (stored.with_documents || stored.view.next_collection == replayed.next_collection);
    if !is_same {
        return Ok(false);
    }
    // An early checkpoint knows only collections with documents, and numbers them as it likes.
    let is_known = |state: &&CollectionState| {
        !stored.with_documents || state.documents > 0 || *state.config != CollectionConfig::default()
    };
    let mut expected = replayed.collections.values().map(|state| &**state).filter(is_known);
    for state in collections.values() {
        let Some(other) = expected.next() else { return Ok(false) };
        let number = if stored.with_documents { state.number } else { other.number };
        if (CollectionState { number, ..other.clone() }) != **state {
            return Ok(false);
        }
        // Index rows that are gone may be there or not.
        let prefixes = |state: &CollectionState| {
            let indexes = index_prefixes(state).into_iter();
            indexes.chain([prombus_rows::document_prefix(state.number)])
        };
        for (found, expected) in prefixes(state).zip(prefixes(other)) {
            let found = rows.range(prombus_rows::prefixed(found), false);
            if !is_same_rows(found, replayed.rows.range(prombus_rows::prefixed(expected), false))? {
                return Ok(false);
            }
        }
    }
    Ok(expected.next().is_none())
}

fn is_same_extents(stored: &View, replayed: &View, counts_bytes: bool) -> bool {
    let is_same = |partition, extent: &PartitionExtent| {
        let other = replayed.extents.get(partition);
        other.is_some_and(|other| match counts_bytes {
            true => other == extent,
            false => PartitionExtent { bytes: extent.bytes, ..*other } == *extent,
        })
    };
    stored.extents.len() == replayed.extents.len()
        && stored.extents.iter().all(|(partition, extent)| is_same(partition, extent))
}

type FoundRow = io::Result<(Bytes, Bytes)>;

fn is_same_rows(
    mut found: impl Iterator<Item = FoundRow>,
    mut expected: impl Iterator<Item = FoundRow>,
) -> io::Result<bool> {
    loop {
        match (found.next().transpose()?, expected.next().transpose()?) {
            (None, None) => return Ok(true),
            (Some(a), Some(b)) if a.0[PREFIX..] == b.0[PREFIX..] && a.1 == b.1 => {}
            _ => return Ok(false),
        }
    }
}
