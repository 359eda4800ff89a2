//! The events of a partition, a page at a time. A page is dropped before the next one is read, so what is held goes neither
//! by the size of a topic nor by what a pass gives up.

use super::{CleanError, Pass};
use prombus_core::{Event, Offset, Partition, ReadRequest};

/// Maximum number of events in a page; how many bytes it has at most goes by the [step](Pass::step) of the pass.
const MAX_EVENTS: usize = 8_192;
/// A reader that may stop at the first event reads that alone, and so many times more each time that it does not.
const GROWTH: usize = 16;

/// A range of a partition that is read page by page.
#[derive(Debug)]
pub(super) struct Pages {
    partition: Partition,
    next: Offset,
    end: Offset,
    limit: usize,
    most: usize,
}

impl Pages {
    /// All of a range.
    pub fn all(partition: Partition, range: std::ops::Range<Offset>) -> Self {
        let std::ops::Range { start: next, end } = range;
        Self { partition, next, end, limit: MAX_EVENTS, most: MAX_EVENTS }
    }

    /// A range whose first event may be the only one that is looked at: whoever finds nothing to do reads no more.
    pub fn carefully(partition: Partition, range: std::ops::Range<Offset>) -> Self {
        Self { limit: 1, ..Self::all(partition, range) }
    }

    /// The same for one of many ranges that are read side by side.
    pub fn one_of(self, ranges: usize) -> Self {
        Self { most: (MAX_EVENTS / ranges.max(1)).max(1), ..self }
    }

    /// Where the range ends.
    pub fn end(&self) -> Offset {
        self.end
    }

    /// The next page; `None` at the end.
    pub async fn next(&mut self, pass: &mut Pass<'_>) -> Result<Option<Vec<Event>>, CleanError> {
        while self.next < self.end {
            pass.breathe().await?;
            let request = ReadRequest {
                topic: pass.topic_ref(),
                partition: self.partition,
                from: self.next,
                limit: self.limit,
                max_bytes: pass.step().bytes,
            };
            let mut page = pass.log().read(request).await?;
            self.next = page.next;
            self.limit = self.most.min(self.limit.saturating_mul(GROWTH));
            // Events that came since are for the next pass.
            page.events.retain(|event| event.offset < self.end);
            if page.events.is_empty() && page.next >= page.end {
                self.next = self.end;
            }
            if !page.events.is_empty() {
                return Ok(Some(page.events));
            }
        }
        Ok(None)
    }
}
