//! A commit as it is thought of, before each store is told it in its own words.

use super::events::EventPlanner;
use super::state_parts::{plan_cursors, plan_documents};
use super::universe::{self, MAX_PARTITIONS};
use super::{Model, Options};
use crate::Subject;
use crate::subject::must;
use prombus_core::{
    CommitLimits, ConfigChange, CursorMove, DocumentWrite, Durability, Event, EventLogExt, Loss, NewEvent,
    NewTopics, Offset, Offsets, Partition, Placement, TopicConfig, TopicName, TopicRef, TopicState,
};
use std::sync::Arc;
use uuid::Uuid;

/// A commit that is the same for all stores.
#[derive(Debug, Clone, Default)]
pub struct Proposal {
    pub(super) config: Vec<ConfigChange>,
    pub(super) events: Vec<PlannedEvent>,
    pub(super) documents: Vec<DocumentWrite>,
    pub(super) cursors: Vec<PlannedMove>,
    pub(super) limits: CommitLimits,
    pub(super) auto_create: Option<Arc<NewTopics>>,
}

/// An id by whoever made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Id {
    /// A producer's.
    Own(Uuid),
    /// The so manieth that stores made.
    Made(usize),
    /// One that a store made for an event of a commit that it then refused.
    Unborn,
}

/// A cursor to move.
#[derive(Debug, Clone)]
pub(super) struct PlannedMove {
    /// The move, for any incarnation of the topic.
    pub change: CursorMove,
    /// For the so manieth incarnation of the topic.
    pub read: Option<usize>,
}

/// An event to append.
#[derive(Debug, Clone)]
pub(super) struct PlannedEvent {
    pub topic: TopicName,
    pub placement: Placement,
    pub id: Option<Id>,
    pub expect: Option<Option<Id>>,
    pub event: NewEvent,
}

/// True in so many of a hundred cases.
pub(super) fn chance(rng: &mut fastrand::Rng, percent: u32) -> bool {
    rng.u32(0..100) < percent
}

/// One of `all`, which must not be empty.
pub(super) fn pick<'a, T>(rng: &mut fastrand::Rng, all: &'a [T]) -> &'a T {
    &all[rng.usize(0..all.len())]
}

/// Thinks of a commit with at least one part.
pub(super) async fn propose(model: &mut Model, reference: &Subject) -> Proposal {
    let mut proposal = Proposal::default();
    if model.topics.is_empty() || chance(&mut model.rng, 12) {
        proposal.config = plan_config(model, reference).await;
    }
    if chance(&mut model.rng, 20) {
        proposal.auto_create = Some(Arc::new(plan_topics(model)));
    }
    if chance(&mut model.rng, 10) {
        proposal.limits.topics = model.rng.usize(0..3);
    }
    if chance(&mut model.rng, 75) {
        proposal.events = EventPlanner::new(model, reference, &proposal).plan().await;
    }
    if chance(&mut model.rng, 20) {
        proposal.documents = plan_documents(&mut model.rng, reference).await;
    }
    let nothing_yet =
        proposal.config.is_empty() && proposal.events.is_empty() && proposal.documents.is_empty();
    if nothing_yet || chance(&mut model.rng, 15) {
        proposal.cursors = plan_cursors(model, reference).await;
    }
    proposal
}

async fn plan_config(model: &mut Model, reference: &Subject) -> Vec<ConfigChange> {
    let mut changes = Vec::new();
    for _ in 0..model.rng.u32(1..3) {
        let Model { options, rng, topics, .. } = &mut *model;
        let names = universe::topics();
        let name = pick(rng, &names).clone();
        // What events count for is known only while nobody else gives them up.
        if changes.iter().any(|change| gives_up(change, &name)) {
            continue;
        }
        // Now and then what makes no sense: to make one that exists, to change one that does not.
        let change = match topics.get(&name) {
            None if chance(rng, 90) => create(rng, options, name),
            None => ConfigChange::DeleteTopic { name },
            Some(_) if chance(rng, 5) => create(rng, options, name),
            Some(_) if chance(rng, 15) => ConfigChange::DeleteTopic { name },
            Some(state) if chance(rng, 40) => {
                let wrong = u64::from(chance(rng, 8));
                let mut config = settings(rng, options);
                config.partitions = match rng.u32(0..100) {
                    0..60 => (state.config.partitions + 1).min(MAX_PARTITIONS),
                    60..70 => state.config.partitions,
                    _ => rng.u32(1..=MAX_PARTITIONS),
                };
                ConfigChange::AlterTopic { name, expect_revision: state.revision + wrong, config }
            }
            Some(state) if chance(rng, 20) => {
                let (gone, note) = forget(rng, reference, state).await;
                changes.push(note);
                gone
            }
            Some(state) if rng.bool() => trim(rng, reference, state).await,
            Some(state) => discard(rng, reference, state).await,
        };
        changes.push(change);
        // A topic that was deleted is mostly made again, sometimes at once.
        if let Some(ConfigChange::DeleteTopic { name }) = changes.last()
            && chance(rng, 30)
        {
            changes.push(create(rng, options, name.clone()));
        }
    }
    changes
}

fn gives_up(change: &ConfigChange, name: &TopicName) -> bool {
    match change {
        ConfigChange::Trim { topic, .. } | ConfigChange::Discard { topic, .. } => topic.name == *name,
        _ => false,
    }
}

/// The settings that some topics get by their first event.
fn plan_topics(model: &mut Model) -> NewTopics {
    let Model { options, rng, .. } = model;
    let settings = universe::topics()
        .map(|name| (name, TopicConfig { partitions: rng.u32(1..=2), ..settings(rng, options) }));
    NewTopics { configs: settings.into() }
}

fn create(rng: &mut fastrand::Rng, options: &Options, name: TopicName) -> ConfigChange {
    let config = TopicConfig { partitions: rng.u32(1..=2), ..settings(rng, options) };
    ConfigChange::CreateTopic { name, config }
}

fn settings(rng: &mut fastrand::Rng, options: &Options) -> TopicConfig {
    let interval = options.interval && rng.bool();
    TopicConfig {
        durability: if interval { Durability::Interval } else { Durability::Sync },
        // Always the same: what a store has forgotten in a short window it need not know in a longer one.
        dedupe_window_ms: universe::WINDOW_MS,
        tombstone_retention_ms: rng.u64(1..1_000_000),
        ..TopicConfig::default()
    }
}

async fn trim(rng: &mut fastrand::Rng, reference: &Subject, topic: &TopicState) -> ConfigChange {
    let partition = Partition(rng.u32(0..topic.config.partitions));
    let bounds = must(reference.log.bounds(&topic.pinned(), partition).await, "a partition has bounds");
    let before = match rng.u32(0..10) {
        0 => Offset(u64::MAX),
        1 => Offset(rng.u64(0..=bounds.next.0 + 2)),
        // Mostly little, so that there is something to read.
        _ => bounds.first.plus(rng.u64(0..=(bounds.next.0 - bounds.first.0) / 3)),
    };
    let loss = loss(rng, &events_of(reference, topic, partition).await, |event| event.offset < before);
    ConfigChange::Trim { topic: topic.pinned(), partition, before, loss }
}

/// Single events, some of which may be gone already, or not be there yet.
async fn discard(rng: &mut fastrand::Rng, reference: &Subject, topic: &TopicState) -> ConfigChange {
    let partition = Partition(rng.u32(0..topic.config.partitions));
    let events = events_of(reference, topic, partition).await;
    let next = events.last().map_or(0, |event| event.offset.0);
    let many = chance(rng, 20);
    let offsets: Offsets =
        (0..next + 2).filter(|_| if many { rng.bool() } else { chance(rng, 10) }).map(Offset).collect();
    let loss = loss(rng, &events, |event| offsets.contains(event.offset));
    ConfigChange::Discard { topic: (&topic.name).into(), partition, offsets: offsets.into(), loss }
}

/// Everything of a key in a partition, and that it is to be erased.
async fn forget(
    rng: &mut fastrand::Rng,
    reference: &Subject,
    topic: &TopicState,
) -> (ConfigChange, ConfigChange) {
    let partition = Partition(rng.u32(0..topic.config.partitions));
    let events = events_of(reference, topic, partition).await;
    let keys: Vec<_> = events.iter().filter_map(|event| event.key.clone()).collect();
    let key = if keys.is_empty() { "none".into() } else { pick(rng, &keys).clone() };
    let is_of_key = |event: &Event| event.key.as_ref() == Some(&key);
    let offsets: Offsets = events.iter().filter(|event| is_of_key(event)).map(|event| event.offset).collect();
    let loss = Loss { horizon_ts: None, ..loss(rng, &events, is_of_key) };
    let name = TopicRef::from(&topic.name);
    let gone = ConfigChange::Discard { topic: name.clone(), partition, offsets: offsets.into(), loss };
    (gone, ConfigChange::Forget { topic: name, key: key.clone() })
}

async fn events_of(reference: &Subject, topic: &TopicState, partition: Partition) -> Vec<Event> {
    reference.all(&topic.name, partition.0).await
}

fn loss(rng: &mut fastrand::Rng, events: &[Event], goes: impl Fn(&Event) -> bool) -> Loss {
    let bytes = events.iter().filter(|event| goes(event)).map(|event| event.size() as u64).sum();
    Loss { bytes, horizon_ts: rng.bool().then(|| rng.u64(0..1_000)) }
}
