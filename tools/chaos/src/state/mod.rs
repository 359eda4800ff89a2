//! Collections under a hub that is killed: projections that count, consumers and writers that commit, readers, and
//! rebuilds, judged by the events in the topic.

mod consumer;
mod ledger;
mod producer;
mod reader;
mod rest;
mod setup;
mod single;
mod truth;
mod verdict;

use super::api::Api;
use super::calls::{Caller, RoundContext, Trouble};
use super::plan::Plan;
use super::site::Site;
use consumer::{Consumer, Legacy};
use fastrand::Rng;
use ledger::Ledger;
use producer::{Producer, Published};
use serde_json::json;
use setup::PROJECTIONS;
use single::Writer;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Everything is judged every so many rounds, while there is little and once there is much.
const JUDGE_EVERY: (u32, u32) = (4, 50);
/// Maximum number of events that are still little.
const LITTLE: usize = 100_000;
/// How many producers there are.
const PRODUCERS: usize = 2;
/// How many consumers there are.
const CONSUMERS: usize = 3;
/// How many writers there are.
const WRITERS: usize = 2;
/// One round in so many has a rebuild.
const REBUILD_ONE_IN: u32 = 2;
/// A rebuild that the end of the hub is to interrupt starts so short before it, at most.
const SHORT_BEFORE: Duration = Duration::from_millis(80);

/// All rounds so far.
pub struct State {
    site: Site,
    ledger: Ledger,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    events: usize,
    letters: usize,
    changes: usize,
    commits: usize,
    repeated: usize,
    rebuilds: u32,
    interrupted: u32,
}

type Task<T> = JoinHandle<Result<T, String>>;

/// Everyone who works while the hub is about to end.
struct Cast {
    producers: Vec<Task<Published>>,
    consumers: Vec<Task<Legacy>>,
    writers: Vec<Task<Writer>>,
    reader: Task<reader::Seen>,
    rebuild: Option<Task<bool>>,
}

impl State {
    /// Makes everything that there is to be, where nothing is yet.
    pub async fn begin(site: Site) -> Result<Self, String> {
        setup::make(&Api::new(&site.doors())?).await?;
        Ok(Self { site, ledger: Ledger::default(), counts: Counts::default() })
    }

    /// How it goes.
    pub fn summary(&self, rounds: u32, took: Duration) -> String {
        let Counts { events, letters, changes, commits, repeated, rebuilds, interrupted } = self.counts;
        format!(
            "state: {rounds} rounds, {events} events, {letters} dead letters, {changes} changes, {commits} commits, \
             {repeated} of them repeated after a crash; {rebuilds} rebuilds, {interrupted} times one was under way after a crash; {took:.0?}"
        )
    }

    /// Does a round. After it, the hub runs.
    pub async fn round(mut self, plan: &Plan, is_last: bool) -> Result<Self, String> {
        self.load_and_end(plan).await?;
        self.site.recover(plan).await?;
        self.counts.interrupted += rest::rebuilding(&Api::new(&self.site.doors())?).await?;
        let every = if self.counts.events < LITTLE { JUDGE_EVERY.0 } else { JUDGE_EVERY.1 };
        let judged = if plan.round.is_multiple_of(every) || is_last {
            self.rest_and_judge(plan).await
        } else {
            self.repeat().await
        };
        self.site.explain(judged).await?;
        Ok(self)
    }

    fn stage(&self, trouble: Trouble) -> RoundContext {
        RoundContext { doors: self.site.doors(), trouble }
    }

    /// Lets everyone work, and ends the hub in the middle of it.
    async fn load_and_end(&mut self, plan: &Plan) -> Result<(), String> {
        let cast = self.cast(plan);
        let struck = self.site.strike(plan).await;
        self.site.explain(struck).await?;
        let collected = self.collect(cast).await;
        self.site.explain(collected).await
    }

    fn cast(&self, plan: &Plan) -> Cast {
        let stage = self.stage(self.site.trouble(plan));
        let round = plan.round;
        let producer =
            |n| Producer { name: format!("r{round}p{n}"), round, rng: rng(plan, &format!("producer {n}")) };
        let consumer = |n| Consumer {
            name: format!("r{round}c{n}"),
            rng: rng(plan, &format!("consumer {n}")),
            good: false,
        };
        let mut moment = rng(plan, "rebuild");
        let rebuild = (moment.u32(..REBUILD_ONE_IN) == 0).then(|| {
            let name = PROJECTIONS[moment.usize(..PROJECTIONS.len())];
            let at_any_time = plan.end_after.mul_f64(moment.f64());
            let shortly = plan.end_after.saturating_sub(SHORT_BEFORE.mul_f64(moment.f64()));
            let after = if moment.bool() { at_any_time } else { shortly };
            tokio::spawn(rebuild_later(stage.clone(), name, after))
        });
        Cast {
            producers: (0..PRODUCERS).map(|n| tokio::spawn(producer(n).run(stage.clone()))).collect(),
            consumers: (0..CONSUMERS).map(|n| tokio::spawn(consumer(n).run(stage.clone()))).collect(),
            writers: self.writers(plan).map(|writer| tokio::spawn(writer.run(stage.clone()))).collect(),
            reader: tokio::spawn(reader::run(stage.clone(), self.ledger.seen.clone())),
            rebuild,
        }
    }

    fn writers(&self, plan: &Plan) -> impl Iterator<Item = Writer> {
        (0..WRITERS).map(|n| {
            let name = format!("w{n}");
            let done = self.ledger.singles.get(&name).copied().unwrap_or(0);
            Writer { rng: rng(plan, &name), name, done }
        })
    }

    /// Takes down what everyone did.
    async fn collect(&mut self, cast: Cast) -> Result<(), String> {
        for producer in cast.producers {
            self.ledger.published.extend(joined(producer).await?);
        }
        for consumer in cast.consumers {
            let legacy = joined(consumer).await?;
            self.absorb(legacy);
        }
        for writer in cast.writers {
            let Writer { name, done, .. } = joined(writer).await?;
            self.ledger.singles.insert(name, done);
        }
        self.ledger.seen = joined(cast.reader).await?;
        if let Some(rebuild) = cast.rebuild {
            self.counts.rebuilds += u32::from(joined(rebuild).await?);
        }
        Ok(())
    }

    fn absorb(&mut self, legacy: Legacy) {
        self.counts.commits += legacy.commits.len();
        self.ledger.commits.extend(legacy.commits);
        self.ledger.pending.extend(legacy.pending);
    }

    /// Repeats the commits of consumers that were not answered: they have happened, or they cannot any more.
    async fn repeat(&mut self) -> Result<(), String> {
        let caller = Caller::new(self.stage(Trouble::None))?;
        for ledger::Pending { name, body } in std::mem::take(&mut self.ledger.pending) {
            let Some(answer) = caller.post("/v1/commit", &body).await? else { continue };
            let fate = consumer::fate_of(&answer).map_err(|why| format!("commit {name} was {why}"))?;
            self.ledger.settle(&name, fate);
            self.counts.repeated += 1;
        }
        Ok(())
    }
}

/// A source of randomness for one of the tasks of a round.
fn rng(plan: &Plan, task: &str) -> Rng {
    Rng::with_seed(plan.seed ^ xxhash_rust::xxh3::xxh3_64(format!("state {task}").as_bytes()))
}

/// Starts a rebuild at its time, and says whether it was taken. A hub that is gone by then does not mind.
async fn rebuild_later(stage: RoundContext, name: &'static str, after: Duration) -> Result<bool, String> {
    // The moment is the plan's; there is nothing to wait for.
    tokio::time::sleep(after).await;
    let caller = Caller::new(stage)?;
    let Some(answer) = caller.post(&format!("/v1/projections/{name}/rebuild"), &json!({})).await? else {
        return Ok(false);
    };
    match answer.status {
        202 => Ok(true),
        // The last one is still in flight.
        409 => Ok(false),
        _ => Err(format!("a rebuild of {name} was answered with {answer:?}")),
    }
}

async fn joined<T>(task: Task<T>) -> Result<T, String> {
    task.await.map_err(|error| error.to_string())?
}
