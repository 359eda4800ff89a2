//! Random events: most of them valid, many of them repeated, conditional or of the same keys.

use super::Model;
use super::proposal::{Id, PlannedEvent, Proposal, chance, pick};
use super::universe::{self, KEYS, MAX_PARTITIONS};
use crate::Subject;
use crate::build::{event, json};
use prombus_core::{ConfigChange, NewEvent, Partition, Placement, TopicName};
use std::collections::HashMap;
use uuid::Uuid;

/// What is the latest of a key once the earlier events of the commit are in; `None` where nobody knows yet.
type Latest = HashMap<(TopicName, String), Option<Id>>;

/// Thinks of the events of one commit.
pub(super) struct EventPlanner<'a> {
    model: &'a mut Model,
    reference: &'a Subject,
    latest: Latest,
    /// How many partitions the topics have that the commit makes, or can make.
    new: HashMap<TopicName, u32>,
}

impl<'a> EventPlanner<'a> {
    /// For a commit with these changes of topics. `reference` is the store whose content makes most conditions
    /// true.
    pub fn new(model: &'a mut Model, reference: &'a Subject, proposal: &Proposal) -> Self {
        let by_events = proposal.auto_create.iter().flat_map(|new_topics| &new_topics.configs);
        let mut new: HashMap<TopicName, u32> =
            by_events.map(|(name, config)| (name.clone(), config.partitions)).collect();
        new.retain(|name, _| !model.topics.contains_key(name));
        new.extend(proposal.config.iter().filter_map(|change| match change {
            ConfigChange::CreateTopic { name, config } => Some((name.clone(), config.partitions)),
            _ => None,
        }));
        Self { model, reference, latest: Latest::new(), new }
    }

    /// Some events, mostly of topics that exist.
    pub async fn plan(mut self) -> Vec<PlannedEvent> {
        let count = match self.model.rng.u32(0..10) {
            0 => self.model.rng.usize(5..30),
            1..5 => self.model.rng.usize(2..5),
            _ => 1,
        };
        let mut events = Vec::with_capacity(count);
        for _ in 0..count {
            events.push(self.event().await);
        }
        events
    }

    async fn event(&mut self) -> PlannedEvent {
        let names = universe::topics();
        let existing: Vec<&TopicName> = self.model.topics.keys().chain(self.new.keys()).collect();
        let rng = &mut self.model.rng;
        let topic = match existing.is_empty() || chance(rng, 1) {
            true => pick(rng, &names).clone(),
            false => (*pick(rng, &existing)).clone(),
        };
        let (id, event) = self.content(&topic).await;
        let expect = match &event.key {
            Some(key) if chance(&mut self.model.rng, 20) => self.expect(&topic, key).await,
            _ => None,
        };
        if let Some(key) = &event.key {
            self.latest.insert((topic.clone(), key.to_string()), id);
        }
        // What goes by an id that stores made goes elsewhere in each of them.
        let is_known = event.key.is_some() || matches!(id, Some(Id::Own(_)));
        let placement = self.placement(&topic, is_known);
        PlannedEvent { topic, placement, id, expect, event }
    }

    /// An id, if the producer brings one, and an event that mostly is the same for the same id.
    async fn content(&mut self, topic: &TopicName) -> (Option<Id>, NewEvent) {
        let rng = &mut self.model.rng;
        let kind = rng.u32(0..100);
        if kind < 30 {
            let id = universe::own_id(rng);
            // From the id itself, so that it comes again with the same content, but for a few conflicts.
            let mut same = fastrand::Rng::with_seed(id.as_u128() as u64);
            let event = random_event(if chance(rng, 3) { rng } else { &mut same });
            return (Some(Id::Own(id)), event);
        }
        if kind < 34
            && let Some((n, first)) = self.repeated(topic).await
        {
            return (Some(Id::Made(n)), first);
        }
        (None, random_event(&mut self.model.rng))
    }

    /// An event whose id the stores made, as a producer would repeat it.
    async fn repeated(&mut self, topic: &TopicName) -> Option<(usize, NewEvent)> {
        let Model { rng, made, topics, .. } = &mut *self.model;
        if made.is_empty() || !topics.contains_key(topic) {
            return None;
        }
        let n = rng.usize(0..made.len());
        let (of, ids) = &made[n];
        let first = if of == topic { self.reference.by_id(topic, ids[0]).await } else { None }?;
        Some((n, NewEvent { key: first.key, ..NewEvent::new(first.payload) }))
    }

    /// Mostly an expectation that holds.
    async fn expect(&mut self, topic: &TopicName, key: &str) -> Option<Option<Id>> {
        let rng = &mut self.model.rng;
        if chance(rng, 15) {
            let wrong = rng.bool().then(|| Id::Own(universe::own_id(rng)));
            return Some(wrong);
        }
        match self.latest.get(&(topic.clone(), key.to_owned())) {
            // The earlier event of the commit has no id yet that one could name.
            Some(None) => None,
            Some(earlier) => Some(*earlier),
            None if self.new.contains_key(topic) || !self.model.topics.contains_key(topic) => Some(None),
            None => Some(self.reference.latest(topic, key).await.map(|event| self.known(event.id))),
        }
    }

    fn known(&self, id: Uuid) -> Id {
        match self.model.stores.first().and_then(|store| store.made.get(&id)) {
            Some(n) => Id::Made(*n),
            None => Id::Own(id),
        }
    }

    /// Mostly a partition that the topic has. Nobody leaves it to a store whose turn it is: each has its own order.
    fn placement(&mut self, topic: &TopicName, is_known: bool) -> Placement {
        let Model { rng, topics, .. } = &mut *self.model;
        let there = topics.get(topic).map(|topic| topic.config.partitions);
        let partitions = self.new.get(topic).copied().or(there).unwrap_or(1);
        match is_known {
            _ if chance(rng, 1) => Placement::Named(Partition(MAX_PARTITIONS + rng.u32(0..2))),
            true => Placement::Auto,
            false => Placement::Named(Partition(rng.u32(0..partitions))),
        }
    }
}

fn random_event(rng: &mut fastrand::Rng) -> NewEvent {
    let payload = match rng.u32(0..20) {
        0..2 => "null".to_owned(),
        2 => format!("\"{}\"", "x".repeat(rng.usize(0..3_000))),
        3..10 => rng.u32(0..3).to_string(),
        _ => format!("{{\"n\":{}.{:02}}}", rng.u32(..), rng.u32(0..100)),
    };
    let mut new = event(&payload).event;
    if chance(rng, 75) {
        new.key = Some((*pick(rng, &KEYS)).into());
    }
    if chance(rng, 50) {
        new.ts = Some(100 * rng.u64(1..20));
    }
    if chance(rng, 10) {
        new.sid = Some(json("\"s\"").into());
        new.headers = Some(json(r#"{"x-b":"1","x-a":"2"}"#).into());
    }
    if chance(rng, 10) {
        new.tags = Some(json("[\"t\"]").into());
        new.caused_by = Some(json("[\"c\",\"d\"]").into());
    }
    new
}
