//! `prombus at`: what a key, every key, or a document was like at a time.

use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use crate::output;
use crate::time;
use clap::{Args, ValueEnum};
use futures::TryStreamExt;
use prombus_client::{Client, GetOptions, Lookup, Reduce, StateQuery};
use std::io::Write;
use std::pin::pin;

const EXAMPLES: &str = "\
Examples:
  prombus at process.state web1:stt:4242 --at 2026-01-31T14:03:00Z
  prombus at process.state web1:stt:4242 --at -15m --reduce merge
  prombus at process.state --at -2d > yesterday.ndjson
  prombus at --collection processes web1:stt:4242 --at -15m";

const USAGE: &str = "\
prombus at [OPTIONS] TOPIC KEY
       prombus at [OPTIONS] TOPIC
       prombus at [OPTIONS] --collection COLLECTION KEY";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub struct AtArgs {
    /// Topic, and the key whose state to read; without a key, the last payload of every key, one per line
    #[arg(required = true, num_args = 1..=2, value_names = ["TOPIC", "KEY"])]
    names: Vec<String>,
    /// Read a document of this collection instead of a key of a topic
    #[arg(long, value_name = "COLLECTION", conflicts_with = "reduce")]
    collection: Option<String>,
    /// Point in time: epoch milliseconds, RFC 3339, a date (midnight UTC), or relative to now (-15m, -2d) [default: now]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    at: Option<u64>,
    /// How to derive the state: last payload, or all payloads merged (RFC 7396)
    #[arg(long, value_name = "HOW", default_value = "replace")]
    reduce: ReduceArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReduceArg {
    Replace,
    Merge,
}

pub fn run(hub: &HubArgs, args: AtArgs) -> Result<(), Failure> {
    let client = hub.client()?;
    let AtArgs { names, collection, at, reduce } = args;
    let reduce = match reduce {
        ReduceArg::Replace => Reduce::Replace,
        ReduceArg::Merge => Reduce::Merge,
    };
    match (collection, &names[..]) {
        (Some(collection), [key]) => {
            let at = at.map_or_else(|| time::parse_time("-0s").map_err(Failure::Failed), Ok)?;
            hub::block_on(document(&client, &collection, (key, at)))
        }
        (Some(_), _) => Err(Failure::Usage("--collection takes a KEY, and no TOPIC".into())),
        (None, [topic, key]) => hub::block_on(state(&client, topic, (key, StateQuery { at, reduce }))),
        (None, [topic]) if reduce == Reduce::Replace => hub::block_on(states(&client, topic, at)),
        (None, _) => Err(Failure::Usage(
            "--reduce merge needs a KEY: of every key, only the last payload is read".into(),
        )),
    }
}

async fn state(client: &Client, topic: &str, (key, query): (&str, StateQuery)) -> Result<(), Failure> {
    match client.state_at(topic, key, &query).await? {
        Some(state) => output::write_all(format!("{}\n", to_json(&state)?).as_bytes()),
        None => Err(Failure::Failed(format!(
            "topic {topic} had no state of key {key:?} at that time (not_found)"
        ))),
    }
}

fn to_json(state: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(state).map_err(|error| Failure::Failed(error.to_string()))
}

async fn states(client: &Client, topic: &str, at: Option<u64>) -> Result<(), Failure> {
    let pieces = client.states_at(topic, at).await?;
    let mut pieces = pin!(pieces);
    let mut out = output::buffered();
    // Writing blocks this thread only: the connection has its own.
    while let Some(piece) = pieces.try_next().await? {
        out.write_all(&piece).map_err(Failure::of_output)?;
    }
    out.flush().map_err(Failure::of_output)
}

async fn document(client: &Client, collection: &str, (key, at): (&str, u64)) -> Result<(), Failure> {
    match client.get_with(collection, key, &GetOptions::default().at(at)).await? {
        Lookup::Found(document) => output::write_all(format!("{}\n", document.json).as_bytes()),
        Lookup::Unchanged | Lookup::Missing => Err(Failure::Failed(format!(
            "collection {collection} had no document {key:?} at that time (not_found)"
        ))),
    }
}
