//! `prombus groups`: lists, shows, alters, resets and deletes consumer groups, and skips stuck events.

use super::group_options::ChangedOptions;
use super::start::{self, PositionArg, Start, Values};
use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use crate::output::{self, Record};
use crate::say;
use clap::{Args, Subcommand};
use futures::{StreamExt, TryStreamExt};
use prombus_client::{
    Client, CursorAnswer, CursorPosition, CursorRequest, DryRun, GroupAnswer, GroupPartition, SkipRequest,
    Skipped,
};

/// How many topics to query for their groups at a time.
const TOPICS_AT_ONCE: usize = 8;

const EXAMPLES: &str = "\
Examples:
  prombus groups list
  prombus groups show process.state audit
  prombus groups alter process.state audit --max-attempts 10
  prombus groups reset process.state audit --to -2d --dry-run";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct GroupsArgs {
    #[command(subcommand)]
    command: GroupsCommand,
}

#[derive(Debug, Subcommand)]
enum GroupsCommand {
    /// List the groups of a topic, or of all topics
    #[command(after_help = "Example:\n  prombus groups list process.state")]
    List {
        /// Topic whose groups to list [default: all topics]
        topic: Option<String>,
    },
    /// Show one group: its options, members, and position in each partition
    #[command(after_help = "Example:\n  prombus groups show process.state audit")]
    Show {
        #[command(flatten)]
        named: NamedGroup,
    },
    /// Change the options you name, for all later deliveries; the others stay as they are
    #[command(after_help = ALTER_EXAMPLES)]
    Alter {
        #[command(flatten)]
        named: NamedGroup,
        #[command(flatten)]
        change: ChangedOptions,
    },
    /// Move a group to another position; its open leases become void
    #[command(after_help = RESET_EXAMPLES)]
    Reset {
        #[command(flatten)]
        named: NamedGroup,
        #[command(flatten)]
        place: ResetTarget,
        /// Change nothing; only report how many events would be delivered
        #[arg(long)]
        dry_run: bool,
    },
    /// Settle a stuck event, so that the group continues without it
    #[command(after_help = "Example:\n  prombus groups skip process.state audit --partition 0 --offset 1042")]
    Skip {
        #[command(flatten)]
        named: NamedGroup,
        /// Partition of the event
        #[arg(long, value_name = "P")]
        partition: u32,
        /// Offset of the event
        #[arg(long, value_name = "O")]
        offset: u64,
    },
    /// Delete a group; its topic keeps the events
    #[command(after_help = "Example:\n  prombus groups delete process.state audit")]
    Delete {
        #[command(flatten)]
        named: NamedGroup,
    },
}

const RESET_EXAMPLES: &str = "\
Examples:
  prombus groups reset process.state audit --to earliest --dry-run
  prombus groups reset process.state audit --to 2026-01-31T08:00:00Z
  prombus groups reset process.state audit --to 2026-01-31
  prombus groups reset process.state audit --to -15m
  prombus groups reset process.state audit --to offset:1042 --partition 0";

const ALTER_EXAMPLES: &str = "\
Examples:
  prombus groups alter process.state audit --max-attempts 10 --backoff-ms 500
  prombus groups alter process.state audit --filter 'event.payload.cpu_pct > 80'
  prombus groups alter process.state audit --no-filter";

/// Names a group.
#[derive(Debug, Args)]
struct NamedGroup {
    /// Topic of the group
    topic: String,
    /// Name of the group
    group: String,
}

/// Where a group is to go.
#[derive(Debug, Args)]
struct ResetTarget {
    /// New position; TIME is epoch milliseconds, RFC 3339, a date (midnight UTC), or relative to now (-15m, -2d)
    #[arg(long, visible_alias = "from", value_name = start::WORDS, value_parser = start::parse, allow_hyphen_values = true)]
    to: PositionArg,
    #[command(flatten)]
    values: Values,
    /// Offset to go to, with --to offset
    #[arg(long, value_name = "O")]
    offset: Option<u64>,
    /// Only this partition [default: all]
    #[arg(long, value_name = "P")]
    partition: Option<u32>,
}

impl ResetTarget {
    fn request(self, dry_run: bool) -> Result<CursorRequest, Failure> {
        let place = self.values.choose(("--to", Some(self.to)), self.offset)?;
        let (mut ts, mut after_id, mut offset) = (None, None, None);
        let from = match place.unwrap_or(Start::Earliest) {
            Start::Earliest => "earliest",
            Start::Latest => "latest",
            Start::Ts(at) => {
                ts = Some(at);
                "ts"
            }
            Start::AfterId(id) => {
                after_id = Some(id);
                "afterId"
            }
            Start::Offset(at) => {
                offset = Some(at);
                "offset"
            }
        };
        let (from, partition, dry_run) = (from.to_owned(), self.partition, dry_run.then_some(true));
        Ok(CursorRequest { from, ts, after_id, offset, partition, dry_run })
    }
}

pub fn run(hub: &HubArgs, args: GroupsArgs) -> Result<(), Failure> {
    let client = hub.client()?;
    hub::block_on(async {
        match args.command {
            GroupsCommand::List { topic: Some(topic) } => write(&client.groups(&topic).await?),
            GroupsCommand::List { topic: None } => write(&of_all_topics(&client).await?),
            GroupsCommand::Show { named } => show(&client, &named).await,
            GroupsCommand::Alter { named: NamedGroup { topic, group }, change } => {
                write(&[client.alter_group(&topic, &group, &change.0).await?])
            }
            GroupsCommand::Reset { named: NamedGroup { topic, group }, place, dry_run } => {
                let moved = client.set_cursor(&topic, &group, &place.request(dry_run)?).await;
                write_cursor(&moved.map_err(|error| start::refused(error, &topic))?)
            }
            GroupsCommand::Skip { named, partition, offset } => {
                skip(&client, &named, &SkipRequest { partition, offset }).await
            }
            GroupsCommand::Delete { named: NamedGroup { topic, group } } => {
                client.delete_group(&topic, &group).await?;
                say!("group {group} of topic {topic} deleted");
                Ok(())
            }
        }
    })
}

async fn of_all_topics(client: &Client) -> Result<Vec<GroupAnswer>, Failure> {
    let topics = futures::stream::iter(client.topics().await?);
    let groups = topics.map(async |topic| match client.groups(&topic.topic).await {
        // It was deleted after the topics were listed.
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        outcome => outcome,
    });
    Ok(groups.buffered(TOPICS_AT_ONCE).try_collect::<Vec<_>>().await?.concat())
}

async fn show(client: &Client, named: &NamedGroup) -> Result<(), Failure> {
    let NamedGroup { topic, group } = named;
    let Some(answer) = client.group(topic, group).await? else {
        let message = format!("group {group} of topic {topic} does not exist (not_found)");
        return Err(Failure::Failed(message));
    };
    write(std::slice::from_ref(&answer))?;
    // The line for programs has the partitions already.
    if output::is_terminal() {
        let partitions = answer.partitions.iter().map(|partition| row(partition_cells(partition)));
        output::write_all(b"\n")?;
        output::write_records(&PARTITION_COLUMNS, &partitions.collect::<Vec<_>>())?;
    }
    Ok(())
}

async fn skip(client: &Client, named: &NamedGroup, request: &SkipRequest) -> Result<(), Failure> {
    let NamedGroup { topic, group } = named;
    let skipped: Skipped = client.skip(topic, group, request).await?;
    let SkipRequest { partition, offset } = request;
    let event = format!("offset {offset} of partition {partition} of {topic}");
    match skipped.skipped {
        true => say!("group {group} continues without {event}"),
        false => say!("group {group} had already settled {event}"),
    }
    output::write_records(&["skipped"], &[Record::of(&skipped, vec![skipped.skipped.to_string()])?])
}

/// A row of a table for people; programs get its content in another line.
fn row(cells: Vec<String>) -> Record {
    Record { json: String::new(), cells }
}

fn or_empty<T: ToString>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

const COLUMNS: [&str; 10] =
    ["topic", "group", "mode", "ordering", "members", "partitions", "lag", "in_flight", "waiting", "lost"];

fn write(groups: &[GroupAnswer]) -> Result<(), Failure> {
    let record = |group: &GroupAnswer| {
        let option = |name: &str| match group.options.get(name) {
            Some(serde_json::Value::String(text)) => text.clone(),
            other => or_empty(other),
        };
        let sum =
            |what: fn(&GroupPartition) -> u64| group.partitions.iter().map(what).sum::<u64>().to_string();
        let cells = vec![
            group.topic.clone(),
            group.group.clone(),
            option("mode"),
            option("ordering"),
            group.members.len().to_string(),
            group.partitions.len().to_string(),
            sum(|partition| partition.lag),
            sum(|partition| partition.in_flight),
            sum(|partition| u64::from(partition.waiting.is_some())),
            group.lost.to_string(),
        ];
        Record::of(group, cells)
    };
    output::write_records(&COLUMNS, &groups.iter().map(record).collect::<Result<Vec<_>, _>>()?)
}

const PARTITION_COLUMNS: [&str; 10] =
    ["partition", "next", "tail", "lag", "lag_ms", "in_flight", "redelivered", "lost", "owner", "waiting"];

fn partition_cells(partition: &GroupPartition) -> Vec<String> {
    let waiting = partition.waiting.as_ref();
    vec![
        partition.partition.to_string(),
        partition.next.to_string(),
        partition.tail.to_string(),
        partition.lag.to_string(),
        partition.lag_ms.to_string(),
        partition.in_flight.to_string(),
        partition.redelivered.to_string(),
        partition.lost.to_string(),
        or_empty(partition.owner.as_ref()),
        or_empty(waiting.map(|waiting| format!("{} at offset {}", waiting.why, waiting.offset))),
    ]
}

const CURSOR_COLUMNS: [&str; 5] = ["partition", "next", "last_id", "last_ts", "events"];

fn write_cursor(cursor: &CursorAnswer) -> Result<(), Failure> {
    let cells = |position: &CursorPosition| {
        row(vec![
            position.partition.to_string(),
            position.next.to_string(),
            or_empty(position.last_id.as_ref()),
            or_empty(position.last_ts),
            or_empty(position.events),
        ])
    };
    if let Some(DryRun { events, exact, .. }) = cursor.dry_run {
        let most = if exact { "" } else { "at most " };
        say!("nothing was changed: the group would get {most}{}", output::counted(events, "event"));
    }
    let records = match output::is_terminal() {
        true => cursor.partitions.iter().map(cells).collect(),
        false => vec![Record::of(cursor, Vec::new())?],
    };
    output::write_records(&CURSOR_COLUMNS, &records)
}
