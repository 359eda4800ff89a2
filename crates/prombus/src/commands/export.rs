//! `prombus export`: writes a topic to stdout as NDJSON, in constant memory.

use super::start::{self, PositionArg, Start, Values};
use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use crate::output;
use crate::progress;
use crate::say;
use crate::time::{self, Moment};
use clap::Args;
use futures::TryStreamExt;
use prombus_client::{Client, ReadFrom, ReadQuery};
use std::io::Write;
use std::pin::pin;

const EXAMPLES: &str = "\
Examples:
  prombus export process.state > events.ndjson
  prombus export process.state --key web1 --from -2d --to -1d --filter 'event.payload.cpu_pct > 80'";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ExportArgs {
    /// Topic to export
    topic: String,
    /// Only this partition
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// Where to start; TIME is epoch milliseconds, RFC 3339, a date (midnight UTC), or relative to now (-15m, -2d) [default: earliest]
    #[arg(long, value_name = start::WORDS, value_parser = start::parse, allow_hyphen_values = true)]
    from: Option<PositionArg>,
    /// Only events up to and including this time; latest means the end of the topic [default: latest]
    #[arg(long, value_name = "TIME|latest", value_parser = parse_end, allow_hyphen_values = true)]
    to: Option<Moment>,
    /// The same as --from TIME
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true, conflicts_with = "from")]
    from_ts: Option<u64>,
    /// The same as --to TIME
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true, conflicts_with = "to")]
    to_ts: Option<u64>,
    /// Only events of this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only events that match this CEL expression over `event`
    #[arg(long, value_name = "CEL")]
    filter: Option<String>,
}

/// Parses a time for clap. `earliest` is not suggested, because it makes no sense as an end.
fn parse_end(text: &str) -> Result<Moment, String> {
    time::parse_moment(text).map_err(|_| format!("{text:?} is not a valid time: use latest, {}", time::WORDS))
}

pub fn run(hub: &HubArgs, args: ExportArgs) -> Result<(), Failure> {
    let client = hub.client()?;
    let ExportArgs { topic, partition, from, to, from_ts, to_ts, key, filter } = args;
    let values = Values { ts: from_ts, ..Values::default() };
    let from = match values.choose(("--from", from), None)? {
        None | Some(Start::Earliest) => ReadFrom::Earliest,
        Some(Start::Latest) => ReadFrom::Latest,
        Some(Start::Ts(ts)) => ReadFrom::Ts(ts),
        Some(Start::AfterId(id)) => ReadFrom::AfterId(id),
        Some(Start::Offset(offset)) => ReadFrom::Offset(offset),
    };
    let to_ts = match to {
        None => to_ts,
        Some(Moment::Latest) => None,
        Some(Moment::At(ts)) => Some(ts),
        Some(Moment::Earliest) => {
            return Err(Failure::Usage(
                "--to earliest leaves nothing to export; use latest or a time".into(),
            ));
        }
    };
    let query = ReadQuery { from, partition, key, to_ts, filter };
    hub::block_on(export(&client, &topic, &query))
}

async fn export(client: &Client, topic: &str, query: &ReadQuery) -> Result<(), Failure> {
    let pieces = client.export(topic, query).await.map_err(|error| start::refused(error, topic))?;
    let mut pieces = pin!(pieces);
    let progress = progress::counter("events");
    let mut events = 0;
    let mut out = output::buffered();
    // Writing blocks this thread only: the connection has its own.
    while let Some(piece) = pieces.try_next().await.map_err(|error| incomplete(events, &error))? {
        out.write_all(&piece).map_err(Failure::of_output)?;
        events += memchr::memchr_iter(b'\n', &piece).count() as u64;
        progress.set_position(events);
    }
    out.flush().map_err(Failure::of_output)?;
    progress.finish_and_clear();
    say!("{} exported from {topic}", output::counted(events, "event"));
    Ok(())
}

fn incomplete(events: u64, error: &prombus_client::ClientError) -> Failure {
    Failure::Failed(format!(
        "the export is incomplete, it ends after {}: {error}",
        output::counted(events, "event")
    ))
}
