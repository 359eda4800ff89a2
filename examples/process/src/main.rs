//! Runs the process example against a hub.

use clap::Parser;
use prombus_client::{Client, ClientError};
use prombus_process::{Projector, ProjectorOptions, beat_forever, set_up};
use std::process::ExitCode;

/// Makes the live state of processes of their heartbeats.
///
/// Example:
///
///   prombus-process --url http://127.0.0.1:7070 --sample
#[derive(Parser)]
#[command(verbatim_doc_comment)]
struct Args {
    /// The hub.
    #[arg(long, env = "PROMBUS_URL", default_value = "http://127.0.0.1:7070")]
    url: String,
    /// The token for it.
    #[arg(long, env = "PROMBUS_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Has some sample processes beat.
    #[arg(long)]
    sample: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the example cannot run");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), ClientError> {
    let client = Client::new(&args.url, args.token.as_deref())?;
    set_up(&client).await?;
    tracing::info!(url = args.url, "the projector runs; Ctrl-C ends it");
    let shutdown = async { drop(tokio::signal::ctrl_c().await) };
    let projector = Projector::new(client.clone(), ProjectorOptions::default());
    if args.sample {
        tokio::select! {
            () = projector.run(shutdown) => {}
            () = beat_forever(&client) => {}
        }
    } else {
        projector.run(shutdown).await;
    }
    Ok(())
}
