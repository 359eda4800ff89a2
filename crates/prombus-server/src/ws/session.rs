//! The rules of a WebSocket connection as a state machine: frames and results in, effects out. It never waits and
//! knows no socket, so that every rule can be tested by itself.

mod patterns;

use super::frames::{self, Corr};
use super::held::Held;
use crate::auth::{Action, Ask, Auth, Caller};
use crate::commit::{Asked, Committed, MAX_SETTLED};
use crate::error::{ApiError, not_a_lease};
use crate::outgoing;
use crate::params::parse_id;
use crate::pattern::Topics;
use crate::routes::groups::{group_call, short_reason};
use crate::routes::publish::parse_array;
use bytes::Bytes;
use patterns::{ByPattern, PatternOptions, PatternSubscription};
pub(crate) use patterns::{PatternKey, Topic};
use prombus_core::{Partition, Receipt, TopicName};
use prombus_engine::Outgoing;
use prombus_engine::commits::LeaseOf;
use prombus_engine::groups::{Delivery, GroupCall, GroupName, LeaseToken, Pull, Settle, SettleCall};
use prombus_wire::{
    AuthFrame, CommitFrame, ErrorCode, FrameHead, PublishFrame, SettleFrame, SubscribeFrame,
    SubscribeOptions, SubscriptionFrame, Text, parse_object,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The most subscriptions of a connection.
const MAX_SUBSCRIPTIONS: usize = 10_000;
/// How many deliveries come at once where nothing is said.
const DEFAULT_BATCH: usize = 100;
/// How many leases a subscription holds where nothing is said.
const DEFAULT_IN_FLIGHT: usize = 1_000;
/// How a frame that publishes mostly starts.
const PUBLISH: &[u8] = b"{\"op\":\"PUBLISH\",";
const PUBLISH_BYTES: usize = PUBLISH.len();
/// How long one pull waits; the next one follows.
const PULL_WAIT: Duration = Duration::from_secs(30);

/// What those are told whose requests were not begun.
const ENDING: &str = "the connection ends, and this was not done; send it again on another connection";

/// A group of a topic, as a connection names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub topic: TopicName,
    pub group: GroupName,
}

/// What is to be done for a connection.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Send a frame.
    Send(Vec<u8>),
    /// Publish events, and say so with [`Session::published`].
    Publish { corr: Corr, topic: TopicName, events: Vec<Outgoing>, array: bool },
    /// Find or make groups, and say so with [`Session::subscribed`].
    Subscribe { corr: Corr, wanted: Wanted, call: GroupCall },
    /// Find out which topics there are, and say so with [`Session::listed`]; from then on, tell of new ones with
    /// [`Session::appeared`].
    List { corr: Corr, wanted: Wanted, call: GroupCall },
    /// Deliver events of a group, and say so with [`Session::delivered`].
    Pull(Key, Pull),
    /// Deliver no more.
    Stop(Key),
    /// Give these leases back, and deliver no more.
    Leave(Key, Vec<LeaseToken>),
    /// Settle deliveries, and say so with [`Session::settled`].
    Settle { corr: Corr, key: Key, call: SettleCall },
    /// Carry out a commit for the caller, and say so with [`Session::committed`].
    Commit { corr: Corr, caller: Caller, asked: Box<Asked> },
}

impl Effect {
    /// About how much memory waits in it.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Publish { events, .. } => events.iter().map(|one| one.event.size()).sum(),
            Self::Commit { asked, .. } => asked.bytes,
            Self::Send(frame) => frame.len(),
            _ => 0,
        }
    }

    /// What becomes of it where the connection ends: a request that was not begun is refused, and nothing is delivered.
    pub fn at_the_end(self) -> Self {
        match self {
            Self::Publish { corr, .. }
            | Self::Subscribe { corr, .. }
            | Self::List { corr, .. }
            | Self::Settle { corr, .. }
            | Self::Commit { corr, .. } => Self::Send(frames::err(&corr, &ApiError::unavailable(ENDING))),
            Self::Pull(key, _) => Self::Stop(key),
            other => other,
        }
    }
}

/// What one frame subscribes to.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub keys: Vec<Key>,
    pub patterns: Vec<PatternKey>,
}

#[derive(Debug)]
struct Subscription {
    /// The pattern that it comes from, if it comes from one.
    by: Option<ByPattern>,
    /// Whether the group is there.
    made: bool,
    batch: bool,
    paused: bool,
    pull: Pull,
    held: Held,
    owned: Option<Vec<Partition>>,
}

impl Subscription {
    fn new(batch: bool, pull: Pull) -> Self {
        Self { by: None, made: false, batch, paused: false, pull, held: Held::default(), owned: None }
    }

    /// Pauses it or goes on with it: what is to be done.
    fn pause(&mut self, key: Key, pause: bool) -> Option<Effect> {
        if std::mem::replace(&mut self.paused, pause) == pause {
            None
        } else if pause {
            Some(Effect::Stop(key))
        } else {
            self.made.then(|| Effect::Pull(key, self.pull.clone()))
        }
    }
}

/// Who is at the other end, and how one who has not said so yet is known.
pub(crate) struct Guest {
    pub caller: Option<Caller>,
    pub auth: Arc<Auth>,
}

/// A connection.
pub(crate) struct Session {
    guest: Guest,
    /// Whether the client has said anew who it is.
    new_caller: bool,
    /// Names the members of those who name none.
    name: String,
    max_bytes: usize,
    subscriptions: HashMap<Key, Subscription>,
    patterns: HashMap<PatternKey, PatternSubscription>,
}

impl Session {
    /// A connection that is called `name`, and may publish so many bytes at once.
    pub fn new(name: String, guest: Guest, max_bytes: usize) -> Self {
        let (subscriptions, patterns) = Default::default();
        Self { guest, new_caller: false, name, max_bytes, subscriptions, patterns }
    }

    /// Who is at the other end, once that is known.
    pub fn caller(&self) -> Option<&Caller> {
        self.guest.caller.as_ref()
    }

    /// Whether the client has said who it is since this was asked last.
    pub fn has_new_caller(&mut self) -> bool {
        std::mem::take(&mut self.new_caller)
    }

    fn check(&self, action: Action, key: (&TopicName, Option<&GroupName>)) -> Result<(), ApiError> {
        let caller = self.guest.caller.as_ref().ok_or_else(nobody)?;
        caller.check(Ask { action, topic: key.0.as_str(), group: key.1.map(GroupName::as_str) })
    }

    /// Takes a frame.
    pub fn frame(&mut self, text: &Bytes, out: &mut Vec<Effect>) {
        // Most frames publish: those are read only once. What is wrong with one is found out below.
        if self.guest.caller.is_some()
            && text.get(..PUBLISH_BYTES).is_some_and(|start| start == PUBLISH)
            && let Ok(frame) = parse_object::<PublishFrame<'_>>(text)
        {
            let corr = frame.corr.map(|corr| corr.get().to_owned());
            if let Err(error) = self.publish(frame, text, &corr, out) {
                refuse(corr, &error, out);
            }
            return;
        }
        let head: FrameHead<'_> = match parse_object(text) {
            Ok(head) => head,
            Err(_) if self.guest.caller.is_none() => return refuse(None, &nobody(), out),
            Err(error) => return refuse(None, &error.into(), out),
        };
        let corr = head.corr.map(|corr| corr.get().to_owned());
        let taken = match &*head.op {
            "AUTH" => self.authenticate(text, &corr, out),
            _ if self.guest.caller.is_none() => Err(nobody()),
            "PUBLISH" => parse_object(text)
                .map_err(ApiError::from)
                .and_then(|frame| self.publish(frame, text, &corr, out)),
            "SUBSCRIBE" => self.subscribe(text, &corr, out),
            "UNSUBSCRIBE" => self.unsubscribe(text, &corr, out),
            "ACK" | "NACK" | "MODACK" => self.settle(&head.op, text, &corr, out),
            "PAUSE" | "RESUME" => self.pause(&head.op, text, &corr, out),
            "COMMIT" => self.commit(text, &corr, out),
            other => Err(ApiError::bad_request(format!(
                "op {other:?} is not known; there are AUTH, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, ACK, NACK, MODACK, PAUSE, \
                 RESUME and COMMIT"
            ))),
        };
        if let Err(error) = taken {
            refuse(corr, &error, out);
        }
    }

    /// Takes a token. One that is no good changes nothing; a good one holds from here on, also for what the
    /// connection has subscribed to.
    fn authenticate(&mut self, text: &Bytes, corr: &Corr, out: &mut Vec<Effect>) -> Result<(), ApiError> {
        let frame: AuthFrame<'_> = parse_object(text)?;
        self.guest.caller = Some(self.guest.auth.caller(Some(&frame.token))?);
        self.new_caller = true;
        accept(corr, out);
        let keys: Vec<Key> = self.subscriptions.keys().cloned().collect();
        for key in keys {
            if let Err(error) = self.check(Action::Subscribe, (&key.topic, Some(&key.group))) {
                self.lost(&key, &error, out);
            }
        }
        Ok(())
    }

    fn publish(
        &self,
        frame: PublishFrame<'_>,
        text: &Bytes,
        corr: &Corr,
        out: &mut Vec<Effect>,
    ) -> Result<(), ApiError> {
        let topic = TopicName::parse(&frame.topic)?;
        self.check(Action::Publish, (&topic, None))?;
        let (events, array) = match (frame.payload, frame.opts, frame.events) {
            (Some(payload), opts, None) => {
                let request = opts.map(|opts| opts.0).unwrap_or_default().with_payload(payload);
                (vec![outgoing::from_request(request, text)?], false)
            }
            (None, None, Some(events)) => {
                (parse_array(&text.slice_ref(events.get().as_bytes()), self.max_bytes)?, true)
            }
            _ => return Err(ApiError::bad_request("PUBLISH has either a payload, with opts, or events")),
        };
        out.push(Effect::Publish { corr: corr.clone(), topic, events, array });
        Ok(())
    }

    /// What came of a publish.
    pub fn published(
        &self,
        corr: Corr,
        array: bool,
        result: Result<Receipt, ApiError>,
        out: &mut Vec<Effect>,
    ) {
        match result {
            Err(error) => refuse(corr, &error, out),
            Ok(receipt) => {
                if let Some(corr) = corr {
                    out.push(Effect::Send(frames::published(&corr, array, &receipt)));
                }
            }
        }
    }

    fn subscribe(&mut self, text: &Bytes, corr: &Corr, out: &mut Vec<Effect>) -> Result<(), ApiError> {
        let frame: SubscribeFrame<'_> = parse_object(text)?;
        let names = match (frame.topic, frame.topics) {
            (Some(topic), None) => vec![topic],
            (None, Some(topics)) if !topics.is_empty() => topics,
            _ => return Err(ApiError::bad_request("SUBSCRIBE has either a topic, or topics")),
        };
        let group = GroupName::parse(&frame.group)?;
        let wanted = self.wanted(&names, &group)?;
        self.check_room(names.len())?;
        let opts = frame.opts.map(|opts| opts.0).unwrap_or_default();
        let (batch, pull) = (opts.batch.unwrap_or(false), self.pull_of(&opts));
        pull.check()?;
        let call = group_call(opts.into_options())?;
        self.add_patterns(
            &wanted.patterns,
            PatternOptions { batch, pull: pull.clone(), call: call.clone() },
        )?;
        for key in &wanted.keys {
            self.subscriptions.insert(key.clone(), Subscription::new(batch, pull.clone()));
        }
        let corr = corr.clone();
        out.push(match wanted.patterns.is_empty() {
            true => Effect::Subscribe { corr, wanted, call },
            false => Effect::List { corr, wanted, call },
        });
        Ok(())
    }

    /// What the names of a frame stand for, where all of it may be subscribed to.
    fn wanted(&self, names: &[Text<'_>], group: &GroupName) -> Result<Wanted, ApiError> {
        let (mut wanted, mut seen) = (Wanted::default(), HashSet::new());
        for name in names {
            let is_new = match Topics::parse(name)? {
                Topics::Named(topic) => {
                    let key = Key { topic, group: group.clone() };
                    self.check(Action::Subscribe, (&key.topic, Some(&key.group)))?;
                    let is_new = !self.subscriptions.contains_key(&key);
                    wanted.keys.push(key);
                    is_new
                }
                Topics::Matching(_) => {
                    let key = PatternKey { text: name.to_string(), group: group.clone() };
                    self.check_pattern()?;
                    let is_new = !self.patterns.contains_key(&key);
                    wanted.patterns.push(key);
                    is_new
                }
            };
            if !is_new || !seen.insert(&**name) {
                let message = format!("this connection has subscribed to {} as {group} already", &**name);
                return Err(ApiError::with_code(ErrorCode::AlreadySubscribed, message));
            }
        }
        Ok(wanted)
    }

    /// Refuses more subscriptions than a connection may have.
    fn check_room(&self, more: usize) -> Result<(), ApiError> {
        if self.subscriptions.len() + more <= MAX_SUBSCRIPTIONS {
            return Ok(());
        }
        Err(ApiError::too_large(format!("a connection may have {MAX_SUBSCRIPTIONS} subscriptions")))
    }

    fn pull_of(&self, opts: &SubscribeOptions) -> Pull {
        let max_in_flight = opts.max_in_flight.unwrap_or(DEFAULT_IN_FLIGHT);
        Pull {
            member: Some(opts.member.clone().unwrap_or_else(|| self.name.clone())),
            max: opts.batch_size.unwrap_or(DEFAULT_BATCH),
            wait: PULL_WAIT,
            max_in_flight,
        }
    }

    /// What came of a subscription.
    pub fn subscribed(
        &mut self,
        corr: Corr,
        wanted: Wanted,
        result: Result<(), ApiError>,
        out: &mut Vec<Effect>,
    ) {
        if let Err(error) = result {
            return self.refuse_subscription(corr, wanted, error, out);
        }
        accept(&corr, out);
        for key in wanted.keys {
            if let Some(subscription) = self.subscriptions.get_mut(&key) {
                subscription.made = true;
                if !subscription.paused {
                    out.push(Effect::Pull(key, subscription.pull.clone()));
                }
            } else {
                // It was given up meanwhile.
                out.push(Effect::Leave(key, Vec::new()));
            }
        }
    }

    fn known(&mut self, topic: &str, group: &str) -> Result<(Key, &mut Subscription), ApiError> {
        let key = Key { topic: TopicName::parse(topic)?, group: GroupName::parse(group)? };
        match self.subscriptions.get_mut(&key) {
            Some(subscription) => Ok((key, subscription)),
            None => {
                let message = format!("this connection has not subscribed to {topic} as {group}");
                Err(ApiError::with_code(ErrorCode::NotSubscribed, message))
            }
        }
    }

    fn unsubscribe(&mut self, text: &Bytes, corr: &Corr, out: &mut Vec<Effect>) -> Result<(), ApiError> {
        let frame: SubscriptionFrame<'_> = parse_object(text)?;
        if frame.topic.contains('*') {
            self.unsubscribe_pattern(&frame, out)?;
        } else {
            let (key, subscription) = self.known(&frame.topic, &frame.group)?;
            let leases = subscription.held.leases();
            self.subscriptions.remove(&key);
            out.push(Effect::Leave(key, leases));
        }
        accept(corr, out);
        Ok(())
    }

    fn pause(&mut self, op: &str, text: &Bytes, corr: &Corr, out: &mut Vec<Effect>) -> Result<(), ApiError> {
        let frame: SubscriptionFrame<'_> = parse_object(text)?;
        let pause = op == "PAUSE";
        if frame.topic.contains('*') {
            self.pause_pattern(&frame, pause, out)?;
        } else {
            let (key, subscription) = self.known(&frame.topic, &frame.group)?;
            out.extend(subscription.pause(key, pause));
        }
        accept(corr, out);
        Ok(())
    }

    fn settle(&mut self, op: &str, text: &Bytes, corr: &Corr, out: &mut Vec<Effect>) -> Result<(), ApiError> {
        let frame: SettleFrame<'_> = parse_object(text)?;
        let misplaced = match op {
            "ACK" => frame.reason.is_some() || frame.delay_ms.is_some() || frame.extend_ms.is_some(),
            "NACK" => frame.extend_ms.is_some(),
            _ => frame.reason.is_some() || frame.delay_ms.is_some(),
        };
        if misplaced {
            let message = "reason and delay_ms go with NACK, extend_ms with MODACK";
            return Err(ApiError::bad_request(message));
        }
        let several = |given: &Option<Vec<_>>| given.as_ref().map_or(0, Vec::len);
        let one = |given: &Option<_>| usize::from(given.is_some());
        let named = several(&frame.ids) + several(&frame.leases) + one(&frame.id) + one(&frame.lease);
        if named > MAX_SETTLED {
            return Err(ApiError::too_many(op, MAX_SETTLED));
        }
        let (key, subscription) = self.known(&frame.topic, &frame.group)?;
        let mut leases = Vec::new();
        for id in frame.id.iter().chain(frame.ids.iter().flatten()) {
            let lease = subscription.held.lease_of(parse_id("id", id)?).ok_or_else(|| {
                let message = format!(
                    "this connection holds no lease on {}: it was settled, expired, or delivered to another one",
                    &**id
                );
                ApiError::with_code(ErrorCode::UnknownId, message)
            })?;
            leases.push(lease);
        }
        for lease in frame.lease.iter().chain(frame.leases.iter().flatten()) {
            leases.push(parse_lease(lease)?);
        }
        if leases.is_empty() {
            return Err(ApiError::bad_request(format!("{op} needs id, ids, lease or leases")));
        }

        let ms = |ms: Option<u64>| ms.map(Duration::from_millis);
        let reason: Option<Arc<str>> = frame.reason.as_deref().map(short_reason).map(Arc::from);
        let settle = |lease| match op {
            "ACK" => Settle::Ack(lease),
            // All of them share the reason, however many they are.
            "NACK" => Settle::Nack { lease, reason: reason.clone(), delay: ms(frame.delay_ms) },
            _ => Settle::Extend { lease, by: ms(frame.extend_ms) },
        };
        let settles: Vec<Option<Settle>> = leases.iter().map(|lease| Some(settle(*lease))).collect();
        let call = SettleCall { settles };
        call.check()?;
        if op != "MODACK" {
            // Once it is said, an id no longer stands for that delivery, whatever comes of it.
            leases.iter().for_each(|lease| subscription.held.remove(*lease));
        } else if let Some(by) = ms(frame.extend_ms) {
            let until = Instant::now() + by;
            leases.iter().for_each(|lease| subscription.held.extend(*lease, until));
        }
        out.push(Effect::Settle { corr: corr.clone(), key, call });
        Ok(())
    }

    /// What came of acks, nacks or extensions: all of them hold, or some leases were spent.
    pub fn settled(&self, corr: Corr, result: Result<Vec<bool>, ApiError>, out: &mut Vec<Effect>) {
        match result {
            Ok(results) if !results.contains(&false) => accept(&corr, out),
            Ok(_) => refuse(corr, &expired(), out),
            Err(error) => refuse(corr, &error, out),
        }
    }

    fn commit(&self, text: &Bytes, corr: &Corr, out: &mut Vec<Effect>) -> Result<(), ApiError> {
        let frame: CommitFrame<'_> = parse_object(text)?;
        let caller = self.guest.caller.clone().ok_or_else(nobody)?;
        let asked = Asked::parse(frame.into_request(), text, self.max_bytes)?;
        asked.check(&caller)?;
        out.push(Effect::Commit { corr: corr.clone(), caller, asked: Box::new(asked) });
        Ok(())
    }

    /// What came of a commit. What it has settled is no longer held; where it failed, everything is held as before.
    pub fn committed(&mut self, corr: Corr, result: Result<Committed, ApiError>, out: &mut Vec<Effect>) {
        let Committed { answer, settled } = match result {
            Ok(committed) => committed,
            Err(error) => return refuse(corr, &error, out),
        };
        for (LeaseOf { topic, group }, lease) in settled {
            if let Some(subscription) = self.subscriptions.get_mut(&Key { topic, group }) {
                subscription.held.remove(lease);
            }
        }
        if let Some(corr) = corr {
            out.push(Effect::Send(frames::committed(&corr, &answer)));
        }
    }

    /// Events were delivered, or the wait for some is over.
    pub fn delivered(
        &mut self,
        key: Key,
        deliveries: Vec<Delivery>,
        max_attempts: u32,
        out: &mut Vec<Effect>,
    ) {
        let Some(subscription) = self.subscriptions.get_mut(&key) else {
            // It was given up while they were on their way.
            let leases = deliveries.iter().map(|delivery| delivery.lease).collect();
            return out.push(Effect::Leave(key, leases));
        };
        subscription.held.add(&deliveries, 2 * subscription.pull.max_in_flight);
        if subscription.batch && !deliveries.is_empty() {
            out.push(Effect::Send(frames::events(&key, &deliveries, max_attempts)));
        } else {
            let frames = deliveries.iter().map(|delivery| frames::event(&key, delivery, max_attempts));
            out.extend(frames.map(Effect::Send));
        }
        if !subscription.paused {
            out.push(Effect::Pull(key, subscription.pull.clone()));
        }
    }

    /// The member owns these partitions now.
    pub fn assigned(&mut self, key: &Key, partitions: Vec<Partition>, out: &mut Vec<Effect>) {
        let Some(subscription) = self.subscriptions.get_mut(key) else { return };
        if subscription.owned.as_ref() != Some(&partitions) {
            out.push(Effect::Send(frames::assigned(key, &partitions)));
            subscription.owned = Some(partitions);
        }
    }

    /// A group is gone, or no longer allowed; the client is told.
    pub fn lost(&mut self, key: &Key, error: &ApiError, out: &mut Vec<Effect>) {
        if let Some(subscription) = self.subscriptions.remove(key) {
            out.push(Effect::Leave(key.clone(), subscription.held.leases()));
            refuse(None, &of_key(error.clone(), key), out);
            self.succeed(key, subscription.by, out);
        }
    }

    /// The connection has ended: what it holds, by group.
    pub fn end(self) -> Vec<(Key, Vec<LeaseToken>)> {
        let held = self.subscriptions.into_iter();
        held.map(|(key, subscription)| (key, subscription.held.leases())).collect()
    }
}

/// A client that has not said who it is.
fn nobody() -> ApiError {
    ApiError::unauthorized("send AUTH with a token first")
}

fn parse_lease(text: &str) -> Result<LeaseToken, ApiError> {
    match not_a_lease(text) {
        Some(why) => {
            let message = format!("{why}, or name the event with id or ids");
            Err(ApiError::with_code(ErrorCode::LeaseExpired, message))
        }
        None => text.parse().map_err(|_| expired()),
    }
}

/// An error with the subscription that it is about.
fn of_key(error: ApiError, key: &Key) -> ApiError {
    error.with("topic", key.topic.as_str()).with("group", key.group.as_str())
}

fn expired() -> ApiError {
    ApiError::with_code(ErrorCode::LeaseExpired, "the lease has expired or passed on")
}

/// A request with `corr` is answered; one without only if it fails.
fn accept(corr: &Corr, out: &mut Vec<Effect>) {
    if let Some(corr) = corr {
        out.push(Effect::Send(frames::ok(corr)));
    }
}

fn refuse(corr: Corr, error: &ApiError, out: &mut Vec<Effect>) {
    out.push(Effect::Send(frames::err(&corr, error)));
}

#[cfg(test)]
mod tests;
