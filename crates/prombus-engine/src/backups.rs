//! Copies of the store that are being made: each is held for whoever reads it, for as long as they do.
//!
//! What is held cannot be given back to the disk, so there are few copies at a time, one that nobody reads from ends soon,
//! and one that keeps space from a full disk ends with the next read: whoever makes a backup begins again, and has what was
//! fetched until then.

use bytes::Bytes;
use parking_lot::Mutex;
use prombus_core::{Copies, CopyError, CopyFile, EventLog, FileFingerprint, HeldCopy};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_128;

/// How many copies are held at a time.
pub const MAX_BACKUPS: usize = 4;
/// How long a copy is held after it was last read.
pub const LEASE: Duration = Duration::from_secs(60);
/// One that was not read for so long gives way to another: whoever made it was most likely killed.
const IDLE: Duration = Duration::from_secs(10);
/// How much is read at once, at most.
pub const PIECE_BYTES: usize = 4 << 20;
/// How many reads of all copies go on at a time, so that others have the disk too.
const READS_AT_ONCE: usize = 2;

/// Why a backup does not go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackupError {
    /// The store cannot be copied.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// There are enough already.
    #[error("{MAX_BACKUPS} backups are being made already; try again when one has ended")]
    TooMany,
    /// It is not held any more, or never was.
    #[error(
        "there is no backup {0}, or it has ended: begin another one, which goes on with what was fetched"
    )]
    Ended(Uuid),
    /// It held what a full store needs.
    #[error(
        "the store of the hub is full, and backup {0} kept space from being given back; begin another one, which goes on with what was fetched"
    )]
    GaveWay(Uuid),
    /// What the caller has is not what the file begins with.
    #[error("{name} does not begin with those {bytes} bytes; fetch it from the start")]
    OtherContent {
        /// The file.
        name: String,
        /// How much the caller has.
        bytes: u64,
    },
}

/// A backup that has begun.
#[derive(Clone)]
pub struct Backup {
    /// What it is called.
    pub id: Uuid,
    copy: Arc<dyn HeldCopy>,
}

impl Backup {
    /// The files that it consists of.
    pub fn files(&self) -> &[CopyFile] {
        self.copy.files()
    }
}

/// A part of a file of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PieceRequest {
    /// The file.
    pub name: String,
    /// Where it begins.
    pub from: u64,
    /// The fingerprint of what the caller has of the file, up to there.
    pub fingerprint: Option<FileFingerprint>,
}

/// A piece of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Its bytes.
    pub bytes: Bytes,
    /// Their digest: XXH3 with 128 bits.
    pub digest: u128,
}

struct Held {
    copy: Arc<dyn HeldCopy>,
    until: Instant,
    place: OwnedSemaphorePermit,
}

/// The copies that are held.
pub struct Backups {
    copies: Arc<dyn Copies>,
    log: Arc<dyn EventLog>,
    held: Mutex<HashMap<Uuid, Held>>,
    places: Arc<Semaphore>,
    reads: Semaphore,
}

impl Backups {
    pub(crate) fn new(copies: Arc<dyn Copies>, log: Arc<dyn EventLog>) -> Arc<Self> {
        Arc::new(Self {
            copies,
            log,
            held: Mutex::default(),
            places: Arc::new(Semaphore::new(MAX_BACKUPS)),
            reads: Semaphore::new(READS_AT_ONCE),
        })
    }

    /// Holds a copy of the store as it is now: see [`Copies::hold`].
    pub async fn begin(self: &Arc<Self>) -> Result<Backup, BackupError> {
        let place = self.place().ok_or(BackupError::TooMany)?;
        let copy = self.copies.hold().await?;
        let (id, until) = (Uuid::from_u128(fastrand::u128(..)), Instant::now() + LEASE);
        self.held.lock().insert(id, Held { copy: copy.clone(), until, place });
        tokio::spawn(end_in_time(Arc::downgrade(self), id));
        Ok(Backup { id, copy })
    }

    /// A place for another copy, if need be that of the one that was read longest ago.
    fn place(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Some(place);
        }
        let mut held = self.held.lock();
        let (id, oldest) = held.iter().min_by_key(|(_, held)| held.until)?;
        let (id, idle_from) = (*id, oldest.until - LEASE + IDLE);
        if idle_from > Instant::now() {
            return None;
        }
        held.remove(&id).map(|held| held.place)
    }

    /// At most [`PIECE_BYTES`] of a file. The copy is held for another [`LEASE`].
    pub async fn read(&self, id: Uuid, piece: PieceRequest) -> Result<Piece, BackupError> {
        let copy = self.renew(id)?;
        if self.log.status().is_full && copy.held_back() > 0 {
            self.end(id);
            return Err(BackupError::GaveWay(id));
        }
        let PieceRequest { name, from, fingerprint } = piece;
        // It is never closed.
        let _turn = self.reads.acquire().await;
        if let Some(fingerprint) = fingerprint
            && copy.fingerprint(&name, from).await? != fingerprint
        {
            return Err(BackupError::OtherContent { name, bytes: from });
        }
        let bytes = copy.read(&name, from, PIECE_BYTES).await?;
        // Nobody else has renewed it while this waited for its turn.
        self.renew(id)?;
        Ok(Piece { digest: xxh3_128(&bytes), bytes })
    }

    /// Lets go of a copy, if it is held; whether it was.
    pub fn end(&self, id: Uuid) -> bool {
        self.held.lock().remove(&id).is_some()
    }

    /// Lets go of all copies.
    pub(crate) fn close(&self) {
        self.places.close();
        self.held.lock().clear();
    }

    fn renew(&self, id: Uuid) -> Result<Arc<dyn HeldCopy>, BackupError> {
        let mut held = self.held.lock();
        let held = held.get_mut(&id).ok_or(BackupError::Ended(id))?;
        held.until = Instant::now() + LEASE;
        Ok(held.copy.clone())
    }

    /// Until when a copy is held; `None` once it is not, or no longer.
    fn held_until(&self, id: Uuid) -> Option<Instant> {
        let mut held = self.held.lock();
        let until = held.get(&id)?.until;
        if until <= Instant::now() {
            held.remove(&id);
            return None;
        }
        Some(until)
    }
}

/// Lets go of a copy that nobody reads any more.
async fn end_in_time(backups: Weak<Backups>, id: Uuid) {
    while let Some(until) = backups.upgrade().and_then(|backups| backups.held_until(id)) {
        sleep_until(until).await;
    }
}
