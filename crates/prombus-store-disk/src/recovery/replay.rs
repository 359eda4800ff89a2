//! Replaying the journal: what each batch changed, and where its events are.
//!
//! What was committed is not judged again: no limit or rule applies here, only what the journal says. Every item is checked
//! against its checksum, and the offsets of a partition follow each other; anything else is a bad batch.

use crate::index::active::{ActiveIndex, Entry};
use crate::index::lookup::key_hash;
use crate::journal::change;
use crate::journal::position::Pos;
use crate::journal::record::{self, EVENT, GONE};
use crate::journal::scan::Batch;
use crate::state::view::{PartitionExtent, View};
use prombus_core::CommitError;

/// The state so far.
pub struct Replay {
    /// The state.
    pub view: View,
    /// Earlier batches are in the state already; only their events are indexed.
    pub from: Pos,
}

/// Why a batch cannot be applied.
pub enum BadBatch {
    /// The item at this position is invalid.
    Item(u32),
    /// The rows that it changes cannot be read.
    Rows(CommitError),
}

impl Replay {
    /// Indexes the events of a batch and applies what it changes.
    pub fn take(&mut self, batch: &Batch<'_>, index: &mut ActiveIndex) -> Result<(), BadBatch> {
        let applies = batch.head.pos >= self.from;
        let mut used = 0;
        let items = Pos { at: batch.items_at, ..batch.head.pos };
        for _ in 0..batch.head.items {
            // A batch ends within its part, and so do its items.
            let at = items.plus(used).map_or(u32::MAX, |pos| pos.at);
            let bad = || BadBatch::Item(at);
            let rest = batch.items.get(used..).ok_or_else(bad)?;
            let (kind, content) = record::verified_item(rest).ok_or_else(bad)?;
            let len = record::item_len(rest).ok_or_else(bad)?;
            if kind == EVENT {
                self.take_event(&rest[..len], at, index, applies).ok_or_else(bad)?;
            } else if kind == GONE {
                index.push_gone(&record::event_head(&rest[..len]).ok_or_else(bad)?, at);
            } else {
                let change = change::parse(kind, content).ok_or_else(bad)?;
                if change.may_name_keys() {
                    index.note_keys();
                }
                if applies {
                    self.view.apply(change).map_err(BadBatch::Rows)?;
                }
            }
            used += len;
        }
        if applies {
            self.view.sequence = batch.head.sequence;
            self.view.last_recorded_ts = self.view.last_recorded_ts.max(batch.head.recorded_ts);
        }
        index.keep();
        Ok(())
    }

    fn take_event(&mut self, item: &[u8], at: u32, index: &mut ActiveIndex, applies: bool) -> Option<()> {
        let head = record::event_head(item)?;
        let key_hash = record::event_key(item).map(|key| key_hash(head.partition.topic, key));
        index.push(Entry { head, key_hash, at, bytes: u32::try_from(item.len()).ok()? });
        if applies {
            let extent = self.view.extent(head.partition);
            if extent.next != head.offset {
                return None;
            }
            let bytes = extent.bytes + record::event_size(item);
            self.view
                .extents
                .insert(head.partition, PartitionExtent { next: head.offset + 1, bytes, ..extent });
            if head.hub_id {
                self.view.last_hub_id = self.view.last_hub_id.max(head.id);
            }
        }
        Some(())
    }
}
