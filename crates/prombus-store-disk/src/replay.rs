//! Applying the journal again: what each batch did to the state, and where its events lie.

use crate::active::{ActiveIndex, Entry};
use crate::change;
use crate::lookup::key_hash;
use crate::record::{self, EVENT};
use crate::scan::Batch;
use crate::view::{Span, View};

/// The state so far.
pub struct Replay {
    /// The state.
    pub view: View,
    /// Earlier parts are in the state already; only their events are indexed.
    pub from_part: u32,
}

impl Replay {
    /// Indexes the events of a batch and applies what it changes; on failure, says where the bad item is.
    pub fn take(&mut self, batch: &Batch<'_>, index: &mut ActiveIndex) -> Result<(), u32> {
        let applies = batch.head.pos.part >= self.from_part;
        let mut used = 0;
        for _ in 0..batch.head.items {
            let at = batch.items_at + used as u32;
            let rest = batch.items.get(used..).ok_or(at)?;
            let (kind, content) = record::verified_item(rest).ok_or(at)?;
            let len = record::item_len(rest).ok_or(at)?;
            if kind == EVENT {
                self.take_event(&rest[..len], at, index, applies).ok_or(at)?;
            } else if applies {
                self.view.apply(change::parse(kind, content).ok_or(at)?).map_err(|_| at)?;
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
        index.push(Entry { head, key_hash, at });
        if applies {
            let span = self.view.span(head.partition);
            if span.next != head.offset {
                return None;
            }
            self.view.spans.insert(head.partition, Span { next: head.offset + 1, ..span });
            if head.hub_id {
                self.view.last_hub_id = self.view.last_hub_id.max(head.id);
            }
        }
        Some(())
    }
}
