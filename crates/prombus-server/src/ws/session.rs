//! The rules of a WebSocket connection as a state machine: frames and results in, effects out. It never waits and
//! knows no socket, so that every rule can be tested by itself.

use super::frames::{self, Corr};
use crate::error::ApiError;
use crate::outgoing;
use crate::params::parse_id;
use crate::routes::groups::group_call;
use crate::routes::publish::parse_array;
use bytes::Bytes;
use prombus_core::{Partition, Receipt, TopicName};
use prombus_engine::Outgoing;
use prombus_engine::groups::{Delivery, GroupCall, GroupName, LeaseToken, Pull, Settle, SettleCall};
use prombus_wire::{
    AuthFrame, ErrorCode, FrameHead, PublishFrame, SettleFrame, SubscribeFrame, SubscribeOptions,
    SubscriptionFrame, parse_object,
};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// The most subscriptions of a connection.
const MAX_SUBSCRIPTIONS: usize = 10_000;
/// How many deliveries come at once where nothing is said.
const DEFAULT_BATCH: usize = 100;
/// How many leases a subscription holds where nothing is said.
const DEFAULT_IN_FLIGHT: usize = 1_000;
/// How long one pull waits; the next one follows.
const PULL_WAIT: Duration = Duration::from_secs(30);

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
    Subscribe { corr: Corr, keys: Vec<Key>, call: GroupCall },
    /// Deliver events of a group, and say so with [`Session::delivered`].
    Pull(Key, Pull),
    /// Deliver no more.
    Stop(Key),
    /// Give these leases back, and deliver no more.
    Leave(Key, Vec<LeaseToken>),
    /// Settle deliveries, and say so with [`Session::settled`].
    Settle { corr: Corr, key: Key, call: SettleCall },
}

/// A delivery that the connection holds.
#[derive(Debug)]
struct Held {
    lease: LeaseToken,
    /// When the lease ends, unless it is extended.
    deadline: Instant,
}

#[derive(Debug)]
struct Subscription {
    /// Whether the group is there.
    made: bool,
    batch: bool,
    paused: bool,
    pull: Pull,
    held: HashMap<Uuid, Held>,
    owned: Option<Vec<Partition>>,
}

/// A connection.
pub(crate) struct Session {
    /// Names the members of those who name none.
    name: String,
    max_bytes: usize,
    subscriptions: HashMap<Key, Subscription>,
}

impl Session {
    /// A connection that is called `name`, and may publish so many bytes at once.
    pub fn new(name: String, max_bytes: usize) -> Self {
        Self { name, max_bytes, subscriptions: HashMap::new() }
    }

    /// Takes a frame.
    pub fn frame(&mut self, text: &Bytes, out: &mut Vec<Effect>) {
        let head: FrameHead<'_> = match parse_object(text) {
            Ok(head) => head,
            Err(error) => return refuse(None, &error.into(), out),
        };
        let corr = head.corr.map(|corr| corr.get().to_owned());
        let taken = match &*head.op {
            "AUTH" => parse_object::<AuthFrame<'_>>(text).map_err(ApiError::from).map(|_| accept(&corr, out)),
            "PUBLISH" => self.publish(text, &corr, out),
            "SUBSCRIBE" => self.subscribe(text, &corr, out),
            "UNSUBSCRIBE" => self.unsubscribe(text, &corr, out),
            "ACK" | "NACK" | "MODACK" => self.settle(&head.op, text, &corr, out),
            "PAUSE" | "RESUME" => self.pause(&head.op, text, &corr, out),
            other => Err(ApiError::bad_request(format!(
                "op {other:?} is not known; there are AUTH, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, ACK, NACK, MODACK, PAUSE \
                 and RESUME"
            ))),
        };
        if let Err(error) = taken {
            refuse(corr, &error, out);
        }
    }

    fn publish(&self, text: &Bytes, corr: &Corr, out: &mut Vec<Effect>) -> Result<(), ApiError> {
        let frame: PublishFrame<'_> = parse_object(text)?;
        let topic = TopicName::parse(&frame.topic)?;
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
        let mut keys = Vec::with_capacity(names.len());
        for name in names {
            let key = Key { topic: TopicName::parse(&name)?, group: group.clone() };
            if self.subscriptions.contains_key(&key) || keys.contains(&key) {
                let message = format!("this connection has subscribed to {} as {group} already", key.topic);
                return Err(ApiError::with_code(ErrorCode::AlreadySubscribed, message));
            }
            keys.push(key);
        }
        if self.subscriptions.len() + keys.len() > MAX_SUBSCRIPTIONS {
            let message = format!("a connection may have {MAX_SUBSCRIPTIONS} subscriptions");
            return Err(ApiError::too_large(message));
        }
        let opts = frame.opts.map(|opts| opts.0).unwrap_or_default();
        let (batch, pull) = (opts.batch.unwrap_or(false), self.pull_of(&opts));
        pull.check()?;
        let call = group_call(opts.into_options())?;
        for key in &keys {
            let subscription = Subscription {
                made: false,
                batch,
                paused: false,
                pull: pull.clone(),
                held: HashMap::new(),
                owned: None,
            };
            self.subscriptions.insert(key.clone(), subscription);
        }
        out.push(Effect::Subscribe { corr: corr.clone(), keys, call });
        Ok(())
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
        keys: Vec<Key>,
        result: Result<(), ApiError>,
        out: &mut Vec<Effect>,
    ) {
        if let Err(error) = result {
            for key in keys {
                self.subscriptions.remove(&key);
                out.push(Effect::Stop(key));
            }
            return refuse(corr, &error, out);
        }
        accept(&corr, out);
        for key in keys {
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
        let (key, subscription) = self.known(&frame.topic, &frame.group)?;
        let leases = subscription.held.values().map(|held| held.lease).collect();
        self.subscriptions.remove(&key);
        out.push(Effect::Leave(key, leases));
        accept(corr, out);
        Ok(())
    }

    fn pause(&mut self, op: &str, text: &Bytes, corr: &Corr, out: &mut Vec<Effect>) -> Result<(), ApiError> {
        let frame: SubscriptionFrame<'_> = parse_object(text)?;
        let (key, subscription) = self.known(&frame.topic, &frame.group)?;
        let pause = op == "PAUSE";
        if subscription.paused != pause {
            subscription.paused = pause;
            if pause {
                out.push(Effect::Stop(key));
            } else if subscription.made {
                out.push(Effect::Pull(key, subscription.pull.clone()));
            }
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
        let (key, subscription) = self.known(&frame.topic, &frame.group)?;
        let mut leases = Vec::new();
        for id in frame.id.iter().chain(frame.ids.iter().flatten()) {
            let held = subscription.held.get(&parse_id("id", id)?).ok_or_else(|| {
                let message = format!("this connection holds no lease on {}", &**id);
                ApiError::with_code(ErrorCode::UnknownId, message)
            })?;
            leases.push(held.lease);
        }
        for lease in frame.lease.iter().chain(frame.leases.iter().flatten()) {
            leases.push(lease.parse().map_err(|_| expired())?);
        }
        if leases.is_empty() {
            return Err(ApiError::bad_request(format!("{op} needs id, ids, lease or leases")));
        }
        let ms = |ms: Option<u64>| ms.map(Duration::from_millis);
        let settle = |lease| match op {
            "ACK" => Settle::Ack(lease),
            "NACK" => Settle::Nack {
                lease,
                reason: frame.reason.as_deref().map(str::to_owned),
                delay: ms(frame.delay_ms),
            },
            _ => Settle::Extend { lease, by: ms(frame.extend_ms) },
        };
        let settles: Vec<Option<Settle>> = leases.iter().map(|lease| Some(settle(*lease))).collect();
        let call = SettleCall { settles };
        call.check()?;
        if op != "MODACK" {
            // Once it is said, an id no longer stands for that delivery, whatever comes of it.
            subscription.held.retain(|_, held| !leases.contains(&held.lease));
        } else if let Some(by) = ms(frame.extend_ms) {
            let until = Instant::now() + by;
            let extended = subscription.held.values_mut().filter(|held| leases.contains(&held.lease));
            extended.for_each(|held| held.deadline = until);
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
        let now = Instant::now();
        if subscription.held.len() > 2 * subscription.pull.max_in_flight {
            subscription.held.retain(|_, held| held.deadline > now);
        }
        for Delivery { event, lease, deadline, .. } in &deliveries {
            subscription.held.insert(event.id, Held { lease: *lease, deadline: *deadline });
        }
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

    /// A group is gone; the client is told.
    pub fn lost(&mut self, key: &Key, error: &ApiError, out: &mut Vec<Effect>) {
        if self.subscriptions.remove(key).is_some() {
            out.push(Effect::Leave(key.clone(), Vec::new()));
            refuse(None, error, out);
        }
    }

    /// The connection has ended: what it holds, by group.
    pub fn end(self) -> Vec<(Key, Vec<LeaseToken>)> {
        let leases = |s: Subscription| s.held.into_values().map(|held| held.lease).collect();
        self.subscriptions.into_iter().map(|(key, subscription)| (key, leases(subscription))).collect()
    }
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
mod tests {
    use super::*;
    use prombus_core::{Event, Json, Offset};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    const ID: Uuid = Uuid::from_u128(7);

    fn session() -> Session {
        Session::new("ws-1".into(), 1 << 20)
    }

    /// What a frame leads to: frames as JSON, and the names of other effects.
    fn said(effects: Vec<Effect>) -> Vec<Value> {
        let name = |effect| match effect {
            Effect::Send(frame) => serde_json::from_slice(&frame).unwrap(),
            Effect::Publish { topic, events, .. } => json!(format!("publish {} to {topic}", events.len())),
            Effect::Subscribe { keys, .. } => json!(format!("subscribe {}", keys.len())),
            Effect::Pull(key, pull) => json!(format!("pull {} as {}", key.topic, pull.member.unwrap())),
            Effect::Stop(key) => json!(format!("stop {}", key.topic)),
            Effect::Leave(key, leases) => json!(format!("leave {} with {}", key.topic, leases.len())),
            Effect::Settle { call, .. } => json!(format!("settle {}", call.settles.len())),
        };
        effects.into_iter().map(name).collect()
    }

    fn frame(session: &mut Session, frame: Value) -> Vec<Value> {
        let mut out = Vec::new();
        session.frame(&Bytes::from(frame.to_string()), &mut out);
        said(out)
    }

    fn code(session: &mut Session, sent: Value) -> String {
        match &frame(session, sent)[..] {
            [answer] if answer["op"] == "ERR" => answer["code"].as_str().unwrap().to_owned(),
            other => panic!("{other:?}"),
        }
    }

    fn key() -> Key {
        Key { topic: TopicName::parse("t").unwrap(), group: GroupName::parse("g").unwrap() }
    }

    fn delivery(lease: u64) -> Delivery {
        let event = Event {
            id: ID,
            ts: 1,
            recorded_ts: 1,
            topic: key().topic,
            key: None,
            partition: Partition(0),
            offset: Offset(0),
            sid: None,
            headers: None,
            payload: Json::from_stored("1".into()),
            caused_by: None,
            tags: None,
        };
        let lease = LeaseToken { session: 1, number: lease };
        Delivery { event, lease, attempt: 1, deadline: Instant::now() + Duration::from_secs(9) }
    }

    /// A session with a subscription that was delivered one event.
    fn consuming() -> Session {
        let mut session = session();
        assert_eq!(
            frame(&mut session, json!({"op": "SUBSCRIBE", "topic": "t", "group": "g"})),
            ["subscribe 1"]
        );
        let mut out = Vec::new();
        session.subscribed(None, vec![key()], Ok(()), &mut out);
        assert_eq!(said(std::mem::take(&mut out)), ["pull t as ws-1"]);
        session.delivered(key(), vec![delivery(1)], 5, &mut out);
        let said = said(out);
        assert_eq!((&said[0]["op"], &said[1]), (&json!("EVENT"), &json!("pull t as ws-1")));
        session
    }

    #[test]
    fn an_id_stands_for_the_lease_that_is_held_now() {
        let mut session = consuming();
        let mut out = Vec::new();
        session.delivered(key(), vec![delivery(2)], 5, &mut out);
        out.clear();
        let ack = json!({"op": "ACK", "topic": "t", "group": "g", "id": ID.to_string()});
        session.frame(&Bytes::from(ack.to_string()), &mut out);
        match &out[..] {
            [Effect::Settle { call, .. }] => {
                let ack = Settle::Ack(LeaseToken { session: 1, number: 2 });
                assert_eq!(call.settles[..], [Some(ack)]);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(code(&mut session, ack), "unknown_id", "once it is said, it is no longer held");
    }

    #[test]
    fn all_of_a_list_or_none() {
        let mut session = consuming();
        let other = Uuid::from_u128(8).to_string();
        let both = json!({"op": "ACK", "topic": "t", "group": "g", "ids": [ID.to_string(), other]});
        assert_eq!(code(&mut session, both), "unknown_id");
        let late =
            json!({"op": "NACK", "topic": "t", "group": "g", "id": ID.to_string(), "delay_ms": 86_400_001});
        assert_eq!(code(&mut session, late), "bad_request");
        let one = json!({"op": "ACK", "topic": "t", "group": "g", "ids": [ID.to_string()], "corr": 1});
        assert_eq!(frame(&mut session, one), ["settle 1"], "the known one is still held");
    }

    #[test]
    fn fields_go_with_their_verbs() {
        let mut session = consuming();
        for (op, field) in
            [("ACK", "delay_ms"), ("ACK", "extend_ms"), ("NACK", "extend_ms"), ("MODACK", "delay_ms")]
        {
            let mut wrong = json!({"op": op, "topic": "t", "group": "g", "lease": "0"});
            wrong[field] = json!(1);
            assert_eq!(code(&mut session, wrong), "bad_request", "{op} {field}");
        }
    }

    #[test]
    fn what_is_left_is_given_back() {
        let mut session = consuming();
        let unsubscribe = json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "g", "corr": "a"});
        let said_ = frame(&mut session, unsubscribe.clone());
        assert_eq!(said_, [json!("leave t with 1"), json!({"op": "OK", "corr": "a"})]);
        assert_eq!(code(&mut session, unsubscribe), "not_subscribed");
        let mut out = Vec::new();
        session.delivered(key(), vec![delivery(3)], 5, &mut out);
        assert_eq!(said(out), ["leave t with 1"], "what was on its way goes back");
        let ended = consuming().end();
        assert_eq!(ended, [(key(), vec![LeaseToken { session: 1, number: 1 }])]);
    }

    #[test]
    fn a_failed_subscription_leaves_nothing() {
        let mut session = session();
        let subscribe = json!({"op": "SUBSCRIBE", "topics": ["t", "u"], "group": "g", "corr": 1});
        assert_eq!(frame(&mut session, subscribe.clone()), ["subscribe 2"]);
        let keys = vec![key(), Key { topic: TopicName::parse("u").unwrap(), ..key() }];
        let mut out = Vec::new();
        let error = ApiError::with_code(ErrorCode::GroupOptions, "no");
        session.subscribed(Some("1".into()), keys, Err(error), &mut out);
        assert_eq!(said(out).last().unwrap()["code"], "group_options");
        assert_eq!(frame(&mut session, subscribe), ["subscribe 2"]);
        let twice = json!({"op": "SUBSCRIBE", "topics": ["v", "v"], "group": "g"});
        assert_eq!(code(&mut session, twice), "already_subscribed");
    }

    #[test]
    fn a_pause_ends_the_pull_and_resume_starts_it() {
        let mut session = consuming();
        let pause = json!({"op": "PAUSE", "topic": "t", "group": "g"});
        assert_eq!(frame(&mut session, pause.clone()), ["stop t"]);
        assert_eq!(frame(&mut session, pause), [""; 0], "once is enough");
        let mut out = Vec::new();
        session.delivered(key(), Vec::new(), 5, &mut out);
        assert!(out.is_empty(), "no pull while it is paused");
        assert_eq!(
            frame(&mut session, json!({"op": "RESUME", "topic": "t", "group": "g"})),
            ["pull t as ws-1"]
        );
    }

    #[test]
    fn spent_leases_are_told() {
        let session = consuming();
        let mut out = Vec::new();
        session.settled(None, Ok(vec![true, true]), &mut out);
        session.settled(Some("1".into()), Ok(vec![true]), &mut out);
        session.settled(None, Ok(vec![true, false]), &mut out);
        let said = said(out);
        assert_eq!(said.len(), 2, "{said:?}");
        assert_eq!((&said[0], &said[1]["code"]), (&json!({"op": "OK", "corr": 1}), &json!("lease_expired")));
    }

    #[test]
    fn moves_are_told_once() {
        let mut session = consuming();
        let mut out = Vec::new();
        for partitions in [vec![Partition(1)], vec![Partition(1)], Vec::new()] {
            session.assigned(&key(), partitions, &mut out);
        }
        let told: Vec<Value> = said(out).iter().map(|frame| frame["partitions"].clone()).collect();
        assert_eq!(told, [json!([1]), json!([])]);
    }

    proptest! {
        #[test]
        fn any_frame_is_answered_or_leads_to_something(
            text in r#"\{("(op|corr|topic|topics|payload|opts|events|group|id|ids|lease|PUBLISH|SUBSCRIBE|ACK|t|g)"|[\[\]{}:,"0-9a-z\\ ]){0,30}\}?"#,
        ) {
            let mut out = Vec::new();
            session().frame(&Bytes::from(text), &mut out);
            prop_assert!(!out.is_empty());
        }
    }
}
