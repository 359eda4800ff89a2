//! One round: load, the end of the hub, and what is stored afterwards.

use super::api::Api;
use super::calls::Trouble;
use super::check;
use super::evidence::{Evidence, mark};
use super::ledger::{Ledger, Old};
use super::load::{Connection, Load, send};
use super::plan::{End, Plan, fresh_name, lasting_topics};
use super::reader::{self, Observed};
use super::request::{Outcome, Request, Sent};
use super::site::Site;
use super::verdict;
use fastrand::Rng;
use std::time::Duration;

/// A hub that has not answered anything by then never will.
const FIRST_ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// The hub is ended in peace every so many rounds.
const CLEAN_STOP_EVERY: u32 = 5;
/// Everything there is, is read as a whole every so many rounds, while it is little and once it is much.
const WHOLE_EVERY: (u32, u32) = (5, 50);
/// What is still little.
const LITTLE_BYTES: u64 = 256 << 20;
/// A topic that came into being in a round is deleted so many rounds later.
const FRESH_LIVES: u32 = 3;
/// How many events of a round are remembered for later ones, at most.
const REMEMBER: usize = 10;

/// All rounds so far.
pub struct Chaos {
    site: Site,
    ledger: Ledger,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    requests: u64,
    unanswered: u64,
    kills: u32,
    kills_mid_request: u32,
}

impl Chaos {
    /// Starts where nothing is yet.
    pub fn begin(site: Site) -> Self {
        Self { site, ledger: Ledger::default(), counts: Counts::default() }
    }

    /// How it goes.
    pub fn summary(&self, rounds: u32, took: Duration) -> String {
        let Counts { requests, unanswered, kills, kills_mid_request } = self.counts;
        let (events, mib) = (self.ledger.events, self.site.bytes() >> 20);
        format!(
            "chaos: {rounds} rounds, {events} events, {kills_mid_request} of {kills} kills mid-request; \
             {requests} requests, {unanswered} of them unanswered; {mib} MiB, {took:.0?}"
        )
    }

    /// Does a round. After it, the hub runs.
    pub async fn round(mut self, plan: &Plan, is_last: bool) -> Result<Self, String> {
        let (sent, observed) = self.load_and_end(plan).await?;
        self.count(plan, &sent);
        self.site.recover(plan).await?;
        let checked = self.judge(plan, sent, observed).await;
        self.site.explain(checked).await?;
        let whole = self.is_time_for_the_whole(plan.round) || is_last;
        if whole {
            check::prefixes(&Api::new(&self.site.doors())?, &self.ledger).await?;
        }
        if plan.round.is_multiple_of(CLEAN_STOP_EVERY) || is_last {
            self.site.stop_and_start(plan, whole)?;
        }
        Ok(self)
    }

    /// Lets connections publish and a reader read, and ends the hub in the middle of it.
    async fn load_and_end(&mut self, plan: &Plan) -> Result<(Vec<Sent>, Observed), String> {
        let (doors, trouble) = (self.site.doors(), self.site.trouble(plan));
        let load = Load::new((plan, trouble.clone()), self.ledger.heads.clone(), self.ledger.olds.clone());
        let mut connections = Vec::new();
        for number in 0..plan.connections {
            connections.push(tokio::spawn(Connection::new(number, &doors, load.clone())?.run()));
        }
        let starts = self.ledger.reader_starts(lasting_topics());
        let reader = tokio::spawn(reader::run(Api::new(&doors)?, starts, trouble));
        let answered = tokio::time::timeout(FIRST_ANSWER_WITHIN, load.first_answer()).await;
        let struck = self.site.strike(plan).await;
        self.site.explain(struck).await?;
        let mut sent = Vec::new();
        for connection in connections {
            sent.extend(connection.await.map_err(|error| error.to_string())??);
        }
        let observed = reader.await.map_err(|error| error.to_string())??;
        answered.map_err(|_| format!("the hub answered nothing within {FIRST_ANSWER_WITHIN:?}"))?;
        Ok((sent, observed))
    }

    fn count(&mut self, plan: &Plan, sent: &[Sent]) {
        let unanswered = sent.iter().filter(|sent| matches!(sent.outcome, Outcome::Unanswered)).count();
        self.counts.requests += sent.len() as u64;
        self.counts.unanswered += unanswered as u64;
        if plan.end == End::Kill {
            self.counts.kills += 1;
            self.counts.kills_mid_request += u32::from(unanswered > 0);
        }
    }

    /// Holds what was answered against what is there, twice: as it was left, and after everything that was not
    /// answered was sent again.
    async fn judge(&mut self, plan: &Plan, sent: Vec<Sent>, observed: Observed) -> Result<(), String> {
        let api = Api::new(&self.site.doors())?;
        let mut evidence = Evidence::new(&sent, observed, &self.ledger);
        check::tails(&api, plan, &mut self.ledger, &mut evidence).await?;
        evidence.nothing_seen_is_gone()?;
        verdict::each(&sent, &evidence)?;
        verdict::in_order(&sent)?;
        let again = send_again(&api, &sent, &evidence).await?;
        check::tails(&api, plan, &mut self.ledger, &mut evidence).await?;
        verdict::each(&again, &evidence)?;
        verdict::once(sent.iter().chain(&again))?;
        check::samples(&api, &self.ledger).await?;
        self.remember(plan, &sent, &evidence);
        self.delete_fresh(&api, plan.round).await
    }

    /// Keeps some events for later rounds.
    fn remember(&mut self, plan: &Plan, sent: &[Sent], evidence: &Evidence) {
        let mut rng = Rng::with_seed(plan.seed);
        let new = sent.iter().filter(|sent| sent.request.known.is_none());
        let mut candidates: Vec<_> = new
            .flat_map(|sent| sent.request.drafts.iter().map(|draft| (&sent.request.topic, draft)))
            .filter(|(_, draft)| draft.id.is_some())
            .collect();
        rng.shuffle(&mut candidates);
        for (topic, draft) in candidates.into_iter().take(REMEMBER) {
            if let Some(found) = evidence.found.get(&mark(&topic.name, &draft.payload)) {
                let old = Old { topic: topic.clone(), draft: draft.clone(), place: found.place };
                self.ledger.remember(old, &mut rng);
            }
        }
    }

    async fn delete_fresh(&mut self, api: &Api, round: u32) -> Result<(), String> {
        let name = fresh_name(round.saturating_sub(FRESH_LIVES));
        if self.ledger.topics.contains_key(&name) {
            api.delete_topic(&name).await?;
            self.ledger.forget(&name);
        }
        Ok(())
    }

    fn is_time_for_the_whole(&self, round: u32) -> bool {
        let (while_little, while_much) = WHOLE_EVERY;
        let little = self.site.bytes() < LITTLE_BYTES;
        round.is_multiple_of(if little { while_little } else { while_much })
    }
}

/// Sends everything again that was not answered and cannot become two.
async fn send_again(api: &Api, sent: &[Sent], evidence: &Evidence) -> Result<Vec<Sent>, String> {
    let mut again = Vec::new();
    let unanswered = sent.iter().filter(|sent| matches!(sent.outcome, Outcome::Unanswered));
    for Sent { connection, request, .. } in unanswered.filter(|sent| sent.request.is_repeatable()) {
        let outcome = send(api, request, &Trouble::None).await?;
        match &outcome {
            Outcome::Unanswered => {
                return Err("a publish to a hub that nobody ended was not answered".to_owned());
            }
            Outcome::Published(published) => {
                let was_there = |index: usize| is_there(request, index, evidence);
                let wrong =
                    (0..published.len()).find(|index| was_there(*index) && !published[*index].duplicate);
                if let Some(index) = wrong {
                    let draft = &request.drafts[index];
                    return Err(format!(
                        "an event was there and became new when it was sent again: {draft:?}"
                    ));
                }
            }
            _ => {}
        }
        again.push(Sent { connection: *connection, request: request.clone(), outcome });
    }
    Ok(again)
}

fn is_there(request: &Request, index: usize, evidence: &Evidence) -> bool {
    evidence.found.contains_key(&mark(&request.topic.name, &request.drafts[index].payload))
}
