//! The command line: the list of commands.

use crate::hub::HubArgs;
use crate::{bench, commands, serve, snapshots};
use clap::{Parser, Subcommand};

/// A durable event hub in a single binary: the hub itself, and commands that talk to one.
#[derive(Debug, Parser)]
#[command(name = "prombus", version, propagate_version = true, after_help = EXAMPLES)]
pub struct Cli {
    #[command(flatten)]
    pub hub: HubArgs,
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  prombus serve --data ./data
  prombus pub process.state '{\"status\":\"alive\"}' --key web1
  prombus sub process.state --group audit --from earliest
  prombus tail 'process.*'
  prombus get processes web1:stt:4242
  prombus at process.state web1:stt:4242 --at -15m
  prombus export process.state > events.ndjson";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a hub
    Serve(serve::ServeArgs),
    /// Run a hub in memory with sample heartbeats, the process projector and its collections
    Dev(serve::dev::DevArgs),
    /// Publish an event, or one per line of stdin
    Pub(commands::publish::PubArgs),
    /// Consume a topic as a member of a group, one event per line on stdout
    Sub(commands::sub::SubArgs),
    /// Follow topics live, without a group, one event per line on stdout
    Tail(commands::tail::TailArgs),
    /// List, show, create, alter and delete topics
    Topics(commands::topics::TopicsArgs),
    /// List, show, alter, reset and delete consumer groups, and skip stuck events
    Groups(commands::groups::GroupsArgs),
    /// Read one document of a collection
    Get(commands::get::GetArgs),
    /// List documents of a collection
    List(commands::list::ListArgs),
    /// Read the state of a key, of all keys or of a document as it was at a time
    At(commands::at::AtArgs),
    /// List, show, configure and delete collections
    Collections(commands::collections::CollectionsArgs),
    /// List, show, define, rebuild and delete projections
    Projections(commands::projections::ProjectionsArgs),
    /// Commit acks, writes and publishes in one transaction
    Commit(commands::commit::CommitArgs),
    /// Serve one collection of a hub, read-only
    Snapshots(snapshots::SnapshotsArgs),
    /// Register, check and show schemas, set upcasters, and check a folder of schemas
    Schema(commands::schema::SchemaArgs),
    /// List, show and replay dead letters
    Dlq(commands::dlq::DlqArgs),
    /// Copy ranges of topics into other topics, in the hub
    Replay(commands::replay::ReplayArgs),
    /// Write the events of a topic to stdout, one JSON object per line
    Export(commands::export::ExportArgs),
    /// Publish events from stdin, in the format that export writes
    Import(commands::import::ImportArgs),
    /// Copy a running hub into a folder, or bring such a copy up to date
    Backup(commands::backup::BackupArgs),
    /// Move everything a hub keeps from a data folder to MongoDB, or back
    Move(commands::moving::MoveArgs),
    /// Verify every checksum and index of a data folder
    Check(commands::check::CheckArgs),
    /// Put load on a running hub and measure it
    Bench(bench::BenchArgs),
    /// Check whether a hub is ready (exit code 0)
    Health(commands::health::HealthArgs),
    /// Print a shell completion script
    Completions(commands::completions::CompletionsArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn each(command: &clap::Command, visit: &mut impl FnMut(&clap::Command)) {
        visit(command);
        command.get_subcommands().for_each(|sub| each(sub, visit));
    }

    #[test]
    fn definitions_make_sense() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_a_description_and_an_example_of_itself() {
        each(&Cli::command(), &mut |command| {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name} has no description");
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Example"), "{name} has no example");
            assert!(help.contains(&format!("prombus {name}")) || help.contains(name), "{name}: {help}");
        });
    }

    #[test]
    fn every_option_is_explained() {
        each(&Cli::command(), &mut |command| {
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
            }
        });
    }
}
