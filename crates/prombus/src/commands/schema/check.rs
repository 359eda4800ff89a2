//! `prombus schema check`: by a hub, or two files by themselves.

use super::{CandidateSchema, Demands, verdict};
use crate::commands::input;
use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use crate::output;
use crate::say;
use clap::Args;
use prombus_client::{SchemaChecked, SchemaViolation};
use prombus_schema::{Comparison, Schema, check};

const EXAMPLES: &str = "\
Examples:
  prombus schema check orders schemas/orders/v2.json
  prombus schema check --old v1.json --new v2.json --compat full";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// Topic whose versions to check against
    #[arg(required_unless_present = "old", conflicts_with = "old")]
    topic: Option<String>,
    /// File with the schema, or - for stdin
    #[arg(value_name = "FILE|-", required_unless_present = "old")]
    file: Option<String>,
    /// Without a hub: file with the old schema, or - for stdin
    #[arg(long, value_name = "FILE|-", requires = "new")]
    old: Option<String>,
    /// Without a hub: file with the new schema, or - for stdin
    #[arg(long, value_name = "FILE|-", requires = "old")]
    new: Option<String>,
    #[command(flatten)]
    demands: Demands,
}

pub fn run(hub: &HubArgs, args: &CheckArgs) -> Result<(), Failure> {
    let (what, violations) = match (&args.topic, &args.file, &args.old, &args.new) {
        (Some(topic), Some(file), ..) => {
            (format!("{} as a schema of {topic}", input::name(file)), asked(hub, args, topic, file)?)
        }
        (_, _, Some(old), Some(new)) => {
            (format!("{} after {}", input::name(new), input::name(old)), compared(args, old, new)?)
        }
        _ => return Err(Failure::Usage("name a topic and a file, or --old and --new".to_owned())),
    };
    let Demands { compat, policy } = &args.demands;
    verdict::write(&violations)?;
    if violations.is_empty() {
        say!("{what} is compatible ({compat}, {policy})");
        return Ok(());
    }
    let count = output::counted(violations.len() as u64, "violation");
    Err(Failure::Failed(format!("{what} is not compatible ({compat}, {policy}): {count}")))
}

/// What a hub says of a schema.
fn asked(hub: &HubArgs, args: &CheckArgs, topic: &str, file: &str) -> Result<Vec<SchemaViolation>, Failure> {
    let candidate = CandidateSchema::read(file, &args.demands)?;
    let client = hub.client()?;
    let answer = hub::block_on(async { Ok(client.check_schema(topic, &candidate.request()).await?) })?;
    match answer {
        SchemaChecked { compatible: false, violations } if violations.is_empty() => {
            Err(Failure::Failed("the hub says that it is not compatible, and not why".to_owned()))
        }
        SchemaChecked { violations, .. } => Ok(violations),
    }
}

/// What can be said of two files.
fn compared(args: &CheckArgs, old: &str, new: &str) -> Result<Vec<SchemaViolation>, Failure> {
    if old == "-" && new == "-" {
        return Err(Failure::Usage("only one of --old and --new can be stdin".to_owned()));
    }
    let (old, new) = (schema(old)?, schema(new)?);
    let Demands { compat, policy } = args.demands;
    let verdict = check(&Comparison { old: &old, new: &new, compat: compat.compat, policy });
    Ok(verdict.violations().iter().map(verdict::of_check).collect())
}

fn schema(file: &str) -> Result<Schema, Failure> {
    Schema::parse_to_compare(&input::read(file)?)
        .map_err(|error| Failure::Failed(format!("{}: {error}", input::name(file))))
}
