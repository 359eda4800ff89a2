//! The end of a round: remaining work is finished without faults, everything is read and judged, rebuilt and compared, and
//! the folder is checked.

use super::consumer::Consumer;
use super::setup::{GROUP, IN, PROJECTED, PROJECTIONS};
use super::{State, joined, rng, truth, verdict};
use crate::api::Api;
use crate::calls::Trouble;
use crate::plan::Plan;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use serde_json::value::RawValue;
use std::time::{Duration, Instant};

/// What is not done by then is stuck.
const RESTED_WITHIN: Duration = Duration::from_secs(60);
/// How often a projection is asked how far it is.
const ASK_EVERY: Duration = Duration::from_millis(5);

#[derive(Debug, Deserialize)]
struct Projection {
    state: String,
    stale: bool,
    lag: u64,
    rebuild: Option<Rebuild>,
}

#[derive(Debug, Deserialize)]
struct Rebuild {}

#[derive(Debug, Deserialize)]
struct Group {
    partitions: Vec<PartitionStatus>,
}

#[derive(Debug, Deserialize)]
struct PartitionStatus {
    lag: u64,
    in_flight: u64,
}

impl State {
    /// Lets everything come to rest, and judges it.
    pub(super) async fn rest_and_judge(&mut self, plan: &Plan) -> Result<(), String> {
        self.repeat().await?;
        self.settle(plan).await?;
        let api = Api::new(&self.site.doors())?;
        until_caught_up(&api).await?;
        let found = truth::read(&api).await?;
        verdict::judge(&found, &self.ledger)?;
        (self.counts.events, self.counts.letters) = (found.events.len(), found.letters.len());
        self.counts.changes = found.latest_feed.len() + found.done_feed.len();
        self.rebuild_all(&api).await?;
        let feeds = truth::read(&api).await?;
        if (feeds.latest_feed.len(), feeds.letters.len()) != (found.latest_feed.len(), found.letters.len()) {
            return Err("a rebuild has told of changes or of dead letters again".to_owned());
        }
        self.site.stop_and_start(plan, true)
    }

    /// Everything that is left to do for consumers and writers.
    async fn settle(&mut self, plan: &Plan) -> Result<(), String> {
        let stage = self.stage(Trouble::None);
        let writers = self.writers(plan).map(|writer| tokio::spawn(writer.settle(stage.clone())));
        for writer in writers.collect::<Vec<_>>() {
            let writer = joined(writer).await?;
            self.ledger.singles.insert(writer.name, writer.done);
        }
        let api = Api::new(&self.site.doors())?;
        let start = Instant::now();
        for n in 0.. {
            let name = format!("r{}rest{n}", plan.round);
            let consumer = Consumer { rng: rng(plan, &name), name, good: true };
            let legacy = consumer.run(stage.clone()).await?;
            self.absorb(legacy);
            let group: Group = get(&api, &format!("/v1/topics/{IN}/groups/{GROUP}")).await?;
            if group.partitions.iter().all(|partition| partition.lag == 0 && partition.in_flight == 0) {
                break;
            }
            if start.elapsed() > RESTED_WITHIN {
                return Err(format!("{GROUP} is stuck: nothing more comes, and it is at {group:?}"));
            }
        }
        Ok(())
    }

    /// Rebuilds all projections, after which their collections must be the same, byte for byte.
    async fn rebuild_all(&mut self, api: &Api) -> Result<(), String> {
        let before = contents(api).await?;
        for name in PROJECTIONS {
            let path = format!("/v1/projections/{name}/rebuild");
            let call = api.client.post(format!("{}{path}", api.base())).json(&json!({}));
            let status = call.send().await.map_err(|error| format!("POST {path}: {error}"))?.status();
            if status != 202 {
                return Err(format!("POST {path}: {status}"));
            }
            self.counts.rebuilds += 1;
        }
        until_caught_up(api).await?;
        let after = contents(api).await?;
        for ((name, before), (_, after)) in before.iter().zip(&after) {
            same_documents(before, after).map_err(|why| format!("a rebuild of {name} differs: {why}"))?;
        }
        Ok(())
    }
}

async fn get<T: DeserializeOwned>(api: &Api, path: &str) -> Result<T, String> {
    let text = api.get(path, "application/json").await?;
    serde_json::from_slice(&text)
        .map_err(|error| format!("GET {path}: {error}: {}", String::from_utf8_lossy(&text)))
}

/// How many projections are being rebuilt.
pub async fn rebuilding(api: &Api) -> Result<u32, String> {
    let mut count = 0;
    for name in PROJECTIONS {
        let status: Projection = get(api, &format!("/v1/projections/{name}")).await?;
        count += u32::from(status.rebuild.is_some());
    }
    Ok(count)
}

/// Waits until all projections have seen everything and none is being rebuilt.
async fn until_caught_up(api: &Api) -> Result<(), String> {
    let start = Instant::now();
    for name in PROJECTIONS {
        loop {
            let status: Projection = get(api, &format!("/v1/projections/{name}")).await?;
            if status.state != "running" || status.stale {
                return Err(format!("projection {name} should run and not be stale: {status:?}"));
            }
            if status.lag == 0 && status.rebuild.is_none() {
                break;
            }
            if start.elapsed() > RESTED_WITHIN {
                return Err(format!("projection {name} does not catch up: {status:?}"));
            }
            // A projection tells nobody when it has caught up.
            tokio::time::sleep(ASK_EVERY).await;
        }
    }
    Ok(())
}

/// The documents of a collection, as texts and newest first.
type Content = (&'static str, Vec<Box<RawValue>>);

async fn contents(api: &Api) -> Result<Vec<Content>, String> {
    let mut contents = Vec::new();
    for name in PROJECTED {
        contents.push((name, truth::list(api, name, "").await?));
    }
    Ok(contents)
}

fn same_documents(before: &[Box<RawValue>], after: &[Box<RawValue>]) -> Result<(), String> {
    if before.len() != after.len() {
        return Err(format!("{} documents became {}", before.len(), after.len()));
    }
    let differs = before.iter().zip(after).find(|(before, after)| before.get() != after.get());
    differs.map_or(Ok(()), |(before, after)| Err(format!("{before} became {after}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_that_differ_in_a_byte_are_found() {
        let raw = |texts: &[&str]| -> Vec<Box<RawValue>> {
            texts.iter().map(|text| RawValue::from_string((*text).to_owned()).unwrap()).collect()
        };
        let one = raw(&["{\"n\":1}", "{}"]);
        assert!(same_documents(&one, &one.clone()).is_ok());
        for other in [&["{\"n\":1}"][..], &["{\"n\":1.0}", "{}"], &["{}", "{\"n\":1}"]] {
            assert!(same_documents(&one, &raw(other)).is_err());
        }
    }
}
