//! The calls of a connection that are in flight: publishes, subscriptions, acks, and a pull for each subscription.
//!
//! Publishes and commits are enqueued one after another, in the order of their frames; everything else may end in any order.
//! What a subscription has in flight ends with it, and its leases go back when the connection is gone. Nothing here waits for
//! the socket: a client that does not read holds a few answers at most.

use super::acks::{Settled, Settling};
use super::frames::Corr;
use super::publish_queue::{Publish, PublishDone, PublishQueue};
use super::session::{Effect, Key, PendingSettle, Session, SubscribeTargets};
use crate::commit::{CommitOutcome, Requester};
use crate::error::ApiError;
use crate::gateway::App;
use crate::pulls::{self, PullError, Pulled, RoomWait};
use crate::rate::ConnectionRate;
use futures::FutureExt;
use futures::future::{AbortHandle, Abortable, BoxFuture};
use futures::stream::{FuturesUnordered, StreamExt};
use prombus_core::{Partition, TopicNumber};
use prombus_engine::groups::{
    GivenBack, Group, GroupCall, GroupError, LeaseToken, Mode, Present, Pull, SettleCall,
};
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
        result: Result<Vec<Arc<Group>>, ApiError>,
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
        group: Arc<Group>,
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
    group: Arc<Group>,
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
    fn take_up(&mut self, group: Arc<Group>) {
        if !Arc::ptr_eq(&self.group, &group) {
            self.watch.take().iter().for_each(AbortHandle::abort);
            (self.group, self.present) = (group, None);
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
    running: FuturesUnordered<BoxFuture<'static, Done>>,
    /// Publishes and commits.
    publish_queue: PublishQueue,
    /// What is said of deliveries and has not gone yet.
    settling: Option<Settling>,
    active: HashMap<Key, ActiveSubscription>,
    groups: HashMap<Key, Arc<GroupCall>>,
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
    pub fn new(app: App, rate: ConnectionRate, hub: Hub) -> Self {
        let running = FuturesUnordered::new();
        let publish_queue = PublishQueue::new(app.clone(), rate.clone(), hub.limits().commit_bytes);
        Self {
            app,
            rate,
            hub,
            running,
            publish_queue,
            settling: None,
            active: HashMap::new(),
            groups: HashMap::new(),
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
            Done::Again { key, pull, group } => {
                // A subscription that was ended meanwhile is not taken up again.
                if let Some(subscription) = self.active.get_mut(&key).filter(|_| self.delivers) {
                    subscription.take_up(group);
                    self.start(Effect::Pull(key, pull));
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

    fn enter(&mut self, key: Key, group: Arc<Group>) {
        self.active
            .insert(key, ActiveSubscription { group, member: None, present: None, pull: None, watch: None });
    }

    /// Starts what the session asks for.
    pub fn start(&mut self, effect: Effect) {
        if !matches!(effect, Effect::Send(_) | Effect::Pull(..) | Effect::Stop(_) | Effect::Leave(..)) {
            self.unanswered += 1;
        }
        if !matches!(effect, Effect::Settle { .. }) {
            // It may rest on what was said before it.
            self.settle_gathered();
        }
        match effect {
            Effect::Send(_) => {}
            Effect::Publish { corr, topic, events, array } => {
                let bytes = events.iter().map(|one| one.event.size()).sum();
                let count = events.len();
                self.unanswered_bytes += bytes;
                self.publish_queue.publish(topic, events, Publish { corr, count, array, bytes });
            }
            Effect::Subscribe { corr, wanted, call } => self.subscribe(corr, wanted, call),
            Effect::List { corr, wanted, call } => self.list((corr, wanted, call)),
            Effect::Settle { pending, call } => self.settle(pending, call),
            Effect::Commit { corr, caller, asked } => {
                self.unanswered_bytes += asked.bytes;
                let by = Requester { app: self.app.clone(), rate: self.rate.clone(), caller };
                self.publish_queue.commit(corr, *asked, by);
            }
            Effect::Pull(key, pull) => self.pull(key, pull),
            Effect::Stop(key) => {
                if let Some(pull) =
                    self.active.get_mut(&key).and_then(|subscription| subscription.pull.take())
                {
                    pull.abort();
                }
            }
            Effect::Leave(key, leases) => self.leave(&key, &leases, GivenBack::Unused),
        }
    }

    fn subscribe(&mut self, corr: Corr, wanted: SubscribeTargets, call: GroupCall) {
        let call = Arc::new(call);
        for key in &wanted.keys {
            self.groups.insert(key.clone(), call.clone());
        }
        let hub = self.hub.clone();
        let make = async move {
            let mut groups = Vec::with_capacity(wanted.keys.len());
            for key in &wanted.keys {
                match hub.group(&key.topic, &key.group, &call).await {
                    Ok((group, _)) => groups.push(group),
                    Err(error) => return Done::Subscribed { corr, wanted, result: Err(error.into()) },
                }
            }
            Done::Subscribed { corr, wanted, result: Ok(groups) }
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
        let group = || self.active.get(&pending.key).map(|subscription| subscription.group.clone());
        self.settling.get_or_insert_with(|| Settling::of(pending.key.clone(), group())).add(pending, call);
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
        let member = pull.member.as_deref().unwrap_or_default();
        let entered =
            subscription.present.clone().map_or_else(|| subscription.group.enter(member).map(Arc::new), Ok);
        let present = match entered {
            Ok(present) => subscription.present.insert(present).clone(),
            Err(error) => {
                let lost = Done::Lost { key, error: error.into() };
                return self.running.push(std::future::ready(lost).boxed());
            }
        };
        subscription.member = Some(member.to_owned());
        let (group, hub) = (subscription.group.clone(), self.hub.clone());
        let call = self.groups.get(&key).cloned().unwrap_or_default();
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
                    match Box::pin(hub.groups().rejoin(&key.topic, &key.group, &call)).await {
                        Ok(group) => Done::Again { key, pull, group },
                        Err(error) => Done::Lost { key, error: error.into() },
                    }
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
        let (key, group) = (key.clone(), subscription.group.clone());
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
        self.groups.remove(key);
        // The member is gone with it, unless another connection is that member, too.
        if let Some(subscription) = self.active.remove(key) {
            subscription.group.give_back(leases, why);
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
