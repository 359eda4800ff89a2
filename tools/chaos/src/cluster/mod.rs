//! Three hubs on three members of a MongoDB replica set, what goes wrong with them, and how they come back.
//!
//! Members of the set and hubs reach each other through proxies, which are cut; what the load asks goes to the hubs directly.
//! Members are known by the addresses of their proxies, so drivers find no other way.

pub mod fault;
mod probe;
mod proxy;

use super::api::{Api, Doors};
use super::calls::Trouble;
use super::hub::topics_of_the_load;
use fault::{COUNT, Fault, FaultPlan};
use prombus_fixtures::{Hub, HubError};
use proxy::{Proxy, Rule};
use repo::ReplicaSet;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::task::block_in_place;

/// A hub that is silent for so long is missed.
const TTL: Duration = Duration::from_millis(2_000);
/// After so long without a primary, the others elect one. The program that starts the set says so.
const ELECTION: Duration = Duration::from_millis(2_000);
/// What the specification allows on top of these until work goes on.
const ALLOWED: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(3));
/// Everything is as it was by then.
const WELL_WITHIN: Duration = Duration::from_secs(60);
/// A transaction that is waited for comes by then, as the load is never idle for so long.
const TRAPPED_WITHIN: Duration = Duration::from_secs(20);
/// Between two questions.
const PAUSE: Duration = Duration::from_millis(50);
/// How much of the log of each hub is told.
const LOG_LINES: usize = 150;
/// What begins and what ends a transaction, in what a driver says.
const BEGINS: &str = "startTransaction";
const COMMITS: &str = "commitTransaction";

/// Three hubs and their database.
pub struct Cluster {
    doors: Doors,
    seed: u64,
    /// The round, and whether its faults are over.
    round: std::sync::Mutex<(u32, Arc<AtomicBool>)>,
    machines: Mutex<Machines>,
}

struct Machines {
    hubs: Vec<Hub>,
    set: ReplicaSet,
    members: Vec<Proxy>,
    between_hubs: Vec<Proxy>,
    doors: Doors,
    /// The last round whose faults have happened.
    struck: u32,
    times: BTreeMap<String, Vec<Duration>>,
    /// They run by themselves, whatever blocks those who use them.
    proxies: Option<tokio::runtime::Runtime>,
}

impl Drop for Machines {
    fn drop(&mut self) {
        // It must not be waited for where others run.
        self.proxies.take().into_iter().for_each(tokio::runtime::Runtime::shutdown_background);
    }
}

/// What a cluster is made of.
pub struct ClusterSetup {
    /// The hub.
    pub binary: PathBuf,
    /// The program that starts a replica set.
    pub mongo_set: Command,
    /// Where everything goes.
    pub folder: PathBuf,
    /// Where the faults come from.
    pub seed: u64,
}

impl Cluster {
    /// Starts everything.
    pub async fn start(setup: ClusterSetup) -> Result<Arc<Self>, String> {
        let proxies = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let ports = free_addresses(2 * COUNT)?;
        let (of_members, of_hubs) = ports.split_at(COUNT);
        let (members, between_hubs) =
            (in_front(&proxies, of_members).await?, in_front(&proxies, of_hubs).await?);
        let ClusterSetup { binary, mongo_set: mut command, folder, seed } = setup;
        let list = |addresses: &mut dyn Iterator<Item = String>| addresses.collect::<Vec<_>>().join(",");
        command.arg("--data").arg(folder.join("mongodb"));
        command.args(["--ports", &list(&mut of_members.iter().map(|address| address.port().to_string()))]);
        command.args(["--known-as", &list(&mut members.iter().map(|proxy| proxy.address.to_string()))]);
        let set = block_in_place(|| ReplicaSet::start(command))?;
        let mut hubs = Vec::new();
        for (n, address) in of_hubs.iter().enumerate() {
            let advertise = between_hubs[n].address;
            let name = Named { n, address: *address, advertise, url: &set.url };
            let command = name.command(&binary, &folder)?;
            hubs.push(block_in_place(|| Hub::start(command)).map_err(told)?);
        }
        let doors = Doors::new(hubs.iter().map(|hub| hub.url.clone()));
        probe::make(&Api::new(&doors)?).await?;
        let (struck, times) = (0, BTreeMap::new());
        let mut machines = Machines {
            hubs,
            set,
            members,
            between_hubs,
            doors: doors.clone(),
            struck,
            times,
            proxies: Some(proxies),
        };
        machines.until_well().await?;
        let (round, machines) = (std::sync::Mutex::default(), Mutex::new(machines));
        Ok(Arc::new(Self { doors, seed, round, machines }))
    }

    /// The hubs.
    pub fn doors(&self) -> &Doors {
        &self.doors
    }

    /// What those who call in a round have to expect.
    pub fn trouble(&self, round: u32) -> Trouble {
        let mut now = self.round.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if now.0 != round {
            *now = (round, Arc::default());
        }
        Trouble::Faults(now.1.clone())
    }

    /// Lets the faults of a round happen, once for all who ask for it, and everything come back. The load is over then.
    pub async fn strike(&self, round: u32) -> Result<(), String> {
        let mut machines = self.machines.lock().await;
        if machines.struck >= round {
            return Ok(());
        }
        machines.struck = round;
        let plan = FaultPlan::new(self.seed, round);
        let struck = machines.strike(&plan).await;
        if let Trouble::Faults(over) = self.trouble(round) {
            over.store(true, Ordering::Relaxed);
        }
        struck.map_err(|why| format!("{plan:?}: {why}"))
    }

    /// Waits until everything that was asked has come to its end.
    pub async fn settle(&self) -> Result<(), String> {
        probe::barrier(&self.doors).await
    }

    /// The ends of the logs of all hubs.
    pub async fn log(&self) -> String {
        let machines = self.machines.lock().await;
        let mut text = String::new();
        for (n, hub) in machines.hubs.iter().enumerate() {
            let log = hub.log().text();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
            text += &format!("-- hub {n}, {}\n{last}\n", hub.url);
        }
        text
    }

    /// A panic in any hub is a failure.
    pub async fn no_panic(&self) -> Result<(), String> {
        self.machines.lock().await.hubs.iter().try_for_each(|hub| hub.log().no_panic())
    }

    /// How long it took until work went on.
    pub async fn summary(&self) -> String {
        let machines = self.machines.lock().await;
        let mut text = "until work went on, median and longest of how many:".to_owned();
        for (what, times) in &machines.times {
            let mut times = times.clone();
            times.sort();
            let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
            text += &format!("\n  {what}: {median:.1?}, {longest:.1?} of {}", times.len());
        }
        text
    }
}

impl Machines {
    async fn strike(&mut self, plan: &FaultPlan) -> Result<(), String> {
        // The moment is the plan's; there is nothing to wait for.
        tokio::time::sleep(plan.after).await;
        let FaultPlan { fault, hub, .. } = *plan;
        let primary = self.primary()?;
        let name = app_name(hub);
        let of_hub = |cut| Rule { cut, whose: Some(name.clone()) };
        match fault {
            Fault::KillHubInTransaction => self.trapped(hub, primary, BEGINS).await?,
            Fault::KillHubInCommit => self.trapped(hub, primary, COMMITS).await?,
            _ => {}
        }
        let begun = Instant::now();
        match fault {
            Fault::KillHub | Fault::KillHubInTransaction | Fault::KillHubInCommit => self.kill(hub)?,
            Fault::EndHub => {
                block_in_place(|| self.hubs[hub].stop()).map_err(told)?;
                self.hubs[hub].log().no_panic()?;
            }
            Fault::StopHub => self.hubs[hub].signal(Signal::STOP).map_err(told)?,
            Fault::KillPrimary => self.set.tell("kill", primary)?,
            Fault::StopPrimary => self.set.tell("stop", primary)?,
            Fault::KillBoth => {
                self.set.tell("kill", primary)?;
                self.kill(hub)?;
            }
            Fault::CutHubFromDatabase(cut) => self.members.iter().for_each(|proxy| proxy.cut(of_hub(cut))),
            Fault::CutHubs(cut) => self.between_hubs[hub].cut(Rule { cut, whose: None }),
            Fault::CutPrimary(cut) => self.members[primary].cut(Rule { cut, whose: None }),
        }
        let affects_hub = !matches!(
            fault,
            Fault::KillPrimary | Fault::StopPrimary | Fault::CutPrimary(_) | Fault::CutHubs(_)
        );
        let doors = if affects_hub { self.doors.without(hub) } else { self.doors.clone() };
        let back = tokio::spawn(probe::until_work_goes_on(doors, begun));
        let noticed = if affects_hub { TTL } else { ELECTION };
        // The moment is the plan's; there is nothing to wait for.
        tokio::time::sleep(noticed.mul_f64(plan.lasts)).await;
        self.heal(plan, primary).await?;
        let took = back.await.map_err(|error| error.to_string())??;
        self.note(fault, took);
        self.until_well().await
    }

    /// Waits until a hub is inside a transaction, and keeps it there.
    async fn trapped(&mut self, hub: usize, primary: usize, word: &'static str) -> Result<(), String> {
        let told = self.members[primary].trap(&app_name(hub), word);
        match tokio::time::timeout(TRAPPED_WITHIN, told).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(format!("hub {hub} does not say {word}")),
        }
    }

    fn kill(&mut self, hub: usize) -> Result<(), String> {
        block_in_place(|| self.hubs[hub].kill()).map_err(told)?;
        self.hubs[hub].log().no_panic()
    }

    async fn heal(&mut self, plan: &FaultPlan, primary: usize) -> Result<(), String> {
        self.members.iter().chain(&self.between_hubs).for_each(Proxy::heal);
        match plan.fault {
            Fault::KillPrimary | Fault::KillBoth => self.set.tell("start", primary)?,
            Fault::StopPrimary => self.set.tell("continue", primary)?,
            Fault::StopHub => self.hubs[plan.hub].signal(Signal::CONT).map_err(told)?,
            _ => {}
        }
        // Nobody kills the next one before, or too few are left.
        self.until_set_is_well().await?;
        match plan.fault {
            Fault::KillHub
            | Fault::EndHub
            | Fault::KillBoth
            | Fault::KillHubInTransaction
            | Fault::KillHubInCommit => block_in_place(|| self.hubs[plan.hub].start_again()).map_err(told),
            _ => Ok(()),
        }
    }

    fn note(&mut self, fault: Fault, took: Duration) {
        let of_primary =
            matches!(fault, Fault::KillPrimary | Fault::StopPrimary | Fault::KillBoth | Fault::CutPrimary(_));
        let allowed = if of_primary { ELECTION + ALLOWED.1 } else { TTL + ALLOWED.0 };
        if took > allowed {
            eprintln!("warning: {fault:?}: work went on after {took:.1?}, and should after {allowed:.1?}");
        }
        self.times.entry(format!("{fault:?}")).or_default().push(took);
    }

    fn primary(&mut self) -> Result<usize, String> {
        let states = self.set.states()?;
        states.iter().position(|state| state == "PRIMARY").ok_or_else(|| format!("no primary: {states:?}"))
    }

    async fn until_set_is_well(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let mut states = block_in_place(|| self.set.states())?;
            states.sort();
            if states == ["PRIMARY", "SECONDARY", "SECONDARY"] {
                return Ok(());
            }
            if begun.elapsed() > WELL_WITHIN {
                return Err(format!("the replica set does not come back: {states:?}"));
            }
            // A member tells nobody what it becomes.
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits until all members are there, and all hubs know of each other.
    async fn until_well(&mut self) -> Result<(), String> {
        self.until_set_is_well().await?;
        let begun = Instant::now();
        for (n, door) in self.doors.each().enumerate() {
            let api = Api::new(&door)?;
            loop {
                let ops = api.get("/ops", "application/json").await;
                let ready = api.get("/readyz", "*/*").await;
                let said = ops.and_then(|text| ready.map(|_| text));
                let hubs = said.as_ref().ok().and_then(|text| serde_json::from_slice::<Value>(text).ok());
                let hubs = hubs.and_then(|ops| ops["hubs"].as_array().map(Vec::len));
                if hubs == Some(COUNT) {
                    break;
                }
                if begun.elapsed() > WELL_WITHIN {
                    return Err(format!(
                        "hub {n} does not take part again: it knows {hubs:?} hubs; {said:?}"
                    ));
                }
                // A hub tells nobody that it is well again.
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(())
    }
}

/// How a hub is called in what it says to the database first.
fn app_name(n: usize) -> String {
    format!("chaos-hub-{n}")
}

/// A hub, and where it is.
struct Named<'a> {
    n: usize,
    address: SocketAddr,
    advertise: SocketAddr,
    url: &'a str,
}

impl Named<'_> {
    fn command(&self, binary: &Path, folder: &Path) -> Result<Command, String> {
        let folder = folder.join(format!("hub{}", self.n));
        let config = folder.join("prombus.toml");
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&config, self.configuration()))
            .map_err(|error| format!("{} cannot be written: {error}", config.display()))?;
        let url = self.url.replacen("/?", "/chaos?", 1);
        let mut command = Command::new(binary);
        command.arg("serve").arg("--config").arg(&config).current_dir(&folder);
        command.args(["--store", &format!("{url}&appName={}", app_name(self.n))]);
        command.args(["--listen", &self.address.to_string()]);
        Ok(command)
    }

    fn configuration(&self) -> String {
        let (advertise, ttl) = (self.advertise, TTL.as_millis());
        format!(
            "[server]\nadvertise = \"http://{advertise}\"\n\
             [cluster]\nsecret = \"what only these hubs know\"\nhub_ttl_ms = {ttl}\n{}",
            topics_of_the_load()
        )
    }
}

/// Different ones, because all of them are held until the last one is found.
fn free_addresses(count: usize) -> Result<Vec<SocketAddr>, String> {
    let held = (0..count).map(|_| TcpListener::bind("127.0.0.1:0"));
    let held = held.collect::<std::io::Result<Vec<TcpListener>>>();
    let addresses = held.and_then(|held| held.iter().map(TcpListener::local_addr).collect());
    addresses.map_err(|error| format!("no free ports: {error}"))
}

async fn in_front(runtime: &tokio::runtime::Runtime, targets: &[SocketAddr]) -> Result<Vec<Proxy>, String> {
    let mut proxies = Vec::new();
    for target in targets.iter().copied() {
        let proxy = runtime.spawn(Proxy::start(target)).await;
        proxies.push(proxy.map_err(|error| error.to_string())??);
    }
    Ok(proxies)
}

fn told(error: HubError) -> String {
    error.to_string()
}
