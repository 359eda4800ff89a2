//! `prombus topics`: lists, shows, creates, alters and deletes topics.

mod settings;

use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use crate::output::{self, Record};
use crate::say;
use clap::{Args, Subcommand};
use prombus_client::{Client, TopicAnswer};
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
    /// Delete a topic and all of its events; their disk space is not freed yet
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
