//! Consumers: they settle what they pull by commits, with a write and a publish for each event. Some let leases expire,
//! commit twice, or include a lease that is already settled.

use super::ledger::{Commit, Fate, Pending};
use super::setup::{GROUP, IN, OUT};
use crate::calls::{Answer, Caller, RoundContext};
use fastrand::Rng;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use uuid::Uuid;

/// One page in so many is left to the others.
const LAPSE_ONE_IN: u32 = 15;
/// One commit in so many has a lease that is spent.
const SPOILED_ONE_IN: u32 = 15;
/// One commit in so many is sent again.
const AGAIN_ONE_IN: u32 = 8;

#[derive(Deserialize)]
struct Pulled {
    deliveries: Vec<Delivery>,
}

#[derive(Deserialize)]
struct Delivery {
    event: Event,
    ctx: Context,
}

#[derive(Deserialize)]
struct Event {
    id: Uuid,
    key: String,
}

#[derive(Deserialize)]
struct Context {
    lease: String,
}

/// A consumer.
pub struct Consumer {
    /// Its name.
    pub name: String,
    /// Where its randomness comes from.
    pub rng: Rng,
    /// Whether it never does what it should not.
    pub good: bool,
}

/// What a consumer leaves behind.
#[derive(Default)]
pub struct Legacy {
    /// Its commits, by name.
    pub commits: BTreeMap<String, Commit>,
    /// Those that were not answered and can be repeated.
    pub pending: Vec<Pending>,
}

/// What goes on while a consumer works.
struct Work {
    consumer: Consumer,
    caller: Caller,
    legacy: Legacy,
    /// A lease that was settled before.
    spent: Option<String>,
}

impl Consumer {
    /// Pulls and commits until the hub is gone, or until nothing comes where it is good.
    pub async fn run(self, stage: RoundContext) -> Result<Legacy, String> {
        let caller = Caller::new(stage)?;
        let mut work = Work { consumer: self, caller, legacy: Legacy::default(), spent: None };
        while work.step().await? {}
        Ok(work.legacy)
    }
}

impl Work {
    /// Whether there may be more to do.
    async fn step(&mut self) -> Result<bool, String> {
        if self.caller.stage.trouble.is_over() {
            return Ok(false);
        }
        self.caller.stage.trouble.pace().await;
        let rng = &mut self.consumer.rng;
        let max = [1, 3, 10, 40][rng.usize(..4)];
        let body = json!({"member": self.consumer.name, "max": max, "waitMs": 50, "maxInFlight": 100});
        let Some(answer) = self.caller.post(&format!("/v1/topics/{IN}/groups/{GROUP}/pull"), &body).await?
        else {
            return Ok(self.goes_on());
        };
        let pulled: Pulled = answer.parse().map_err(|why| format!("a pull was {why}"))?;
        if pulled.deliveries.is_empty() {
            return Ok(!self.consumer.good);
        }
        if self.sometimes(LAPSE_ONE_IN) {
            return Ok(true);
        }
        let name = format!("{}.{}", self.consumer.name, self.legacy.commits.len());
        let with_id = self.consumer.rng.bool();
        let mut body = commit_of(&name, &pulled.deliveries);
        if let Some(spent) = self.spent.clone().filter(|_| self.sometimes(SPOILED_ONE_IN)) {
            let mut spoiled = body.clone();
            if let Some(leases) = spoiled["ack"].as_array_mut() {
                leases.push(json!(spent));
            }
            match self.caller.post("/v1/commit", &spoiled).await? {
                None => return Ok(self.note(name, &pulled, Fate::Refused)),
                Some(answer) if answer.is_error(409, "lease_expired") => {}
                Some(answer) => return Err(format!("a commit with a spent lease: {answer:?}")),
            }
        }
        if with_id {
            body["commit_id"] = json!(name);
        }
        self.commit(name, &pulled, body).await
    }

    /// Whether there is more to do after a call that was not answered.
    fn goes_on(&self) -> bool {
        self.caller.stage.trouble.goes_on()
    }

    fn sometimes(&mut self, one_in: u32) -> bool {
        !self.consumer.good && self.consumer.rng.u32(..one_in) == 0
    }

    /// Notes a commit, and says whether there is more to do if it was not answered.
    fn note(&mut self, name: String, pulled: &Pulled, fate: Fate) -> bool {
        let takes = pulled.deliveries.iter().map(|delivery| delivery.event.id).collect();
        self.legacy.commits.insert(name, Commit { takes, fate });
        self.goes_on()
    }

    async fn commit(&mut self, name: String, pulled: &Pulled, body: Value) -> Result<bool, String> {
        let Some(answer) = self.caller.post("/v1/commit", &body).await? else {
            if body.get("commit_id").is_some() {
                self.legacy.pending.push(Pending { name: name.clone(), body });
            }
            return Ok(self.note(name, pulled, Fate::Unknown));
        };
        let fate = fate_of(&answer).map_err(|why| format!("commit {name} was {why}"))?;
        self.note(name, pulled, fate);
        if fate == Fate::Done {
            self.spent = pulled.deliveries.first().map(|delivery| delivery.ctx.lease.clone());
        }
        if fate == Fate::Done && self.sometimes(AGAIN_ONE_IN) {
            let Some(again) = self.caller.post("/v1/commit", &body).await? else { return Ok(self.goes_on()) };
            let same = if body.get("commit_id").is_some() {
                again == answer
            } else {
                again.is_error(409, "lease_expired")
            };
            if !same {
                return Err(format!("{body} was answered with {answer:?}, and again with {again:?}"));
            }
        }
        Ok(true)
    }
}

/// What an answer to a commit with leases means.
pub fn fate_of(answer: &Answer) -> Result<Fate, String> {
    if answer.is_error(409, "lease_expired") {
        return Ok(Fate::Refused);
    }
    answer.parse::<Value>().map(|_| Fate::Done)
}

/// All that a page is settled by: for each event a count of its key and an event of its own, and a pair of totals.
fn commit_of(name: &str, deliveries: &[Delivery]) -> Value {
    let leases: Vec<&str> = deliveries.iter().map(|delivery| delivery.ctx.lease.as_str()).collect();
    let inc = |collection: &str, key: &str, by: usize| json!({"collection": collection, "key": key, "inc": {"n": by}});
    let mut writes = vec![inc("totals", "left", deliveries.len())];
    writes.extend(deliveries.iter().map(|delivery| inc("done", &delivery.event.key, 1)));
    writes.push(inc("totals", "right", deliveries.len()));
    let publish = |delivery: &Delivery| json!({"topic": OUT, "key": delivery.event.key, "payload": {"by": name, "of": delivery.event.id}});
    json!({"ack": leases, "writes": writes, "publish": deliveries.iter().map(publish).collect::<Vec<_>>()})
}
