//! `prombus replay`: copies ranges of topics into other ones, in the hub.

use super::start::{self, PositionArg, Start, Values};
use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use crate::output::{self, Record};
use crate::progress;
use crate::say;
use crate::time;
use clap::{Args, Subcommand};
use prombus_client::{
    BulkReplayAnswer, BulkReplayMap, BulkReplayRequest, BulkReplaySource, BulkReplayState, Client,
};
use std::time::Duration;

/// How often the progress of a replay is polled.
const LOOK_EVERY: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  prombus replay start orders-eu orders orders.eu --filter 'event.payload.region == \"eu\"' --wait
  prombus replay list
  prombus replay pause orders-eu";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReplayArgs {
    #[command(subcommand)]
    command: ReplayCommand,
}

#[derive(Debug, Subcommand)]
enum ReplayCommand {
    /// Start copying a range of a topic into another one
    #[command(after_help = START_EXAMPLES)]
    Start(Box<StartArgs>),
    /// List all replays
    #[command(after_help = "Example:\n  prombus replay list")]
    List,
    /// Show one replay: its progress, counts and last errors
    #[command(after_help = "Example:\n  prombus replay show orders-eu")]
    Show {
        /// Name of the replay
        name: String,
    },
    /// Pause a replay
    #[command(after_help = "Example:\n  prombus replay pause orders-eu")]
    Pause {
        /// Name of the replay
        name: String,
    },
    /// Resume a replay that was paused or has failed
    #[command(after_help = "Example:\n  prombus replay resume orders-eu --wait")]
    Resume {
        /// Name of the replay
        name: String,
        /// Wait until it ends
        #[arg(long)]
        wait: bool,
    },
    /// Cancel a replay; what was copied stays
    #[command(after_help = "Example:\n  prombus replay cancel orders-eu")]
    Cancel {
        /// Name of the replay
        name: String,
    },
    /// Delete the record of a replay that is over
    #[command(after_help = "Example:\n  prombus replay delete orders-eu")]
    Delete {
        /// Name of the replay
        name: String,
    },
}

const START_EXAMPLES: &str = "\
Examples:
  prombus replay start orders-eu orders orders.eu --filter 'event.payload.region == \"eu\"' --wait
  prombus replay start again orders orders.test --from -2d --to-ts -1d --rate 1000
  prombus replay start by-customer orders orders.by-customer --map-key event.payload.customer --dry-run";

#[derive(Debug, Args)]
struct StartArgs {
    /// Name of the replay, which is used once
    name: String,
    /// Topic to read
    source: String,
    /// Topic to copy to
    target: String,
    /// Where to start [default: earliest]
    #[arg(long, value_name = start::WORDS, value_parser = start::parse, allow_hyphen_values = true)]
    from: Option<PositionArg>,
    /// Only events up to this time: epoch milliseconds, RFC 3339, a date (midnight UTC), or relative to now
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    to_ts: Option<u64>,
    /// Only this partition
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// Only events that match this CEL expression over `event`
    #[arg(long, value_name = "CEL")]
    filter: Option<String>,
    /// Payload of the copies: a CEL expression over `event` [default: the payload of the event]
    #[arg(long, value_name = "CEL")]
    map_payload: Option<String>,
    /// Key of the copies: a CEL expression over `event`; null for none [default: the key of the event]
    #[arg(long, value_name = "CEL")]
    map_key: Option<String>,
    /// Maximum number of copies per second [default: no limit]
    #[arg(long, value_name = "N")]
    rate: Option<u64>,
    /// Copy nothing; only report how many events would be copied
    #[arg(long)]
    dry_run: bool,
    /// Wait until the replay ends
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
}

pub fn run(hub: &HubArgs, args: ReplayArgs) -> Result<(), Failure> {
    let client = hub.client()?;
    hub::block_on(async {
        match args.command {
            ReplayCommand::Start(args) => begin(&client, *args).await,
            ReplayCommand::List => write(&client.bulk_replays().await?),
            ReplayCommand::Show { name } => show(&found(&client, &name).await?),
            ReplayCommand::Pause { name } => write(&[client.pause_bulk_replay(&name).await?]),
            ReplayCommand::Resume { name, wait } => {
                let resumed = client.resume_bulk_replay(&name).await?;
                write_when_over(&client, resumed, wait).await
            }
            ReplayCommand::Cancel { name } => write(&[client.cancel_bulk_replay(&name).await?]),
            ReplayCommand::Delete { name } => {
                client.delete_bulk_replay(&name).await?;
                say!("replay {name} deleted");
                Ok(())
            }
        }
    })
}

async fn begin(client: &Client, args: StartArgs) -> Result<(), Failure> {
    let StartArgs {
        name,
        source,
        target,
        from,
        to_ts,
        partition,
        filter,
        map_payload,
        map_key,
        rate,
        dry_run,
        wait,
    } = args;
    let place = |from: &str| BulkReplaySource { from: Some(from.to_owned()), ..BulkReplaySource::default() };
    let place = match Values::default().choose(("--from", from), None)? {
        None | Some(Start::Earliest) => place("earliest"),
        Some(Start::Latest) => place("latest"),
        Some(Start::Ts(ts)) => BulkReplaySource { ts: Some(ts), ..place("ts") },
        Some(Start::AfterId(id)) => BulkReplaySource { after_id: Some(id), ..place("afterId") },
        Some(Start::Offset(offset)) => BulkReplaySource { offset: Some(offset), ..place("offset") },
    };
    let is_mapped = map_payload.is_some() || map_key.is_some();
    let request = BulkReplayRequest {
        name,
        source: BulkReplaySource { topic: source.clone(), partition, to_ts, ..place },
        filter,
        map: is_mapped.then_some(BulkReplayMap { payload: map_payload, key: map_key }),
        target,
        rate_per_s: rate,
        dry_run: dry_run.then_some(true),
    };
    let begun = client.begin_bulk_replay(&request).await.map_err(|error| start::refused(error, &source))?;
    if dry_run {
        say!("{} of {} would be copied", output::counted(begun.copied, "event"), begun.read);
        return write(&[begun]);
    }
    write_when_over(client, begun, wait).await
}

async fn found(client: &Client, name: &str) -> Result<BulkReplayAnswer, Failure> {
    let missing = || Failure::Failed(format!("replay {name} does not exist (not_found)"));
    client.bulk_replay(name).await?.ok_or_else(missing)
}

/// Shows how a replay is doing; at once, or when it has ended.
async fn write_when_over(client: &Client, mut now: BulkReplayAnswer, wait: bool) -> Result<(), Failure> {
    let name = now.request.name.clone();
    if !wait {
        say!("replay {name} is {}", now.state);
        return write(&[now]);
    }
    let bar = progress::bar(now.left, "events");
    let total = now.left;
    while now.state == BulkReplayState::Running {
        bar.set_position(total.saturating_sub(now.left));
        // The hub sends no notification, so it is polled.
        tokio::time::sleep(LOOK_EVERY).await;
        now = found(client, &name).await?;
    }
    bar.finish_and_clear();
    write(std::slice::from_ref(&now))?;
    match (now.state, now.reason) {
        (BulkReplayState::Done, _) => Ok(()),
        (state, Some(reason)) => Err(Failure::Failed(format!("replay {name} is {state}: {reason}"))),
        (state, None) => Err(Failure::Failed(format!("replay {name} is {state}"))),
    }
}

fn show(replay: &BulkReplayAnswer) -> Result<(), Failure> {
    write(std::slice::from_ref(replay))?;
    // The line for programs has all of it already.
    if output::is_terminal() {
        let request = serde_json::to_string_pretty(&replay.request).unwrap_or_default();
        output::write_all(format!("\n{request}\n\n").as_bytes())?;
        let row = |error: &prombus_client::BulkReplayError| {
            let place = [error.partition.to_string(), error.offset.to_string(), error.id.clone()];
            let cells = place.into_iter().chain([error.error.clone()]).collect();
            Record { json: String::new(), cells }
        };
        let rows: Vec<_> = replay.last_errors.iter().map(row).collect();
        output::write_records(&["partition", "offset", "id", "error"], &rows)?;
    }
    Ok(())
}

const COLUMNS: [&str; 9] =
    ["replay", "source", "target", "state", "copied", "errors", "left", "seconds to go", "why"];

fn write(replays: &[BulkReplayAnswer]) -> Result<(), Failure> {
    let record = |replay: &BulkReplayAnswer| {
        let cells = vec![
            replay.request.name.clone(),
            replay.request.source.topic.clone(),
            replay.request.target.clone(),
            replay.state.to_string(),
            replay.copied.to_string(),
            replay.errors.to_string(),
            replay.left.to_string(),
            replay.left_ms.map(|ms| ms.div_ceil(1_000).to_string()).unwrap_or_default(),
            replay.reason.clone().unwrap_or_default(),
        ];
        Record::of(replay, cells)
    };
    output::write_records(&COLUMNS, &replays.iter().map(record).collect::<Result<Vec<_>, _>>()?)
}
