//! Events that a schema refuses: how that is told, counted and logged.

use super::judge::LetPass;
use parking_lot::Mutex;
use prombus_core::TopicName;
use prombus_schema::Fault;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// How long nothing is logged of events that were taken all the same, after a line that was.
const LOG_PAUSE: Duration = Duration::from_secs(10);
/// How many topics are counted.
const MOST_TOPICS: usize = 4_096;

/// An event that the schema of its topic refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaViolation {
    /// Which event of the commit.
    pub index: usize,
    /// Its topic.
    pub topic: TopicName,
    /// Which version it was held against.
    pub version: ViolatedVersion,
    /// Every place that is refused.
    pub places: Vec<ViolatedPlace>,
}

/// Which version of the schema an event was held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViolatedVersion {
    /// A version that is registered.
    Version(u32),
    /// A version that is registered, and checking it would take too much: it may even be valid.
    Unchecked(u32),
    /// The event names one that is not.
    Unregistered(String),
}

/// A place of a payload that a schema refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViolatedPlace {
    /// Where, as a JSON pointer into the payload.
    pub path: String,
    /// What is wrong there.
    pub message: String,
}

impl From<Fault> for ViolatedPlace {
    fn from(Fault { path, rule: _, message }: Fault) -> Self {
        Self { path, message }
    }
}

impl fmt::Display for SchemaViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, version, places, .. } = self;
        match version {
            ViolatedVersion::Version(version) => {
                write!(f, "the payload violates version {version} of the schema of topic {topic}")?;
            }
            ViolatedVersion::Unchecked(version) => {
                write!(
                    f,
                    "the payload was not checked against version {version} of the schema of topic {topic}"
                )?;
            }
            ViolatedVersion::Unregistered(_) => {
                write!(f, "the schema version of the event is not registered")?
            }
        }
        if let Some(ViolatedPlace { path, message }) = places.first() {
            write!(f, ": {path}{}{message}", if path.is_empty() { "" } else { ": " })?;
        }
        match places.len().saturating_sub(1) {
            0 => Ok(()),
            1 => write!(f, " (and one more place)"),
            more => write!(f, " (and {more} more places)"),
        }
    }
}

/// Counts violations.
#[derive(Default)]
pub(crate) struct Violations {
    by_topic: Mutex<BTreeMap<TopicName, u64>>,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    last: Option<Instant>,
    /// How many were not logged since.
    silent: u64,
}

impl Violations {
    /// Counts so many, whether their events are taken or not.
    pub fn count(&self, topic: &TopicName, count: u64) {
        let mut all = self.by_topic.lock();
        if all.len() < MOST_TOPICS || all.contains_key(topic) {
            *all.entry(topic.clone()).or_default() += count;
        }
    }

    /// Counts nothing of a topic that was deleted.
    pub fn forget(&self, topic: &TopicName) {
        self.by_topic.lock().remove(topic);
    }

    /// How many there were since the hub has started.
    pub fn counted(&self) -> Vec<(TopicName, u64)> {
        self.by_topic.lock().iter().map(|(topic, count)| (topic.clone(), *count)).collect()
    }

    /// Counts those of a commit whose events are taken, and logs the first.
    pub fn let_pass(&self, LetPass { by_topic, first }: &LetPass) {
        by_topic.iter().for_each(|(topic, count)| self.count(topic, *count));
        if let Some(first) = first {
            self.warn(first, by_topic.values().sum::<u64>() - 1);
        }
    }

    /// Logs one whose event is taken, if nothing was logged for a while. So many `others` of its commit are not logged.
    fn warn(&self, violation: &SchemaViolation, others: u64) {
        let silent = {
            let mut log = self.log.lock();
            if log.last.is_some_and(|last| last.elapsed() < LOG_PAUSE) {
                log.silent += 1 + others;
                return;
            }
            log.last = Some(Instant::now());
            std::mem::replace(&mut log.silent, others)
        };
        tracing::warn!(topic = %violation.topic, not_logged = silent, "accepted an event although {violation}");
    }
}
