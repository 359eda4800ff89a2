//! `prombus health`: whether a hub is ready, for those who run it and have no other tool at hand.

use crate::failure::Failure;
use crate::hub::{HubArgs, block_on};
use crate::say;
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  prombus health
  prombus health --url https://hub.example:7070 || echo 'not ready'";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct HealthArgs {}

/// Succeeds if the hub is ready.
pub fn run(hub: &HubArgs, _: &HealthArgs) -> Result<(), Failure> {
    let client = hub.client()?;
    block_on(async { Ok(client.check_ready().await?) })?;
    say!("the hub at {} is ready", client.url());
    Ok(())
}
