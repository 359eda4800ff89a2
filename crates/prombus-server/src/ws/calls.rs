//! The calls of a connection that are under way: publishes, subscriptions, acks, and a pull for each subscription.

use super::frames::Corr;
use super::session::{Effect, Key, Session};
use crate::error::ApiError;
use crate::gateway::App;
use crate::rate::ConnectionRate;
use crate::routes::publish::{self, Way};
use futures::FutureExt;
use futures::future::{AbortHandle, Abortable, BoxFuture};
use futures::stream::{FuturesOrdered, FuturesUnordered, StreamExt};
use prombus_core::{Partition, Receipt, TopicName};
use prombus_engine::groups::{Delivery, Group, GroupCall, GroupError, LeaseToken, Mode, Pull, SettleCall};
use prombus_engine::{Hub, Outgoing};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How long to wait before a group that failed is asked for again.
const FAILURE_PAUSE: Duration = Duration::from_millis(200);

/// What came of a call.
pub(super) enum Done {
    Published {
        corr: Corr,
        topic: TopicName,
        array: bool,
        result: Result<Receipt, ApiError>,
    },
    Subscribed {
        corr: Corr,
        keys: Vec<Key>,
        result: Result<Vec<Arc<Group>>, ApiError>,
    },
    Settled {
        corr: Corr,
        result: Result<Vec<bool>, ApiError>,
    },
    Delivered {
        key: Key,
        deliveries: Vec<Delivery>,
        max_attempts: u32,
    },
    /// The group must be asked for anew.
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
struct Live {
    group: Arc<Group>,
    member: String,
    /// Ends its pull.
    pull: Option<AbortHandle>,
    /// Ends the watch over its partitions.
    watch: Option<AbortHandle>,
}

impl Drop for Live {
    fn drop(&mut self) {
        [&self.pull, &self.watch].into_iter().flatten().for_each(AbortHandle::abort);
    }
}

/// The calls that are under way.
pub(super) struct Calls {
    app: App,
    rate: ConnectionRate,
    hub: Hub,
    running: FuturesUnordered<BoxFuture<'static, Done>>,
    /// Publishes, which are answered in the order in which they came.
    publishing: FuturesOrdered<BoxFuture<'static, Done>>,
    live: HashMap<Key, Live>,
    groups: HashMap<Key, GroupCall>,
    /// How many requests of the client are not answered yet.
    unanswered: usize,
    /// Topics that a publish of this connection has found or made.
    known: HashSet<TopicName>,
    /// Publishes that wait for the first one to their topic. It may have to make the topic, and those that find out
    /// only then that it is there would be passed by later ones.
    behind: HashMap<TopicName, VecDeque<Publish>>,
}

/// A publish that waits.
struct Publish {
    corr: Corr,
    events: Vec<Outgoing>,
    array: bool,
}

impl Calls {
    pub fn new(app: App, rate: ConnectionRate, hub: Hub) -> Self {
        let running = FuturesUnordered::new();
        Self {
            app,
            rate,
            hub,
            running,
            publishing: FuturesOrdered::new(),
            live: HashMap::new(),
            groups: HashMap::new(),
            unanswered: 0,
            known: HashSet::new(),
            behind: HashMap::new(),
        }
    }

    /// How many requests of the client are not answered yet. Pulls are none: there is one for each subscription.
    pub fn unanswered(&self) -> usize {
        self.unanswered
    }

    pub fn is_empty(&self) -> bool {
        self.running.is_empty() && self.publishing.is_empty()
    }

    /// Delivers no more.
    pub fn stop_pulls(&mut self) {
        for live in self.live.values_mut() {
            [live.pull.take(), live.watch.take()].into_iter().flatten().for_each(|handle| handle.abort());
        }
    }

    /// The next call that is done; `None` where none is under way.
    pub async fn next(&mut self) -> Option<Done> {
        let done = tokio::select! {
            biased;
            Some(done) = self.publishing.next() => done,
            Some(done) = self.running.next() => done,
            else => return None,
        };
        if matches!(done, Done::Published { .. } | Done::Subscribed { .. } | Done::Settled { .. }) {
            self.unanswered -= 1;
        }
        Some(match done {
            Done::Subscribed { corr, keys, result } => {
                if let Ok(groups) = &result {
                    for (key, group) in keys.iter().zip(groups) {
                        self.enter(key.clone(), group.clone());
                    }
                }
                Done::Subscribed { corr, keys, result }
            }
            Done::Published { corr, topic, array, result } => {
                self.go_on(&topic, result.is_ok());
                Done::Published { corr, topic, array, result }
            }
            Done::Again { key, pull, group } => {
                // A subscription that was ended meanwhile is not taken up again.
                if let Some(live) = self.live.get_mut(&key) {
                    live.group = group;
                    self.start(Effect::Pull(key, pull));
                }
                Done::Nothing
            }
            Done::Assigned { key, partitions } => {
                self.watch(&key);
                Done::Assigned { key, partitions }
            }
            done => done,
        })
    }

    fn enter(&mut self, key: Key, group: Arc<Group>) {
        self.live.insert(key, Live { group, member: String::new(), pull: None, watch: None });
    }

    /// Starts what the session asks for.
    pub fn start(&mut self, effect: Effect) {
        if matches!(effect, Effect::Publish { .. } | Effect::Subscribe { .. } | Effect::Settle { .. }) {
            self.unanswered += 1;
        }
        match effect {
            Effect::Send(_) => {}
            Effect::Publish { corr, topic, events, array } => {
                let publish = Publish { corr, events, array };
                if self.known.contains(&topic) {
                    self.publish(topic, publish);
                } else if let Some(behind) = self.behind.get_mut(&topic) {
                    behind.push_back(publish);
                } else {
                    self.behind.insert(topic.clone(), VecDeque::new());
                    self.publish(topic, publish);
                }
            }
            Effect::Subscribe { corr, keys, call } => self.subscribe(corr, keys, call),
            Effect::Settle { corr, key, call } => self.settle(corr, &key, call),
            Effect::Pull(key, pull) => self.pull(key, pull),
            Effect::Stop(key) => {
                if let Some(pull) = self.live.get_mut(&key).and_then(|live| live.pull.take()) {
                    pull.abort();
                }
            }
            Effect::Leave(key, leases) => self.leave(&key, &leases, false),
        }
    }

    fn publish(&mut self, topic: TopicName, publish: Publish) {
        let Publish { corr, events, array } = publish;
        let (app, rate) = (self.app.clone(), self.rate.clone());
        let work = async move {
            let result = publish::publish(Way { app: &app, rate: &rate, topic: &topic }, events)
                .await
                .map_err(|error| {
                    let index = error.index().filter(|_| array);
                    ApiError::from(error).at_index(index)
                });
            Done::Published { corr, topic, array, result }
        };
        // Without the runtime's budget, whose end would hold some back at their start and let later ones pass them.
        self.publishing.push_back(tokio::task::unconstrained(work).boxed());
    }

    /// The first publish to a topic is done: the others go on, or the next one is the first.
    fn go_on(&mut self, topic: &TopicName, went_well: bool) {
        let Some(mut behind) = self.behind.remove(topic) else { return };
        if went_well {
            self.known.insert(topic.clone());
            behind.into_iter().for_each(|publish| self.publish(topic.clone(), publish));
        } else if let Some(next) = behind.pop_front() {
            self.behind.insert(topic.clone(), behind);
            self.publish(topic.clone(), next);
        }
    }

    fn subscribe(&mut self, corr: Corr, keys: Vec<Key>, call: GroupCall) {
        for key in &keys {
            self.groups.insert(key.clone(), call.clone());
        }
        let hub = self.hub.clone();
        let make = async move {
            let mut groups = Vec::with_capacity(keys.len());
            for key in &keys {
                match hub.group(&key.topic, &key.group, &call).await {
                    Ok((group, _)) => groups.push(group),
                    Err(error) => return Done::Subscribed { corr, keys, result: Err(error.into()) },
                }
            }
            Done::Subscribed { corr, keys, result: Ok(groups) }
        };
        self.running.push(make.boxed());
    }

    fn settle(&mut self, corr: Corr, key: &Key, call: SettleCall) {
        let group = self.live.get(key).map(|live| live.group.clone());
        let settle = async move {
            // Where there is no group yet, there are no leases of it.
            let Some(group) = group else { return Done::Settled { corr, result: Ok(vec![false]) } };
            let result = group.settle(call).await.map_err(ApiError::from);
            Done::Settled { corr, result }
        };
        self.running.push(settle.boxed());
    }

    fn pull(&mut self, key: Key, pull: Pull) {
        let Some(live) = self.live.get_mut(&key) else { return };
        let (handle, registration) = AbortHandle::new_pair();
        if let Some(before) = live.pull.replace(handle) {
            before.abort();
        }
        live.member = pull.member.clone().unwrap_or_default();
        let (group, hub) = (live.group.clone(), self.hub.clone());
        let call = self.groups.get(&key).cloned().unwrap_or_default();
        let watched = group.options().mode == Mode::Partitioned && live.watch.is_none();
        let watched_key = key.clone();
        let work = async move {
            match group.pull(&pull).await {
                Ok(deliveries) => {
                    let max_attempts = group.options().max_attempts;
                    Done::Delivered { key, deliveries, max_attempts }
                }
                Err(error @ (GroupError::NotFound { .. } | GroupError::Query(_))) => {
                    Done::Lost { key, error: error.into() }
                }
                Err(_) => {
                    // The group is read anew; if that is in vain, too, there is no hurry.
                    tokio::time::sleep(FAILURE_PAUSE).await;
                    match hub.group(&key.topic, &key.group, &call).await {
                        Ok((group, _)) => Done::Again { key, pull, group },
                        Err(error) => Done::Lost { key, error: error.into() },
                    }
                }
            }
        };
        self.running
            .push(Abortable::new(work, registration).map(|done| done.unwrap_or(Done::Nothing)).boxed());
        if watched {
            self.watch(&watched_key);
        }
    }

    /// Waits until the partitions of a member change.
    fn watch(&mut self, key: &Key) {
        let Some(live) = self.live.get_mut(key) else { return };
        let (handle, registration) = AbortHandle::new_pair();
        live.watch = Some(handle);
        let (key, group, member) = (key.clone(), live.group.clone(), live.member.clone());
        let mut moves = group.assignments();
        let known = group.owned_by(&member);
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

    fn leave(&mut self, key: &Key, leases: &[LeaseToken], lost: bool) {
        self.groups.remove(key);
        if let Some(live) = self.live.remove(key) {
            live.group.give_back(leases, lost);
            live.group.leave(&live.member);
        }
    }

    /// The connection has ended, and holds nothing any more.
    pub fn give_back(mut self, held: Vec<(Key, Vec<LeaseToken>)>) {
        for (key, leases) in held {
            self.leave(&key, &leases, true);
        }
    }
}

/// Tells the session what came of a call.
pub(super) fn report(done: Option<Done>, session: &mut Session, out: &mut Vec<Effect>) {
    match done {
        None | Some(Done::Nothing | Done::Again { .. }) => {}
        Some(Done::Published { corr, array, result, .. }) => session.published(corr, array, result, out),
        Some(Done::Subscribed { corr, keys, result }) => {
            session.subscribed(corr, keys, result.map(drop), out)
        }
        Some(Done::Settled { corr, result }) => session.settled(corr, result, out),
        Some(Done::Delivered { key, deliveries, max_attempts }) => {
            session.delivered(key, deliveries, max_attempts, out);
        }
        Some(Done::Lost { key, error }) => session.lost(&key, &error, out),
        Some(Done::Assigned { key, partitions }) => session.assigned(&key, partitions, out),
    }
}
