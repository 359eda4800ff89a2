//! Consumer groups under a hub that is killed: members that crash, stall, ack late and repeat themselves, and a checker
//! that judges what they recorded.

mod calls;
mod checker;
mod drain;
mod group_client;
mod history;
mod member;
mod producer;
mod replay;
mod spec;
mod truth;

use super::api::Api;
use super::calls::Trouble;
use super::plan::Plan;
use super::site::Site;
use calls::RoundContext;
use checker::{Era, Tally};
use history::{Clock, History, Letter, Micros, Published};
use member::{Legacy, Member, Role};
use producer::Producer;
use serde_json::json;
use spec::{GroupsPlan, PARTITIONS, SPECS, Spec, TOPICS};
use std::time::Duration;
use tokio::task::JoinHandle;
use truth::{Events, Read, Unread};

/// All groups are drained and judged every so many rounds.
const DRAIN_EVERY: u32 = 4;
/// How many producers a topic has.
const PRODUCERS: usize = 2;

/// All rounds so far.
pub struct Groups {
    site: Site,
    clock: Clock,
    /// When each life of the hub but this one had ended.
    deaths: Vec<Micros>,
    topics: Vec<TopicFacts>,
    /// In the order of the specs.
    groups: Vec<GroupFacts>,
    tally: Tally,
    events: u64,
}

#[derive(Default)]
struct TopicFacts {
    read: Read,
    letters_read: Read,
    published: Published,
}

#[derive(Default)]
struct GroupFacts {
    history: History,
    leftovers: Vec<String>,
}

/// What was new in a topic when its groups were judged.
struct Judged {
    topic: &'static str,
    events: Events,
    letters: Vec<Letter>,
}

impl Judged {
    /// The dead letters of a group.
    fn of<'a>(&'a self, spec: &'a Spec) -> impl Iterator<Item = &'a Letter> {
        self.letters.iter().filter(|letter| letter.group == spec.group)
    }
}

type Task<T> = JoinHandle<Result<T, String>>;

impl Groups {
    /// Makes all topics and groups, where nothing is yet.
    pub async fn begin(site: Site) -> Result<Self, String> {
        let api = Api::new(&site.doors())?;
        for topic in TOPICS {
            let body = json!({"partitions": PARTITIONS.0, "durability": topic.durability});
            api.put(&format!("/v1/topics/{}", topic.name), &body).await?;
        }
        for spec in SPECS {
            let path = format!("/v1/topics/{}/groups/{}", spec.topic, spec.group);
            api.put(&path, &spec.options()).await?;
        }
        Ok(Self {
            site,
            clock: Clock::start(),
            deaths: Vec::new(),
            topics: TOPICS.iter().map(|_| TopicFacts::default()).collect(),
            groups: SPECS.iter().map(|_| GroupFacts::default()).collect(),
            tally: Tally::default(),
            events: 0,
        })
    }

    /// How it goes.
    pub fn summary(&self, rounds: u32, took: Duration) -> String {
        let Tally { deliveries, again, exact, letters, said, refused } = self.tally;
        let (events, partitions) = (self.events, self.topics.iter().map(|t| t.read.len()).sum::<usize>());
        format!(
            "groups: {rounds} rounds, {events} events in {partitions} partitions, {deliveries} deliveries, {again} of them again, \
             {exact} with an attempt beyond doubt; {letters} dead letters; {said} words, {refused} refused; {took:.0?}"
        )
    }

    /// Does a round. After it, the hub runs.
    pub async fn round(mut self, plan: &Plan, is_last: bool) -> Result<Self, String> {
        let plan = GroupsPlan::new(plan.clone());
        self.load_and_end(&plan).await?;
        self.site.recover(&plan.base).await?;
        if plan.base.round.is_multiple_of(DRAIN_EVERY) || is_last {
            let judged = self.drain_and_judge(&plan).await;
            self.site.explain(judged).await?;
        }
        Ok(self)
    }

    fn stage(&self, trouble: Trouble) -> RoundContext {
        let life = u32::try_from(self.deaths.len()).unwrap_or(u32::MAX);
        RoundContext { doors: self.site.doors(), clock: self.clock, life, trouble }
    }

    /// Kills the hub in the middle of what it does, and starts it again. Several are left alone.
    fn kill(&mut self, plan: &GroupsPlan) -> Result<(), String> {
        let now = self.clock.now();
        if self.site.kill_and_start(&plan.base)? {
            self.deaths.push(now);
        }
        Ok(())
    }

    /// Lets members and producers work, and ends the hub in the middle of it.
    async fn load_and_end(&mut self, plan: &GroupsPlan) -> Result<(), String> {
        let stage = self.stage(self.site.trouble(&plan.base));
        let growth = plan.growth.map(|growth| tokio::spawn(producer::grow(stage.clone(), growth)));
        let producers = producers(plan, &stage);
        let members = self.members(plan, &stage)?;
        let struck = self.site.strike(&plan.base).await;
        self.site.explain(struck).await?;
        if !self.site.is_many() {
            self.deaths.push(self.clock.now());
        }
        for (topic, producer) in producers {
            self.topics[topic].published.extend(joined(producer).await?);
        }
        for (group, member) in members {
            let Legacy { history, leftovers } = joined(member).await?;
            self.groups[group].history.absorb(history);
            self.groups[group].leftovers.extend(leftovers);
        }
        if let Some(growth) = growth {
            joined(growth).await?;
        }
        Ok(())
    }

    fn members(
        &mut self,
        plan: &GroupsPlan,
        stage: &RoundContext,
    ) -> Result<Vec<(usize, Task<Legacy>)>, String> {
        let mut members = Vec::new();
        for (group, spec) in SPECS.iter().enumerate() {
            let mut old = std::mem::take(&mut self.groups[group].leftovers);
            for n in 0..spec.members {
                let name = format!("r{}.{n}", plan.base.round);
                let rng = plan.rng(&format!("{} {} {name}", spec.topic, spec.group));
                let old = old.split_off(old.len().saturating_sub(member::LEFTOVERS));
                let role = Role { spec: *spec, name, rng, old, hangs_up: plan.hang_ups };
                let member = Member::new(role, stage.clone())?;
                members.push((group, tokio::spawn(member.run())));
            }
        }
        Ok(members)
    }

    /// Lets all groups settle everything.
    async fn drain(&mut self) -> Result<(), String> {
        let stage = self.stage(Trouble::None);
        let drains: Vec<_> =
            SPECS.iter().map(|spec| tokio::spawn(drain::run(*spec, stage.clone()))).collect();
        let mut stuck = Ok(());
        for (group, drain) in drains.into_iter().enumerate() {
            match joined(drain).await {
                Ok(history) => self.groups[group].history.absorb(history),
                Err(why) => stuck = Err(why),
            }
        }
        stuck
    }

    /// Judges what has happened since that was last done; `also` are older events that a group has to settle too.
    async fn judge(&mut self, also: impl Fn(&Spec) -> Events) -> Result<Vec<Judged>, String> {
        let api = Api::new(&self.site.doors())?;
        let (mut wrong, mut judged) = (Vec::new(), Vec::new());
        for (topic, facts) in TOPICS.iter().zip(&mut self.topics) {
            let TopicFacts { read, published, .. } = facts;
            let new = truth::events(&api, Unread { topic: topic.name, read, published }).await?;
            let letters = truth::letters(&api, topic.name, &mut facts.letters_read).await?;
            facts.published.clear();
            self.events += new.len() as u64;
            for (spec, group) in SPECS.iter().zip(&self.groups).filter(|(spec, _)| spec.topic == topic.name) {
                let events = also(spec).into_iter().chain(new.clone()).collect();
                let (history, deaths, moves) = (&group.history, self.deaths.as_slice(), self.site.is_many());
                let era = Era { spec, history, events: &events, letters: &letters, deaths, moves };
                match checker::judge(&era) {
                    Ok(tally) => self.tally.add(tally),
                    Err(why) => wrong.push(why),
                }
            }
            judged.push(Judged { topic: topic.name, events: new, letters });
        }
        self.groups.iter_mut().for_each(|group| *group = GroupFacts::default());
        if wrong.is_empty() { Ok(judged) } else { Err(wrong.join("\n")) }
    }

    async fn drain_and_judge(&mut self, plan: &GroupsPlan) -> Result<(), String> {
        self.drain().await?;
        let judged = self.judge(|_| Events::new()).await?;
        self.replay(plan, &judged).await
    }
}

fn producers(plan: &GroupsPlan, stage: &RoundContext) -> Vec<(usize, Task<Published>)> {
    let mut producers = Vec::new();
    for (topic, spec) in TOPICS.iter().enumerate() {
        for n in 0..PRODUCERS {
            let name = format!("r{}p{n}", plan.base.round);
            let rng = plan.rng(&format!("{} {name}", spec.name));
            let producer = Producer { topic: spec.name, name, rng };
            producers.push((topic, tokio::spawn(producer::run(producer, stage.clone()))));
        }
    }
    producers
}

async fn joined<T>(task: Task<T>) -> Result<T, String> {
    task.await.map_err(|error| error.to_string())?
}
