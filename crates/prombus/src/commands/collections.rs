//! `prombus collections`: lists and shows collections, and configures and deletes those that commits write.

use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use crate::output::{self, Record};
use crate::say;
use clap::{Args, Subcommand};
use prombus_client::{
    Client, CollectionAnswer, CollectionIndex, CollectionOwner, CollectionSettings, IndexAnswer, IndexState,
};

const EXAMPLES: &str = "\
Examples:
  prombus collections list
  prombus collections set orders --index customer,state --changefeed orders.changed";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CollectionsArgs {
    #[command(subcommand)]
    command: CollectionsCommand,
}

#[derive(Debug, Subcommand)]
enum CollectionsCommand {
    /// List all collections
    #[command(after_help = "Example:\n  prombus collections list")]
    List,
    /// Show one collection: its size, its owner and its indexes
    #[command(after_help = "Example:\n  prombus collections show processes")]
    Show {
        /// Collection to show
        collection: String,
    },
    /// Create a collection that commits write, or change the settings you name
    #[command(after_help = SET_EXAMPLES)]
    Set {
        /// Collection to create or change
        collection: String,
        #[command(flatten)]
        change: Change,
    },
    /// Delete a collection that commits write, with all its documents (a projection's is deleted with the projection)
    #[command(after_help = "Example:\n  prombus collections delete orders")]
    Delete {
        /// Collection to delete
        collection: String,
    },
}

const SET_EXAMPLES: &str = "\
Examples:
  prombus collections set orders --index customer,state --index placed_ts
  prombus collections set users --unique-index email
  prombus collections set orders --changefeed orders.changed
  prombus collections set orders --no-indexes --no-changefeed";

/// The settings to change.
#[derive(Debug, Default, Args)]
struct Change {
    /// Index on these comma-separated fields; may be repeated; the given indexes replace the existing ones
    #[arg(long = "index", value_name = "FIELDS", value_parser = parse_fields)]
    indexes: Vec<Fields>,
    /// Unique index on these comma-separated fields; otherwise like --index
    #[arg(long = "unique-index", value_name = "FIELDS", value_parser = parse_fields)]
    unique_indexes: Vec<Fields>,
    /// Remove all indexes
    #[arg(long, conflicts_with_all = ["indexes", "unique_indexes"])]
    no_indexes: bool,
    /// Topic to publish changes to, in the commit that makes them
    #[arg(long, value_name = "TOPIC")]
    changefeed: Option<String>,
    /// Stop publishing changes
    #[arg(long, conflicts_with = "changefeed")]
    no_changefeed: bool,
}

/// Fields of an index. A type of its own, because clap takes a list for several arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fields(Vec<String>);

fn parse_fields(text: &str) -> Result<Fields, String> {
    let fields: Vec<String> = text.split(',').map(str::to_owned).collect();
    if fields.iter().any(String::is_empty) {
        return Err("write it as field or field,field".into());
    }
    Ok(Fields(fields))
}

impl Change {
    /// The new settings of the collection, given the current ones.
    fn apply(self, mut settings: CollectionSettings) -> CollectionSettings {
        let given = |fields: Vec<Fields>, unique| {
            fields.into_iter().map(move |Fields(fields)| CollectionIndex { fields, unique })
        };
        let indexes: Vec<_> = given(self.indexes, false).chain(given(self.unique_indexes, true)).collect();
        if self.no_indexes || !indexes.is_empty() {
            settings.indexes = indexes;
        }
        if self.no_changefeed || self.changefeed.is_some() {
            settings.changefeed = self.changefeed;
        }
        settings
    }
}

pub fn run(hub: &HubArgs, args: CollectionsArgs) -> Result<(), Failure> {
    let client = hub.client()?;
    hub::block_on(async {
        match args.command {
            CollectionsCommand::List => write(&client.collections().await?),
            CollectionsCommand::Show { collection } => match client.collection(&collection).await? {
                Some(answer) => write(&[answer]),
                None => Err(Failure::Failed(format!("collection {collection} does not exist (not_found)"))),
            },
            CollectionsCommand::Set { collection, change } => set(&client, &collection, change).await,
            CollectionsCommand::Delete { collection } => {
                client.delete_collection(&collection).await?;
                say!("collection {collection} deleted");
                Ok(())
            }
        }
    })
}

async fn set(client: &Client, collection: &str, change: Change) -> Result<(), Failure> {
    let now = client.collection(collection).await?.map(|CollectionAnswer { indexes, changefeed, .. }| {
        let indexes = indexes.into_iter().map(|answer| answer.index).collect();
        CollectionSettings { indexes, changefeed }
    });
    let settings = change.apply(now.unwrap_or_default());
    write(&[client.put_collection(collection, &settings).await?])
}

/// An index in a table cell: its fields, and its state unless it is ready.
fn shown(answer: &IndexAnswer) -> String {
    let IndexAnswer { index, state } = answer;
    let unique = if index.unique { " unique" } else { "" };
    let state = match state {
        IndexState::Ready => String::new(),
        IndexState::Building { done, of } => format!(" building {done}/{of}"),
        IndexState::Failed { reason, .. } => format!(" failed: {reason}"),
    };
    format!("({}){unique}{state}", index.fields.join(","))
}

const COLUMNS: [&str; 6] = ["collection", "count", "size", "owner", "indexes", "changefeed"];

fn write(collections: &[CollectionAnswer]) -> Result<(), Failure> {
    let record = |collection: &CollectionAnswer| {
        let owner = match &collection.owner {
            CollectionOwner::Commits => "commits".to_owned(),
            CollectionOwner::Projection(name) => format!("projection {name}"),
        };
        let cells = vec![
            collection.name.clone(),
            collection.count.to_string(),
            collection.size.to_string(),
            owner,
            collection.indexes.iter().map(shown).collect::<Vec<_>>().join(" "),
            collection.changefeed.clone().unwrap_or_default(),
        ];
        Record::of(collection, cells)
    };
    output::write_records(&COLUMNS, &collections.iter().map(record).collect::<Result<Vec<_>, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields {
        parse_fields(text).unwrap()
    }

    #[test]
    fn fields_of_an_index_are_separated_by_commas() {
        assert_eq!(fields("host,name"), Fields(vec!["host".into(), "name".into()]));
        assert!(["", ",", "a,", "a,,b"].into_iter().all(|bad| parse_fields(bad).is_err()));
    }

    #[test]
    fn an_index_shows_how_far_it_is() {
        let index = CollectionIndex { fields: vec!["a".into(), "b".into()], unique: true };
        let shown = |state| shown(&IndexAnswer { index: index.clone(), state });
        assert_eq!(shown(IndexState::Ready), "(a,b) unique");
        assert_eq!(shown(IndexState::Building { done: 1, of: 2 }), "(a,b) unique building 1/2");
        let reason = "x and y have the same values".to_owned();
        let failed = IndexState::Failed { keys: vec!["x".into(), "y".into()], reason };
        assert_eq!(shown(failed), "(a,b) unique failed: x and y have the same values");
    }

    #[test]
    fn what_is_not_named_stays() {
        let now = CollectionSettings::default().with_index(["a"]).with_changefeed("t");
        assert_eq!(Change::default().apply(now.clone()), now);
        let change = Change { unique_indexes: vec![fields("b,c")], ..Change::default() };
        let expected = CollectionSettings::default().with_unique_index(["b", "c"]).with_changefeed("t");
        assert_eq!(change.apply(now.clone()), expected);
        let change = Change { no_indexes: true, no_changefeed: true, ..Change::default() };
        assert_eq!(change.apply(now), CollectionSettings::default());
    }
}
