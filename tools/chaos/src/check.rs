//! Reading back: the new ends of all partitions, some old events, and now and then everything.

use super::api::{Api, Listed};
use super::evidence::Evidence;
use super::ledger::{Ledger, Old};
use super::plan::{Plan, Topic, is_of_log};
use serde::Deserialize;
use uuid::Uuid;
use xxhash_rust::xxh3::Xxh3;

/// How many old events are looked up a round.
const SAMPLES: usize = 10;

/// Reads everything that the ledger does not know yet.
pub async fn tails(
    api: &Api,
    plan: &Plan,
    ledger: &mut Ledger,
    evidence: &mut Evidence,
) -> Result<(), String> {
    let mut listed = api.topics().await?;
    listed.retain(|listed| is_of_log(&listed.topic));
    for name in ledger.topics.keys() {
        if !listed.iter().any(|listed| listed.topic == *name) {
            return Err(format!("topic {name} is gone"));
        }
    }
    for listed in &listed {
        let topic = known_topic(listed, plan, ledger)?;
        if topic.partitions as usize != listed.bounds.len() || topic.durability != listed.durability {
            return Err(format!("topic {} has other settings than before: {listed:?}", topic.name));
        }
        for bounds in &listed.bounds {
            let next = ledger.partitions(&topic)[bounds.partition as usize].next;
            let lines = api.export(&topic.name, bounds.partition, next).await;
            let lines = lines.map_err(|why| format!("{why} (known up to {next}, listed {bounds:?})"))?;
            evidence.absorb(ledger, (&topic, bounds.partition), &lines)?;
            let known = ledger.partitions(&topic)[bounds.partition as usize].next;
            if (bounds.first, bounds.next) != (0, known) {
                return Err(format!(
                    "{}/{} has events 0..{known}, and says {bounds:?}",
                    topic.name, bounds.partition
                ));
            }
        }
    }
    Ok(())
}

/// The topic that is listed; one that should not be there is an error.
fn known_topic(listed: &Listed, plan: &Plan, ledger: &Ledger) -> Result<Topic, String> {
    let name = &listed.topic;
    let of_this_round = plan.topics().into_iter().find(|topic| topic.name == *name);
    // A topic of an earlier round had one partition, as those of this round have.
    let earlier =
        || ledger.topics.contains_key(name).then(|| Topic { name: name.clone(), ..plan.fresh_topic() });
    of_this_round
        .or_else(earlier)
        .ok_or_else(|| format!("topic {name} was deleted, or never made, and is there"))
}

#[derive(Deserialize)]
struct Event {
    id: Uuid,
    partition: u32,
    offset: u64,
}

/// Looks some events up by their id, and the ends of chains by their key.
pub async fn samples(api: &Api, ledger: &Ledger) -> Result<(), String> {
    for _ in 0..SAMPLES.min(ledger.olds.len()) {
        let Old { topic, draft, place } = &ledger.olds[fastrand::usize(..ledger.olds.len())];
        let Some(id) = draft.id else { continue };
        let event = get_event(api, &format!("/v1/topics/{}/events/{id}", topic.name)).await?;
        if (event.id, event.partition, event.offset) != (id, place.partition, place.offset) {
            return Err(format!(
                "{}: event {id} was at {place:?}, and is found at {}",
                topic.name, event.offset
            ));
        }
    }
    for ((topic, key), head) in &ledger.heads {
        let event = get_event(api, &format!("/v1/topics/{topic}/keys/{key}")).await?;
        if event.id != *head {
            return Err(format!("{topic}: the latest event of {key} is {head}, and {} is found", event.id));
        }
    }
    Ok(())
}

async fn get_event(api: &Api, path: &str) -> Result<Event, String> {
    let body = api.get(path, "application/json").await?;
    serde_json::from_slice(&body).map_err(|error| format!("GET {path}: {error}"))
}

/// Reads everything, and holds it against what it was when it was read first.
pub async fn prefixes(api: &Api, ledger: &Ledger) -> Result<(), String> {
    for (topic, partitions) in &ledger.topics {
        for (partition, facts) in (0..).zip(partitions) {
            let (mut digest, mut lines) = (Xxh3::new(), 0);
            api.stream(topic, partition, |piece| {
                digest.update(piece);
                lines += piece.iter().filter(|byte| **byte == b'\n').count() as u64;
            })
            .await?;
            if lines != facts.next {
                return Err(format!("{topic}/{partition} had {} events, and exports {lines}", facts.next));
            }
            if digest.digest128() != facts.digest.digest128() {
                return Err(format!("{topic}/{partition}: events of earlier rounds have changed"));
            }
        }
    }
    Ok(())
}
