//! Subscriptions to all topics that match a pattern: each topic is a separate subscription with the same group.
//!
//! A topic that is already subscribed to, by name or by another pattern, is left alone. Topics created later are
//! subscribed to from their first event, wherever the group starts in existing ones: the event that created a topic must
//! not be missed.

use super::{Effect, Flow, Key, Session, SubscribeTargets, Subscription, accept, of_key, refuse};
use crate::auth::{AccessRequest, Action};
use crate::error::ApiError;
use crate::pattern::{MAX_PATTERNS, Topics};
use crate::ws::frames::Corr;
use prombus_core::TopicNumber;
use prombus_engine::groups::{GroupCall, GroupName, Pull};
use prombus_engine::{From, NumberedTopic};
use prombus_wire::{ErrorCode, SubscriptionFrame};
use std::sync::Arc;

/// A group of all topics that match, as a connection names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PatternKey {
    pub text: Arc<str>,
    pub group: GroupName,
}

/// What a connection has asked for.
#[derive(Debug, Clone)]
pub(super) struct PatternOptions {
    pub batch: bool,
    pub pull: Pull,
    pub call: GroupCall,
}

/// A pattern that is subscribed to.
#[derive(Debug)]
pub(super) struct PatternSubscription {
    topics: Topics,
    options: PatternOptions,
    paused: bool,
    /// Whether the client knows that topics are left out, for which there is no room.
    told_of_end: bool,
}

/// Where a subscription comes from.
#[derive(Debug, Clone)]
pub(super) struct ByPattern {
    pattern: PatternKey,
    number: TopicNumber,
    /// How many partitions the topic counts for.
    pub partitions: u32,
    /// A topic that was made under the same name since. It is subscribed to once this one is known to be gone.
    successor: Option<Box<NumberedTopic>>,
}

impl Session {
    /// Refuses patterns of those who may subscribe to nothing.
    pub(super) fn check_pattern(&self) -> Result<(), ApiError> {
        let caller = self.peer.caller.as_ref().ok_or_else(super::nobody)?;
        caller.check_somewhere(Action::Subscribe)
    }

    pub(super) fn check_room_for_patterns(&self, more: usize) -> Result<(), ApiError> {
        if self.patterns.len() + more <= MAX_PATTERNS {
            return Ok(());
        }
        Err(ApiError::too_large(format!("a connection may subscribe to at most {MAX_PATTERNS} patterns")))
    }

    pub(super) fn add_patterns(
        &mut self,
        keys: &[PatternKey],
        options: PatternOptions,
    ) -> Result<(), ApiError> {
        for key in keys {
            let topics = Topics::parse(&key.text)?;
            let options = options.clone();
            let subscription = PatternSubscription { topics, options, paused: false, told_of_end: false };
            self.patterns.insert(key.clone(), subscription);
        }
        Ok(())
    }

    /// Which topics there are: those that the patterns of a frame stand for are subscribed to with the rest of it.
    pub fn listed(
        &mut self,
        (corr, mut wanted, call): (Corr, SubscribeTargets, GroupCall),
        topics: Result<&[NumberedTopic], ApiError>,
        out: &mut Vec<Effect>,
    ) {
        let topics = match topics {
            Ok(topics) => topics,
            Err(error) => return self.refuse_subscription(corr, wanted, error, out),
        };
        for pattern in &wanted.patterns {
            for topic in topics {
                match self.subscribe_by(pattern, topic) {
                    Ok(key) => wanted.keys.extend(key),
                    Err(error) => return self.refuse_subscription(corr, wanted, error, out),
                }
            }
        }
        if wanted.keys.is_empty() {
            return accept(&corr, out);
        }
        out.push(Effect::Subscribe { corr, wanted, call });
    }

    /// Topics were made.
    pub fn appeared(&mut self, topics: &[NumberedTopic], out: &mut Vec<Effect>) {
        let patterns: Vec<PatternKey> = self.patterns.keys().cloned().collect();
        for topic in topics {
            for pattern in &patterns {
                self.take_up(pattern, topic, out);
            }
        }
    }

    /// Subscribes to a new topic from its beginning, where a pattern stands for it.
    fn take_up(&mut self, pattern: &PatternKey, topic: &NumberedTopic, out: &mut Vec<Effect>) {
        let key = Key { topic: topic.name.clone(), group: pattern.group.clone() };
        match self.subscribe_by(pattern, topic) {
            Ok(None) => {
                let by = self.subscriptions.get_mut(&key).and_then(|one| one.by.as_mut());
                if let Some(by) = by.filter(|by| by.pattern == *pattern && by.number < topic.number) {
                    by.successor = Some(Box::new(topic.clone()));
                }
            }
            Ok(Some(key)) => {
                let Some(subscription) = self.patterns.get(pattern) else { return };
                let call = GroupCall { from: From::Earliest, ..subscription.options.call.clone() };
                let wanted = SubscribeTargets { keys: vec![key], patterns: Vec::new() };
                out.push(Effect::Subscribe { corr: None, wanted, call });
            }
            Err(error) => {
                let Some(subscription) = self.patterns.get_mut(pattern) else { return };
                // There may be thousands of them, and one tells all.
                if !std::mem::replace(&mut subscription.told_of_end, true) {
                    refuse(None, &of_key(error, &key), out);
                }
            }
        }
    }

    /// The subscription of a topic that a pattern stands for, and that was not subscribed to yet.
    fn subscribe_by(&mut self, pattern: &PatternKey, topic: &NumberedTopic) -> Result<Option<Key>, ApiError> {
        let NumberedTopic { name: topic, number, partitions } = topic;
        let Some(PatternSubscription { topics, options, paused, .. }) = self.patterns.get(pattern) else {
            return Ok(None);
        };
        let key = Key { topic: topic.clone(), group: pattern.group.clone() };
        let access = AccessRequest {
            action: Action::Subscribe,
            topic: topic.as_str(),
            group: Some(pattern.group.as_str()),
        };
        let is_allowed = self.peer.caller.as_ref().is_some_and(|caller| caller.may(access));
        if !topics.include(topic) || !is_allowed || self.subscriptions.contains(&key) {
            return Ok(None);
        }
        self.subscriptions.reserve_matching(*partitions)?;
        let (pattern, successor) = (pattern.clone(), None);
        let by = ByPattern { pattern, number: *number, partitions: *partitions, successor };
        let subscription = Subscription {
            by: Some(by),
            paused: *paused,
            ..Subscription::new(options.batch, options.pull.clone())
        };
        self.subscriptions.insert(key.clone(), subscription);
        Ok(Some(key))
    }

    /// A subscription is gone; a topic that was made under the same name takes its place.
    pub(super) fn succeed(&mut self, by: Option<ByPattern>, out: &mut Vec<Effect>) {
        if let Some(ByPattern { pattern, successor: Some(topic), .. }) = by {
            self.take_up(&pattern, &topic, out);
        }
    }

    /// Nothing of what a frame has asked for is subscribed to.
    pub(super) fn refuse_subscription(
        &mut self,
        corr: Corr,
        wanted: SubscribeTargets,
        error: ApiError,
        out: &mut Vec<Effect>,
    ) {
        // Nobody has asked for a topic that was made later, so the client is told which one it is.
        let error = match (&corr, &wanted.keys[..]) {
            (None, [key]) => of_key(error, key),
            _ => error,
        };
        let mut keys = wanted.keys;
        for pattern in &wanted.patterns {
            self.patterns.remove(pattern);
            // A topic may have been made meanwhile, and taken up.
            keys.extend(self.of_pattern(pattern));
        }
        for key in keys {
            let held = self.subscriptions.remove(&key).map(|subscription| subscription.held.leases());
            out.push(Effect::Leave(key, held.unwrap_or_default()));
        }
        refuse(corr, &error, out);
    }

    fn known_pattern(&self, frame: &SubscriptionFrame<'_>) -> Result<PatternKey, ApiError> {
        let key = PatternKey { text: (&*frame.topic).into(), group: GroupName::parse(&frame.group)? };
        if self.patterns.contains_key(&key) {
            return Ok(key);
        }
        let message = format!("this connection is not subscribed to {} as {}", &*frame.topic, &*frame.group);
        Err(ApiError::with_code(ErrorCode::NotSubscribed, message))
    }

    /// The subscriptions that come from a pattern.
    fn of_pattern(&self, pattern: &PatternKey) -> Vec<Key> {
        let is_of = |one: &Subscription| one.by.as_ref().is_some_and(|by| by.pattern == *pattern);
        self.subscriptions.iter().filter(|(_, one)| is_of(one)).map(|(key, _)| key.clone()).collect()
    }

    /// Gives up a pattern and its topics, but for those that another pattern of the group stands for as well.
    pub(super) fn unsubscribe_pattern(
        &mut self,
        frame: &SubscriptionFrame<'_>,
        out: &mut Vec<Effect>,
    ) -> Result<(), ApiError> {
        let pattern = self.known_pattern(frame)?;
        self.patterns.remove(&pattern);
        for key in self.of_pattern(&pattern) {
            let includes = |(other, one): &(&PatternKey, &PatternSubscription)| {
                other.group == key.group && one.topics.include(&key.topic)
            };
            let other = self.patterns.iter().find(includes).map(|(other, _)| other.clone());
            match (other, self.subscriptions.get_mut(&key)) {
                (Some(pattern), Some(Subscription { by: Some(by), .. })) => by.pattern = pattern,
                _ => {
                    let leases = self.subscriptions.remove(&key).map(|one| one.held.leases());
                    out.push(Effect::Leave(key, leases.unwrap_or_default()));
                }
            }
        }
        Ok(())
    }

    /// Pauses a pattern, or goes on with it: its topics, and those that come later.
    pub(super) fn pause_pattern(
        &mut self,
        frame: &SubscriptionFrame<'_>,
        flow: Flow,
        out: &mut Vec<Effect>,
    ) -> Result<(), ApiError> {
        let pattern = self.known_pattern(frame)?;
        if let Some(subscription) = self.patterns.get_mut(&pattern) {
            subscription.paused = flow == Flow::Paused;
        }
        for key in self.of_pattern(&pattern) {
            if let Some(subscription) = self.subscriptions.get_mut(&key) {
                out.extend(subscription.pause(key, flow));
            }
        }
        Ok(())
    }
}
