//! `prombus schema list` and `prombus schema show`.

use crate::failure::Failure;
use crate::output::{self, Record};
use clap::Args;
use prombus_client::{Client, SchemaVersion, TopicSchemas};
use serde_json::json;
use std::str::FromStr;

const EXAMPLES: &str = "\
Examples:
  prombus schema show orders
  prombus schema show orders latest > orders.json
  prombus schema show orders 2 --example";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, disable_version_flag = true)]
pub struct ShowArgs {
    /// Topic whose schemas to show
    topic: String,
    /// Version whose schema to print: a number, or latest
    #[arg(value_name = "VERSION", required_if_eq("example", "true"))]
    version: Option<Version>,
    /// Print a generated example document instead
    #[arg(long)]
    example: bool,
}

/// A version that is asked for; `None` is the latest.
#[derive(Debug, Clone, Copy)]
struct Version(Option<u32>);

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "latest" => Ok(Self(None)),
            _ => text
                .parse()
                .map(|number| Self(Some(number)))
                .map_err(|_| "use a number, or latest".to_owned()),
        }
    }
}

/// Writes which topics have schemas.
pub async fn list(client: &Client) -> Result<(), Failure> {
    let record = |schemas: &TopicSchemas| {
        let latest = schemas.versions.last().map(|last| last.version.to_string()).unwrap_or_default();
        let upcasters: Vec<String> = schemas.upcasters.iter().map(u32::to_string).collect();
        let cells =
            vec![schemas.topic.clone(), schemas.versions.len().to_string(), latest, upcasters.join(" ")];
        Record::of(schemas, cells)
    };
    let records: Result<Vec<_>, _> = client.schemas().await?.iter().map(record).collect();
    output::write_records(&["topic", "versions", "latest", "upcasters"], &records?)
}

pub async fn run(client: &Client, args: &ShowArgs) -> Result<(), Failure> {
    let topic = &args.topic;
    let Some(Version(version)) = args.version else { return versions(client, topic).await };
    let text = match args.example {
        true => client.schema_example(topic, version).await?,
        false => client.schema(topic, version).await?.map(|answer| answer.schema),
    };
    match (text, version) {
        (Some(text), _) => output::write_all(format!("{text}\n").as_bytes()),
        (None, Some(version)) => {
            Err(Failure::Failed(format!("topic {topic} has no schema of version {version} (not_found)")))
        }
        (None, None) => Err(missing(topic)),
    }
}

fn missing(topic: &str) -> Failure {
    Failure::Failed(format!("topic {topic} has no schema (not_found)"))
}

/// A line for each version.
async fn versions(client: &Client, topic: &str) -> Result<(), Failure> {
    let schemas = client.topic_schemas(topic).await?.ok_or_else(|| missing(topic))?;
    let record = |known: &SchemaVersion| {
        let SchemaVersion { version, registered_ts } = *known;
        let upcaster = schemas.upcasters.contains(&version);
        let json =
            json!({"topic": topic, "version": version, "registered_ts": registered_ts, "upcaster": upcaster});
        let upcaster = if upcaster { "yes" } else { "" };
        Record::of(&json, vec![version.to_string(), registered_ts.to_string(), upcaster.to_owned()])
    };
    let records: Result<Vec<_>, _> = schemas.versions.iter().map(record).collect();
    output::write_records(&["version", "registered_ts", "upcaster"], &records?)
}
