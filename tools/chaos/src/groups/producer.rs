//! Producers: they publish events with keys while members consume, and add partitions.

use super::calls::{Caller, Reply, RoundContext};
use super::history::Published;
use super::spec::{Growth, PARTITIONS};
use crate::api::Api;
use fastrand::Rng;
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

/// How many events a producer publishes in a round.
const EVENTS: u64 = 250;
/// The longest array.
const ARRAY: u64 = 8;
/// How many keys there are.
const KEYS: u32 = 24;
/// One event in so many has no key.
const KEYLESS_ONE_IN: u32 = 8;
/// The longest pause between two publishes.
const PAUSE_MS: u64 = 12;

#[derive(Deserialize)]
struct Taken {
    count: u64,
}

/// A producer.
pub struct Producer {
    /// Its topic.
    pub topic: &'static str,
    /// Its name.
    pub name: String,
    /// Where its randomness comes from.
    pub rng: Rng,
}

/// Publishes until it is enough, or the hub is gone, and says what was sent.
pub async fn run(producer: Producer, stage: RoundContext) -> Result<Published, String> {
    let Producer { topic, name, mut rng } = producer;
    let caller = Caller::new(stage)?;
    let mut published = Published::new();
    let mut next = 0;
    while next < EVENTS {
        let numbers = next..next + rng.u64(1..=ARRAY);
        next = numbers.end;
        let bodies: Vec<_> = numbers
            .clone()
            .map(|n| {
                let mut body = json!({"payload": {"p": name, "n": n}});
                if rng.u32(..KEYLESS_ONE_IN) > 0 {
                    body["key"] = json!(format!("k{}", rng.u32(..KEYS)));
                }
                body
            })
            .collect();
        let since = caller.stage.clock.now();
        let path = format!("/v1/topics/{topic}/events");
        let reply = caller.post::<Taken>(&path, &json!(bodies), None).await?;
        let answered = matches!(&reply, Reply::Answered(taken) if taken.count == bodies.len() as u64);
        published.extend(numbers.map(|number| ((name.clone(), number), (since, answered))));
        if caller.stage.trouble.is_over() || (!answered && !caller.stage.trouble.goes_on()) {
            break;
        }
        caller.stage.trouble.pace().await;
        // Its pace is the plan's; there is nothing to wait for.
        tokio::time::sleep(Duration::from_millis(rng.u64(..PAUSE_MS))).await;
    }
    Ok(published)
}

/// Grows a topic at its time. A hub that is gone by then does not mind.
pub async fn grow(stage: RoundContext, growth: Growth) -> Result<(), String> {
    // The moment is the plan's; there is nothing to wait for.
    tokio::time::sleep(growth.after).await;
    let api = Api::new(&stage.doors)?;
    let Ok(listed) = api.topics().await else { return Ok(()) };
    let now = listed.iter().find(|listed| listed.topic == growth.topic.name);
    let now = now.map_or(PARTITIONS.0, |listed| listed.bounds.len() as u32);
    let more = (now + growth.by).min(PARTITIONS.1);
    let put = api.client.put(format!("{}/v1/topics/{}", api.base(), growth.topic.name));
    let put = put.header("content-type", "application/json").body(json!({"partitions": more}).to_string());
    match put.send().await {
        Ok(answer) if answer.status().is_success() || answer.status() == 503 => Ok(()),
        Ok(answer) => Err(format!("a topic cannot grow: {}", answer.status())),
        Err(_) => Ok(()),
    }
}
