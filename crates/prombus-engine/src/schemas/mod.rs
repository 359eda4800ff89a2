//! Schemas of topics: versions that are registered once and never change, and what they do to events.
//!
//! A topic and its schemas belong together. Whatever is registered moves the revision of the topic on in the same commit,
//! so that events which were checked before it are refused behind it (see [`TopicFence`](prombus_core::TopicFence)).

pub(crate) mod apart;
pub(crate) mod gate;
pub(crate) mod judge;
pub(crate) mod known;
mod normal_log;
pub(crate) mod raise;
mod register;
mod rehearsal;
pub mod stored;
pub mod upcast;
mod upcasters;
pub(crate) mod violation;
mod work;

pub use judge::VERSION_HEADER;
pub(crate) use normal_log::NormalLog;
pub use prombus_schema::{Compat, Demand, Policy, SchemaError, UnknownWord, Violation};
pub use register::{NewSchema, Registered, Rule};
pub use rehearsal::Rehearsal;
pub use stored::{Head, StoredSchema, VersionHead};
pub use upcasters::StoredUpcaster;
pub use violation::{SchemaViolation, ViolatedPlace, ViolatedVersion};

use crate::bus::{Bus, BusError};
use gate::Gate;
use known::SchemaCache;
use prombus_core::{
    Clock, Commit, ConfigChange, DocumentWrite, Documents, EventLog, NewTopics, ReadError, TopicName,
    TopicState,
};
use raise::Raisers;
use serde_json::Value;
use std::sync::Arc;
use upcast::UpcastError;
use violation::Violations;

/// The most versions that a topic may have.
pub const MAX_VERSIONS: usize = 1_000;

/// Why schemas are not as they were asked to be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SchemasError {
    /// There are none for the topic.
    #[error("topic {0} has no schemas; register one with POST /v1/schemas/{0}")]
    NotFound(TopicName),
    /// There is no such version.
    #[error("topic {topic} has no version {version} of its schema; the latest is {latest}")]
    NoVersion {
        /// The topic.
        topic: TopicName,
        /// The version.
        version: u32,
        /// The latest that there is.
        latest: u32,
    },
    /// There is no upcaster from a version.
    #[error("topic {topic} has no upcaster from version {from}")]
    NoUpcaster {
        /// The topic.
        topic: TopicName,
        /// The version.
        from: u32,
    },
    /// The upcaster is none.
    #[error(transparent)]
    BadUpcaster(#[from] UpcastError),
    /// What is asked for makes no sense.
    #[error("{0}")]
    Bad(String),
    /// The schema is none.
    #[error("{0}")]
    BadSchema(#[from] SchemaError),
    /// The version is taken, or too low.
    #[error("{message}")]
    VersionConflict {
        /// What is wrong, and what to do.
        message: String,
        /// The latest version.
        latest: u32,
    },
    /// The schema does not follow the earlier ones.
    #[error("the schema is not {rule} compatible with version {version} of topic {topic}: {}", summary(.violations))]
    Incompatible {
        /// The topic.
        topic: TopicName,
        /// What was asked for.
        rule: String,
        /// The version that it was compared with.
        version: u32,
        /// What is wrong, or could not be decided.
        violations: Vec<Violation>,
    },
    /// The store cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store refused a commit.
    #[error(transparent)]
    Bus(#[from] BusError),
}

fn summary(violations: &[Violation]) -> String {
    let Some(first) = violations.first() else { return "it could not be decided".to_owned() };
    match violations.len() - 1 {
        0 => first.message.clone(),
        more => format!("{} (and {more} more)", first.message),
    }
}

/// The schemas of a hub.
pub struct Schemas {
    log: Arc<dyn EventLog>,
    documents: Arc<dyn Documents>,
    bus: Arc<dyn Bus>,
    clock: Arc<dyn Clock>,
    known: Arc<SchemaCache>,
    raisers: Arc<Raisers>,
    violations: Arc<Violations>,
    new_topics: Arc<NewTopics>,
}

/// What the layer and the registry share.
#[derive(Clone)]
pub struct Shared {
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) documents: Arc<dyn Documents>,
    pub(crate) known: Arc<SchemaCache>,
    pub(crate) raisers: Arc<Raisers>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) violations: Arc<Violations>,
}

impl Shared {
    /// Of schemas that are stored here, for events of at most so many bytes.
    pub fn new(log: Arc<dyn EventLog>, documents: Arc<dyn Documents>, event_bytes: usize) -> Self {
        let known = Arc::new(SchemaCache::new(documents.clone()));
        let raisers = Arc::new(Raisers::new(known.clone(), event_bytes));
        Self { log, documents, known, raisers, gate: Arc::default(), violations: Arc::default() }
    }
}

impl Schemas {
    pub(crate) fn new(
        shared: Shared,
        bus: Arc<dyn Bus>,
        clock: Arc<dyn Clock>,
        new_topics: Arc<NewTopics>,
    ) -> Self {
        let Shared { log, documents, known, raisers, gate: _, violations } = shared;
        Self { log, documents, bus, clock, known, raisers, violations, new_topics }
    }

    /// What there is for a topic.
    pub async fn head(&self, topic: &TopicName) -> Result<Arc<Head>, SchemasError> {
        let none = || SchemasError::NotFound(topic.clone());
        let state = self.log.topic(topic).await?.ok_or_else(none)?;
        self.known.head(&state).await?.ok_or_else(none)
    }

    /// A version of the schema of a topic, or the latest.
    pub async fn version(
        &self,
        topic: &TopicName,
        version: Option<u32>,
    ) -> Result<StoredSchema, SchemasError> {
        let head = self.head(topic).await?;
        let latest = head.latest().ok_or_else(|| SchemasError::NotFound(topic.clone()))?;
        let version = version.unwrap_or(latest);
        let found = self.known.schema(&head, version).await?;
        found.ok_or_else(|| SchemasError::NoVersion { topic: topic.clone(), version, latest })
    }

    /// A document that a version takes; `None` if there is none, or none was found.
    pub async fn example(
        &self,
        topic: &TopicName,
        version: Option<u32>,
    ) -> Result<Option<Value>, SchemasError> {
        let text = self.version(topic, version).await?.text;
        let made = work::check(move || known::parse(&text).map(|schema| prombus_schema::example(&schema)));
        Ok(made.await??)
    }

    /// How many events violated the schemas of their topics since the hub has started, whether they were taken or not.
    pub fn violations(&self) -> Vec<(TopicName, u64)> {
        self.violations.counted()
    }

    /// Forgets what was counted of a topic that was deleted.
    pub(crate) fn forget_topic(&self, topic: &TopicName) {
        self.violations.forget(topic);
    }

    /// What removes everything that there is for a topic.
    pub(crate) async fn removal(&self, topic: &TopicName) -> Result<Vec<DocumentWrite>, ReadError> {
        let Some(state) = self.log.topic(topic).await? else { return Ok(Vec::new()) };
        Ok(stored::removal(topic, &stored::load_head(&*self.documents, &state).await?))
    }

    /// A commit that stores another head for a topic, and whatever else belongs to it. It is refused if the topic is another
    /// by then.
    fn storing(&self, topic: &TopicState, head: &Head, others: Vec<DocumentWrite>) -> Arc<Commit> {
        let fence = ConfigChange::AlterTopic {
            name: topic.name.clone(),
            expect_revision: topic.revision,
            config: topic.config.clone(),
        };
        let write = stored::write_head(&topic.name, head, self.clock.now_ms());
        let documents = others.into_iter().chain([write]).collect();
        Arc::new(Commit { config: vec![fence], documents, ..Commit::by_hub() })
    }
}
