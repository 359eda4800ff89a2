//! The calls of a connection that are in flight: publishes, subscriptions, acks, and a pull for each subscription.
//!
//! Publishes and commits are enqueued one after another, in the order of their frames; everything else may end in any order.
//! What a subscription has in flight ends with it, and its leases go back when the connection is gone. Nothing here waits for
//! the socket: a client that does not read holds a few answers at most.

use super::acks::{Settled, Settling};
use super::frames::Corr;
use super::publish_queue::{Publish, PublishDone, PublishQueue};
use super::session::{Effect, Key, PendingSettle, Session, SubscribeTargets};
use super::source::{Source, Sources, Turn, Wanted};
use super::upstream::{Batch, Remote, Upstreams};
use crate::auth::Caller;
use crate::commit::{CommitOutcome, Requester};
use crate::error::ApiError;
use crate::gateway::App;
use crate::pulls::{self, PullError, Pulled, RoomWait};
use crate::rate::ConnectionRate;
use futures::FutureExt;
use futures::future::{AbortHandle, AbortRegistration, Abortable, BoxFuture};
use futures::stream::{FuturesUnordered, StreamExt};
use prombus_core::{Partition, TopicNumber};
use prombus_engine::groups::{GivenBack, GroupCall, GroupError, LeaseToken, Mode, Present, Pull, SettleCall};
use prombus_engine::{Hub, NumberedTopic, TopicNumbers};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait before a group that failed is asked for again.
const FAILURE_PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of subscriptions that are ended before others have their turn.
pub(super) const MAX_LEFT_AT_ONCE: usize = 32;

/// The outcome of a call.
pub(super) enum Done {
    Published(Vec<PublishDone>),
    Subscribed {
        corr: Corr,
        wanted: SubscribeTargets,
        result: Result<Vec<Source>, ApiError>,
    },
    /// Which topics there are, for a subscription to patterns.
    Listed {
        asked: Box<(Corr, SubscribeTargets, GroupCall)>,
        result: Result<TopicNumbers, ApiError>,
    },
    /// Topics were made.
    Appeared(Vec<NumberedTopic>),
    Settled(Settled),
    Committed {
        corr: Corr,
        /// What it counted as while it was not answered.
        bytes: usize,
        result: Result<CommitOutcome, ApiError>,
    },
    Delivered {
        key: Key,
        pulled: Pulled,
        max_attempts: u32,
    },
    /// The group must be asked for again.
    Again {
        key: Key,
        pull: Pull,
        source: Source,
    },
    Lost {
        key: Key,
        error: ApiError,
    },
    Assigned {
        key: Key,
        partitions: Vec<Partition>,
    },
    /// It was stopped.
    Nothing,
}

/// What is known of a subscription here.
struct ActiveSubscription {
    source: Source,
    /// Who consumes, from the first pull on.
    member: Option<String>,
    /// Says that the member is there, also while it is paused.
    present: Option<Arc<Present>>,
    /// Ends its pull.
    pull: Option<AbortHandle>,
    /// Ends the watch over its partitions.
    watch: Option<AbortHandle>,
}

impl ActiveSubscription {
    /// Goes on with the group as it was read again, if it was.
    fn take_up(&mut self, source: Source) {
        if !self.source.is(&source) {
            self.watch.take().iter().for_each(AbortHandle::abort);
            (self.source, self.present) = (source, None);
        }
    }
}

impl Drop for ActiveSubscription {
    fn drop(&mut self) {
        [&self.pull, &self.watch].into_iter().flatten().for_each(AbortHandle::abort);
    }
}

/// The calls that are in flight.
pub(super) struct Calls {
    app: App,
    rate: ConnectionRate,
    hub: Hub,
    sources: Sources,
    running: FuturesUnordered<BoxFuture<'static, Done>>,
    /// Publishes and commits.
    publish_queue: PublishQueue,
    /// What is said of deliveries and has not gone yet.
    settling: Option<Settling>,
    active: HashMap<Key, ActiveSubscription>,
    /// What was asked for.
    wanted: HashMap<Key, Wanted>,
    /// How many requests of the client are not answered yet.
    unanswered: usize,
    /// About how many bytes of publishes and commits are not.
    unanswered_bytes: usize,
    /// Whether events are still delivered.
    delivers: bool,
    /// Ends the watch for new topics.
    topics_watch: Option<AbortHandle>,
}

impl Calls {
    pub fn new(app: App, rate: ConnectionRate, hub: Hub, is_forwarded: bool) -> Self {
        let upstreams = Arc::new(Upstreams::new(app.memory.clone()));
        let sources = Sources { app: app.clone(), hub: hub.clone(), upstreams, is_forwarded };
        let running = FuturesUnordered::new();
        let publish_queue = PublishQueue::new(app.clone(), rate.clone(), hub.limits().commit_bytes);
        Self {
            app,
            rate,
            hub,
            sources,
            running,
            publish_queue,
            settling: None,
            active: HashMap::new(),
            wanted: HashMap::new(),
            unanswered: 0,
            unanswered_bytes: 0,
            delivers: true,
            topics_watch: None,
        }
    }

    /// How many requests of the client are not answered yet. Pulls are none: there is one for each subscription.
    pub fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// About how many bytes of publishes and commits are not answered yet.
    pub fn unanswered_bytes(&self) -> usize {
        self.unanswered_bytes
    }

    pub fn is_empty(&self) -> bool {
        self.running.is_empty() && self.publish_queue.is_empty()
    }

    /// Sends off what has gathered.
    pub fn submit(&mut self) {
        self.publish_queue.submit();
        self.settle_gathered();
    }

    /// Delivers no more, for good.
    pub fn stop_pulls(&mut self) {
        self.delivers = false;
        self.topics_watch.take().iter().for_each(AbortHandle::abort);
        for subscription in self.active.values_mut() {
            [subscription.pull.take(), subscription.watch.take()]
                .into_iter()
                .flatten()
                .for_each(|handle| handle.abort());
        }
    }

    /// The next call that is done; `None` where none is in flight.
    pub async fn next(&mut self) -> Option<Done> {
        let done = tokio::select! {
            biased;
            Some(done) = self.publish_queue.next() => done,
            Some(done) = self.running.next() => done,
            else => return None,
        };
        self.unanswered -= match &done {
            Done::Published(published) => {
                self.unanswered_bytes -= published.iter().map(|one| one.publish.bytes).sum::<usize>();
                published.len()
            }
            Done::Committed { bytes, .. } => {
                self.unanswered_bytes -= bytes;
                1
            }
            Done::Settled(settled) => settled.frames.len(),
            Done::Subscribed { .. } | Done::Listed { .. } => 1,
            _ => 0,
        };
        Some(match done {
            Done::Subscribed { corr, wanted, result } => {
                if let Ok(groups) = &result {
                    for (key, group) in wanted.keys.iter().zip(groups) {
                        self.enter(key.clone(), group.clone());
                    }
                }
                Done::Subscribed { corr, wanted, result }
            }
            Done::Listed { asked, result } => {
                if let (Ok(topics), None) = (&result, &self.topics_watch) {
                    self.watch_topics(topics.last().map_or(TopicNumber(0), |last| last.number));
                }
                Done::Listed { asked, result }
            }
            Done::Appeared(topics) => {
                if let Some(last) = topics.last() {
                    self.watch_topics(last.number);
                }
                Done::Appeared(topics)
            }
            Done::Again { key, pull, source } => {
                // A subscription that was ended meanwhile is not taken up again.
                if let Some(subscription) = self.active.get_mut(&key).filter(|_| self.delivers) {
                    subscription.take_up(source);
                    self.settle_gathered();
                    self.pull(key, pull);
                } else {
                    source.give_back(&[], GivenBack::Unused);
                }
                Done::Nothing
            }
            Done::Assigned { key, partitions } => {
                self.watch(&key, partitions.clone());
                Done::Assigned { key, partitions }
            }
            done => done,
        })
    }

    fn enter(&mut self, key: Key, source: Source) {
        self.active
            .insert(key, ActiveSubscription { source, member: None, present: None, pull: None, watch: None });
    }

    /// Starts what the session asks for.
    pub fn start(&mut self, effect: Effect, session: &Session) {
        if !matches!(effect, Effect::Send(_) | Effect::Pull(..) | Effect::Stop(_) | Effect::Leave(..)) {
            self.unanswered += 1;
        }
        if !matches!(effect, Effect::Settle { .. }) {
            // It may rest on what was said before it.
            self.settle_gathered();
        }
        match effect {
            Effect::Send(_) => {}
            Effect::Publish { corr, caller, topic, events, array } => {
                let bytes = events.iter().map(|one| one.event.size()).sum();
                let count = events.len();
                self.unanswered_bytes += bytes;
                self.publish_queue.publish((topic, caller), events, Publish { corr, count, array, bytes });
            }
            Effect::Subscribe { corr, wanted, call } => self.subscribe(corr, wanted, (call, session)),
            Effect::List { corr, wanted, call } => self.list((corr, wanted, call)),
            Effect::Settle { pending, call } => self.settle(pending, call),
            Effect::Commit { corr, caller, asked } => {
                self.unanswered_bytes += asked.bytes;
                let (app, rate) = (self.app.clone(), self.rate.clone());
                let by = Requester { app, rate, caller, is_forwarded: self.sources.is_forwarded };
                self.publish_queue.commit(corr, *asked, by);
            }
            Effect::Pull(key, pull) => self.pull(key, pull),
            Effect::Stop(key) => {
                if let Some(subscription) = self.active.get_mut(&key) {
                    subscription.pull.take().iter().for_each(AbortHandle::abort);
                    if let Source::There(remote) = &subscription.source {
                        remote.pause();
                    }
                }
            }
            Effect::Leave(key, leases) => self.leave(&key, &leases, GivenBack::Unused),
        }
    }

    /// The client has said anew who it is, and so do those who act for it.
    pub fn renew(&mut self, caller: Option<&Caller>) {
        let Some(caller) = caller else { return };
        self.wanted.values_mut().for_each(|wanted| wanted.caller = caller.clone());
        self.sources.upstreams.renew(caller);
    }

    fn subscribe(&mut self, corr: Corr, wanted: SubscribeTargets, (call, session): (GroupCall, &Session)) {
        let call = Arc::new(call);
        let caller = session.caller().cloned().unwrap_or_else(Caller::nobody);
        for key in &wanted.keys {
            // One that was abandoned meanwhile is found, and left.
            let pull = session.pull(key).unwrap_or_default();
            let known = Wanted { call: call.clone(), pull, caller: caller.clone() };
            self.wanted.insert(key.clone(), known);
        }
        let each: Vec<Wanted> = wanted.keys.iter().filter_map(|key| self.wanted.get(key).cloned()).collect();
        let sources = self.sources.clone();
        let make = async move {
            let mut found: Vec<Source> = Vec::with_capacity(wanted.keys.len());
            for (key, known) in wanted.keys.iter().zip(&each) {
                match sources.find(key, known, Turn::First).await {
                    Ok(source) => found.push(source),
                    Err(error) => {
                        found.iter().for_each(|source| source.give_back(&[], GivenBack::Unused));
                        return Done::Subscribed { corr, wanted, result: Err(error) };
                    }
                }
            }
            Done::Subscribed { corr, wanted, result: Ok(found) }
        };
        self.running.push(make.boxed());
    }

    fn list(&mut self, asked: (Corr, SubscribeTargets, GroupCall)) {
        let hub = self.hub.clone();
        let list = async move {
            let result = hub.topic_numbers().await.map_err(ApiError::from);
            Done::Listed { asked: Box::new(asked), result }
        };
        self.running.push(list.boxed());
    }

    /// Waits for topics that are made after the one with the number `known`.
    fn watch_topics(&mut self, known: TopicNumber) {
        if !self.delivers {
            return;
        }
        let (handle, registration) = AbortHandle::new_pair();
        self.topics_watch = Some(handle);
        let hub = self.hub.clone();
        let work = async move {
            let mut topics = hub.watch_topics();
            loop {
                let new: Vec<NumberedTopic> =
                    topics.borrow_and_update().iter().filter(|topic| topic.number > known).cloned().collect();
                if !new.is_empty() {
                    return Done::Appeared(new);
                }
                if topics.changed().await.is_err() {
                    topics = hub.watch_topics();
                }
            }
        };
        self.running
            .push(Abortable::new(work, registration).map(|done| done.unwrap_or(Done::Nothing)).boxed());
    }

    fn settle(&mut self, pending: PendingSettle, call: SettleCall) {
        if !self.settling.as_ref().is_some_and(|with| with.fits(&pending.key, &call)) {
            self.settle_gathered();
        }
        let source = || self.active.get(&pending.key).map(|subscription| subscription.source.clone());
        self.settling.get_or_insert_with(|| Settling::of(pending.key.clone(), source())).add(pending, call);
    }

    fn settle_gathered(&mut self) {
        if let Some(settling) = self.settling.take() {
            self.running.push(settling.go().map(Done::Settled).boxed());
        }
    }

    fn pull(&mut self, key: Key, pull: Pull) {
        let Some(subscription) = self.active.get_mut(&key) else { return };
        let (handle, registration) = AbortHandle::new_pair();
        if let Some(before) = subscription.pull.replace(handle) {
            before.abort();
        }
        let group = match &subscription.source {
            Source::Here(group) => group.clone(),
            Source::There(remote) => {
                let remote = remote.clone();
                return self.pull_there((key, pull), remote, registration);
            }
        };
        let member = pull.member.as_deref().unwrap_or_default();
        let entered = subscription.present.clone().map_or_else(|| group.enter(member).map(Arc::new), Ok);
        let present = match entered {
            Ok(present) => subscription.present.insert(present).clone(),
            Err(error) => {
                let lost = Done::Lost { key, error: error.into() };
                return self.running.push(std::future::ready(lost).boxed());
            }
        };
        subscription.member = Some(member.to_owned());
        let sources = self.sources.clone();
        let wanted = self.wanted.get(&key).cloned();
        let watched = group.options().mode == Mode::Partitioned && subscription.watch.is_none();
        let watched_key = key.clone();
        let memory = self.app.memory.clone();
        let work = async move {
            match pulls::pull(&memory, &present, (&pull, RoomWait::Subscription)).await {
                Ok(pulled) => Done::Delivered { key, pulled, max_attempts: group.options().max_attempts },
                Err(PullError::Group(
                    error @ (GroupError::NotFound { .. } | GroupError::Query(_) | GroupError::BadFilter(_)),
                )) => Done::Lost { key, error: error.into() },
                Err(_) => {
                    // The group is read again; if that is in vain, too, there is no hurry.
                    tokio::time::sleep(FAILURE_PAUSE).await;
                    // Boxed, because it is large and rare, and a pull waits for each of thousands of topics.
                    Box::pin(find_again(sources, key, pull, wanted)).await
                }
            }
        };
        self.running
            .push(Abortable::new(work, registration).map(|done| done.unwrap_or(Done::Nothing)).boxed());
        if watched {
            self.watch(&watched_key, Vec::new());
        }
    }

    /// Waits until the partitions of a member are others than those that are `known`.
    fn watch(&mut self, key: &Key, known: Vec<Partition>) {
        let Some(subscription) = self.active.get_mut(key) else { return };
        let (handle, registration) = AbortHandle::new_pair();
        subscription.watch = Some(handle);
        let (key, source) = (key.clone(), subscription.source.clone());
        let group = match source {
            Source::Here(group) => group,
            Source::There(remote) => {
                self.running.push(
                    Abortable::new(assigned_there(key, remote, known), registration)
                        .map(|done| done.unwrap_or(Done::Nothing))
                        .boxed(),
                );
                return;
            }
        };
        let member = subscription.member.clone().unwrap_or_default();
        let mut moves = group.assignments();
        let work = async move {
            loop {
                let partitions = group.owned_by(&member);
                if partitions != known || moves.changed().await.is_err() {
                    return Done::Assigned { key, partitions: group.owned_by(&member) };
                }
            }
        };
        self.running
            .push(Abortable::new(work, registration).map(|done| done.unwrap_or(Done::Nothing)).boxed());
    }

    fn leave(&mut self, key: &Key, leases: &[LeaseToken], why: GivenBack) {
        self.wanted.remove(key);
        // The member is gone with it, unless another connection is that member, too.
        if let Some(subscription) = self.active.remove(key) {
            subscription.source.give_back(leases, why);
        }
    }

    /// The connection has ended, and holds nothing any more.
    pub async fn give_back(mut self, held: Vec<(Key, Vec<LeaseToken>)>, why: GivenBack) {
        for some in held.chunks(MAX_LEFT_AT_ONCE) {
            for (key, leases) in some {
                self.leave(key, leases, why);
            }
            // There may be thousands, of each of many connections that end at once.
            tokio::task::yield_now().await;
        }
        self.sources.upstreams.close(why == GivenBack::Unused).await;
    }

    /// Waits for what another hub delivers.
    fn pull_there(&mut self, (key, pull): (Key, Pull), remote: Arc<Remote>, registration: AbortRegistration) {
        let (sources, wanted) = (self.sources.clone(), self.wanted.get(&key).cloned());
        let is_watched = self.active.get(&key).is_some_and(|subscription| subscription.watch.is_none());
        if is_watched && wanted.as_ref().is_some_and(|wanted| Remote::may_assign(&wanted.call)) {
            self.watch(&key, Vec::new());
        }
        let work = async move {
            match remote.next().await {
                Ok(Batch { deliveries, max_attempts, room }) => {
                    Done::Delivered { key, pulled: Pulled { deliveries, room }, max_attempts }
                }
                Err(error) if error.is_passing() => {
                    // It is asked for again, where it is at home by then; if that is in vain, too, there is no hurry.
                    tokio::time::sleep(FAILURE_PAUSE).await;
                    Box::pin(find_again(sources, key, pull, wanted)).await
                }
                Err(error) => Done::Lost { key, error },
            }
        };
        self.running
            .push(Abortable::new(work, registration).map(|done| done.unwrap_or(Done::Nothing)).boxed());
    }
}

/// Looks where a subscription that has failed is to go on.
async fn find_again(sources: Sources, key: Key, pull: Pull, wanted: Option<Wanted>) -> Done {
    // One that was abandoned needs nothing.
    let Some(wanted) = wanted else { return Done::Nothing };
    match sources.find(&key, &wanted, Turn::Again).await {
        Ok(source) => Done::Again { key, pull, source },
        Err(error) => Done::Lost { key, error },
    }
}

/// Waits until the partitions of a member at another hub are others than those that are `known`.
async fn assigned_there(key: Key, remote: Arc<Remote>, known: Vec<Partition>) -> Done {
    let mut news = remote.news();
    loop {
        let partitions = remote.owned();
        if partitions != known {
            return Done::Assigned { key, partitions };
        }
        if news.changed().await.is_err() {
            return Done::Nothing;
        }
    }
}

/// Tells the session the outcome of a call.
pub(super) fn report(done: Option<Done>, session: &mut Session, out: &mut Vec<Effect>) {
    match done {
        None | Some(Done::Nothing | Done::Again { .. }) => {}
        Some(Done::Published(published)) => {
            for PublishDone { publish, result } in published {
                session.published(publish.corr, publish.array, result, out);
            }
        }
        Some(Done::Subscribed { corr, wanted, result }) => {
            session.subscribed(corr, wanted, result.map(drop), out)
        }
        Some(Done::Listed { asked, result }) => {
            session.listed(*asked, result.as_deref().map(Vec::as_slice).map_err(Clone::clone), out);
        }
        Some(Done::Appeared(topics)) => session.appeared(&topics, out),
        Some(Done::Settled(settled)) => settled.report(session, out),
        Some(Done::Committed { corr, result, .. }) => session.committed(corr, result, out),
        Some(Done::Delivered { key, pulled, max_attempts }) => {
            session.delivered(key, pulled.deliveries, max_attempts, out);
        }
        Some(Done::Lost { key, error }) => session.lost(&key, &error, out),
        Some(Done::Assigned { key, partitions }) => session.assigned(&key, partitions, out),
    }
}
