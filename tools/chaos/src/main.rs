//! `cargo xtask chaos`: kills a real hub under load again and again, always on the same folder, and compares its answers
//! with what is stored.
//!
//! Each round does so four times: with publishes and reads, with consumer groups, with collections, and through the Rust
//! client, each on its own folder.
//!
//! Nothing of the hub's own code is used to judge it: requests and answers are recorded here, and events are read back over
//! HTTP. Only the last part is about the client, and uses it.

mod api;
mod calls;
mod check;
mod clients;
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
mod state;
mod verdict;

use clap::Parser;
use clients::Clients;
use groups::Groups;
use hub::HubSetup;
use plan::{Plan, Setting};
use round::Chaos;
use state::State;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// How many threads the load has.
const THREADS: usize = 2;
/// A word about how it goes comes so often.
const PROGRESS_EVERY: u32 = 10;

/// Kill a hub under load again and again, and check that nothing answered is lost
#[derive(Debug, Parser)]
#[command(name = "cargo xtask chaos", bin_name = "cargo xtask chaos")]
struct Args {
    /// How often the hub is killed
    #[arg(long, default_value_t = 20)]
    rounds: u32,
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
    let site = HubSetup { binary, folder: folder.path().to_owned(), listen: "127.0.0.1:0".to_owned() };
    runtime.block_on(rounds(&args, setting, site)).inspect_err(|_| {
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
    let mut log = if wanted(Part::Log) { Some(Chaos::begin(site, part_bytes)?) } else { None };
    let mut groups =
        if wanted(Part::Groups) { Some(Groups::begin(groups_site, part_bytes).await?) } else { None };
    let mut state =
        if wanted(Part::State) { Some(State::begin(state_site, part_bytes).await?) } else { None };
    let mut clients =
        if wanted(Part::Clients) { Some(Clients::begin(clients_site, part_bytes).await?) } else { None };
    for round in 1..=args.rounds {
        let plan = Plan::new(setting, round);
        let is_last = round == args.rounds;
        let failed = |only: &str, why: String| {
            let seed = setting.seed;
            let mut again = format!("cargo xtask chaos --only {only} --seed {seed} --rounds {round}");
            if let Some(bin) = &args.bin {
                again.push_str(&format!(" --bin {}", bin.display()));
            }
            format!("{why}\nin {plan:#?}\nto do it again: {again}")
        };
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
    }
    Ok(())
}
