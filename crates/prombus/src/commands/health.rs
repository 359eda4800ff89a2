//! `prombus health`: whether a hub is ready, for operators who have no other tool at hand.

use super::retry::Retry;
use crate::failure::Failure;
use crate::hub::{HubArgs, block_on};
use crate::say;
use clap::Args;
use prombus_client::Client;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  prombus health
  prombus health --wait 30
  prombus health --url https://hub.example:7070 || echo 'not ready'";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct HealthArgs {
    /// Wait up to this long for the hub to become ready
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    wait: u64,
}

/// Succeeds if the hub is ready.
pub fn run(hub: &HubArgs, args: &HealthArgs) -> Result<(), Failure> {
    let client = hub.client()?;
    block_on(check(&client, Duration::from_secs(args.wait)))?;
    say!("the hub at {} is ready", client.url());
    Ok(())
}

async fn check(client: &Client, wait: Duration) -> Result<(), Failure> {
    let mut retry = Retry::new();
    let ready = retry.until_answered(async || client.check_ready().await);
    if !wait.is_zero()
        && let Ok(outcome) = tokio::time::timeout(wait, ready).await
    {
        return outcome;
    }
    // Its error says what is still missing.
    Ok(client.check_ready().await?)
}
