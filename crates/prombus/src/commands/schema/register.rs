//! `prombus schema register`.

use super::{CandidateSchema, Demands, verdict};
use crate::failure::Failure;
use crate::output::{self, Record};
use clap::Args;
use prombus_client::{Client, ClientError};

const EXAMPLES: &str = "\
Examples:
  prombus schema register orders schemas/orders/v1.json
  echo '{\"type\":\"object\"}' | prombus schema register orders - --compat full_transitive";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, disable_version_flag = true)]
pub struct RegisterArgs {
    /// Topic whose events the schema describes
    topic: String,
    /// File with the schema, or - for stdin
    #[arg(value_name = "FILE|-")]
    file: String,
    /// Version number; must exceed the latest [default: next]
    #[arg(long, value_name = "N")]
    version: Option<u32>,
    #[command(flatten)]
    demands: Demands,
}

pub async fn run(client: &Client, args: &RegisterArgs) -> Result<(), Failure> {
    let candidate = CandidateSchema::read(&args.file, &args.demands)?;
    let request = match args.version {
        Some(version) => candidate.request().with_version(version),
        None => candidate.request(),
    };
    let registered = match client.register_schema(&args.topic, &request).await {
        Ok(registered) => registered,
        Err(error) => return Err(refused(error)?),
    };
    let cells = vec![registered.topic.clone(), registered.version.to_string()];
    output::write_records(&["topic", "version"], &[Record::of(&registered, cells)?])
}

/// Writes why a schema was refused, and gives the failure.
fn refused(error: ClientError) -> Result<Failure, Failure> {
    verdict::write(&error.hub().map(|hub| hub.violations()).unwrap_or_default())?;
    Ok(Failure::Client(error))
}
