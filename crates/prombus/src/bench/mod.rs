//! `prombus bench`: puts load on a running hub and measures it.
//!
//! It usually shares the machine with the hub, so it must cost as little as possible: one thread, requests that are
//! templates of which only a few bytes change, and answers of which only the status is parsed.

mod consume;
mod get;
mod http;
mod latency;
mod publish;
mod read;
mod report;
mod template;

use crate::failure::Failure;
use crate::hub::HubArgs;
use crate::progress;
use clap::{Args, ValueEnum};
use futures::stream::{FuturesUnordered, TryStreamExt};
use http::{Connection, HttpError};
use indicatif::ProgressBar;
use latency::Latencies;
use prombus_client::Client;
use report::Report;
use serde::Serialize;
use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::Instant;

/// The most topics that names are made for.
const MAX_TOPICS: u32 = 10_000;

const EXAMPLES: &str = "\
Examples:
  prombus bench --events 1000000 --batch 100 --connections 16
  prombus bench --mode export --events 1000000 --connections 1 --json
  prombus bench --mode consume --events 1000000 --batch 1000 --connections 4
  prombus bench --mode publish --topics 100 --own-ids --keys 10000
  prombus bench --mode get --collection processes --connections 64 --conditional";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// What to measure: publishing arrays, reading pages, streaming exports, pull and ack, or getting documents
    #[arg(long, value_enum, default_value_t = Mode::Publish)]
    mode: Mode,
    /// Total number of events or documents
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    events: u64,
    /// Number of events per request or page
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// Number of connections, each with one request in flight
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Payload size in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 250, value_parser = clap::value_parser!(u32).range(template::MIN_PAYLOAD_BYTES as i64..=1_000_000))]
    size: u32,
    /// Publish payloads of ten fields, instead of a number and padding
    #[arg(long)]
    fields: bool,
    /// Number of topics to spread the load over
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=MAX_TOPICS as i64))]
    topics: u32,
    /// Prefix of the topic names
    #[arg(long, value_name = "NAME", default_value = "bench")]
    prefix: String,
    /// Give each event its own random id, which the hub has to look up
    #[arg(long)]
    own_ids: bool,
    /// Number of different keys; 0 for events without a key
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=template::MAX_KEYS))]
    keys: u64,
    /// Name of the consumer group
    #[arg(long, value_name = "NAME", default_value = "bench")]
    group: String,
    /// Collection to get documents from
    #[arg(long, value_name = "NAME", required_if_eq("mode", "get"))]
    collection: Option<String>,
    /// Send each document's ETag, so that the hub answers 304
    #[arg(long)]
    conditional: bool,
    /// Report one line of JSON, even on a terminal
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Publish arrays of events
    Publish,
    /// Read pages
    Read,
    /// Stream exports
    Export,
    /// Pull from a group and ack
    Consume,
    /// Get documents of a collection by key
    Get,
}

pub fn run(hub: &HubArgs, args: &BenchArgs) -> Result<(), Failure> {
    let client = hub.client()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
    let target = Target::new(&client, hub.token.as_deref(), args);
    let report = runtime.block_on(async {
        if args.mode == Mode::Publish {
            prepare_topics(&client, args).await?;
        }
        measure(&target, args).await
    })?;
    report.write(args.json)
}

/// Creates the topics first, so that this is not measured.
async fn prepare_topics(client: &Client, args: &BenchArgs) -> Result<(), Failure> {
    for topic in 0..args.topics {
        client.put_topic(&topic_name(&args.prefix, topic), &serde_json::json!({})).await?;
    }
    Ok(())
}

/// Names are of one length, so that a template can hold any of them.
fn topic_name(prefix: &str, topic: u32) -> String {
    format!("{prefix}-{topic:04}")
}

/// Where requests go.
struct Target {
    address: String,
    base_path: String,
    /// The lines of a head that are the same in each request.
    head: String,
}

impl Target {
    fn new(client: &Client, token: Option<&str>, args: &BenchArgs) -> Self {
        let address = client.host_and_port();
        let accept = if args.mode == Mode::Export { "application/x-ndjson" } else { "application/json" };
        let authorization =
            token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let head = format!("host: {address}\r\naccept: {accept}\r\n{authorization}");
        Self { address, base_path: client.base_path().to_owned(), head }
    }

    async fn connect(&self) -> Result<Connection, HttpError> {
        Connection::open(&self.address).await
    }
}

/// What all connections share. They live on one thread.
struct Shared<'a> {
    target: &'a Target,
    args: &'a BenchArgs,
    /// How many events were given out or seen, or documents asked for.
    events: Cell<u64>,
    /// How many bytes of bodies went over the wire.
    bytes: Cell<u64>,
    latencies: Rc<Latencies>,
    progress: ProgressBar,
}

impl Shared<'_> {
    /// Counts a request that was answered.
    fn finished(&self, started: Instant, bytes: u64) {
        self.latencies.record(started.elapsed());
        self.bytes.set(self.bytes.get() + bytes);
    }
}

async fn measure(target: &Target, args: &BenchArgs) -> Result<Report, Failure> {
    let broken = |error: HttpError| Failure::Failed(format!("the load was interrupted: {error}"));
    let documents = match &args.collection {
        Some(name) if args.mode == Mode::Get => {
            Some(get::prepare(target, name, args.conditional).await.map_err(broken)?)
        }
        _ => None,
    };
    let latencies = Rc::new(Latencies::default());
    let progress = progress::bar(args.events, "events");
    let shared = Shared {
        target,
        args,
        events: Cell::new(0),
        bytes: Cell::new(0),
        latencies: latencies.clone(),
        progress: progress.clone(),
    };
    let started = Instant::now();
    let outcome = match args.mode {
        Mode::Publish => on_each_connection(args.connections, |_| publish::connection(&shared)).await,
        Mode::Read => on_each_connection(args.connections, |number| read::pages(&shared, number)).await,
        Mode::Consume => {
            on_each_connection(args.connections, |number| consume::member(&shared, number)).await
        }
        Mode::Export => on_each_connection(args.connections, |number| read::exports(&shared, number)).await,
        Mode::Get => match &documents {
            Some(documents) => {
                on_each_connection(args.connections, |_| get::connection(&shared, documents)).await
            }
            None => Ok(()),
        },
    };
    let elapsed = started.elapsed();
    progress.finish_and_clear();
    outcome.map_err(broken)?;
    Ok(Report::new(
        args,
        report::Measured { events: shared.events.get(), bytes: shared.bytes.get(), elapsed, latencies },
    ))
}

async fn on_each_connection<W: Future<Output = Result<(), HttpError>>>(
    connections: u32,
    work: impl FnMut(u32) -> W,
) -> Result<(), HttpError> {
    // Wakes only the connection that has something to do, unlike a join of all.
    let mut all: FuturesUnordered<W> = (0..connections).map(work).collect();
    while let Some(()) = all.try_next().await? {}
    Ok(())
}
