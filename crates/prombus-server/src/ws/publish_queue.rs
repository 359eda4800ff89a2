//! The publishes and commits of a connection. They are enqueued one after another, in the order of their frames, and
//! their outcomes are awaited separately: one that waits for room delays what follows on this connection, and nothing else.
//!
//! Publishes that arrive together and cannot fail individually become one commit: an event without its own id,
//! expectation or partition is refused either for what it is, before it is enqueued, or for a reason that concerns all
//! of them. What goes to another hub is gathered on its way there, where each of them is a commit of its own.
//!
//! Commits and publishes that are done by different hubs meet nowhere, so one of them is waited for before the next of the other
//! kind is on its way.

use super::calls::Done;
use super::frames::Corr;
use crate::auth::Caller;
use crate::commit::{CommitCall, Requester};
use crate::error::ApiError;
use crate::gateway::App;
use crate::rate::ConnectionRate;
use crate::routes::publish::{Placed, PublishError, Publisher};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesOrdered, StreamExt};
use prombus_core::{Append, Commit, LiveHub, Receipt, TopicName};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::watch;

/// Maximum number of publishes that go together.
const MAX_TOGETHER: usize = 1_000;
/// Maximum number of bytes of them, about.
const MAX_TOGETHER_BYTES: usize = 1 << 20;

/// What comes of something that has its place in the order.
type Answer = BoxFuture<'static, Done>;

/// What a client wants to know of events that are published for it.
pub(super) struct Publish {
    pub corr: Corr,
    /// How many events there are.
    pub count: usize,
    pub array: bool,
    /// What it counts as while it is not answered.
    pub bytes: usize,
}

/// The outcome.
pub(super) struct PublishDone {
    pub publish: Publish,
    pub result: Result<Receipt, ApiError>,
}

/// The publishes and commits that are in flight.
pub(super) struct PublishQueue {
    app: App,
    rate: ConnectionRate,
    unanswered: Unanswered,
    /// Those that have no place in the order yet. Only the first of them is at it.
    waiting: VecDeque<BoxFuture<'static, Answer>>,
    /// Those that have one.
    enqueued: FuturesOrdered<Answer>,
    together: Option<Together>,
    /// Maximum number of bytes that go together; 0 where each goes alone, because it is counted alone.
    max_together: usize,
}

/// Publishes that are about to go together.
struct Together {
    topic: TopicName,
    caller: Caller,
    events: Vec<Append>,
    publishes: Vec<Publish>,
    bytes: usize,
}

impl PublishQueue {
    pub fn new(app: App, rate: ConnectionRate, commit_bytes: usize) -> Self {
        let limited = rate.is_limited() || app.rates.are_limited();
        let max_together = if limited { 0 } else { MAX_TOGETHER_BYTES.min(commit_bytes) };
        let (waiting, enqueued) = (VecDeque::new(), FuturesOrdered::new());
        let unanswered = Unanswered::default();
        Self { app, rate, unanswered, waiting, enqueued, together: None, max_together }
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.enqueued.is_empty()
    }

    /// Takes a publish, which is in line once the next [`Self::submit`] is done.
    pub fn publish(&mut self, (topic, caller): (TopicName, Caller), events: Vec<Append>, publish: Publish) {
        let (bytes, most) = (publish.bytes, self.max_together);
        let is_plain =
            |one: &Append| one.event.id.is_none() && one.expect.is_none() && one.placement.named().is_none();
        let may_go_together = bytes <= most && events.iter().all(is_plain);
        let fits = |with: &Together| {
            may_go_together
                && with.topic == topic
                && with.caller.is_same(&caller)
                && with.publishes.len() < MAX_TOGETHER
                && with.bytes + bytes <= most
        };
        if !self.together.as_ref().is_some_and(fits) {
            self.submit();
        }
        match &mut self.together {
            Some(with) => {
                with.events.extend(events);
                with.publishes.push(publish);
                with.bytes += bytes;
            }
            None => {
                self.together = Some(Together { topic, caller, events, publishes: vec![publish], bytes });
            }
        }
        if !may_go_together {
            self.submit();
        }
    }

    /// Puts what has gathered in line.
    pub fn submit(&mut self) {
        if let Some(Together { topic, caller, events, publishes, .. }) = self.together.take() {
            let (app, rate) = (self.app.clone(), self.rate.clone());
            let publisher = Publisher { app, rate, topic, caller };
            let unanswered = self.unanswered.clone();
            self.waiting.push_back(enqueue(publisher, events, (publishes, unanswered)).boxed());
        }
    }

    /// Puts a commit in line.
    pub fn commit(&mut self, corr: Corr, asked: CommitCall, by: Requester) {
        // What was published before goes before.
        self.submit();
        let unanswered = self.unanswered.clone();
        self.waiting.push_back(enqueue_commit(corr, asked, (by, unanswered)).boxed());
    }

    /// The outcome of the next one, in their order; `None` where none is in flight. Whoever waits for it also gets
    /// those in line enqueued.
    pub async fn next(&mut self) -> Option<Done> {
        loop {
            let first = async {
                let first = self.waiting.front_mut()?;
                Some(first.await)
            };
            tokio::select! {
                biased;
                Some(answer) = first => {
                    self.waiting.pop_front();
                    self.enqueued.push_back(answer);
                }
                Some(done) = self.enqueued.next() => return Some(done),
                else => return None,
            }
        }
    }
}

/// What has a place in the order and no outcome yet.
#[derive(Clone, Default)]
struct Unanswered {
    commits: Count,
    /// Publishes that are on their way to another hub.
    there: Count,
}

/// How many there are.
#[derive(Clone)]
struct Count(Arc<watch::Sender<usize>>);

impl Default for Count {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Count {
    /// One more, until what this gives is dropped.
    fn one(&self) -> Counted {
        self.0.send_modify(|count| *count += 1);
        Counted(self.clone())
    }

    async fn none_left(&self) {
        // The sender is there as long as this is.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// One that counts.
struct Counted(Count);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

async fn enqueue_commit(corr: Corr, asked: CommitCall, (by, unanswered): (Requester, Unanswered)) -> Answer {
    unanswered.there.none_left().await;
    let under_way = unanswered.commits.one();
    let bytes = asked.bytes;
    let committed = asked.enqueue(by).await;
    let answer = async move {
        let _until_it_is_done = under_way;
        committed?.await
    };
    answer.map(move |result| Done::Committed { corr, bytes, result }).boxed()
}

/// Publishes that went as one commit, and its place, or why it has none.
struct Sent {
    publishes: Vec<Publish>,
    placed: Result<Placed, PublishError>,
}

/// Enqueues events as one commit, or those of each publish alone where one of them is to blame.
async fn enqueue(
    publisher: Publisher,
    events: Vec<Append>,
    (publishes, unanswered): (Vec<Publish>, Unanswered),
) -> Answer {
    if let Some(to) = publisher.destination() {
        unanswered.commits.none_left().await;
        let under_way = unanswered.there.one();
        let sent = enqueue_each(&publisher, Some(to), (events, publishes)).await;
        let answer = answer(publisher, sent);
        return async move {
            let _until_it_is_done = under_way;
            answer.await
        }
        .boxed();
    }
    let mut commit = Arc::new(Commit::from(events));
    let placed = publisher.enqueue(None, &mut commit).await;
    let is_one_to_blame = matches!(&placed, Err(error) if error.index.is_some());
    if publishes.len() == 1 || !is_one_to_blame {
        return answer(publisher, vec![Sent { publishes, placed }]).boxed();
    }
    // It was refused before anyone else had it, so nothing is copied.
    let events = Arc::unwrap_or_clone(commit).events;
    let sent = enqueue_each(&publisher, None, (events, publishes)).await;
    answer(publisher, sent).boxed()
}

/// Enqueues the events of each publish alone.
async fn enqueue_each(
    publisher: &Publisher,
    to: Option<LiveHub>,
    (events, publishes): (Vec<Append>, Vec<Publish>),
) -> Vec<Sent> {
    let mut events = events.into_iter();
    let mut sent = Vec::with_capacity(publishes.len());
    for publish in publishes {
        let events: Vec<Append> = events.by_ref().take(publish.count).collect();
        let placed = publisher.enqueue(to.clone(), &mut Arc::new(events.into())).await;
        sent.push(Sent { publishes: vec![publish], placed });
    }
    sent
}

async fn answer(publisher: Publisher, sent: Vec<Sent>) -> Done {
    let mut published = Vec::new();
    for Sent { publishes, placed } in sent {
        let count = publishes.iter().map(|publish| publish.count).sum();
        let result = async { publisher.answer(placed?, count).await };
        share(publishes, result.await, &mut published);
    }
    Done::Published(published)
}

/// Gives each publish its part of the outcome of their commit.
fn share(publishes: Vec<Publish>, result: Result<Receipt, PublishError>, out: &mut Vec<PublishDone>) {
    match result {
        Ok(Receipt { events, durability, sequence, .. }) => {
            let mut events = events.into_iter();
            out.extend(publishes.into_iter().map(|publish| {
                let events = events.by_ref().take(publish.count).collect();
                let result = Ok(Receipt { events, versions: Vec::new(), durability, sequence });
                PublishDone { publish, result }
            }));
        }
        Err(PublishError { index, error }) => {
            // Where several are refused, none of their events is to blame.
            out.extend(publishes.into_iter().map(|publish| {
                let result = Err(error.clone().at_index(index.filter(|_| publish.array)));
                PublishDone { publish, result }
            }));
        }
    }
}
