//! `prombus schema`: registers, checks, lists and shows schemas, sets upcasters, and looks over a folder of schemas.

mod check;
mod configured;
mod lint;
mod ops;
mod register;
mod show;
mod upcast;
mod verdict;

use super::input;
use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use clap::{Args, Subcommand};
use prombus_client::NewSchema;
use prombus_schema::{Demand, Policy};
use serde_json::value::RawValue;

const EXAMPLES: &str = "\
Examples:
  prombus schema register orders schemas/orders/v1.json
  prombus schema check orders schemas/orders/v2.json
  prombus schema lint schemas";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SchemaArgs {
    #[command(subcommand)]
    command: SchemaCommand,
}

#[derive(Debug, Subcommand)]
enum SchemaCommand {
    /// Register a schema as the next version for a topic
    ///
    /// A schema that is not compatible with earlier versions is rejected: each violation is written to stdout, and the exit
    /// code is 1.
    Register(register::RegisterArgs),
    /// Check whether a schema is compatible with earlier versions, or one file with another without a hub
    ///
    /// If it is not, each violation is written to stdout, and the exit code is 1.
    Check(check::CheckArgs),
    /// List the topics that have schemas
    #[command(after_help = "Example:\n  prombus schema list")]
    List,
    /// Show the versions for a topic, or the schema of one of them
    Show(show::ShowArgs),
    /// Set, show or delete the upcaster that upgrades events from a version to the next one
    Upcast(upcast::UpcastArgs),
    /// Check a folder of schemas without a hub, for continuous integration
    ///
    /// Checks names, gaps between versions, whether each schema is valid and compatible with the one before, upcasters, and
    /// topics without schemas. Findings go to stdout, with file and line; if there are any, the exit code is 1.
    Lint(lint::LintArgs),
}

pub fn run(hub: &HubArgs, args: SchemaArgs) -> Result<(), Failure> {
    match args.command {
        SchemaCommand::Register(args) => hub::block_on(register::run(&hub.client()?, &args)),
        SchemaCommand::Check(args) => check::run(hub, &args),
        SchemaCommand::List => hub::block_on(show::list(&hub.client()?)),
        SchemaCommand::Show(args) => hub::block_on(show::run(&hub.client()?, &args)),
        SchemaCommand::Upcast(args) => hub::block_on(upcast::run(&hub.client()?, &args)),
        SchemaCommand::Lint(args) => lint::run(&args),
    }
}

/// How a new version has to fit earlier ones.
#[derive(Debug, Args)]
struct Demands {
    /// Required compatibility: none, backward, forward or full; append _transitive to check against all versions
    #[arg(long, value_name = "COMPAT", default_value_t)]
    compat: Demand,
    /// How to treat properties that the schema does not name: lenient or strict
    #[arg(long, value_name = "POLICY", default_value_t)]
    policy: Policy,
}

/// A JSON text from a file or stdin. Numbers stay as they are written.
fn read_json(file: &str) -> Result<Box<RawValue>, Failure> {
    serde_json::from_str(&input::read(file)?)
        .map_err(|error| Failure::Usage(format!("{} is not JSON: {error}", input::name(file))))
}

/// A schema with what is demanded of it.
struct CandidateSchema {
    schema: Box<RawValue>,
    compat: String,
    policy: String,
}

impl CandidateSchema {
    fn read(file: &str, demands: &Demands) -> Result<Self, Failure> {
        let Demands { compat, policy } = demands;
        Ok(Self { schema: read_json(file)?, compat: compat.to_string(), policy: policy.to_string() })
    }

    fn request(&self) -> NewSchema<'_> {
        NewSchema::new(&self.schema).with_compat(&self.compat).with_policy(&self.policy)
    }
}
