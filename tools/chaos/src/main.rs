//! `cargo xtask chaos`: kills a real hub under load again and again, always on the same folder, and compares its answers
//! with what is stored.
//!
//! Each round does so four times: with publishes and reads, with consumer groups, with collections, and through the Rust
//! client, each on its own folder.
//!
//! With `--store mongodb`, it is three hubs on three members of a replica set instead, and whatever goes wrong with those:
//! see [`cluster`]. All parts but the last one share them, and run at once.
//!
//! Nothing of the hub's own code is used to judge it: requests and answers are recorded here, and events are read back over
//! HTTP. Only the last part is about the client, and uses it.

mod api;
mod calls;
mod check;
mod clients;
mod cluster;
mod draft;
mod evidence;
mod groups;
mod hub;
mod ledger;
mod load;
mod plan;
mod reader;
mod request;
mod round;
mod site;
mod state;
mod verdict;

use clap::Parser;
use clients::Clients;
use cluster::{Cluster, ClusterSetup};
use groups::Groups;
use hub::HubSetup;
use plan::{Plan, Setting};
use round::Chaos;
use site::Site;
use state::State;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// How many threads the load has.
const THREADS: usize = 4;
/// A word about how it goes comes so often.
const PROGRESS_EVERY: u32 = 10;

/// Kill a hub under load again and again, and check that nothing answered is lost
#[derive(Debug, Parser)]
#[command(name = "cargo xtask chaos", bin_name = "cargo xtask chaos")]
struct Args {
    /// What the hub keeps everything in; MongoDB has three hubs
    #[arg(long, default_value = "folder")]
    store: Store,
    /// How often something goes wrong
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// As many rounds as begin in so many minutes, instead of a number of them
    #[arg(long)]
    minutes: Option<u64>,
    /// Where randomness comes from; without it, another one each time
    #[arg(long)]
    seed: Option<u64>,
    /// How many connections publish at once
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// Size of the parts of the journal; without it, another one each round
    #[arg(long, value_name = "BYTES")]
    store_part_bytes: Option<u64>,
    /// Only one part of each round
    #[arg(long)]
    only: Option<Part>,
    /// A prombus binary to use, instead of building one
    #[arg(long, value_name = "FILE")]
    bin: Option<PathBuf>,
    /// The program that starts a replica set, instead of building one
    #[arg(long, value_name = "FILE")]
    mongo_set: Option<PathBuf>,
}

/// What a hub keeps everything in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Store {
    /// A folder of its own
    Folder,
    /// A database, as two others do
    Mongodb,
}

/// One part of each round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Publishes and reads
    Log,
    /// Consumer groups
    Groups,
    /// Collections, projections and commits
    State,
    /// Handlers of the Rust client
    Clients,
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all rounds.
fn run(args: Args) -> Result<(), String> {
    let binary = match &args.bin {
        Some(named) => named.canonicalize().map_err(|error| format!("{}: {error}", named.display()))?,
        None => repo::build_hub()?,
    };
    let folder = tempfile::Builder::new()
        .prefix("chaos-")
        .tempdir_in(repo::target_dir())
        .map_err(|error| format!("there is no place for a data folder: {error}"))?;
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..) >> 32);
    let setting = Setting { seed, connections: args.connections.max(1), part_bytes: args.store_part_bytes };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    eprintln!("chaos: {} rounds, {} connections, seed {seed}", args.rounds, setting.connections);
    let outcome = match args.store {
        Store::Folder => {
            let folder = folder.path().to_owned();
            let site = HubSetup { binary, folder, listen: "127.0.0.1:0".to_owned() };
            runtime.block_on(rounds(&args, setting, site))
        }
        Store::Mongodb => runtime.block_on(rounds_of_many(&args, setting, (binary, folder.path()))),
    };
    outcome.inspect_err(|_| {
        eprintln!("the data folder is kept in {}", folder.keep().display());
    })
}

async fn rounds(args: &Args, setting: Setting, site: HubSetup) -> Result<(), String> {
    let start = Instant::now();
    let part_bytes = Plan::new(setting, 0).part_bytes;
    let groups_site = HubSetup { folder: site.folder.join("groups"), ..site.clone() };
    let state_site = HubSetup { folder: site.folder.join("state"), ..site.clone() };
    let clients_site = HubSetup { folder: site.folder.join("clients"), ..site.clone() };
    let wanted = |part| args.only.is_none_or(|only| only == part);
    let mut log = if wanted(Part::Log) { Some(Chaos::begin(Site::one(site, part_bytes)?)) } else { None };
    let mut groups = if wanted(Part::Groups) {
        Some(Groups::begin(Site::one(groups_site, part_bytes)?).await?)
    } else {
        None
    };
    let mut state = if wanted(Part::State) {
        Some(State::begin(Site::one(state_site, part_bytes)?).await?)
    } else {
        None
    };
    let mut clients =
        if wanted(Part::Clients) { Some(Clients::begin(clients_site, part_bytes).await?) } else { None };
    for round in 1..=last_round(args) {
        let plan = Plan::new(setting, round);
        let is_last = is_last(args, round, start);
        let failed =
            |only: &str, why: String| again(args, &plan, (setting.seed, &format!("--only {only}")), why);
        if let Some(so_far) = log.take() {
            log = Some(so_far.round(&plan, is_last).await.map_err(|why| failed("log", why))?);
        }
        if let Some(so_far) = groups.take() {
            groups = Some(so_far.round(&plan, is_last).await.map_err(|why| failed("groups", why))?);
        }
        if let Some(so_far) = state.take() {
            state = Some(so_far.round(&plan, is_last).await.map_err(|why| failed("state", why))?);
        }
        if let Some(so_far) = clients.take() {
            clients = Some(so_far.round(&plan).await.map_err(|why| failed("clients", why))?);
        }
        if round.is_multiple_of(PROGRESS_EVERY) || is_last {
            let took = start.elapsed();
            log.iter().for_each(|log| eprintln!("{}", log.summary(round, took)));
            groups.iter().for_each(|groups| eprintln!("{}", groups.summary(round, took)));
            state.iter().for_each(|state| eprintln!("{}", state.summary(round, took)));
            clients.iter().for_each(|clients| eprintln!("{}", clients.summary(round, took)));
        }
        if is_last {
            break;
        }
    }
    Ok(())
}

/// The number of the last round, where that is not a matter of time.
fn last_round(args: &Args) -> u32 {
    if args.minutes.is_some() { u32::MAX } else { args.rounds }
}

fn is_last(args: &Args, round: u32, start: Instant) -> bool {
    let time = args.minutes.map(|minutes| Duration::from_secs(60 * minutes));
    time.map_or(round == args.rounds, |time| start.elapsed() >= time)
}

/// What is wrong, and how to see it again.
fn again(args: &Args, plan: &Plan, (seed, more): (u64, &str), why: String) -> String {
    let mut again = format!("cargo xtask chaos {more} --seed {seed} --rounds {}", plan.round);
    if let Some(bin) = &args.bin {
        again.push_str(&format!(" --bin {}", bin.display()));
    }
    format!("{why}\nin {plan:#?}\nto do it again: {again}")
}

/// All rounds on three hubs: everything that can share them, at the same time.
async fn rounds_of_many(
    args: &Args,
    setting: Setting,
    (binary, folder): (PathBuf, &Path),
) -> Result<(), String> {
    let start = Instant::now();
    let mongo_set = match &args.mongo_set {
        Some(named) => Command::new(named),
        None => repo::cargo(&["run", "--quiet", "--package", "mongo-set", "--"]),
    };
    let seed = setting.seed;
    let cluster = Cluster::start(ClusterSetup { binary, mongo_set, folder: folder.to_owned(), seed }).await?;
    let site = || Site::Many(cluster.clone());
    let (mut log, mut groups, mut state) =
        (Chaos::begin(site()), Groups::begin(site()).await?, State::begin(site()).await?);
    for round in 1..=last_round(args) {
        let plan = Plan::new(setting, round);
        let is_last = is_last(args, round, start);
        let all = tokio::try_join!(
            log.round(&plan, is_last),
            groups.round(&plan, is_last),
            state.round(&plan, is_last)
        );
        (log, groups, state) = all.map_err(|why| again(args, &plan, (seed, "--store mongodb"), why))?;
        if round.is_multiple_of(PROGRESS_EVERY) || is_last {
            let took = start.elapsed();
            eprintln!("{}", log.summary(round, took));
            eprintln!("{}", groups.summary(round, took));
            eprintln!("{}", state.summary(round, took));
            eprintln!("{}", cluster.summary().await);
        }
        if is_last {
            break;
        }
    }
    Ok(())
}
