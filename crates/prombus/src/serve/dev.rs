//! `prombus dev`: an in-memory hub that runs the process example.

use super::lifecycle;
use super::settings::{Environment, LOG_VARIABLE, Settings};
use super::{ServeArgs, logging};
use crate::failure::Failure;
use clap::Args;
use prombus_client::{Client, ClientError};
use prombus_process::{Projector, ProjectorOptions, beat_forever, set_up};
use std::net::SocketAddr;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  prombus dev
  prombus dev --listen 127.0.0.1:0
  prombus dev --no-sample

Then, elsewhere:
  prombus list processes status=alive
  prombus get host_stats web1
  curl -i localhost:7070/v1/collections/processes/snap/web1:api:1000";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DevArgs {
    /// Address to listen on; port 0 picks a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7070")]
    listen: String,
    /// Do not publish sample heartbeats
    #[arg(long)]
    no_sample: bool,
}

/// Runs a hub that forgets everything, until it is told to end.
pub fn run(args: &DevArgs) -> Result<(), Failure> {
    let flags = ServeArgs {
        listen: Some(args.listen.clone()),
        store: Some("memory".to_owned()),
        ..ServeArgs::default()
    };
    // What is set for a real hub does not matter here, but for how much it says.
    let variable = |name: &str| (Environment::real().variable)(name).filter(|_| name == LOG_VARIABLE);
    let environment = Environment { variable, folder: PathBuf::from("/nonexistent") };
    let settings = Settings::resolve(&flags, &environment)?;
    logging::start(settings.log_format, &settings.log_level);
    let sample = !args.no_sample;
    super::block_on(lifecycle::serve(settings, move |address| example(address, sample)))
}

/// The process example, until it is dropped.
async fn example(address: SocketAddr, sample: bool) {
    let run = async {
        let client = Client::new(&format!("http://{address}"), None)?;
        set_up(&client).await?;
        tracing::info!("the process example is running: see http://{address}/v1/collections/processes/list");
        let projector = Projector::new(client.clone(), ProjectorOptions::default());
        let beats = async {
            if sample {
                beat_forever(&client).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::join!(projector.run(std::future::pending()), beats);
        Ok::<(), ClientError>(())
    };
    if let Err(error) = run.await {
        tracing::error!(%error, "failed to run the process example");
    }
}
