//! Runs the process example against a hub.

use clap::Parser;
use prombus_client::{Client, ClientOptions, Token};
use prombus_process::{Projector, ProjectorOptions, beat_forever, set_up};
use std::error::Error;
use std::path::PathBuf;
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
    /// A PEM file with a certificate to trust, besides those of the system.
    #[arg(long, env = "PROMBUS_CA_CERT", value_name = "FILE")]
    ca_cert: Option<PathBuf>,
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

fn client(args: &Args) -> Result<Client, Box<dyn Error>> {
    let mut options = ClientOptions::default();
    if let Some(token) = &args.token {
        options = options.with_token(Token::fixed(token));
    }
    if let Some(file) = &args.ca_cert {
        let certificate =
            std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        options = options.with_extra_ca(certificate);
    }
    Ok(Client::with_options(&args.url, options)?)
}

async fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let client = client(&args)?;
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
