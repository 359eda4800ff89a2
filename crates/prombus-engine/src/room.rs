//! Room for commits over large documents, of consumers and of projections.
//!
//! The log makes commits one after another, and one of a kilobyte can have it read, change and write sixty megabytes of
//! documents. Whatever is in its queue behind that waits. So such commits wait before they are given a place in the order,
//! and only a few megabytes of documents are in the queue at a time: everything else passes in between. After each of them
//! the next one waits for as long as it took, because a store has more to do than what is answered: it writes the documents
//! once more, to where they stay.

use crate::bus::BusError;
use prombus_core::{Commit, CommitError, DocumentWrite, Documents};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// So much may be under way at a time, in KiB. A commit of more goes alone.
const MOST_KIB: usize = 16 << 10;
/// A commit of less does not have to wait.
const LITTLE_KIB: usize = 64;
/// What each write counts at least, in KiB.
const LEAST_KIB: usize = 1;
/// After so many documents others get their turn.
const AT_ONCE: usize = 64;

/// Who has room.
pub(crate) struct DocumentRoom {
    documents: Arc<dyn Documents>,
    room: Arc<Semaphore>,
}

/// A commit that may be given its place in the order.
pub(crate) struct Admitted {
    /// The commit.
    pub commit: Commit,
    /// Its room, where it needs some. Whoever has the commit keeps that until the log has decided.
    pub room: Option<Room>,
}

/// The room that a commit takes until it is dropped.
pub(crate) struct Room {
    permit: OwnedSemaphorePermit,
    since: Instant,
}

impl Room {
    /// Gives it back, as late as is good for others.
    pub fn give_back(self) {
        let Self { permit, since } = self;
        tokio::spawn(async move {
            // So that others have half of the time, and the store can write documents to where they stay.
            tokio::time::sleep(since.elapsed()).await;
            drop(permit);
        });
    }
}

impl DocumentRoom {
    pub fn new(documents: Arc<dyn Documents>) -> Self {
        Self { documents, room: Arc::new(Semaphore::new(MOST_KIB)) }
    }

    /// The documents that it is room for.
    pub fn documents(&self) -> &Arc<dyn Documents> {
        &self.documents
    }

    /// Waits until there is room for what the commit does to documents. Once the hub is ending, there is none.
    pub async fn admit(&self, commit: Commit) -> Result<Admitted, BusError> {
        let kib = self.kib(&commit.documents).await?;
        if kib <= LITTLE_KIB {
            return Ok(Admitted { commit, room: None });
        }
        let ending = || CommitError::Unavailable("the hub is ending; nothing was committed".into());
        let room = self.take(kib).await.ok_or_else(ending)?;
        Ok(Admitted { commit, room: Some(room) })
    }

    /// Waits until there is room for so many KiB of documents. Once the hub is ending, there is none.
    pub async fn take(&self, kib: usize) -> Option<Room> {
        let share = u32::try_from(kib.min(MOST_KIB)).unwrap_or(u32::MAX);
        let permit = self.room.clone().acquire_many_owned(share).await.ok()?;
        Some(Room { permit, since: Instant::now() })
    }

    /// Whoever waits hears that the hub is ending.
    pub fn close(&self) {
        self.room.close();
    }

    /// What a commit has to be admitted for, about: what it writes, and the documents that it changes as large as they are,
    /// each as often as it is written.
    async fn kib(&self, writes: &[DocumentWrite]) -> Result<usize, CommitError> {
        let unavailable = |error: prombus_core::ReadError| CommitError::Unavailable(error.to_string());
        let mut known: HashMap<(&str, &str), usize> = HashMap::new();
        let asked = |write: &DocumentWrite| (write.size() / 1024).max(LEAST_KIB);
        let mut kib: usize = writes.iter().map(asked).sum();
        for (n, write) in writes.iter().enumerate() {
            if kib >= MOST_KIB {
                return Ok(MOST_KIB);
            }
            if n % AT_ONCE == AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            kib += match known.entry((&*write.collection, &*write.key)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(unknown) => {
                    let read = self.documents.document(&write.collection, &write.key).await;
                    *unknown.insert(read.map_err(unavailable)?.map_or(0, |there| there.size() / 1024))
                }
            };
        }
        Ok(kib.min(MOST_KIB))
    }
}
