//! `prombus get`: prints one document of a collection.

use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use crate::output;
use clap::Args;
use prombus_client::{GetOptions, Lookup, MinOffset};

const EXAMPLES: &str = "\
Examples:
  prombus get processes web1:stt:4242
  prombus get processes web1:stt:4242 --min-offset 1042
  prombus get processes web1:stt:4242 --min-offset 3:1042";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct GetArgs {
    /// Collection to read from
    collection: String,
    /// Key of the document
    key: String,
    /// Wait up to 5 s until the projection has processed this offset; PARTITION:OFFSET if the topic has
    /// several partitions
    #[arg(long, value_name = "OFFSET|PARTITION:OFFSET")]
    min_offset: Option<MinOffset>,
}

pub fn run(hub: &HubArgs, args: GetArgs) -> Result<(), Failure> {
    let client = hub.client()?;
    let GetArgs { collection, key, min_offset } = args;
    let options = GetOptions { min_offset, ..GetOptions::default() };
    hub::block_on(async {
        match client.get_with(&collection, &key, &options).await? {
            Lookup::Found(document) => output::write_all(format!("{}\n", document.json).as_bytes()),
            Lookup::Unchanged | Lookup::Missing => {
                let message = format!("collection {collection} has no document {key:?} (not_found)");
                Err(Failure::Failed(message))
            }
        }
    })
}
