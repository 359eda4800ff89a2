//! Room for commits over large documents, of consumers and of projections.
//!
//! The log makes commits one after another, and one of a kilobyte can have it read, change and write sixty megabytes of
//! documents. Whatever is in its queue behind that waits. So such commits wait before they are given a place in the order,
//! and only a few megabytes of documents are in the queue at a time: everything else passes in between. After each of them
//! the next one waits for as long as it took, because a store has more to do than what is answered: it writes the documents
//! once more, to where they stay.
//!
//! How large a document is shows only once the commits before are done. Whoever sends one after another without waiting would
//! have it made large by the first and changed by a thousand others that are taken for small, so what commits under way make of
//! documents is known here until they are decided (`under_way.rs`).

mod under_way;

use crate::bus::BusError;
use prombus_core::{Commit, CommitError, DocumentWrite, Documents, WriteOp};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use under_way::{Change, Changes, UnderWay};

/// How much may be under way at a time, in KiB. A commit of more goes alone.
pub(crate) const MOST_KIB: usize = 16 << 10;
/// A commit of less does not have to wait.
const LITTLE_KIB: usize = 64;
/// What each write of a consumer counts at least.
const LEAST_BYTES: usize = 1 << 10;
/// How much of all documents of a commit a store has at hand while it makes it. What is more is read again for each write.
const AT_HAND_BYTES: usize = 4 << 20;
/// After so many documents others get their turn.
const AT_ONCE: usize = 64;

/// Who has room.
pub(crate) struct DocumentRoom {
    documents: Arc<dyn Documents>,
    room: Arc<Semaphore>,
    under_way: Arc<UnderWay>,
}

/// A commit that may be given its place in the order.
pub(crate) struct Admitted {
    /// The commit.
    pub commit: Commit,
    /// Its room, unless it does nothing to documents. Whoever has the commit keeps that until the log has decided.
    pub room: Option<Room>,
}

/// The room that a commit takes until it is dropped, and what it does to documents.
pub(crate) struct Room {
    changes: Changes,
    /// `None` for a commit that does not have to wait.
    taken: Option<Taken>,
}

struct Taken {
    permit: OwnedSemaphorePermit,
    since: Instant,
}

impl Room {
    /// Gives it back, as late as is good for others.
    pub fn give_back(self) {
        let Self { changes, taken } = self;
        // Everybody sees them now.
        drop(changes);
        let Some(Taken { permit, since }) = taken else { return };
        tokio::spawn(async move {
            // So that others have half of the time, and the store can write documents to where they stay.
            tokio::time::sleep(since.elapsed()).await;
            drop(permit);
        });
    }
}

impl DocumentRoom {
    pub fn new(documents: Arc<dyn Documents>) -> Self {
        Self { documents, room: Arc::new(Semaphore::new(MOST_KIB)), under_way: Arc::default() }
    }

    /// The documents that it is room for.
    pub fn documents(&self) -> &Arc<dyn Documents> {
        &self.documents
    }

    /// Waits until there is room for what the commit does to documents. Once the hub is ending, there is none.
    pub async fn admit(&self, commit: Commit) -> Result<Admitted, BusError> {
        if commit.documents.is_empty() {
            return Ok(Admitted { commit, room: None });
        }
        let (kib, changes) = self.enter(&commit.documents).await?;
        let ending = || CommitError::Unavailable("the hub is ending; nothing was committed".into());
        let taken = match kib <= LITTLE_KIB {
            true => None,
            false => Some(self.taken(kib).await.ok_or_else(ending)?),
        };
        Ok(Admitted { commit, room: Some(Room { changes, taken }) })
    }

    /// Waits until there is room for so many KiB of documents. Once the hub is ending, there is none.
    pub async fn take(&self, kib: usize) -> Option<Room> {
        let taken = self.taken(kib).await?;
        Some(Room { changes: Changes::none(&self.under_way), taken: Some(taken) })
    }

    async fn taken(&self, kib: usize) -> Option<Taken> {
        let share = u32::try_from(kib.min(MOST_KIB)).unwrap_or(u32::MAX);
        let permit = self.room.clone().acquire_many_owned(share).await.ok()?;
        Some(Taken { permit, since: Instant::now() })
    }

    /// Whoever waits hears that the hub is ending.
    pub fn close(&self) {
        self.room.close();
    }

    /// How much room the writes of a projection take, about, in KiB. Nobody else writes its documents, and it has little under way.
    pub async fn kib(&self, writes: &[DocumentWrite]) -> Result<usize, CommitError> {
        self.measure(writes, None).await
    }

    /// How much room writes take, about, in KiB. From now on others know what becomes of these documents.
    async fn enter(&self, writes: &[DocumentWrite]) -> Result<(usize, Changes), CommitError> {
        let mut changes = Changes::none(&self.under_way);
        let kib = self.measure(writes, Some(&mut changes)).await?;
        Ok((kib, changes))
    }

    /// What is written, and the documents that are changed as large as they may be by then. One counts once, but for each write
    /// that a changefeed tells of, or that has it read again.
    async fn measure(
        &self,
        writes: &[DocumentWrite],
        mut changes: Option<&mut Changes>,
    ) -> Result<usize, CommitError> {
        let unavailable = |error: prombus_core::ReadError| CommitError::Unavailable(error.to_string());
        let mut told: HashMap<&str, bool> = HashMap::new();
        let mut sizes: HashMap<(&str, &str), usize> = HashMap::new();
        let least = if changes.is_some() { LEAST_BYTES } else { 0 };
        let asked = |write: &DocumentWrite| write.size().max(least);
        let mut bytes: usize = writes.iter().map(asked).sum();
        let mut different_bytes = 0;
        for (n, write) in writes.iter().enumerate() {
            if n % AT_ONCE == AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            let earlier = changes.as_mut().map(|changes| changes.enter(write));
            if bytes / 1024 >= MOST_KIB {
                continue;
            }
            let is_told = match told.entry(&*write.collection) {
                Entry::Occupied(told) => *told.get(),
                Entry::Vacant(unknown) => {
                    let collection =
                        self.documents.collection(&write.collection).await.map_err(unavailable)?;
                    *unknown.insert(collection.is_some_and(|state| state.config.changefeed.is_some()))
                }
            };
            let mut is_first = false;
            let size = match sizes.entry((&*write.collection, &*write.key)) {
                Entry::Occupied(known) => known.into_mut(),
                // It takes the place of what is there.
                Entry::Vacant(unknown)
                    if changes.is_none() && matches!(write.op, WriteOp::Set(_) | WriteOp::Delete) =>
                {
                    unknown.insert(0)
                }
                Entry::Vacant(unknown) => {
                    is_first = true;
                    let read = self.documents.document(&write.collection, &write.key).await;
                    unknown.insert(read.map_err(unavailable)?.map_or(0, |there| there.size()))
                }
            };
            let before = earlier.map_or(*size, |earlier| earlier.on(*size));
            let after = Change::of(write).on(before);
            if earlier.is_none() {
                *size = after;
            }
            different_bytes += if is_first { before } else { 0 };
            bytes += if is_first || different_bytes > AT_HAND_BYTES { before } else { 0 };
            bytes += if is_told { after } else { 0 };
        }
        Ok((bytes / 1024).min(MOST_KIB))
    }
}
