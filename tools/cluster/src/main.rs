//! Three hubs on a MongoDB replica set of three members, behind a load balancer, all on this machine, until Ctrl-C.
//!
//! The set and the hubs do not hear the Ctrl-C themselves: hubs end first, while there is a database to hand over in.

mod balancer;

use balancer::Balancer;
use clap::Parser;
use prombus_fixtures::{ANY_PORT, Hub};
use repo::ReplicaSet;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// What hubs on this machine have in common. It keeps nobody out, and only hubs of this machine can reach it.
const CONFIGURATION: &str = "[cluster]\nsecret = \"of a cluster for trials\"\n";

/// Three hubs on a MongoDB replica set behind a load balancer, until Ctrl-C
#[derive(Debug, Parser)]
#[command(name = "cargo xtask cluster", bin_name = "cargo xtask cluster")]
struct Args {
    /// Where the load balancer listens
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7070")]
    listen: String,
    /// How many hubs
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=16))]
    hubs: u8,
    /// Folder of the database, to go on with what is there; otherwise a temporary one
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The hub's program; otherwise the release build, which is made first
    #[arg(long, value_name = "FILE")]
    hub: Option<PathBuf>,
    /// The program that starts the set; otherwise that of this repository, which is built first
    #[arg(long, value_name = "FILE")]
    mongo_set: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), String> {
    // First of all, so that neither of them ends this program before the others.
    let listening = |kind| signal(kind).map_err(|error| error.to_string());
    let (mut interrupt, mut terminate) =
        (listening(SignalKind::interrupt())?, listening(SignalKind::terminate())?);
    let listener = TcpListener::bind(&args.listen).await;
    let listener = listener.map_err(|error| format!("cannot listen on {}: {error}", args.listen))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let starting = start(&args, folder.path());
    let (set, hubs) = tokio::select! {
        started = starting => started?,
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
    };
    let addresses = hubs.iter().map(|hub| hub.address().parse());
    let addresses: Vec<SocketAddr> =
        addresses.collect::<Result<_, _>>().map_err(|_| "a hub does not say where it listens".to_owned())?;
    println!("load balancer: http://{address}");
    hubs.iter().for_each(|hub| println!("hub: {}", hub.url));
    println!("database: {}", set.url);
    println!("ready; Ctrl-C ends everything");
    tokio::select! {
        () = Balancer::new(addresses).serve(listener) => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    eprintln!("ending");
    let ended = tokio::task::spawn_blocking(move || {
        let stop = |mut hub: Hub| hub.stop().map_err(|error| error.to_string());
        let stopped: Vec<Result<(), String>> = hubs.into_iter().map(stop).collect();
        drop(set);
        stopped.into_iter().collect()
    });
    ended.await.map_err(|error| error.to_string())?
}

/// Starts the set, and the hubs on it, side by side.
async fn start(args: &Args, folder: &Path) -> Result<(ReplicaSet, Vec<Hub>), String> {
    let (data, mongo_set, hub) = (args.data.clone(), args.mongo_set.clone(), args.hub.clone());
    let set = blocking(move || {
        let mut command = match mongo_set {
            Some(program) => Command::new(program),
            None => repo::cargo(&["run", "--quiet", "--package", "mongo-set", "--"]),
        };
        if let Some(data) = data {
            command.arg("--data").arg(data);
        }
        command.process_group(0);
        ReplicaSet::start(command)
    })
    .await?;
    let program = match hub {
        Some(program) => program,
        None => blocking(repo::build_hub).await?,
    };
    let file = folder.join("prombus.toml");
    std::fs::write(&file, CONFIGURATION).map_err(|error| format!("{}: {error}", file.display()))?;
    let database = set.url.replacen("/?", "/prom?", 1);
    let mut starting = Vec::new();
    for _ in 0..args.hubs {
        let mut command = Command::new(&program);
        command.arg("serve").args(["--store", &database]).arg("--config").arg(&file);
        command.envs([ANY_PORT]).process_group(0);
        starting.push(tokio::task::spawn_blocking(move || Hub::start(command)));
    }
    let mut hubs = Vec::new();
    for hub in starting {
        let hub = hub.await.map_err(|error| error.to_string())?;
        hubs.push(hub.map_err(|error| error.to_string())?);
    }
    Ok((set, hubs))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?
}
