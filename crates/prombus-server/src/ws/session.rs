//! The rules of a WebSocket connection as a state machine: frames and results in, effects out. It never waits and knows
//! no socket, so every rule can be tested on its own.

mod patterns;
mod settling;
mod subscriptions;

use super::frames::{self, Corr};
use crate::auth::{AccessRequest, Action, Auth, Caller};
use crate::cluster::{CallerFrame, Vouched};
use crate::commit::{CommitCall, CommitOutcome};
use crate::error::ApiError;
use crate::incoming;
use crate::memory::Memory;
use crate::pattern::Topics;
use crate::routes::groups::group_call;
use crate::routes::publish::parse_array;
use bytes::Bytes;
pub(crate) use patterns::PatternKey;
use patterns::{PatternOptions, PatternSubscription};
use prombus_core::{Append, Partition, Receipt, TopicName};
use prombus_engine::commits::LeaseOf;
use prombus_engine::groups::{Delivery, GroupCall, GroupName, LeaseToken, Pull, SettleCall};
use prombus_wire::{
    AuthFrame, CommitFrame, ErrorCode, EventRequest, FrameHead, PublishFrame, SubscribeFrame,
    SubscribeOptions, SubscriptionFrame, Text, parse_object,
};
use serde_json::value::RawValue;
pub(crate) use settling::PendingSettle;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use subscriptions::{Subscription, Subscriptions};

/// How many deliveries come at once by default.
const DEFAULT_BATCH: usize = 100;
/// How many leases a subscription holds by default.
const DEFAULT_IN_FLIGHT: usize = 1_000;
/// The longest `corr`, in bytes as it is written: it is kept until its request is answered.
const MAX_CORR_BYTES: usize = 1_024;
/// How a frame that publishes mostly starts.
const PUBLISH: &[u8] = b"{\"op\":\"PUBLISH\",";
const PUBLISH_BYTES: usize = PUBLISH.len();
/// How long one pull waits; the next one follows.
const PULL_WAIT: Duration = Duration::from_secs(30);

/// What those are told whose requests were not begun.
const ENDING: &str = "the connection is closing, and this had no effect; send it again on another connection";

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
    Publish { corr: Corr, caller: Caller, topic: TopicName, events: Vec<Append>, array: bool },
    /// Find or make groups, and say so with [`Session::subscribed`].
    Subscribe { corr: Corr, wanted: SubscribeTargets, call: GroupCall },
    /// Find out which topics there are, and say so with [`Session::listed`]; from then on, tell of new ones with
    /// [`Session::appeared`].
    List { corr: Corr, wanted: SubscribeTargets, call: GroupCall },
    /// Deliver events of a group, and say so with [`Session::delivered`].
    Pull(Key, Pull),
    /// Deliver no more.
    Stop(Key),
    /// Give these leases back, and deliver no more.
    Leave(Key, Vec<LeaseToken>),
    /// Settle deliveries, and say so with [`Session::settled`].
    Settle { pending: PendingSettle, call: SettleCall },
    /// Carry out a commit for the caller, and say so with [`Session::committed`].
    Commit { corr: Corr, caller: Caller, asked: Box<CommitCall> },
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
            | Self::Settle { pending: PendingSettle { corr, .. }, .. }
            | Self::Commit { corr, .. } => Self::Send(frames::err(&corr, &ApiError::unavailable(ENDING))),
            Self::Pull(key, _) => Self::Stop(key),
            other => other,
        }
    }
}

/// What one frame subscribes to.
#[derive(Debug, Default)]
pub(crate) struct SubscribeTargets {
    pub keys: Vec<Key>,
    pub patterns: Vec<PatternKey>,
}

/// Whether a subscription gets events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Paused,
    Resumed,
}

/// Who is at the other end, and how one who has not said so yet is known.
pub(crate) struct Peer {
    pub caller: Option<Caller>,
    pub auth: Arc<Auth>,
    /// By what another hub is believed that says whose the connection is.
    pub vouched: Option<Vouched>,
}

/// What a connection may take.
pub(crate) struct Allowance {
    /// Maximum number of bytes that may be published at once.
    pub publish_bytes: usize,
    /// What subscriptions take is counted here.
    pub memory: Memory,
}

/// A connection.
pub(crate) struct Session {
    peer: Peer,
    /// Whether the client has said again who it is.
    new_caller: bool,
    /// Names the members of those who name none.
    name: String,
    max_bytes: usize,
    subscriptions: Subscriptions,
    patterns: HashMap<PatternKey, PatternSubscription>,
}

impl Session {
    /// A connection that is called `name`.
    pub fn new(name: String, peer: Peer, allowance: Allowance) -> Self {
        let Allowance { publish_bytes: max_bytes, memory } = allowance;
        let (subscriptions, patterns) = (Subscriptions::new(&memory), HashMap::new());
        Self { peer, new_caller: false, name, max_bytes, subscriptions, patterns }
    }

    /// Who is at the other end, once that is known.
    pub fn caller(&self) -> Option<&Caller> {
        self.peer.caller.as_ref()
    }

    /// Whether the client has said who it is since this was asked last.
    pub fn has_new_caller(&mut self) -> bool {
        std::mem::take(&mut self.new_caller)
    }

    /// How a subscription consumes.
    pub fn pull(&self, key: &Key) -> Option<Pull> {
        self.subscriptions.get(key).map(|subscription| subscription.pull.clone())
    }

    fn check(&self, action: Action, key: (&TopicName, Option<&GroupName>)) -> Result<(), ApiError> {
        let caller = self.peer.caller.as_ref().ok_or_else(nobody)?;
        caller.check(AccessRequest { action, topic: key.0.as_str(), group: key.1.map(GroupName::as_str) })
    }

    /// Takes a frame.
    pub fn frame(&mut self, text: &Bytes, out: &mut Vec<Effect>) {
        // Most frames publish: those are read only once. What is wrong with one is found out below.
        if self.peer.caller.is_some()
            && text.get(..PUBLISH_BYTES).is_some_and(|start| start == PUBLISH)
            && let Ok(frame) = parse_object::<PublishFrame<'_>>(text)
        {
            let corr = match corr_of(frame.corr) {
                Ok(corr) => corr,
                Err(error) => return self.refuse_frame("PUBLISH", None, &error, out),
            };
            if let Err(error) = self.publish(frame, text, &corr, out) {
                self.refuse_frame("PUBLISH", corr, &error, out);
            }
            return;
        }
        let head: FrameHead<'_> = match parse_object(text) {
            Ok(head) => head,
            Err(_) if self.peer.caller.is_none() => return self.refuse_frame("", None, &nobody(), out),
            Err(error) => return refuse(None, &error.into(), out),
        };
        let corr = match corr_of(head.corr) {
            Ok(corr) => corr,
            Err(error) => return self.refuse_frame(&head.op, None, &error, out),
        };
        let taken = match &*head.op {
            "AUTH" => self.authenticate(text, &corr, out),
            "CALLER" if self.peer.vouched.is_some() => self.take_caller(text, &corr, out),
            _ if self.peer.caller.is_none() => Err(nobody()),
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
            self.refuse_frame(&head.op, corr, &error, out);
        }
    }

    /// Refuses a frame, which is logged where it is because of who has sent it.
    fn refuse_frame(&self, op: &str, corr: Corr, error: &ApiError, out: &mut Vec<Effect>) {
        let subject = self.peer.caller.as_ref().and_then(Caller::subject);
        self.peer.auth.log.frame(op, subject, error);
        refuse(corr, error, out);
    }

    /// Takes a token. One that is no good changes nothing; a good one holds from here on, also for what the
    /// connection has subscribed to.
    fn authenticate(&mut self, text: &Bytes, corr: &Corr, out: &mut Vec<Effect>) -> Result<(), ApiError> {
        let frame: AuthFrame<'_> = parse_object(text)?;
        let caller = self.peer.auth.caller(Some(&frame.token))?;
        self.identified(caller, corr, out);
        Ok(())
    }

    /// Takes another hub's word for whose the connection is.
    fn take_caller(&mut self, text: &Bytes, corr: &Corr, out: &mut Vec<Effect>) -> Result<(), ApiError> {
        let frame: CallerFrame<'_> = serde_json::from_slice(text)?;
        let caller = self.peer.vouched.as_mut().and_then(|vouched| vouched.caller(&frame));
        let caller =
            caller.ok_or_else(|| ApiError::forbidden("this is not from the hub that has connected"))?;
        self.identified(caller, corr, out);
        Ok(())
    }

    fn identified(&mut self, caller: Caller, corr: &Corr, out: &mut Vec<Effect>) {
        self.peer.caller = Some(caller);
        self.new_caller = true;
        accept(corr, out);
        let keys: Vec<Key> = self.subscriptions.iter().map(|(key, _)| key.clone()).collect();
        for key in keys {
            if let Err(error) = self.check(Action::Subscribe, (&key.topic, Some(&key.group))) {
                self.lost(&key, &error, out);
            }
        }
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
                let request = EventRequest::new(payload, opts.map(|opts| opts.0).unwrap_or_default());
                (vec![incoming::from_request(topic.clone(), request, text)?], false)
            }
            (None, None, Some(events)) => {
                let events = text.slice_ref(events.get().as_bytes());
                (parse_array(&topic, &events, self.max_bytes)?, true)
            }
            _ => return Err(ApiError::bad_request("PUBLISH takes either a payload, with opts, or events")),
        };
        let caller = self.peer.caller.clone().ok_or_else(nobody)?;
        out.push(Effect::Publish { corr: corr.clone(), caller, topic, events, array });
        Ok(())
    }

    /// The outcome of a publish.
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
            _ => return Err(ApiError::bad_request("SUBSCRIBE takes either topic or topics")),
        };
        let group = GroupName::parse(&frame.group)?;
        let wanted = self.wanted(&names, &group)?;
        let opts = frame.opts.map(|opts| opts.0).unwrap_or_default();
        let (batch, pull) = (opts.batch.unwrap_or(false), self.pull_of(&opts));
        pull.check()?;
        let call = group_call(opts)?;
        self.check_room_for_patterns(wanted.patterns.len())?;
        self.subscriptions.reserve(wanted.keys.len())?;
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
    fn wanted(&self, names: &[Text<'_>], group: &GroupName) -> Result<SubscribeTargets, ApiError> {
        let (mut wanted, mut seen) = (SubscribeTargets::default(), HashSet::new());
        for name in names {
            let is_new = match Topics::parse(name)? {
                Topics::Named(topic) => {
                    let key = Key { topic, group: group.clone() };
                    self.check(Action::Subscribe, (&key.topic, Some(&key.group)))?;
                    let is_new = !self.subscriptions.contains(&key);
                    wanted.keys.push(key);
                    is_new
                }
                Topics::Matching(_) => {
                    let key = PatternKey { text: (&**name).into(), group: group.clone() };
                    self.check_pattern()?;
                    let is_new = !self.patterns.contains_key(&key);
                    wanted.patterns.push(key);
                    is_new
                }
            };
            if !is_new || !seen.insert(&**name) {
                let message = format!("this connection is already subscribed to {} as {group}", &**name);
                return Err(ApiError::with_code(ErrorCode::AlreadySubscribed, message));
            }
        }
        Ok(wanted)
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

    /// The outcome of a subscription.
    pub fn subscribed(
        &mut self,
        corr: Corr,
        wanted: SubscribeTargets,
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
                // It was abandoned meanwhile.
                out.push(Effect::Leave(key, Vec::new()));
            }
        }
    }

    fn known(&mut self, topic: &str, group: &str) -> Result<(Key, &mut Subscription), ApiError> {
        let key = Key { topic: TopicName::parse(topic)?, group: GroupName::parse(group)? };
        match self.subscriptions.get_mut(&key) {
            Some(subscription) => Ok((key, subscription)),
            None => {
                let message = format!("this connection is not subscribed to {topic} as {group}");
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
        let flow = if op == "PAUSE" { Flow::Paused } else { Flow::Resumed };
        if frame.topic.contains('*') {
            self.pause_pattern(&frame, flow, out)?;
        } else {
            let (key, subscription) = self.known(&frame.topic, &frame.group)?;
            out.extend(subscription.pause(key, flow));
        }
        accept(corr, out);
        Ok(())
    }

    fn commit(&self, text: &Bytes, corr: &Corr, out: &mut Vec<Effect>) -> Result<(), ApiError> {
        let frame: CommitFrame<'_> = parse_object(text)?;
        let caller = self.peer.caller.clone().ok_or_else(nobody)?;
        let asked = CommitCall::parse(frame.into_request(), text, self.max_bytes)?;
        asked.check(&caller)?;
        out.push(Effect::Commit { corr: corr.clone(), caller, asked: Box::new(asked) });
        Ok(())
    }

    /// The outcome of a commit. What it has settled is no longer held; where it failed, everything is held as before.
    pub fn committed(&mut self, corr: Corr, result: Result<CommitOutcome, ApiError>, out: &mut Vec<Effect>) {
        let CommitOutcome { answer, settled, elsewhere } = match result {
            Ok(committed) => committed,
            Err(error) => return refuse(corr, &error, out),
        };
        for (LeaseOf { topic, group }, lease) in settled {
            if let Some(subscription) = self.subscriptions.get_mut(&Key { topic, group }) {
                subscription.held.remove(lease);
            }
        }
        for lease in elsewhere {
            self.subscriptions.all_held().for_each(|held| held.remove(lease));
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
            // It was abandoned while they were on their way.
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
            self.succeed(subscription.by, out);
        }
    }

    /// The connection has ended: what it holds, by group.
    pub fn end(self) -> Vec<(Key, Vec<LeaseToken>)> {
        let held = self.subscriptions.into_all().into_iter();
        held.map(|(key, subscription)| (key, subscription.held.leases())).collect()
    }
}

/// A client that has not said who it is.
fn nobody() -> ApiError {
    ApiError::unauthorized("send AUTH with a token first")
}

/// An error with the subscription that it is about.
fn of_key(error: ApiError, key: &Key) -> ApiError {
    error.with("topic", key.topic.as_str()).with("group", key.group.as_str())
}

/// What goes back with the answer.
fn corr_of(corr: Option<&RawValue>) -> Result<Corr, ApiError> {
    match corr.map(RawValue::get) {
        Some(corr) if corr.len() > MAX_CORR_BYTES => {
            let bytes = corr.len();
            Err(ApiError::bad_request(format!("corr takes {bytes} bytes, more than {MAX_CORR_BYTES}")))
        }
        corr => Ok(corr.map(str::to_owned)),
    }
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
