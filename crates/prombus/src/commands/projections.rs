//! `prombus projections`: lists, shows, defines, rebuilds and deletes projections.

use super::definitions;
use super::input;
use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use crate::output::{self, Record};
use crate::progress;
use crate::say;
use clap::{Args, Subcommand};
use prombus_client::{Client, ProjectionAnswer, ProjectionPartition, ProjectionState};
use serde_json::Value;
use std::time::Duration;

/// How often the progress of a rebuild is polled.
const LOOK_EVERY: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  prombus projections list
  prombus projections put processes.toml
  prombus projections rebuild processes --wait";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ProjectionsArgs {
    #[command(subcommand)]
    command: ProjectionsCommand,
}

#[derive(Debug, Subcommand)]
enum ProjectionsCommand {
    /// List all projections
    #[command(after_help = "Example:\n  prombus projections list")]
    List,
    /// Show one projection: its definition, position, lag and errors
    #[command(after_help = "Example:\n  prombus projections show processes")]
    Show {
        /// Projection to show
        projection: String,
    },
    /// Define or redefine projections; changes apply to new events
    #[command(after_help = PUT_EXAMPLES)]
    Put {
        /// File with the definition, or - for stdin: TOML with [[projection]] tables, or a JSON object
        #[arg(value_name = "FILE|-")]
        file: String,
        /// Name of the projection, if the JSON object has none
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Delete a projection and its collections
    #[command(after_help = "Example:\n  prombus projections delete processes")]
    Delete {
        /// Projection to delete
        projection: String,
    },
    /// Rebuild the collections of a projection; readers see the old ones until it is done
    #[command(after_help = "Example:\n  prombus projections rebuild processes --wait")]
    Rebuild {
        /// Projection to rebuild
        projection: String,
        /// Rebuild even if part of the history is no longer retained
        #[arg(long)]
        partial: bool,
        /// Wait until the rebuild is done
        #[arg(long)]
        wait: bool,
    },
}

const PUT_EXAMPLES: &str = "\
Examples:
  prombus projections put processes.toml
  echo '{\"topic\":\"process.state\",\"collection\":\"processes\",\"key\":\"event.key\"}' | prombus projections put - --name processes";

pub fn run(hub: &HubArgs, args: ProjectionsArgs) -> Result<(), Failure> {
    let client = hub.client()?;
    hub::block_on(async {
        match args.command {
            ProjectionsCommand::List => write(&client.projections().await?),
            ProjectionsCommand::Show { projection } => show(&found(&client, &projection).await?),
            ProjectionsCommand::Put { file, name } => put(&client, &file, name).await,
            ProjectionsCommand::Delete { projection } => {
                client.delete_projection(&projection).await?;
                say!("projection {projection} deleted");
                Ok(())
            }
            ProjectionsCommand::Rebuild { projection, partial, wait } => {
                let begun = client.rebuild(&projection, partial).await?;
                if !wait {
                    say!("projection {projection} is being rebuilt");
                    return write(&[begun]);
                }
                write(&[until_rebuilt(&client, begun).await?])
            }
        }
    })
}

async fn found(client: &Client, name: &str) -> Result<ProjectionAnswer, Failure> {
    let missing = || Failure::Failed(format!("projection {name} does not exist (not_found)"));
    client.projection(name).await?.ok_or_else(missing)
}

async fn put(client: &Client, file: &str, name: Option<String>) -> Result<(), Failure> {
    let bad = |why: String| Failure::Usage(format!("{}: {why}", input::name(file)));
    let named = definitions::parse(&input::read(file)?, name).map_err(bad)?;
    let mut put = Vec::new();
    for (name, definition) in named {
        let answer = client.put_projection(&name, &definition).await?;
        if answer.stale {
            say!(
                "the documents of projection {name} are from an earlier definition: rebuild it to update them"
            );
        }
        put.push(answer);
    }
    write(&put)
}

/// Waits for the end of a rebuild, and shows its progress.
async fn until_rebuilt(client: &Client, mut now: ProjectionAnswer) -> Result<ProjectionAnswer, Failure> {
    let (name, wanted) = (now.name.clone(), now.definition.clone());
    let bar = progress::bar(now.rebuild.map_or(0, |rebuild| rebuild.lag), "events");
    let mut failed = 0;
    while let Some(rebuild) = now.rebuild {
        failed = rebuild.failed;
        // Events that arrive in the meantime have to be processed as well.
        let total = bar.length().unwrap_or(0).max(rebuild.lag);
        bar.set_length(total);
        bar.set_position(total - rebuild.lag);
        // The hub sends no notification, so it is polled.
        tokio::time::sleep(LOOK_EVERY).await;
        now = found(client, &name).await?;
    }
    bar.finish_and_clear();
    if let Some(why) = not_rebuilt(&now, &wanted) {
        return Err(Failure::Failed(format!("projection {name} was not rebuilt: {why}")));
    }
    if failed > 0 {
        say!("{} failed in it", output::counted(failed, "event"));
    }
    say!("projection {name} is rebuilt");
    Ok(now)
}

/// Why a rebuild by this definition is over, and its collections are not in place.
fn not_rebuilt<'a>(now: &'a ProjectionAnswer, wanted: &Value) -> Option<&'a str> {
    if now.definition != *wanted {
        return Some("it was redefined meanwhile");
    }
    let stopped = || now.reason.as_deref().unwrap_or("it has stopped");
    now.rebuild_error.as_deref().or_else(|| (now.state == ProjectionState::Stopped).then(stopped))
}

fn show(projection: &ProjectionAnswer) -> Result<(), Failure> {
    write(std::slice::from_ref(projection))?;
    // The line for programs has all of it already.
    if output::is_terminal() {
        let definition = serde_json::to_string_pretty(&projection.definition).unwrap_or_default();
        output::write_all(format!("\n{definition}\n\n").as_bytes())?;
        let rows: Vec<_> = projection.partitions.iter().map(partition_row).collect();
        output::write_records(&PARTITION_COLUMNS, &rows)?;
    }
    Ok(())
}

const PARTITION_COLUMNS: [&str; 4] = ["partition", "next", "tail", "lag"];

fn partition_row(partition: &ProjectionPartition) -> Record {
    let ProjectionPartition { partition, next, tail, lag } = *partition;
    let cells = [u64::from(partition), next, tail, lag].map(|number| number.to_string());
    Record { json: String::new(), cells: cells.to_vec() }
}

const COLUMNS: [&str; 9] =
    ["projection", "kind", "topic", "collections", "state", "lag", "errors", "rebuild", "why"];

fn write(projections: &[ProjectionAnswer]) -> Result<(), Failure> {
    let record = |projection: &ProjectionAnswer| {
        let stale = if projection.stale { ", stale" } else { "" };
        let why = projection.reason.as_ref().or(projection.last_error.as_ref());
        let cells = vec![
            projection.name.clone(),
            projection.kind.clone(),
            projection.topic.clone(),
            projection.collections.join(" "),
            format!("{}{stale}", projection.state),
            projection.lag.to_string(),
            projection.errors.to_string(),
            projection.rebuild.map(|rebuild| format!("{} to go", rebuild.lag)).unwrap_or_default(),
            why.cloned().unwrap_or_default(),
        ];
        Record::of(projection, cells)
    };
    output::write_records(&COLUMNS, &projections.iter().map(record).collect::<Result<Vec<_>, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_rebuild_that_is_over_and_has_changed_nothing_is_told_as_such() {
        let wanted = json!({"topic": "t"});
        let now = |change: Value| -> ProjectionAnswer {
            let mut now = json!({
                "name": "p", "kind": "changelog", "topic": "t", "collections": ["c"], "definition": &wanted,
                "state": "running", "stale": false, "lag": 0, "partitions": [], "errors": 0, "rebuild": null,
                // Of an event that failed.
                "last_error": "no such key",
            });
            now.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            serde_json::from_value(now).unwrap()
        };
        assert_eq!(not_rebuilt(&now(json!({})), &wanted), None);
        let given_up = now(json!({"rebuild_error": "the topic was deleted meanwhile"}));
        assert_eq!(not_rebuilt(&given_up, &wanted), Some("the topic was deleted meanwhile"));
        let stopped = now(json!({"state": "stopped", "reason": "it is gone"}));
        assert_eq!(not_rebuilt(&stopped, &wanted), Some("it is gone"));
        let other = now(json!({"definition": {"topic": "u"}}));
        assert_eq!(not_rebuilt(&other, &wanted), Some("it was redefined meanwhile"));
    }
}
