//! The publishes of a connection: those to one topic happen in the order in which they came.
//!
//! What came together and cannot fail by itself goes together, as one commit: an event without an id of its own and
//! without an expectation is refused for what it is, before anything was sent, or for what befalls all of them.

use super::frames::Corr;
use crate::error::ApiError;
use crate::gateway::App;
use crate::rate::ConnectionRate;
use crate::routes::publish::{PublishError, Way, publish};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesOrdered, StreamExt};
use prombus_core::{Receipt, TopicName};
use prombus_engine::Outgoing;
use std::collections::{HashMap, HashSet, VecDeque};

/// At most so many publishes go together.
const MAX_TOGETHER: usize = 1_000;
/// At most so many bytes of them, about.
const MAX_TOGETHER_BYTES: usize = 1 << 20;

/// Events that a client wants published.
pub(super) struct Publish {
    pub corr: Corr,
    pub events: Vec<Outgoing>,
    pub array: bool,
    /// What it counts as while it is not answered.
    pub bytes: usize,
}

impl Publish {
    /// Whether it may go together with others.
    fn is_plain(&self) -> bool {
        self.events.iter().all(|one| one.event.id.is_none() && one.expect.is_none())
    }
}

/// What came of one.
pub(super) struct Published {
    pub corr: Corr,
    pub array: bool,
    pub bytes: usize,
    pub result: Result<Receipt, ApiError>,
}

/// What came of those that went together.
struct Gone {
    topic: TopicName,
    published: Vec<Published>,
}

/// The publishes that are under way.
pub(super) struct Publishing {
    app: App,
    rate: ConnectionRate,
    running: FuturesOrdered<BoxFuture<'static, Gone>>,
    /// Topics that a publish of this connection has found or made.
    known: HashSet<TopicName>,
    /// Publishes that wait for the first one to their topic. It may have to make the topic, and those that find out
    /// only then that it is there would be passed by later ones.
    behind: HashMap<TopicName, VecDeque<Publish>>,
    together: Option<Together>,
    /// At most so many bytes go together; 0 where each goes alone, because it is counted alone.
    max_together: usize,
}

/// Publishes that are about to go together.
struct Together {
    topic: TopicName,
    publishes: Vec<Publish>,
    bytes: usize,
}

impl Publishing {
    pub fn new(app: App, rate: ConnectionRate, commit_bytes: usize) -> Self {
        let limited = rate.is_limited() || app.rates.are_limited();
        let max_together = if limited { 0 } else { MAX_TOGETHER_BYTES.min(commit_bytes) };
        Self {
            max_together,
            app,
            rate,
            running: FuturesOrdered::new(),
            known: HashSet::new(),
            behind: HashMap::new(),
            together: None,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Takes a publish, which is under way once the next [`Self::submit`] is done.
    pub fn add(&mut self, topic: TopicName, publish: Publish) {
        if let Some(behind) = self.behind.get_mut(&topic) {
            behind.push_back(publish);
        } else if !self.known.contains(&topic) {
            self.behind.insert(topic.clone(), VecDeque::new());
            self.start(topic, vec![publish]);
        } else if publish.is_plain() && publish.bytes <= self.max_together {
            self.gather(topic, publish);
        } else {
            self.submit();
            self.start(topic, vec![publish]);
        }
    }

    fn gather(&mut self, topic: TopicName, publish: Publish) {
        let (bytes, most) = (publish.bytes, self.max_together);
        let fits = |with: &Together| {
            with.topic == topic && with.publishes.len() < MAX_TOGETHER && with.bytes + bytes <= most
        };
        match self.together.as_mut().filter(|with| fits(with)) {
            Some(with) => {
                with.publishes.push(publish);
                with.bytes += bytes;
            }
            None => {
                self.submit();
                self.together = Some(Together { topic, publishes: vec![publish], bytes });
            }
        }
    }

    /// Sends off what has gathered.
    pub fn submit(&mut self) {
        if let Some(Together { topic, publishes, .. }) = self.together.take() {
            self.start(topic, publishes);
        }
    }

    fn start(&mut self, topic: TopicName, publishes: Vec<Publish>) {
        let (app, rate) = (self.app.clone(), self.rate.clone());
        let work = async move {
            let published = go(Way { app: &app, rate: &rate, topic: &topic }, publishes).await;
            Gone { topic, published }
        };
        // Without the runtime's budget, whose end would hold some back at their start and let later ones pass them.
        self.running.push_back(tokio::task::unconstrained(work).boxed());
    }

    /// The next that are done; `None` where none are under way.
    pub async fn next(&mut self) -> Option<Vec<Published>> {
        let Gone { topic, published } = self.running.next().await?;
        self.go_on(&topic, published.iter().all(|one| one.result.is_ok()));
        Some(published)
    }

    /// The first publish to a topic is done: the others go on, or the next one is the first.
    fn go_on(&mut self, topic: &TopicName, went_well: bool) {
        let Some(mut behind) = self.behind.remove(topic) else { return };
        if went_well {
            self.known.insert(topic.clone());
            behind.into_iter().for_each(|publish| self.add(topic.clone(), publish));
            self.submit();
        } else if let Some(next) = behind.pop_front() {
            self.behind.insert(topic.clone(), behind);
            self.start(topic.clone(), vec![next]);
        }
    }
}

/// Publishes several as one commit, or one by one where one of them is to blame. That shows at once, before any of
/// them and before any that come later are on their way, so they keep their order.
async fn go(way: Way<'_>, mut publishes: Vec<Publish>) -> Vec<Published> {
    if publishes.len() == 1
        && let Some(publish) = publishes.pop()
    {
        return vec![alone(way, publish).await];
    }
    let events = publishes.iter().flat_map(|publish| publish.events.iter().cloned()).collect();
    match publish(way, events).await {
        Ok(receipt) => shares(publishes, receipt),
        Err(error) if error.index().is_some() => {
            let one_by_one: FuturesOrdered<_> = publishes
                .into_iter()
                .map(|publish| tokio::task::unconstrained(alone(way, publish)))
                .collect();
            one_by_one.collect().await
        }
        Err(error) => {
            let error = ApiError::from(error);
            let refused = |publish: Publish| publish.done(Err(error.clone()));
            publishes.into_iter().map(refused).collect()
        }
    }
}

async fn alone(way: Way<'_>, mut one: Publish) -> Published {
    let events = std::mem::take(&mut one.events);
    let result = publish(way, events).await.map_err(|error: PublishError| {
        let index = error.index().filter(|_| one.array);
        ApiError::from(error).at_index(index)
    });
    one.done(result)
}

impl Publish {
    fn done(self, result: Result<Receipt, ApiError>) -> Published {
        Published { corr: self.corr, array: self.array, bytes: self.bytes, result }
    }
}

/// Gives each its part of the receipt.
fn shares(publishes: Vec<Publish>, receipt: Receipt) -> Vec<Published> {
    let mut events = receipt.events.into_iter();
    let share = |publish: Publish| {
        let events = events.by_ref().take(publish.events.len()).collect();
        let (durability, sequence) = (receipt.durability, receipt.sequence);
        publish.done(Ok(Receipt { events, versions: Vec::new(), durability, sequence }))
    };
    publishes.into_iter().map(share).collect()
}
