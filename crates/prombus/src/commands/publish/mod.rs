//! `prombus pub`: publishes one event, or one per line of stdin.

mod stdin;

use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use crate::output::{self, Record};
use clap::Args;
use prombus_client::{Expect, NewEvent, Published};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

const EXAMPLES: &str = "\
Examples:
  prombus pub process.state '{\"status\":\"alive\"}' --key web1:stt:4242 --header x-source=cron
  prombus pub orders '{\"total\":10}' --key 7 --expect-last-id none
  tail -f app.ndjson | prombus pub app.log -

With -, each line gets an id and is retried while the hub is down or busy, so a restart of the hub
neither loses nor duplicates a line. If the hub cannot be reached at the start, or refuses a line,
pub exits with 1 and says which lines were not published.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PubArgs {
    /// Topic to publish to
    topic: String,
    /// Payload, any JSON; - publishes one event per line of stdin
    payload: String,
    /// Key, which determines ordering, compaction and the partition
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Event header; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    /// Your own event id (a UUID); publishing it again is recognised as a duplicate
    #[arg(long, value_name = "UUID")]
    id: Option<String>,
    /// Event time in epoch milliseconds
    #[arg(long, value_name = "MS")]
    ts: Option<u64>,
    /// Tag; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Id of an event that caused this one; may be repeated
    #[arg(long, value_name = "UUID")]
    caused_by: Vec<String>,
    /// Session or correlation id
    #[arg(long, value_name = "SID")]
    sid: Option<String>,
    /// Partition to publish to, if there is no key
    #[arg(long, value_name = "N", conflicts_with = "key")]
    partition: Option<u32>,
    /// Publish only if this is the latest event of the key; none: only if the key has no events
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
            let message =
                "--id and --expect-last-id are about one event: they cannot be combined with - (many lines)";
            return Err(Failure::Usage(message.into()));
        }
        return hub::block_on(stdin::publish(&client, &args));
    }
    let payload = parse_payload(args.payload.as_bytes()).map_err(|error| {
        Failure::Usage(format!(
            "the payload is not JSON: {error}; a string needs its own quotes, as in '\"hello\"'"
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
        published.topic.to_string(),
        published.partition.to_string(),
        published.offset.to_string(),
        published.ts.to_string(),
        published.durability.to_string(),
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
