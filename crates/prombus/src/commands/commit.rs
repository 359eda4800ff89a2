//! `prombus commit`: sends acks, writes and publishes from a file as one transaction.

use super::input;
use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use crate::output;
use clap::Args;
use prombus_client::ClientError;
use serde_json::value::RawValue;

const EXAMPLES: &str = "\
Examples:
  prombus commit move.json
  echo '{\"writes\":[{\"collection\":\"orders\",\"key\":\"o-17\",\"set\":{\"state\":\"paid\"},\"if_version\":0}]}' | prombus commit -

The file, which is committed as a whole or not at all:
  {\"commit_id\"?, \"ack\": [lease], \"publish\": [{\"topic\", \"payload\", ...}],
   \"writes\": [{\"collection\", \"key\", \"set\"|\"merge\"|\"inc\"|\"delete\", \"if_version\"?}]}";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CommitArgs {
    /// File with the commit as JSON, or - for stdin
    #[arg(value_name = "FILE|-")]
    file: String,
}

pub fn run(hub: &HubArgs, args: &CommitArgs) -> Result<(), Failure> {
    let client = hub.client()?;
    let text = input::read(&args.file)?;
    let commit: &RawValue = serde_json::from_str(&text)
        .map_err(|error| Failure::Usage(format!("{} is not JSON: {error}", input::name(&args.file))))?;
    hub::block_on(async {
        let answer = client.commit_json(commit).await.map_err(ClientError::from)?;
        output::write_all(format!("{answer}\n").as_bytes())
    })
}
