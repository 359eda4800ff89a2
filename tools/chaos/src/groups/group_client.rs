//! The calls of a member of a group: pulls, acks, nacks and extends, all of them recorded.

use super::calls::{Caller, Reply, RoundContext};
use super::history::{Answer, Delivery, History, LostPull, Said, Span, Verb};
use super::spec::Spec;
use crate::calls::Trouble;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

/// A pull that its client has dropped is over so long after it was to wait.
const DROPPED_PULL_US: u64 = 1_000_000;
/// One that a hub has given up on may go on so long at another one.
const LOST_PULL_US: u64 = 10_000_000;

#[derive(Deserialize)]
struct Pulled {
    deliveries: Vec<PulledDelivery>,
}

#[derive(Deserialize)]
struct PulledDelivery {
    event: PulledEvent,
    ctx: Context,
}

#[derive(Deserialize)]
struct PulledEvent {
    id: Uuid,
    partition: u32,
    offset: u64,
}

#[derive(Deserialize)]
struct Context {
    attempt: u32,
    #[serde(rename = "maxAttempts")]
    max_attempts: u32,
    ack_deadline_ms: u64,
    lease: String,
}

#[derive(Deserialize)]
struct Settled {
    results: Vec<Outcome>,
}

#[derive(Deserialize)]
struct Outcome {
    lease: String,
    ok: bool,
    error: Option<String>,
}

/// What a pull asks for.
#[derive(Debug, Clone)]
pub struct Pull {
    /// Who asks; empty for nobody in particular.
    pub member: String,
    /// How many events at most.
    pub max: usize,
    /// How long to wait.
    pub wait_ms: u64,
    /// How many open leases at most.
    pub max_in_flight: usize,
    /// When to hang up.
    pub drop_after: Option<Duration>,
}

/// Something to say of a lease.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// The token.
    pub lease: String,
    /// What.
    pub verb: Verb,
    /// Why, where it is a nack.
    pub reason: String,
    /// When to try again, where it is a nack.
    pub delay_ms: Option<u64>,
}

/// Someone who speaks to a group.
pub struct GroupClient {
    /// The group.
    pub spec: Spec,
    /// What was said and heard.
    pub history: History,
    caller: Caller,
}

impl GroupClient {
    /// One that has said nothing yet.
    pub fn new(spec: Spec, stage: RoundContext) -> Result<Self, String> {
        Ok(Self { spec, history: History::default(), caller: Caller::new(stage)? })
    }

    /// What is to be expected.
    pub fn trouble(&self) -> &Trouble {
        &self.caller.stage.trouble
    }

    /// The time.
    pub fn now(&self) -> u64 {
        self.caller.stage.clock.now()
    }

    /// Pulls, and records it. `None`: the hub is gone.
    pub async fn pull(&mut self, pull: &Pull) -> Result<Option<Vec<Delivery>>, String> {
        let mut body = json!({"max": pull.max, "waitMs": pull.wait_ms, "maxInFlight": pull.max_in_flight});
        if !pull.member.is_empty() {
            body["member"] = json!(pull.member);
        }
        let path = format!("/v1/topics/{}/groups/{}/pull", self.spec.topic, self.spec.group);
        let start = self.caller.stage.clock.now();
        let reply = self.caller.post::<Pulled>(&path, &body, pull.drop_after).await?;
        let mut span = self.caller.stage.span(start);
        match reply {
            Reply::Answered(pulled) => {
                let delivered = pulled.deliveries.into_iter().map(|d| delivery(&self.spec, pull, span, d));
                let delivered = delivered.collect::<Result<Vec<Delivery>, String>>()?;
                self.history.deliveries.extend(delivered.iter().cloned());
                Ok(Some(delivered))
            }
            Reply::Dropped => {
                span.end += pull.wait_ms * 1_000 + DROPPED_PULL_US;
                self.history.lost.push(LostPull { pull: span, dropped: true });
                Ok(Some(Vec::new()))
            }
            Reply::Gone => {
                let goes_on = self.caller.stage.trouble.goes_on();
                if matches!(self.caller.stage.trouble, Trouble::Faults(_)) {
                    span.end += LOST_PULL_US;
                }
                self.history.lost.push(LostPull { pull: span, dropped: false });
                Ok(goes_on.then(Vec::new))
            }
        }
    }

    /// Says several things in one call, and records it. `false`: the hub is gone.
    pub async fn say(&mut self, words: &[Settlement], drop_after: Option<Duration>) -> Result<bool, String> {
        let order = |word: &&Settlement| match word.verb {
            Verb::Ack => 0,
            Verb::Nack => 1,
            Verb::Extend(_) => 2,
        };
        let mut words: Vec<&Settlement> = words.iter().collect();
        words.sort_by_key(order);
        let path = format!("/v1/topics/{}/groups/{}/ack", self.spec.topic, self.spec.group);
        let start = self.caller.stage.clock.now();
        let reply = self.caller.post::<Settled>(&path, &settle_body(&words), drop_after).await?;
        let call = self.caller.stage.span(start);
        let gone = matches!(reply, Reply::Gone);
        let answers = match reply {
            Reply::Answered(settled) => answers(&words, &settled)?,
            Reply::Dropped | Reply::Gone => vec![Answer::Unanswered; words.len()],
        };
        for (word, answer) in words.into_iter().zip(answers) {
            let Settlement { lease, verb, reason, delay_ms } = word.clone();
            let delay_us = delay_ms.map(|delay| delay * 1_000);
            self.history.said.push(Said { call, lease, verb, reason, delay_us, answer });
        }
        Ok(!gone || self.caller.stage.trouble.goes_on())
    }
}

fn delivery(spec: &Spec, pull: &Pull, span: Span, got: PulledDelivery) -> Result<Delivery, String> {
    let PulledDelivery { event, ctx } = got;
    if ctx.max_attempts != spec.max_attempts || ctx.ack_deadline_ms > spec.ack_timeout_ms {
        let (max, left) = (ctx.max_attempts, ctx.ack_deadline_ms);
        return Err(format!("a delivery of {spec:?} has maxAttempts {max} and {left} ms left"));
    }
    Ok(Delivery {
        pull: span,
        member: pull.member.clone(),
        spot: (event.partition, event.offset),
        id: event.id,
        attempt: ctx.attempt,
        lease: ctx.lease,
    })
}

fn settle_body(words: &[&Settlement]) -> Value {
    let (mut ack, mut nack, mut extend) = (Vec::new(), Vec::new(), Vec::new());
    for Settlement { lease, verb, reason, delay_ms } in words {
        match verb {
            Verb::Ack => ack.push(json!(lease)),
            Verb::Nack => match delay_ms {
                Some(delay) => nack.push(json!({"lease": lease, "reason": reason, "delayMs": delay})),
                None => nack.push(json!({"lease": lease, "reason": reason})),
            },
            Verb::Extend(by) => extend.push(json!({"lease": lease, "extend_ms": by / 1_000})),
        }
    }
    json!({"ack": ack, "nack": nack, "extend": extend})
}

fn answers(words: &[&Settlement], settled: &Settled) -> Result<Vec<Answer>, String> {
    let same = |(word, result): (&&Settlement, &Outcome)| word.lease == result.lease;
    if words.len() != settled.results.len() || !words.iter().zip(&settled.results).all(same) {
        return Err("the results of an ack are not those of its leases, in order".to_owned());
    }
    let answer = |result: &Outcome| match (result.ok, result.error.as_deref()) {
        (true, None) => Ok(Answer::Ok),
        (false, Some("lease_expired")) => Ok(Answer::Refused),
        (ok, error) => Err(format!("a lease was answered with ok {ok} and error {error:?}")),
    };
    settled.results.iter().map(answer).collect()
}
