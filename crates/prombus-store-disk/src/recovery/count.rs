//! How many bytes the events of each partition take, counted from the journal, for folders of builds that did not count them.

use crate::journal::part::Part;
use crate::journal::position::PartitionRef;
use crate::journal::record::{self, EVENT};
use crate::journal::scan::{Batch, BatchReader};
use crate::state::view::View;
use hashbrown::HashMap;
use std::io;
use std::sync::Arc;

/// A part of the journal whose events are counted.
pub struct CountedPart {
    /// The part.
    pub part: Arc<Part>,
    /// Where it ends.
    pub end: u32,
}

/// Counts the bytes of all events that are kept, one batch in memory at a time. What cannot be read does not count: whoever
/// reads it is told.
pub fn count_bytes(view: &mut View, parts: &[CountedPart]) {
    let mut bytes = HashMap::new();
    for counted in parts {
        if let Err(error) = add_part(view, counted, &mut bytes) {
            let part = counted.part.number();
            tracing::warn!(part, %error, "cannot count the bytes of all events of a part of the journal");
        }
    }
    for (partition, extent) in view.extents.iter_mut() {
        extent.bytes = bytes.get(partition).copied().unwrap_or(0);
    }
    view.lacks_bytes = false;
}

fn add_part(
    view: &View,
    CountedPart { part, end }: &CountedPart,
    bytes: &mut HashMap<PartitionRef, u64>,
) -> io::Result<()> {
    let reader = BatchReader::new(&*part.file, part.name)?;
    let mut reader = reader.ok_or_else(|| part.damaged(0))?;
    while reader.at() < *end {
        let at = reader.at();
        let batch = reader.next_batch()?.ok_or_else(|| part.damaged(at))?;
        add_batch(view, &batch, bytes);
    }
    Ok(())
}

fn add_batch(view: &View, batch: &Batch<'_>, bytes: &mut HashMap<PartitionRef, u64>) {
    let mut rest = batch.items;
    for _ in 0..batch.head.items {
        let item = record::item_len(rest).and_then(|len| rest.split_at_checked(len));
        let Some((item, behind)) = item else { return };
        if let (Some((EVENT, _)), Some(head)) = (record::verified_item(item), record::event_head(item))
            && view.is_kept(head.partition, head.offset)
        {
            *bytes.entry(head.partition).or_default() += record::event_size(item);
        }
        rest = behind;
    }
}
