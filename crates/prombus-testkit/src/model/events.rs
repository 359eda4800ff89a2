//! Random events: most of them valid, many of them repeated, conditional or of the same keys.

use super::Model;
use super::proposal::{Id, Place, PlannedEvent, chance, pick};
use super::universe::{self, KEYS};
use crate::Subject;
use crate::build::{event, json};
use prombus_core::hashing::partition_of;
use prombus_core::{NewEvent, Partition, Placement, TopicName};
use std::collections::HashMap;
use uuid::Uuid;

/// What is the latest of a key once the earlier events of the commit are in; `None` where nobody knows yet.
type Latest = HashMap<(TopicName, String), Option<Id>>;

/// Some events, mostly of topics that exist.
pub(super) async fn plan_events(model: &mut Model, reference: &Subject) -> Vec<PlannedEvent> {
    let count = match model.rng.u32(0..10) {
        0 => model.rng.usize(5..30),
        1..5 => model.rng.usize(2..5),
        _ => 1,
    };
    let mut latest = Latest::new();
    let mut events = Vec::with_capacity(count);
    for _ in 0..count {
        events.push(plan_event(model, reference, &mut latest).await);
    }
    events
}

async fn plan_event(model: &mut Model, reference: &Subject, latest: &mut Latest) -> PlannedEvent {
    let names = universe::topics();
    let existing: Vec<&TopicName> = model.topics.keys().collect();
    let topic = match existing.is_empty() || chance(&mut model.rng, 1) {
        true => pick(&mut model.rng, &names).clone(),
        false => (*pick(&mut model.rng, &existing)).clone(),
    };
    let (id, event) = content(model, reference, &topic).await;
    let expect = match &event.key {
        Some(key) if chance(&mut model.rng, 20) => plan_expect(model, reference, (&topic, key), latest).await,
        _ => None,
    };
    if let Some(key) = &event.key {
        latest.insert((topic.clone(), key.to_string()), id);
    }
    let place = plan_place(model, &topic, event.key.as_deref());
    PlannedEvent { topic, place, id, expect, event }
}

/// An id, if the producer brings one, and an event that mostly is the same for the same id.
async fn content(model: &mut Model, reference: &Subject, topic: &TopicName) -> (Option<Id>, NewEvent) {
    let kind = model.rng.u32(0..100);
    if kind < 30 {
        let id = universe::own_id(&mut model.rng);
        // From the id itself, so that it comes again with the same content, but for a few conflicts.
        let mut rng = fastrand::Rng::with_seed(id.as_u128() as u64);
        let same = !chance(&mut model.rng, 3);
        let event = random_event(if same { &mut rng } else { &mut model.rng });
        return (Some(Id::Own(id)), event);
    }
    if kind < 34
        && let Some((n, first)) = repeated(model, reference, topic).await
    {
        return (Some(Id::Made(n)), first);
    }
    (None, random_event(&mut model.rng))
}

/// An event whose id the stores made, as a producer would repeat it.
async fn repeated(model: &mut Model, reference: &Subject, topic: &TopicName) -> Option<(usize, NewEvent)> {
    if model.made.is_empty() || !model.topics.contains_key(topic) {
        return None;
    }
    let n = model.rng.usize(0..model.made.len());
    let (of, ids) = &model.made[n];
    let first = if of == topic { reference.by_id(topic, ids[0]).await } else { None }?;
    Some((n, NewEvent { key: first.key, ..NewEvent::new(first.payload) }))
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
        new.sid = Some(json("\"s\""));
        new.headers = Some(json(r#"{"x-b":"1","x-a":"2"}"#));
    }
    if chance(rng, 10) {
        new.tags = Some(json("[\"t\"]"));
        new.caused_by = Some(json("[\"c\",\"d\"]"));
    }
    new
}

/// Mostly an expectation that holds.
async fn plan_expect(
    model: &mut Model,
    reference: &Subject,
    (topic, key): (&TopicName, &str),
    latest: &Latest,
) -> Option<Option<Id>> {
    if chance(&mut model.rng, 15) {
        let wrong = model.rng.bool().then(|| Id::Own(universe::own_id(&mut model.rng)));
        return Some(wrong);
    }
    match latest.get(&(topic.clone(), key.to_owned())) {
        // The earlier event of the commit has no id yet that one could name.
        Some(None) => None,
        Some(earlier) => Some(*earlier),
        None if !model.topics.contains_key(topic) => Some(None),
        None => Some(reference.latest(topic, key).await.map(|event| known(model, event.id))),
    }
}

fn known(model: &Model, id: Uuid) -> Id {
    match model.stores.first().and_then(|store| store.made.get(&id)) {
        Some(n) => Id::Made(*n),
        None => Id::Own(id),
    }
}

fn plan_place(model: &mut Model, topic: &TopicName, key: Option<&str>) -> Place {
    let rng = &mut model.rng;
    let Some(layouts) = model.layouts.get(topic) else {
        return Place::Imagined { partition: Partition(rng.u32(0..3)) };
    };
    if chance(rng, 1) {
        let partition = Partition(rng.u32(0..3));
        return match rng.u32(0..3) {
            0 => Place::Undecided(Placement::Auto),
            1 => Place::Undecided(Placement::Named(partition)),
            _ => Place::Imagined { partition },
        };
    }
    let stale = chance(rng, 1);
    let layout = if stale { rng.usize(0..layouts.len()) } else { layouts.len() - 1 };
    let partitions = layouts[layout][0].partitions;
    let partition = match key {
        _ if chance(rng, 1) => Partition(partitions + rng.u32(0..2)),
        // As the hub does it: events of a key never go to a lower partition than its earlier ones.
        Some(key) => partition_of(key.as_bytes(), partitions),
        None => Partition(rng.u32(0..partitions)),
    };
    Place::Decided { partition, layout }
}
