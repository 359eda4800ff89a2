//! Draining: well-behaved members consume everything that a group still has.

use super::calls::RoundContext;
use super::group_client::{GroupClient, Pull, Settlement};
use super::history::{History, Verb};
use super::spec::Spec;
use crate::api::Api;
use serde::Deserialize;
use std::time::{Duration, Instant};

/// A group that is not through by then is stuck.
const DRAINED_WITHIN: Duration = Duration::from_secs(90);
/// How many members take what there is.
const MEMBERS: usize = 2;

#[derive(Debug, Deserialize)]
struct Status {
    partitions: Vec<PartitionStatus>,
}

#[derive(Debug, Deserialize)]
struct PartitionStatus {
    next: u64,
    tail: u64,
    lag: u64,
    in_flight: u64,
}

/// Takes everything that a group has, and says what happened.
pub async fn run(spec: Spec, stage: RoundContext) -> Result<History, String> {
    let members = (0..MEMBERS).map(|n| tokio::spawn(member(spec, stage.clone(), format!("drain{n}"))));
    let mut history = History::default();
    for member in members.collect::<Vec<_>>() {
        history.absorb(member.await.map_err(|error| error.to_string())??);
    }
    Ok(history)
}

async fn member(spec: Spec, stage: RoundContext, member: String) -> Result<History, String> {
    let (api, mut voice) = (Api::new(&stage.doors)?, GroupClient::new(spec, stage)?);
    let pull = Pull { member, max: 200, wait_ms: 50, max_in_flight: 1_000, drop_after: None };
    let start = Instant::now();
    loop {
        let delivered = voice.pull(&pull).await?.unwrap_or_default();
        let ack = |lease| Settlement { lease, verb: Verb::Ack, reason: String::new(), delay_ms: None };
        let words: Vec<Settlement> = delivered.into_iter().map(|delivery| ack(delivery.lease)).collect();
        if !words.is_empty() {
            voice.say(&words, None).await?;
            continue;
        }
        let path = format!("/v1/topics/{}/groups/{}", spec.topic, spec.group);
        let text = api.get(&path, "application/json").await?;
        let status: Status = serde_json::from_slice(&text).map_err(|error| format!("GET {path}: {error}"))?;
        let through = |partition: &PartitionStatus| {
            partition.lag == 0 && partition.in_flight == 0 && partition.next == partition.tail
        };
        if status.partitions.iter().all(through) {
            return Ok(voice.history);
        }
        if start.elapsed() > DRAINED_WITHIN {
            let text = String::from_utf8_lossy(&text);
            return Err(format!("{} is stuck: nothing more comes, and it is at {text}", spec.group));
        }
    }
}
