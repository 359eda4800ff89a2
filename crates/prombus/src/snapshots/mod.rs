//! `prombus snapshots`: serves one collection of a hub, read-only, at its own address.
//!
//! It is stateless: each request is forwarded to the hub with its conditions, and the answer is passed through unchanged.
//! So caches in front of it work as they do in front of the hub.

mod forwarding;
mod listen;

use crate::failure::Failure;
use crate::hub::HubArgs;
use crate::serve::signals::Signals;
use crate::serve::{LOG_VARIABLE, LogFormat, LogLevel, address, logging};
use clap::Args;
use forwarding::Forwarder;
use prombus_server::Hosts;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  prombus snapshots --collection processes --listen :8091
  prombus snapshots --collection processes --listen :8091 --url https://hub.example:7070 --token TOKEN
  curl http://127.0.0.1:8091/snap/web1:stt:4242
  curl 'http://127.0.0.1:8091/list?status=alive&cpu_pct[gte]=80'

Anyone who can connect can read the collection, with the rights of the token. So :8091 means
127.0.0.1:8091, and non-loopback addresses are refused, unless --insecure is given; then :8091
means all addresses.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SnapshotsArgs {
    /// Collection to serve
    #[arg(long, value_name = "NAME", value_parser = parse_collection)]
    collection: String,
    /// Address to listen on [default: 127.0.0.1:8091]; a bare port means 127.0.0.1, and port 0 picks a free one
    #[arg(long, value_name = "[HOST]:PORT", default_value = ":8091", hide_default_value = true)]
    listen: String,
    /// Allow listening on a non-loopback address: anyone who can connect may read the collection
    #[arg(long)]
    insecure: bool,
    /// Accepted Host name, besides IP addresses and localhost; may be repeated
    #[arg(long = "host", value_name = "NAME", value_parser = parse_host)]
    hosts: Vec<String>,
    /// Log format [default: text]
    #[arg(long, value_name = "json|text", value_parser = LogFormat::parse)]
    log_format: Option<LogFormat>,
    /// Log level: error, warn, info, debug or trace [default: info]
    #[arg(long, env = LOG_VARIABLE, value_name = "LEVEL", value_parser = LogLevel::parse)]
    log_level: Option<LogLevel>,
}

fn parse_collection(text: &str) -> Result<String, String> {
    prombus_core::collection::check_name(text).map(|name| name.to_string()).map_err(|error| error.to_string())
}

fn parse_host(text: &str) -> Result<String, String> {
    match Hosts::is_name(text) {
        true => Ok(text.to_owned()),
        false => Err("not a host name; write it without scheme and port, like docs.example".into()),
    }
}

/// Serves the collection until it is told to end.
pub fn run(hub: &HubArgs, args: &SnapshotsArgs) -> Result<(), Failure> {
    let hosts = Hosts::new(&args.hosts, "--host");
    let passing = Forwarder { client: hub.client()?, collection: args.collection.clone(), hosts };
    logging::start(args.log_format.unwrap_or_default(), &args.log_level.clone().unwrap_or_default());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
    runtime.block_on(serve(args, Arc::new(passing)))
}

async fn serve(args: &SnapshotsArgs, passing: Arc<Forwarder>) -> Result<(), Failure> {
    let mut signals = Signals::take()?;
    let listener =
        address::bind(&whole_address(args), address::Exposure::of(args.insecure, NO_TOKENS)).await?;
    let address = listener.local_addr().map_err(|error| Failure::Failed(error.to_string()))?;
    let (collection, hub) = (&passing.collection, passing.client.url());
    tracing::info!(url = %format_args!("http://{address}"), %collection, %hub, "ready");
    let ended = async {
        let signal = signals.next().await;
        tracing::info!("{signal}: shutting down");
    };
    listen::serve(listener, passing.clone(), ended).await;
    tracing::info!("stopped");
    Ok(())
}

const NO_TOKENS: &str = "anyone who can reach this can read the collection, so it does not listen on {address}, where \
     others can reach it: listen on 127.0.0.1, or pass --insecure if everyone there may read it";

/// Only a port is one of this machine, unless everyone is welcome.
fn whole_address(args: &SnapshotsArgs) -> String {
    match args.listen.starts_with(':') && !args.insecure {
        true => format!("127.0.0.1{}", args.listen),
        false => args.listen.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_port_is_one_of_this_machine() {
        let args = |listen: &str, insecure| SnapshotsArgs {
            collection: "c".into(),
            listen: listen.into(),
            insecure,
            hosts: Vec::new(),
            log_format: None,
            log_level: None,
        };
        assert_eq!(whole_address(&args(":8091", false)), "127.0.0.1:8091");
        assert_eq!(whole_address(&args(":8091", true)), ":8091");
        assert_eq!(whole_address(&args("0.0.0.0:1", false)), "0.0.0.0:1");
    }
}
