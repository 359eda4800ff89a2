//! What the parts of a store share.

use crate::facts::Cache;
use crate::failure::NO_PRIMARY;
use crate::names::Names;
use crate::pause;
use crate::primary::{Primary, PrimaryLost};
use mongodb::bson::Document;
use parking_lot::{Mutex, RwLock};
use prombus_core::{ChangedSet, Clock, Histogram, ReadError, Wakes};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// What the parts of a store share.
pub struct Shared {
    pub names: Names,
    pub primary: Primary,
    pub clock: Arc<dyn Clock>,
    /// See [`made_id`](crate::event_id::made_id).
    pub salt: u32,
    /// What a commit may make.
    pub result_bytes: usize,
    /// How long a commit waits for a database that cannot be reached.
    pub wait: Duration,
    /// What was last seen of heads: by commits of this hub, and by the stream of changes.
    pub cache: RwLock<Cache>,
    /// Why no commits are taken, if so.
    pub failed: Mutex<Option<String>>,
    pub flushes: Arc<Histogram>,
    pub counts: Counts,
    /// Wakes whoever deletes what was given up.
    pub has_trash: Notify,
    /// Wakes whoever makes indexes.
    pub has_index: Notify,
    wakes: Wakes,
    sequence: Mutex<u64>,
    /// The sessions whose changes this hub has made itself.
    own_sessions: Mutex<HashSet<Vec<u8>>>,
}

/// What is counted.
#[derive(Debug, Default)]
pub struct Counts {
    pub transactions: AtomicU64,
    pub conflicts: AtomicU64,
    pub retries: AtomicU64,
    pub unknown: AtomicU64,
    pub reopened_streams: AtomicU64,
}

impl Counts {
    pub fn add(to: &AtomicU64) {
        to.fetch_add(1, Ordering::Relaxed);
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        vec![
            ("transactions", read(&self.transactions)),
            ("transaction_conflicts", read(&self.conflicts)),
            ("transaction_retries", read(&self.retries)),
            ("transactions_unknown", read(&self.unknown)),
            ("change_streams_reopened", read(&self.reopened_streams)),
        ]
    }
}

/// What a store is made with.
pub struct SharedOptions {
    pub names: Names,
    pub primary: Primary,
    pub clock: Arc<dyn Clock>,
    pub salt: u32,
    pub result_bytes: usize,
    pub wait: Duration,
}

impl Shared {
    pub fn new(options: SharedOptions) -> Self {
        let SharedOptions { names, primary, clock, salt, result_bytes, wait } = options;
        Self {
            names,
            primary,
            clock,
            salt,
            result_bytes,
            wait,
            cache: RwLock::default(),
            failed: Mutex::default(),
            flushes: Arc::default(),
            counts: Counts::default(),
            has_trash: Notify::new(),
            has_index: Notify::new(),
            // What is there already is visible, and nobody waits for it.
            wakes: Wakes::new(1),
            sequence: Mutex::new(1),
            own_sessions: Mutex::default(),
        }
    }

    pub fn wakes(&self) -> &Wakes {
        &self.wakes
    }

    /// Reads, and reads again where the primary was lost meanwhile or there is none, for as long as a commit may wait.
    pub async fn read<T, F: Future<Output = Result<T, ReadError>>>(
        &self,
        read: impl Fn() -> F,
    ) -> Result<T, ReadError> {
        let until = Instant::now() + self.wait;
        loop {
            let error = match self.primary.unless_lost(Some(until), read()).await {
                Ok(Err(ReadError::Unavailable(why))) => why,
                Ok(answer) => return answer,
                Err(PrimaryLost) => NO_PRIMARY.to_owned(),
            };
            if Instant::now() >= until || self.failed.lock().is_some() {
                return Err(ReadError::Unavailable(error));
            }
            pause::before_reading_again().await;
        }
    }

    /// Tells that so many commits are visible, which have changed this. Gives the sequence before the first of them.
    pub fn tell(&self, commits: u64, changed_set: &ChangedSet) -> u64 {
        let mut sequence = self.sequence.lock();
        let before = *sequence;
        *sequence += commits;
        // While it is locked, so that waiters are woken in the order of sequences.
        self.wakes.wake(*sequence, changed_set);
        before
    }

    /// That what this session changes is no news.
    pub fn is_own(&self, session: &Document) {
        self.own_sessions.lock().extend(session_id(session));
    }

    /// The ids of the hub's own sessions.
    pub fn sessions(&self) -> Vec<Vec<u8>> {
        self.own_sessions.lock().iter().cloned().collect()
    }

    /// Whether a change was made in one of the hub's own sessions.
    pub fn made(&self, session: Option<&Document>) -> bool {
        let id = session.and_then(session_id);
        id.is_some_and(|id| self.own_sessions.lock().contains(&id))
    }
}

fn session_id(session: &Document) -> Option<Vec<u8>> {
    match session.get("id")? {
        mongodb::bson::Bson::Binary(binary) => Some(binary.bytes.clone()),
        _ => None,
    }
}
