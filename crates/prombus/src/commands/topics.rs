//! `prombus topics`: lists, shows, creates, alters and deletes topics.

use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use crate::output::{self, Record};
use crate::say;
use clap::{Args, Subcommand};
use prombus_client::{Client, TopicAnswer};
use prombus_core::{Durability, SchemaMode, SnapshotConfig, TopicName, TopicPatch};

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
    /// Delete a topic and all of its events; their disk space is not freed yet
    #[command(after_help = "Example:\n  prombus topics delete process.state")]
    Delete {
        /// Topic to delete
        topic: String,
    },
}

/// What can be set on a topic.
#[derive(Debug, Args)]
struct Settings {
    /// Number of partitions; can only be increased
    #[arg(long, value_name = "N")]
    partitions: Option<u32>,
    /// Days to retain events; 0 for no limit (stored, but not acted on yet)
    #[arg(long, value_name = "DAYS")]
    retention_days: Option<u32>,
    /// Bytes to retain; the oldest events go first; 0 for no limit (stored, but not acted on yet)
    #[arg(long, value_name = "BYTES")]
    retention_bytes: Option<u64>,
    /// Whether to keep only the latest event of each key (stored, but not acted on yet)
    #[arg(long, value_name = "true|false", num_args = 0..=1, default_missing_value = "true")]
    compaction: Option<bool>,
    /// Minimum time to keep a superseded event (stored, but not acted on yet)
    #[arg(long, value_name = "MS")]
    min_compaction_lag_ms: Option<u64>,
    /// How long to keep a tombstone (stored, but not acted on yet)
    #[arg(long, value_name = "MS")]
    tombstone_retention_ms: Option<u64>,
    /// How long producers' ids are remembered for deduplication
    #[arg(long, value_name = "MS")]
    dedupe_window_ms: Option<u64>,
    /// When a publish is acknowledged: once flushed (sync) or once written (interval)
    #[arg(long, value_name = "sync|interval", value_parser = parse_durability)]
    durability: Option<Durability>,
    /// What the topic's schema does to a publish that violates it (stored, but not acted on yet)
    #[arg(long, value_name = "enforce|warn|off", value_parser = parse_schema_mode)]
    schema: Option<SchemaMode>,
    /// Whether publishes also go to the versioned topic (stored, but not acted on yet)
    #[arg(long, value_name = "true|false", num_args = 0..=1, default_missing_value = "true")]
    dual_write: Option<bool>,
    /// Topic to publish snapshots of changed keys to (stored, but not acted on yet)
    #[arg(long, value_name = "TOPIC", requires = "snapshot_every_ms", value_parser = parse_topic)]
    snapshot_topic: Option<TopicName>,
    /// Time between two snapshots (stored, but not acted on yet)
    #[arg(long, value_name = "MS", requires = "snapshot_topic")]
    snapshot_every_ms: Option<u64>,
}

fn parse_durability(text: &str) -> Result<Durability, String> {
    match text {
        "sync" => Ok(Durability::Sync),
        "interval" => Ok(Durability::Interval),
        _ => Err("use sync or interval".into()),
    }
}

fn parse_schema_mode(text: &str) -> Result<SchemaMode, String> {
    match text {
        "enforce" => Ok(SchemaMode::Enforce),
        "warn" => Ok(SchemaMode::Warn),
        "off" => Ok(SchemaMode::Off),
        _ => Err("use enforce, warn or off".into()),
    }
}

fn parse_topic(text: &str) -> Result<TopicName, String> {
    TopicName::parse(text).map_err(|error| error.to_string())
}

impl Settings {
    fn patch(self) -> TopicPatch {
        let snapshot = self.snapshot_topic.zip(self.snapshot_every_ms);
        TopicPatch {
            partitions: self.partitions,
            retention_days: self.retention_days,
            retention_bytes: self.retention_bytes,
            compaction: self.compaction,
            min_compaction_lag_ms: self.min_compaction_lag_ms,
            tombstone_retention_ms: self.tombstone_retention_ms,
            dedupe_window_ms: self.dedupe_window_ms,
            snapshot: snapshot.map(|(topic, every_ms)| Some(SnapshotConfig { topic, every_ms })),
            durability: self.durability,
            schema: self.schema,
            dual_write: self.dual_write,
        }
    }
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
            TopicsCommand::Delete { topic } => {
                client.delete_topic(&topic).await?;
                say!("topic {topic} deleted");
                Ok(())
            }
        }
    })
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
    write(&[client.put_topic(topic, &settings.patch()).await?])
}

async fn alter(client: &Client, topic: &str, settings: Settings) -> Result<(), Failure> {
    let patch = settings.patch();
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
        ["topic", "partitions", "events", "durability", "retention_days", "retention_bytes", "compaction"];
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
