//! Starts a replica set of three members on free ports of this machine, prints its URL, and stops it when its input ends:
//! so it goes with whoever has started it.

mod member;
mod orders;

use clap::Parser;
use member::Member;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;

const MEMBERS: usize = 3;
const NAME: &str = "r3";
/// The file that says where the set of a folder is.
const SET_FILE: &str = "SET";
/// How long a set may take to get a primary.
const READY: Duration = Duration::from_secs(40);
/// How often a set is started whose members do not find together.
const STARTS: usize = 3;
/// How long to wait before it is asked again.
const PAUSE: Duration = Duration::from_millis(50);
/// As short as it makes sense: tests wait for elections.
const ELECTION_TIMEOUT_MS: i32 = 2_000;

/// A replica set of three members, until the input of this program ends
///
/// Each line of the input is a command: `kill N`, `start N`, `stop N` and `continue N` do that to a member, where to stop one
/// is to send it SIGSTOP; `states` says what each member is.
#[derive(Debug, Parser)]
struct Args {
    /// The program; otherwise the one that `cargo xtask tools` has installed
    #[arg(long)]
    mongod: Option<PathBuf>,
    /// Where the data go, and stay; otherwise a temporary folder
    #[arg(long)]
    data: Option<PathBuf>,
    /// The ports of the members of a new set; otherwise free ones
    #[arg(long, value_delimiter = ',')]
    ports: Vec<u16>,
    /// How the members of a new set are called by each other and by clients, where that is not where they listen
    #[arg(long, value_delimiter = ',')]
    known_as: Vec<String>,
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
    let installed = || repo::target_dir().join("tools/mongod/fiftyone/db/bin/mongod");
    let mongod = args.mongod.clone().unwrap_or_else(installed);
    let temporary = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let data = args.data.clone().unwrap_or_else(|| temporary.path().to_owned());
    let (members, hosts) = match known_ports(&data)? {
        Some(known) => continue_set(&mongod, &data.join(known.folder), known.ports).await?,
        None => begin_set(&args, &mongod, &data).await?,
    };
    say(&format!("mongodb://{}/?replicaSet={NAME}", hosts.join(","))).await?;
    orders::obey(members).await
}

async fn say(line: &str) -> Result<(), String> {
    let mut out = tokio::io::stdout();
    let said = async {
        out.write_all(format!("{line}\n").as_bytes()).await?;
        out.flush().await
    };
    said.await.map_err(|error: std::io::Error| error.to_string())
}

/// Where the set is that a folder has, and which ports its members know each other by.
struct Known {
    folder: String,
    ports: Vec<u16>,
}

/// What a folder says of its set, if it has one.
fn known_ports(data: &Path) -> Result<Option<Known>, String> {
    let path = data.join(SET_FILE);
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| format!("{}: {error}", path.display()))?,
    };
    let mut words = text.split_whitespace();
    let folder = words.next().unwrap_or_default().to_owned();
    let ports: Vec<u16> = words.filter_map(|port| port.parse().ok()).collect();
    match ports.len() == MEMBERS {
        true => Ok(Some(Known { folder, ports })),
        false => Err(format!("{} does not say where the members are", path.display())),
    }
}

/// Begins a set, and notes in its folder where it is.
async fn begin_set(args: &Args, mongod: &Path, data: &Path) -> Result<(Vec<Member>, Vec<String>), String> {
    // Ports that were chosen elsewhere are the same next time.
    let mut tries_left = if args.ports.is_empty() { STARTS } else { 1 };
    loop {
        tries_left -= 1;
        let folder = tries_left.to_string();
        match start_set(args, mongod, &data.join(&folder)).await {
            Ok((members, hosts)) => {
                let ports = members.iter().map(|member| member.port.to_string());
                let words: Vec<String> = std::iter::once(folder).chain(ports).collect();
                let path = data.join(SET_FILE);
                let noted = std::fs::write(&path, words.join(" "));
                noted.map_err(|error| format!("{}: {error}", path.display()))?;
                return Ok((members, hosts));
            }
            Err(why) if tries_left == 0 => return Err(why),
            Err(why) => eprintln!("{why}: starting again"),
        }
    }
}

/// Starts the members of a set that is there.
async fn continue_set(
    mongod: &Path,
    data: &Path,
    ports: Vec<u16>,
) -> Result<(Vec<Member>, Vec<String>), String> {
    let started = ports.into_iter().enumerate().map(|(n, port)| Member::start(mongod, data, (n, port)));
    let members: Vec<Member> = started.collect::<Result<_, String>>()?;
    let hosts: Vec<String> = members.iter().map(Member::host).collect();
    let first = hosts.first().ok_or("no members")?;
    let admin = admin(format!("mongodb://{first}/?directConnection=true")).await?;
    let ready = wait_for_members(&admin, Instant::now()).await;
    ready.map_err(|why| format!("{why}; see the logs in {}", data.display()))?;
    Ok((members, hosts))
}

/// Starts the members, and makes a set of them.
async fn start_set(args: &Args, mongod: &Path, data: &Path) -> Result<(Vec<Member>, Vec<String>), String> {
    let ports = match args.ports.as_slice() {
        [] => free_ports().map_err(|error| format!("no free ports: {error}"))?,
        chosen => chosen.to_vec(),
    };
    let started = ports.into_iter().enumerate().map(|(n, port)| Member::start(mongod, data, (n, port)));
    let members: Vec<Member> = started.collect::<Result<_, String>>()?;
    let own: Vec<String> = members.iter().map(Member::host).collect();
    let hosts = if args.known_as.is_empty() { own } else { args.known_as.clone() };
    let first = members.first().ok_or("no members")?;
    initiate(first, &hosts).await.map_err(|why| format!("{why}; see the logs in {}", data.display()))?;
    Ok((members, hosts))
}

/// Different ones, because all of them are held until the last one is found. A connection of another program may still take
/// one before its member does.
fn free_ports() -> std::io::Result<Vec<u16>> {
    let held = (0..MEMBERS).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let held = held.collect::<std::io::Result<Vec<TcpListener>>>()?;
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

async fn admin(url: String) -> Result<Database, String> {
    let mut options = ClientOptions::parse(url).await.map_err(|error| error.to_string())?;
    options.server_selection_timeout = Some(Duration::from_secs(1));
    Ok(Client::with_options(options).map_err(|error| error.to_string())?.database("admin"))
}

/// Makes a set of the members, and waits until it has a primary and the others follow.
async fn initiate(first: &Member, hosts: &[String]) -> Result<(), String> {
    let admin = admin(first.url()).await?;
    let member = |(n, host): (usize, &String)| Bson::Document(doc! { "_id": n as i32, "host": host });
    let config = doc! {
        "_id": NAME,
        "members": hosts.iter().enumerate().map(member).collect::<Vec<_>>(),
        "settings": { "electionTimeoutMillis": ELECTION_TIMEOUT_MS },
    };
    let begun = Instant::now();
    until(begun, async || answered(&admin, doc! { "replSetInitiate": config.clone() }).await).await?;
    wait_for_members(&admin, begun).await
}

/// Waits until there is a primary, and the others follow it.
async fn wait_for_members(admin: &Database, begun: Instant) -> Result<(), String> {
    until(begun, async || {
        let status = answered(admin, doc! { "replSetGetStatus": 1 }).await?;
        let members = status.get_array("members").map_err(|error| error.to_string())?;
        let state = |member: &Bson| {
            member.as_document().and_then(|member| member.get_str("stateStr").ok()).map(str::to_owned)
        };
        let states: Vec<String> = members.iter().filter_map(state).collect();
        let count = |wanted: &str| states.iter().filter(|state| *state == wanted).count();
        match (count("PRIMARY"), count("SECONDARY")) {
            (1, others) if others == MEMBERS - 1 => Ok(status),
            _ => Err(format!("the members are {}", states.join(", "))),
        }
    })
    .await
    .map(drop)
}

async fn answered(admin: &Database, command: Document) -> Result<Document, String> {
    admin.run_command(command).await.map_err(|error| error.kind.to_string())
}

/// Tries until it is done, or has taken too long.
async fn until(
    begun: Instant,
    mut attempt: impl AsyncFnMut() -> Result<Document, String>,
) -> Result<Document, String> {
    loop {
        match attempt().await {
            Ok(answer) => return Ok(answer),
            Err(why) if begun.elapsed() > READY => return Err(why),
            // A member that starts tells nobody.
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
