//! What a hub is made of, and how it is put together.

use super::Hub;
use crate::backups::Backups;
use crate::bus::{Bus, Layer, LogBus};
use crate::cleaning::{Cleaning, CleaningContext};
use crate::collections::Collections;
use crate::commits::Commits;
use crate::groups::{GroupContext, Groups, ReadAhead};
use crate::homes::Claims;
use crate::layers::{Checks, RemovalNotices, Rules, SchemaChecks};
use crate::projections::{LARGE_BATCHES, ProjectionContext, Projections, WorkSlots};
use crate::replays::{ReplayContext, Replays};
use crate::room::DocumentRoom;
use crate::schemas::{NormalLog, Schemas, Shared};
use crate::topics::TopicsWatch;
use prombus_core::{
    Clock, CommitLimits, Copies, Documents, EventLog, Homes, MemoryHomes, NewTopics, SystemClock,
    TopicConfig, TopicName,
};
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use tokio::sync::Semaphore;

/// A store as its ports.
#[derive(Clone)]
pub struct Store {
    /// Events, topics and cursors.
    pub log: Arc<dyn EventLog>,
    /// Collections.
    pub documents: Arc<dyn Documents>,
    /// Which hub a topic is at home on; `None` where one hub has the store for itself, and all topics with it.
    pub homes: Option<Arc<dyn Homes>>,
    /// Its files, for backups.
    pub copies: Arc<dyn Copies>,
}

impl Store {
    /// The ports of one adapter, whose store no other hub uses.
    pub fn new<S: EventLog + Documents + Copies + 'static>(adapter: Arc<S>) -> Self {
        Self { log: adapter.clone(), documents: adapter.clone(), homes: None, copies: adapter }
    }

    /// The same store, used by several hubs.
    #[must_use]
    pub fn shared(self, homes: Arc<dyn Homes>) -> Self {
        Self { homes: Some(homes), ..self }
    }
}

/// How large things may be.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The largest event.
    pub event_bytes: usize,
    /// The largest commit.
    pub commit_bytes: usize,
    /// How far ahead of the hub's clock a `ts` may lie.
    pub future_ts_ms: u64,
    /// The most topics.
    pub topics: usize,
    /// The most collections.
    pub collections: usize,
    /// The most partitions of all groups together: what a group holds in memory goes by its partitions.
    pub group_partitions: usize,
    /// What all groups together may hold of events that were read and not delivered yet.
    pub read_ahead_bytes: usize,
    /// How many keys a cleaning pass remembers at a time: what it holds goes by that, whatever a topic has.
    pub cleaning_keys: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            event_bytes: 1 << 20,
            commit_bytes: 8 << 20,
            future_ts_ms: 3_600_000,
            topics: 10_000,
            collections: 10_000,
            group_partitions: 500_000,
            read_ahead_bytes: 128 << 20,
            cleaning_keys: 1 << 20,
        }
    }
}

/// What can be chosen about a hub.
pub struct HubOptions {
    /// How large things may be.
    pub limits: Limits,
    /// Whether topics come into being by their first publish.
    pub auto_create: bool,
    /// The settings of topics that the configuration names.
    pub topics: HashMap<TopicName, TopicConfig>,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
}

impl Default for HubOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            auto_create: true,
            topics: HashMap::new(),
            clock: Arc::new(SystemClock),
        }
    }
}

impl Hub {
    /// Puts the stack together. A commit goes through the layers from the last line to the first.
    pub fn assemble(store: Store, options: HubOptions) -> Self {
        let HubOptions { limits, auto_create, topics, clock } = options;
        let new_topics = Arc::new(NewTopics { configs: topics });
        let auto_created = auto_create.then(|| new_topics.clone());
        let bus: Arc<dyn Bus> = Arc::new(LogBus(store.log.clone()));
        let removal_notices = RemovalNotices::new(store.log.clone());
        let bus = removal_notices.clone().wrap(bus);
        let most = CommitLimits {
            event_bytes: limits.event_bytes,
            topics: limits.topics,
            collections: limits.collections,
            ..CommitLimits::default()
        };
        let bus = Rules { limits: most, auto_create: auto_created.clone() }.wrap(bus);
        let shared = Shared::new(store.log.clone(), store.documents.clone(), limits.event_bytes);
        let raisers = shared.raisers.clone();
        let normal_log = Arc::new(NormalLog::new(store.log.clone(), raisers.clone()));
        let schema_checks = SchemaChecks::new(&shared, new_topics.clone());
        let bus = schema_checks.clone().wrap(bus);
        let checks = Checks { limits: limits.clone(), clock: clock.clone() };
        let bus = checks.clone().wrap(bus);
        let schemas = Arc::new(Schemas::new(shared, bus.clone(), clock.clone(), new_topics.clone()));
        let alone = || -> Arc<dyn Homes> { Arc::new(MemoryHomes::alone(clock.clone())) };
        let claims = Claims::new(store.homes.clone().unwrap_or_else(alone), clock.clone());
        let context = GroupContext {
            log: store.log.clone(),
            bus: bus.clone(),
            clock: clock.clone(),
            claims: claims.clone(),
            read_ahead: Arc::new(ReadAhead::new(limits.read_ahead_bytes)),
            checks: checks.clone(),
            schema_checks: schema_checks.clone(),
            most_partitions: limits.group_partitions,
            raisers: raisers.clone(),
            closing: AtomicBool::new(false),
        };
        let groups = Groups::new(context, auto_created);
        let observer: Weak<Groups> = Arc::downgrade(&groups);
        removal_notices.add_observer(observer);
        let collections = Arc::new(Collections::new(store.documents.clone(), bus.clone()));
        let Store { log, documents, homes, copies } = store.clone();
        let backups = Backups::new(copies, log.clone());
        let room = Arc::new(DocumentRoom::new(documents.clone()));
        let projections = ProjectionContext {
            log,
            documents,
            bus: bus.clone(),
            clock: clock.clone(),
            claims: claims.clone(),
            raisers,
            checks: checks.clone(),
            large_batches: Arc::new(Semaphore::new(LARGE_BATCHES)),
            room: room.clone(),
            has_others: homes.is_some(),
            new_topics: new_topics.clone(),
            slots: WorkSlots::default(),
            compiling: tokio::sync::Mutex::default(),
        };
        let projections = Arc::new(Projections::new(projections));
        let cleaning = Cleaning::new(CleaningContext {
            log: store.log.clone(),
            bus: bus.clone(),
            clock: clock.clone(),
            claims: claims.clone(),
            most_keys: limits.cleaning_keys,
            new_topics: new_topics.clone(),
        });
        let replays = Replays::new(ReplayContext {
            log: store.log.clone(),
            documents: store.documents.clone(),
            bus: bus.clone(),
            clock: clock.clone(),
            claims: claims.clone(),
            cleaning: cleaning.clone(),
            checks,
            schema_checks,
            auto_create,
        });
        let commits = Arc::new(Commits::new(groups.clone(), room, bus.clone(), clock.clone()));
        let topics = Arc::new(TopicsWatch::new(store.log.clone()));
        Self {
            bus,
            store,
            limits,
            claims,
            groups,
            collections,
            projections,
            commits,
            cleaning,
            replays,
            backups,
            schemas,
            normal_log,
            clock,
            auto_create,
            new_topics,
            topics,
            known_topics: Arc::default(),
        }
    }
}
