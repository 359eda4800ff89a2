//! `prombus topics`: lists, shows, creates, alters, cleans, trims and deletes topics, and forgets keys.

mod settings;

use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use crate::output::{self, Record};
use crate::say;
use clap::{Args, Subcommand};
use prombus_client::{CleanAnswer, Client, PartitionBounds, TopicAnswer, TrimRequest};
use prombus_core::TopicPatch;
use settings::Settings;

const EXAMPLES: &str = "\
Examples:
  prombus topics list
  prombus topics create process.state --partitions 8 --compaction true";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TopicsArgs {
    #[command(subcommand)]
    command: TopicsCommand,
}

#[derive(Debug, Subcommand)]
enum TopicsCommand {
    /// List all topics
    #[command(after_help = "Example:\n  prombus topics list")]
    List,
    /// Show one topic and its partitions
    #[command(after_help = "Example:\n  prombus topics show process.state")]
    Show {
        /// Topic to show
        topic: String,
    },
    /// Create a topic
    #[command(
        after_help = "Example:\n  prombus topics create process.state --partitions 8 --durability interval"
    )]
    Create {
        /// Topic to create
        topic: String,
        #[command(flatten)]
        settings: Settings,
    },
    /// Change the settings you name; the others stay as they are
    #[command(after_help = "Example:\n  prombus topics alter process.state --durability sync")]
    Alter {
        /// Topic to change
        topic: String,
        #[command(flatten)]
        settings: Settings,
    },
    /// Run a cleaning pass now: remove expired and compacted events
    ///
    /// The hub also does this every store.clean_every_ms. Returns when the pass is done.
    #[command(after_help = "Example:\n  prombus topics clean process.state")]
    Clean {
        /// Topic to clean
        topic: String,
    },
    /// Remove the events of a partition below an offset; this cannot be undone
    ///
    /// If partitions were added to the topic, earlier events of the removed keys in lower partitions are removed too,
    /// unless newer events of these keys are left.
    #[command(after_help = "Example:\n  prombus topics trim process.state --partition 0 --before 1000")]
    Trim {
        /// Topic to trim
        topic: String,
        /// Partition to trim
        #[arg(long, value_name = "N")]
        partition: u32,
        /// First offset to keep
        #[arg(long, value_name = "OFFSET")]
        before: u64,
    },
    /// Permanently erase a key: its events, their dead letters and snapshots, and the documents derived from them
    ///
    /// They are unreadable at once, and erased from disk by the next cleaning pass. Backups and copies in other topics
    /// are not affected.
    #[command(after_help = "Example:\n  prombus topics forget process.state web1:stt:4242")]
    Forget {
        /// Topic of the key
        topic: String,
        /// Key to forget
        key: String,
    },
    /// Delete a topic and all of its events; their disk space is freed in the background
    #[command(after_help = "Example:\n  prombus topics delete process.state")]
    Delete {
        /// Topic to delete
        topic: String,
    },
}

pub fn run(hub: &HubArgs, args: TopicsArgs) -> Result<(), Failure> {
    let client = hub.client()?;
    hub::block_on(async {
        match args.command {
            TopicsCommand::List => write(&client.topics().await?),
            TopicsCommand::Show { topic } => match client.topic(&topic).await? {
                Some(answer) => write(&[answer]),
                None => Err(missing(&topic)),
            },
            TopicsCommand::Create { topic, settings } => create(&client, &topic, settings).await,
            TopicsCommand::Alter { topic, settings } => alter(&client, &topic, settings).await,
            TopicsCommand::Clean { topic } => cleaned(&topic, &client.clean_topic(&topic).await?),
            TopicsCommand::Trim { topic, partition, before } => {
                let bounds = client.trim_topic(&topic, &TrimRequest { partition, before }).await?;
                output::write_records(&BOUNDS, &[bounds_record(&bounds)?])
            }
            TopicsCommand::Forget { topic, key } => {
                let answer = client.forget_key(&topic, &key).await?;
                output::write_records(&["events"], &[Record::of(&answer, vec![answer.events.to_string()])?])
            }
            TopicsCommand::Delete { topic } => {
                client.delete_topic(&topic).await?;
                say!("topic {topic} deleted");
                Ok(())
            }
        }
    })
}

/// The columns of what a partition holds.
const BOUNDS: [&str; 4] = ["partition", "first", "next", "horizon_ts"];

fn bounds_record(bounds: &PartitionBounds) -> Result<Record, Failure> {
    let PartitionBounds { partition, first, next, horizon_ts } = bounds;
    let cells = [partition.to_string(), first.to_string(), next.to_string(), horizon_ts.to_string()];
    Record::of(bounds, cells.to_vec())
}

/// For a person what each partition holds, and a line about what went; for a program the whole answer.
fn cleaned(topic: &str, answer: &CleanAnswer) -> Result<(), Failure> {
    if !output::is_terminal() {
        return output::write_records(&[], &[Record::of(answer, Vec::new())?]);
    }
    let events = output::counted(answer.reclaimed_events, "event");
    say!("topic {topic} cleaned: {events} removed, {} bytes", answer.reclaimed_bytes);
    let records = answer.partitions.iter().map(bounds_record).collect::<Result<Vec<_>, _>>()?;
    output::write_records(&BOUNDS, &records)
}

fn missing(topic: &str) -> Failure {
    Failure::Failed(format!("topic {topic} does not exist (not_found)"))
}

/// The hub uses the same call to create and to change a topic; here a typo must not do one instead of the other.
async fn create(client: &Client, topic: &str, settings: Settings) -> Result<(), Failure> {
    if client.topic(topic).await?.is_some() {
        let message = format!("topic {topic} already exists; change it with: prombus topics alter {topic}");
        return Err(Failure::Failed(message));
    }
    write(&[client.put_topic(topic, &settings.0).await?])
}

async fn alter(client: &Client, topic: &str, settings: Settings) -> Result<(), Failure> {
    let Settings(patch) = settings;
    if patch == TopicPatch::default() {
        return Err(Failure::Usage("nothing to change: name at least one setting, see --help".into()));
    }
    if client.topic(topic).await?.is_none() {
        return Err(missing(topic));
    }
    write(&[client.put_topic(topic, &patch).await?])
}

fn write(topics: &[TopicAnswer]) -> Result<(), Failure> {
    let columns =
        ["topic", "partitions", "events", "durability", "retention_ms", "retention_bytes", "compaction"];
    let record = |topic: &TopicAnswer| {
        let setting = |name: &str| match topic.config.get(name) {
            None => String::new(),
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        };
        let cell = |column: &&str| match *column {
            "topic" => topic.topic.clone(),
            "events" => topic.events.to_string(),
            name => setting(name),
        };
        Record::of(topic, columns.iter().map(cell).collect())
    };
    output::write_records(&columns, &topics.iter().map(record).collect::<Result<Vec<_>, _>>()?)
}
