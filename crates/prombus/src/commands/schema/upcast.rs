//! `prombus schema upcast`.

use super::read_json;
use crate::failure::Failure;
use crate::output;
use crate::say;
use clap::Args;
use prombus_client::{Client, UpcasterAnswer};

const EXAMPLES: &str = "\
Examples:
  prombus schema upcast process.state 1 upcasters/1.json
  echo '{\"ops\":[{\"rename\":[\"mem_mb\",\"mem_mib\"]},{\"remove\":[\"old\"]}]}' | prombus schema upcast process.state 1 -
  prombus schema upcast process.state 1 --show

The file; its ops are applied in order (values are CEL expressions over payload):
  {\"ops\": [{\"rename\": [\"from\", \"to\"]}, {\"set\": {\"path\": \"payload.a + 1\"}}, {\"remove\": [\"path\"]}]}";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct UpcastArgs {
    /// Topic whose events to upgrade
    topic: String,
    /// Version to upgrade from, to the next registered one
    from: u32,
    /// File with the upcaster, or - for stdin
    #[arg(
        value_name = "FILE|-",
        required_unless_present_any = ["show", "delete"],
        conflicts_with_all = ["show", "delete"]
    )]
    file: Option<String>,
    /// Show the upcaster that is set
    #[arg(long, conflicts_with = "delete")]
    show: bool,
    /// Delete the upcaster that is set
    #[arg(long)]
    delete: bool,
}

pub async fn run(client: &Client, args: &UpcastArgs) -> Result<(), Failure> {
    let UpcastArgs { topic, from, .. } = args;
    if let Some(file) = &args.file {
        let UpcasterAnswer { to, .. } = client.put_upcaster(topic, *from, &read_json(file)?).await?;
        let to = to.map_or_else(|| "the next one".to_owned(), |to| to.to_string());
        say!("upcaster of {topic} from version {from} to {to} set");
        return Ok(());
    }
    if args.delete {
        client.delete_upcaster(topic, *from).await?;
        say!("upcaster of {topic} from version {from} deleted");
        return Ok(());
    }
    match client.upcaster(topic, *from).await? {
        // In the form of the file, so that it can be set again.
        Some(UpcasterAnswer { ops, .. }) => output::write_all(format!("{{\"ops\":{ops}}}\n").as_bytes()),
        None => {
            Err(Failure::Failed(format!("topic {topic} has no upcaster from version {from} (not_found)")))
        }
    }
}
