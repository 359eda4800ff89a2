//! A reader during the load: it must see every partition without gaps, and nothing that disappears later.

use super::api::Api;
use super::calls::Trouble;
use super::plan::{End, Topic};
use serde::Deserialize;
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_64;

/// An offset of a partition of a topic.
pub type EventPosition = (String, u32, u64);

/// What was read: the hash of the line at each offset.
pub type Observed = HashMap<EventPosition, u64>;

/// Where a reader goes on.
pub struct ReaderStart {
    /// The topic.
    pub topic: Topic,
    /// The next offset of each partition.
    pub next: Vec<u64>,
}

#[derive(Deserialize)]
struct LineOffset {
    offset: u64,
}

/// Reads what is new in one partition after the other until the hub is gone or everything is over.
pub async fn run(api: Api, mut starts: Vec<ReaderStart>, trouble: Trouble) -> Result<Observed, String> {
    let mut observed = Observed::new();
    while !trouble.is_over() {
        trouble.pace().await;
        for ReaderStart { topic, next } in &mut starts {
            for (partition, next) in (0..).zip(next) {
                let lines = match api.export(&topic.name, partition, *next).await {
                    Ok(lines) => lines,
                    // A hub that refuses to read and is not gone has failed; one that was asked to end may.
                    Err(why) if matches!(trouble, Trouble::End(End::Kill)) && is_alive(&api).await => {
                        return Err(why);
                    }
                    Err(_) if trouble.goes_on() => continue,
                    Err(_) => return Ok(observed),
                };
                for line in lines.split_inclusive(|byte| *byte == b'\n') {
                    let LineOffset { offset } = serde_json::from_slice(line)
                        .map_err(|error| format!("a line of an export of {}: {error}", topic.name))?;
                    if offset != *next {
                        let name = &topic.name;
                        return Err(format!(
                            "a reader of {name}/{partition} saw {offset} where {next} comes next"
                        ));
                    }
                    observed.insert((topic.name.clone(), partition, offset), xxh3_64(line));
                    *next += 1;
                }
            }
        }
    }
    Ok(observed)
}

async fn is_alive(api: &Api) -> bool {
    api.get("/healthz", "*/*").await.is_ok()
}
