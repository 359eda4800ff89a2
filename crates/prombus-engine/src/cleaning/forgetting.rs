//! Everything of a key goes: what it was is nobody's question any more, so no horizon rises, and for other keys nothing
//! changes.

use super::losses::SizedEvent;
use super::{CleanError, Forget, Pass};
use prombus_core::{Event, HistoryRequest, Offset, Partition};

/// How many events of a key are read at once.
const PAGE_EVENTS: usize = 4_096;
/// And about how many bytes.
const PAGE_BYTES: usize = 1 << 20;

impl Pass<'_> {
    /// Gives up all events of a key that are there now, the first ones first: whoever is interrupted leaves a key whose
    /// past is missing, and not one that is what it was before. What is published meanwhile stays.
    pub async fn forget(&mut self, forget: &Forget) -> Result<(), CleanError> {
        let mut ends = Vec::new();
        for partition in self.partitions() {
            ends.push(self.kept(partition).await?.bounds.next);
        }
        let is_meant =
            |event: &Event| ends.get(event.partition.0 as usize).is_some_and(|end| event.offset < *end);
        let mut after = None;
        loop {
            self.breathe().await?;
            let events = self.log().history(self.events_of(&forget.key, after)).await?;
            let Some(last) = events.last() else { break };
            after = Some((last.partition, last.offset));
            for event in events.iter().filter(|event| is_meant(event)) {
                let Event { partition, offset, .. } = *event;
                self.losses.discard(SizedEvent { partition, offset, bytes: event.size() as u64 }, None);
            }
            if !is_meant(&events[events.len() - 1]) {
                break;
            }
            if self.is_commit_due() {
                self.commit_with(Some(&forget.events())).await?;
            }
        }
        self.commit_with(Some(forget)).await
    }

    fn events_of(&self, key: &str, after: Option<(Partition, Offset)>) -> HistoryRequest {
        HistoryRequest {
            topic: self.topic_ref(),
            key: key.to_owned(),
            after,
            limit: PAGE_EVENTS,
            max_bytes: PAGE_BYTES,
        }
    }
}
