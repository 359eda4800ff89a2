//! Putting what a store holds into another one, from where that ends.

use super::{Counters, Counting, Piece, RememberedRequest, Side, Transfer, TransferError, TransferProgress};
use crate::collection::CollectionState;
use crate::document::Document;
use crate::ports::{Bounds, Kept, ReadRequest, ScanRequest};
use crate::position::{Partition, Sequence};
use crate::topic::TopicState;
use crate::wakes::Watched;

/// How many events, documents or cursors are read and put at a time, at most.
pub(super) const AT_ONCE: usize = 1_000;
/// How many documents are read at a time: each may be large.
pub(super) const DOCUMENTS_AT_ONCE: usize = 100;
/// About how many bytes of events are read and put at a time.
pub(super) const BYTES_AT_ONCE: usize = 1 << 20;

/// Puts everything that the source holds into the target, which holds nothing but what an earlier call has put. `now_ms` is
/// what windows of ids go by.
pub async fn fill(
    (source, target): (&dyn Transfer, &dyn Transfer),
    now_ms: u64,
    tell: &mut (dyn FnMut(TransferProgress) + Send),
) -> Result<(), TransferError> {
    let (source, target) = (Side::source(source), Side::target(target));
    let progress = TransferProgress { is_comparing: false, done: 0, of: source.size().await? };
    let mut filling = Filling { source, target, counting: Counting { progress, tell } };
    filling.all(now_ms).await
}

struct Filling<'a> {
    source: Side<'a>,
    target: Side<'a>,
    counting: Counting<'a>,
}

impl Filling<'_> {
    async fn put(&self, piece: Piece) -> Result<(), TransferError> {
        Ok(self.target.store.put(vec![piece]).await?)
    }

    async fn all(&mut self, now_ms: u64) -> Result<(), TransferError> {
        // What waits to be deleted is none of what is moved.
        self.source.store.erase().await?;
        let topics = self.source.read(self.source.store.topics().await)?;
        for topic in &topics {
            self.put(Piece::Topic(topic.clone())).await?;
            for partition in 0..topic.config.partitions {
                self.partition(topic, Partition(partition)).await?;
            }
        }
        self.remembered(now_ms).await?;
        for topic in &topics {
            let mut after = None;
            loop {
                let page = self.source.cursors(&topic.name, after).await?;
                let Some((last, _)) = page.last() else { break };
                after = Some((last.reader.clone(), last.partition));
                self.put(Piece::Cursors(page)).await?;
            }
        }
        for collection in self.source.read(self.source.store.collections().await)? {
            self.collection(collection).await?;
        }
        let counters = self.source.read(self.source.store.counters().await)?;
        // Ids have the time in them: those that the target makes are greater than all that there are.
        self.put(Piece::Counters(Counters { recorded_ts: counters.recorded_ts + 1, ..counters })).await
    }

    async fn partition(&mut self, topic: &TopicState, partition: Partition) -> Result<(), TransferError> {
        let pinned = topic.pinned();
        let kept = self.source.read(self.source.store.kept(&pinned, partition).await)?;
        let first = kept.bounds.first;
        let there = self.target.read(self.target.store.kept(&pinned, partition).await)?;
        let put = |kept| Piece::Kept { topic: topic.name.clone(), partition, kept };
        let mut from = there.bounds.next;
        if from <= first {
            let bounds = Bounds { first, next: first };
            self.put(put(Kept { bounds, bytes: 0, ..kept })).await?;
            from = first;
        }
        self.counting.add(from.0 - first.0);
        while from < kept.bounds.next {
            let request = ReadRequest {
                topic: pinned.clone(),
                partition,
                from,
                limit: AT_ONCE,
                max_bytes: BYTES_AT_ONCE,
            };
            let page = self.source.read(self.source.store.read(request).await)?;
            if !page.events.is_empty() {
                self.put(Piece::Events(page.events)).await?;
            }
            self.counting.add(page.next.0 - from.0);
            from = page.next;
        }
        self.put(put(kept)).await
    }

    async fn remembered(&mut self, now_ms: u64) -> Result<(), TransferError> {
        let mut from = None;
        loop {
            let page = self.source.store.remembered(RememberedRequest { now_ms, from }).await;
            let page = self.source.read(page)?;
            for some in page.events.chunks(AT_ONCE) {
                self.put(Piece::Remembered(some.to_vec())).await?;
            }
            if page.next.is_none() {
                return Ok(());
            }
            from = page.next;
        }
    }

    async fn collection(&mut self, state: CollectionState) -> Result<(), TransferError> {
        let state = self.settled(state).await?;
        let there = self.target.read(self.target.store.collection(&state.name).await)?;
        let mut after = match there {
            Some(there) if there.number == state.number => self.last_key(&state).await?,
            _ => {
                self.put(Piece::Collection(CollectionState { documents: 0, bytes: 0, ..state.clone() }))
                    .await?;
                None
            }
        };
        loop {
            let page = self.source.read(self.scan(self.source, &state, after.clone()).await)?;
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            let count = page.len() as u64;
            for documents in by_bytes(page) {
                self.put(Piece::Documents { collection: state.name.clone(), documents }).await?;
            }
            self.counting.add(count);
        }
        self.put(Piece::Collection(state)).await
    }

    async fn scan(
        &self,
        side: Side<'_>,
        state: &CollectionState,
        after: Option<String>,
    ) -> Result<Vec<Document>, crate::ReadError> {
        let (collection, limit) = (state.name.to_string(), DOCUMENTS_AT_ONCE);
        side.store.scan(ScanRequest { collection, after, limit }).await
    }

    /// The last key that the target has of a collection.
    async fn last_key(&mut self, state: &CollectionState) -> Result<Option<String>, TransferError> {
        let mut last = None;
        loop {
            let page = self.target.read(self.scan(self.target, state, last.clone()).await)?;
            let Some(document) = page.last() else { return Ok(last) };
            last = Some(document.key.clone());
            self.counting.add(page.len() as u64);
        }
    }

    /// A collection of which no index is being made any more: one half made would be made anew.
    async fn settled(&self, mut state: CollectionState) -> Result<CollectionState, TransferError> {
        let mut seen = Sequence(0);
        while state.building().is_some() {
            seen = self.source.store.changed(&Watched::Everything, seen).await;
            let now = self.source.read(self.source.store.collection(&state.name).await)?;
            state = now.unwrap_or(state);
        }
        Ok(state)
    }
}

/// Documents in groups of a bounded size.
fn by_bytes(documents: Vec<Document>) -> Vec<Vec<Document>> {
    let (mut groups, mut bytes) = (Vec::new(), 0);
    for document in documents {
        if groups.is_empty() || bytes >= BYTES_AT_ONCE {
            groups.push(Vec::new());
            bytes = 0;
        }
        bytes += document.size();
        if let Some(group) = groups.last_mut() {
            group.push(document);
        }
    }
    groups
}
