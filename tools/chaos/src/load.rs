//! The load: connections that publish concurrently, and record their answers.

use super::api::{Api, Doors};
use super::calls::Trouble;
use super::draft::{Draft, Drafter};
use super::ledger::{ChainKey, Old};
use super::plan::{End, Plan, Topic};
use super::request::{Form, Outcome, Request, Sent};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;
use uuid::Uuid;

/// Maximum number of requests carry the same event with the same id, from whichever connections that come next.
const SHARED_BY: u64 = 4;
/// One in so many of those exists in two versions, of which one must be refused.
const CONFLICT_ONE_IN: u64 = 4;
/// The longest ordinary array, and the most lines.
const ARRAY_EVENTS: usize = 20;
/// Lines that do not fit into one commit.
const MANY_LINES: usize = 1_500;
/// Events and bytes of a large array, so that a kill may hit the middle of a write.
const LARGE: (usize, usize) = (12, 64 << 10);
/// How many keys of a topic have chains.
const CHAIN_KEYS: u32 = 4;
/// The topics that have chains.
const CHAIN_TOPICS: [usize; 2] = [1, 3];

/// What all connections of a round share.
pub struct Load {
    plan: Plan,
    trouble: Trouble,
    topics: Vec<Arc<Topic>>,
    shared: AtomicU64,
    heads: Mutex<HashMap<ChainKey, Uuid>>,
    olds: Vec<Old>,
    first_answer: Notify,
}

impl Load {
    /// A load that goes on where earlier rounds ended: with the last events of chains, and some old events.
    pub fn new(
        (plan, trouble): (&Plan, Trouble),
        heads: HashMap<ChainKey, Uuid>,
        olds: Vec<Old>,
    ) -> Arc<Self> {
        Arc::new(Self {
            plan: plan.clone(),
            trouble,
            topics: plan.topics().into_iter().map(Arc::new).collect(),
            shared: AtomicU64::new(0),
            heads: Mutex::new(heads),
            olds,
            first_answer: Notify::new(),
        })
    }

    /// Waits until a request was answered.
    pub async fn first_answer(&self) {
        self.first_answer.notified().await;
    }

    fn head(&self, key: &ChainKey) -> Option<Uuid> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()
    }

    fn set_head(&self, key: ChainKey, head: Option<Uuid>) {
        let mut heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
        match head {
            Some(head) => heads.insert(key, head),
            None => heads.remove(&key),
        };
    }
}

/// One connection.
pub struct Connection {
    number: usize,
    api: Api,
    drafter: Drafter,
    load: Arc<Load>,
}

impl Connection {
    /// A connection to any of the hubs.
    pub fn new(number: usize, doors: &Doors, load: Arc<Load>) -> Result<Self, String> {
        let seed = load.plan.seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let drafter = Drafter::new(format!("r{}c{number}", load.plan.round), seed);
        Ok(Self { number, api: Api::new(doors)?, drafter, load })
    }

    /// Publishes until the hub is gone or everything is over, and says everything that was sent.
    pub async fn run(mut self) -> Result<Vec<Sent>, String> {
        let mut sent = Vec::new();
        let trouble = self.load.trouble.clone();
        loop {
            let request = self.next_request();
            let outcome = send(&self.api, &request, &trouble).await?;
            let is_silent = matches!(outcome, Outcome::Unanswered);
            let is_last = trouble.is_over() || (is_silent && !trouble.goes_on());
            if !is_silent {
                self.load.first_answer.notify_one();
            }
            self.learn(&request, &outcome);
            sent.push(Sent { connection: self.number, request, outcome });
            if is_last {
                return Ok(sent);
            }
            trouble.pace().await;
        }
    }

    fn next_request(&mut self) -> Request {
        match self.drafter.rng.u32(..1_000) {
            0..300 => self.unshared(Form::Single, 1),
            300..450 => self.unshared(Form::Raw, 1),
            450..630 => self.array(),
            630..690 => {
                let count = self.drafter.rng.usize(2..=ARRAY_EVENTS);
                self.unshared(Form::Lines, count)
            }
            690..840 => self.chain(),
            840..940 => self.shared(),
            940..998 => self.old(),
            998 => self.many_lines(),
            _ => self.large(),
        }
    }

    fn any_topic(&mut self) -> Arc<Topic> {
        let index = self.drafter.rng.usize(..self.load.topics.len());
        self.load.topics[index].clone()
    }

    fn unshared(&mut self, form: Form, count: usize) -> Request {
        let topic = self.any_topic();
        let drafts = (0..count).map(|_| Arc::new(self.drafter.draft(&topic))).collect();
        Request { topic, form, drafts, known: None }
    }

    /// An array, sometimes with an event twice, sometimes with one that others send too.
    fn array(&mut self) -> Request {
        let count = self.drafter.rng.usize(2..=ARRAY_EVENTS);
        let mut request = self.unshared(Form::Array, count);
        let repeat = request.drafts.iter().find(|draft| draft.id.is_some()).cloned();
        match self.drafter.rng.u32(..8) {
            0 => request.drafts.extend(repeat),
            1 | 2 => {
                let (topic, draft, in_two_versions) = self.shared_draft();
                if topic == request.topic && !in_two_versions {
                    request.drafts.insert(1, draft);
                }
            }
            _ => {}
        }
        request
    }

    fn many_lines(&mut self) -> Request {
        let topic = self.any_topic();
        let drafts = (0..MANY_LINES).map(|_| Arc::new(self.drafter.bare(0))).collect();
        Request { topic, form: Form::Lines, drafts, known: None }
    }

    fn large(&mut self) -> Request {
        let topic = self.any_topic();
        let (count, fill) = LARGE;
        let mut draft = || Draft { id: Some(self.drafter.id()), ..self.drafter.bare(fill) };
        let drafts = (0..count).map(|_| Arc::new(draft())).collect();
        Request { topic, form: Form::Array, drafts, known: None }
    }

    /// An event that some other connections send at about the same time.
    fn shared(&mut self) -> Request {
        let (topic, draft, _) = self.shared_draft();
        let form = if self.drafter.rng.bool() { Form::Single } else { Form::Raw };
        Request { topic, form, drafts: vec![draft], known: None }
    }

    /// Its topic, itself, and whether another version of it goes round.
    fn shared_draft(&self) -> (Arc<Topic>, Arc<Draft>, bool) {
        let count = self.load.shared.fetch_add(1, Ordering::Relaxed);
        let number = count / SHARED_BY;
        let in_two_versions = number.is_multiple_of(CONFLICT_ONE_IN);
        let version = if in_two_versions { count % 2 } else { 0 };
        let Plan { round, seed, .. } = self.load.plan;
        let topic = self.load.topics[number as usize % self.load.topics.len()].clone();
        let mut drafter = Drafter::new(format!("r{round}s{number}v{version}"), seed.wrapping_add(number));
        let id = drafter.id();
        let draft = Draft { id: Some(id), ts: None, shared: true, ..drafter.draft(&topic) };
        (topic, Arc::new(draft), in_two_versions)
    }

    /// An event of an earlier round once more.
    fn old(&mut self) -> Request {
        if self.load.olds.is_empty() {
            return self.unshared(Form::Single, 1);
        }
        let old = &self.load.olds[self.drafter.rng.usize(..self.load.olds.len())];
        let form = if self.drafter.rng.bool() { Form::Single } else { Form::Array };
        Request { topic: old.topic.clone(), form, drafts: vec![old.draft.clone()], known: Some(old.place) }
    }

    /// Events that go on where everyone thinks that a chain ends.
    fn chain(&mut self) -> Request {
        let rng = &mut self.drafter.rng;
        let topic = self.load.topics[CHAIN_TOPICS[rng.usize(..CHAIN_TOPICS.len())]].clone();
        let key = format!("chain-{}", rng.u32(..CHAIN_KEYS));
        let (links, with_ids) = if rng.u32(..4) == 0 { (rng.usize(2..=3), true) } else { (1, rng.bool()) };
        let mut last = self.load.head(&(topic.name.clone(), key.clone()));
        let mut drafts = Vec::new();
        for _ in 0..links {
            let id = with_ids.then(|| self.drafter.id());
            let draft = Draft { key: Some(key.clone()), id, expect: Some(last), ..self.drafter.bare(20) };
            drafts.push(Arc::new(draft));
            last = id;
        }
        let form = if links > 1 { Form::Array } else { Form::Single };
        Request { topic, form, drafts, known: None }
    }

    /// Takes over where chains end now.
    fn learn(&self, request: &Request, outcome: &Outcome) {
        let Some(Draft { key: Some(key), expect: Some(_), .. }) =
            request.drafts.first().map(|draft| &**draft)
        else {
            return;
        };
        let key = (request.topic.name.clone(), key.clone());
        match outcome {
            Outcome::Published(published) => {
                self.load.set_head(key, published.last().and_then(|last| last.id.parse().ok()))
            }
            Outcome::NotExpected { actual } => self.load.set_head(key, *actual),
            _ => {}
        }
    }
}

/// Sends a request. Not to be answered is an outcome too; to be answered with nonsense is an error.
pub async fn send(api: &Api, request: &Request, trouble: &Trouble) -> Result<Outcome, String> {
    let wrong = |why: String| {
        let first = request.drafts.first();
        format!("a publish to {} as {:?} of {first:?} ...: {why}", request.topic.name, request.form)
    };
    let Ok(response) = request.build(&api.client, api.base())?.send().await else {
        return Ok(Outcome::Unanswered);
    };
    let status = response.status().as_u16();
    match response.text().await {
        // A hub that was asked to end may say so.
        Ok(_) if status == 503 && matches!(trouble, Trouble::End(End::Terminate)) => Ok(Outcome::Unanswered),
        Ok(body) if status == 503 && matches!(trouble, Trouble::Faults(_)) => Ok(request.unavailable(&body)),
        Ok(body) => request.understand(status, &body).map_err(wrong),
        // The head of the answer has said it all.
        Err(_) if status == 201 => Ok(Outcome::Accepted),
        Err(_) => Ok(Outcome::Unanswered),
    }
}
