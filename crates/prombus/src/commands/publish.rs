//! `prombus pub`: publishes one event, or one for each line of stdin.

use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use crate::lines::Lines;
use crate::output::{self, Record};
use crate::progress;
use clap::Args;
use prombus_client::{Client, Expect, NewEvent, Published};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::io;
use tokio::sync::mpsc;

/// The most events of stdin that go into one batch.
const BATCH_EVENTS: usize = 1_000;
/// The size from which on a batch of stdin's lines takes no more.
const BATCH_BYTES: usize = 1 << 20;
/// How many lines are read ahead of the hub.
const LINES_AHEAD: usize = 2 * BATCH_EVENTS;

const EXAMPLES: &str = "\
Examples:
  prombus pub process.state '{\"status\":\"alive\"}' --key web1:stt:4242 --header x-source=cron
  prombus pub orders '{\"total\":10}' --key 7 --expect-last-id none
  tail -f app.ndjson | prombus pub app.log -";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PubArgs {
    /// Topic to publish to
    topic: String,
    /// The payload, any JSON; - publishes one payload for each line of stdin
    payload: String,
    /// Key that order, compaction and partitioning go by
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Header of the event; may be given several times
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    /// Id of your own (a UUID): publishing it again is a duplicate, not a second event
    #[arg(long, value_name = "UUID")]
    id: Option<String>,
    /// Event time in epoch milliseconds
    #[arg(long, value_name = "MS")]
    ts: Option<u64>,
    /// Tag; may be given several times
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Id of an event that led to this one; may be given several times
    #[arg(long, value_name = "UUID")]
    caused_by: Vec<String>,
    /// Session or correlation id
    #[arg(long, value_name = "SID")]
    sid: Option<String>,
    /// Partition to publish to, where there is no key
    #[arg(long, value_name = "N", conflicts_with = "key")]
    partition: Option<u32>,
    /// Publish only if this is the latest event of the key; none: only if the key has no event
    #[arg(long, value_name = "UUID|none", requires = "key")]
    expect_last_id: Option<String>,
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as name=value, for example x-source=cron".into()),
    }
}

pub fn run(hub: &HubArgs, args: PubArgs) -> Result<(), Failure> {
    let client = hub.client()?;
    if args.payload == "-" {
        if args.id.is_some() || args.expect_last_id.is_some() {
            let message = "--id and --expect-last-id are about one event: they do not go with - (many lines)";
            return Err(Failure::Usage(message.into()));
        }
        return hub::block_on(publish_stdin(&client, &args));
    }
    let payload = parse_payload(args.payload.as_bytes()).map_err(|error| {
        Failure::Usage(format!(
            "the payload is not JSON: {error}; a text needs quotes of its own, as in '\"hello\"'"
        ))
    })?;
    let event = args.event(payload);
    let published = hub::block_on(async { Ok(client.publish(&args.topic, &event).await?) })?;
    output::write_records(&COLUMNS, &[record(&published)?])
}

const COLUMNS: [&str; 7] = ["id", "topic", "partition", "offset", "ts", "durability", "duplicate"];

fn record(published: &Published) -> Result<Record, Failure> {
    let cells = vec![
        published.id.clone(),
        published.topic.clone(),
        published.partition.to_string(),
        published.offset.to_string(),
        published.ts.to_string(),
        published.durability.clone(),
        published.duplicate.to_string(),
    ];
    Record::of(published, cells)
}

fn parse_payload(text: &[u8]) -> Result<Box<RawValue>, serde_json::Error> {
    serde_json::from_slice(text)
}

impl PubArgs {
    fn event(&self, payload: Box<RawValue>) -> NewEvent {
        let none = |id: &String| id == "none";
        let expect =
            self.expect_last_id.as_ref().map(|id| Expect { last_id: (!none(id)).then(|| id.clone()) });
        NewEvent {
            id: self.id.clone(),
            ts: self.ts,
            key: self.key.clone(),
            sid: self.sid.clone(),
            headers: self.headers.iter().cloned().collect::<BTreeMap<_, _>>(),
            payload,
            caused_by: self.caused_by.clone(),
            tags: self.tags.clone(),
            partition: self.partition,
            expect,
        }
    }
}

/// A line of stdin: its number, and its payload or what is wrong with it.
type Line = (u64, Result<Box<RawValue>, String>);

/// Reads stdin on a thread of its own, so that waiting for input holds up nothing else.
fn read_stdin() -> mpsc::Receiver<Line> {
    let (sender, receiver) = mpsc::channel(LINES_AHEAD);
    std::thread::spawn(move || {
        let mut lines = Lines::new(io::stdin().lock());
        loop {
            let line = match lines.next() {
                Ok(None) => break,
                Ok(Some(line)) if line.text.is_empty() => continue,
                Ok(Some(line)) => parse_payload(line.text).map_err(|error| format!("not JSON: {error}")),
                Err(error) => Err(error.to_string()),
            };
            let is_last = line.is_err();
            // The receiver is gone when publishing has failed.
            if sender.blocking_send((lines.number(), line)).is_err() || is_last {
                break;
            }
        }
    });
    receiver
}

/// Publishes what is there, however little, so that a line does not wait for others.
async fn publish_stdin(client: &Client, args: &PubArgs) -> Result<(), Failure> {
    let mut lines = read_stdin();
    let progress = progress::counter("events");
    let mut total = 0;
    let mut held = None;
    let outcome = loop {
        let Some(first) = (match held.take() {
            Some(line) => Some(line),
            None => lines.recv().await,
        }) else {
            break Ok(());
        };
        let batch = gather(args, first, &mut lines, &mut held);
        if !batch.events.is_empty() {
            if let Err(failure) = publish_batch(client, args, &batch).await {
                break Err(failure);
            }
            total += batch.events.len() as u64;
            progress.set_position(total);
        }
        if let Some((number, message)) = batch.bad {
            break Err(Failure::Failed(format!("line {number}: {message}")));
        }
    };
    progress.finish_and_clear();
    eprintln!("{total} events published to {}", args.topic);
    outcome
}

/// Lines that go out together.
struct Batch {
    events: Vec<NewEvent>,
    first: u64,
    last: u64,
    /// The line after them, if it is not JSON.
    bad: Option<(u64, String)>,
}

/// Gathers the lines that are there already. One that would make the batch too large is `held` for the next.
fn gather(args: &PubArgs, first: Line, lines: &mut mpsc::Receiver<Line>, held: &mut Option<Line>) -> Batch {
    let mut batch = Batch { events: Vec::new(), first: first.0, last: first.0, bad: None };
    let mut bytes = 0;
    let mut next = Some(first);
    while let Some((number, line)) = next.take() {
        match line {
            Err(message) => batch.bad = Some((number, message)),
            Ok(payload) if bytes > 0 && bytes + payload.get().len() > BATCH_BYTES => {
                *held = Some((number, Ok(payload)));
            }
            Ok(payload) => {
                bytes += payload.get().len();
                batch.last = number;
                batch.events.push(args.event(payload));
                next = (batch.events.len() < BATCH_EVENTS).then(|| lines.try_recv().ok()).flatten();
            }
        }
    }
    batch
}

async fn publish_batch(client: &Client, args: &PubArgs, batch: &Batch) -> Result<(), Failure> {
    let Batch { first, last, .. } = *batch;
    let published = client.publish_batch(&args.topic, &batch.events).await.map_err(|error| {
        Failure::Failed(format!("lines {first} to {last} are not in (a batch is all or none): {error}"))
    })?;
    // A person has no use for thousands of rows.
    if output::is_terminal() {
        return Ok(());
    }
    let records = published.events.iter().map(record).collect::<Result<Vec<_>, _>>()?;
    output::write_records(&COLUMNS, &records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_need_a_name_and_a_value() {
        assert_eq!(parse_header("x-a=b=c"), Ok(("x-a".into(), "b=c".into())));
        assert_eq!(parse_header("x-a="), Ok(("x-a".into(), String::new())));
        assert!(parse_header("x-a").is_err());
        assert!(parse_header("=b").is_err());
    }
}
