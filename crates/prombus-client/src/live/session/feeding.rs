//! Subscriptions of a session: renewed on every connection, and fed with what the hub delivers.

use super::ack_retries::AckRetries;
use super::{Request, Session, frames, silent_ack};
use crate::HubError;
use crate::live::command::Done;
use crate::live::delivery::{Delivery, nack};
use crate::live::done_events::DoneEvents;
use crate::live::failure::Failure;
use crate::live::feed::{Feed, FeedEnd};
use crate::live::later::later;
use crate::live::settle::{Lease, Settle};
use prombus_wire::{DeliveryRecord, ErrorCode, HubFrame};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// How long to wait before a subscription that the hub temporarily refused is requested again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The phase of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Not requested on this connection.
    Idle,
    /// Asked for.
    Asked,
    /// The hub delivers.
    Active,
    /// The hub refused temporarily; to be requested again at this time.
    Retry(Instant),
}

/// The deliveries in a frame.
#[derive(Default)]
pub(super) struct Delivered {
    pub readable: Vec<DeliveryRecord>,
    /// Leases of unreadable events, with the reason.
    pub unreadable: Vec<(String, String)>,
}

/// A subscription.
pub(super) struct ActiveSubscription {
    pub feed: Arc<Feed>,
    phase: Phase,
    /// Which making of it leases come from; each has a number of its own.
    pub made: u64,
    paused: bool,
    /// Who waits for the first time that it is made.
    waiter: Option<Done>,
    /// Acks that are to be sent together.
    pub acks: Vec<Settle>,
    /// What the hub has refused for now.
    pub again: AckRetries,
    /// How many settles are not answered, those that are to be sent included.
    pub unanswered: usize,
    /// Who waits for that to be none.
    pub drains: Vec<Done>,
    /// Events that are done and whose acks were not answered.
    pub done: DoneEvents,
}

impl ActiveSubscription {
    pub fn retry_at(&self) -> Option<Instant> {
        match self.phase {
            Phase::Retry(at) => Some(at),
            _ => None,
        }
    }

    fn is_left(&self) -> bool {
        self.feed.gone.load(Ordering::SeqCst)
    }

    /// What is not on its way to the hub, and now never will be.
    fn unsaid(&mut self) -> Vec<Settle> {
        let mut unsaid = std::mem::take(&mut self.acks);
        unsaid.append(&mut self.again.take());
        unsaid
    }

    pub fn is_active(&self) -> bool {
        self.phase == Phase::Active
    }

    pub fn end(mut self, end: FeedEnd) {
        let why = match &end {
            FeedEnd::Closed => Failure::ended("the subscription was closed"),
            FeedEnd::Failed(failure) => failure.clone(),
        };
        if let Some(waiter) = self.waiter {
            let _ = waiter.send(Err(why.clone()));
        }
        let unsaid = self.acks.into_iter().chain(self.again.take());
        unsaid.for_each(|settle| settle.answer(Err(why.clone())));
        self.drains.into_iter().for_each(|done| drop(done.send(Ok(()))));
        self.feed.end(end);
    }
}

impl Session {
    pub(super) fn subscribe(&mut self, feed: Arc<Feed>, done: Done, now: Instant) {
        // One whose user has left, which was not noticed yet, makes room.
        if let Some(other) = self.named(&feed.topic, &feed.group)
            && self.feeds.get(&other).is_some_and(ActiveSubscription::is_left)
        {
            self.unsubscribe(other, None, now);
        }
        let groups = self.names.entry(feed.topic.clone()).or_default();
        if groups.contains_key(&feed.group) {
            let message =
                format!("this connection is already subscribed to {} as {}", feed.topic, feed.group);
            let _ = done.send(Err(HubError::of_code(ErrorCode::AlreadySubscribed, message).into()));
            return;
        }
        groups.insert(feed.group.clone(), feed.number);
        let number = feed.number;
        let fed = ActiveSubscription {
            feed,
            phase: Phase::Idle,
            made: 0,
            paused: false,
            waiter: Some(done),
            acks: Vec::new(),
            again: AckRetries::default(),
            unanswered: 0,
            drains: Vec::new(),
            done: DoneEvents::default(),
        };
        self.feeds.insert(number, fed);
        if self.connected {
            self.ask_for(number, now);
        }
    }

    pub(super) fn subscribe_all(&mut self, now: Instant) {
        let mut numbers: Vec<u64> = self.feeds.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            self.ask_for(number, now);
        }
    }

    pub(super) fn retry_subscriptions(&mut self, now: Instant) {
        let due = self.feeds.iter().filter(|(_, fed)| fed.retry_at().is_some_and(|at| at <= now));
        let due: Vec<u64> = due.map(|(number, _)| *number).collect();
        due.into_iter().for_each(|number| self.ask_for(number, now));
    }

    fn ask_for(&mut self, number: u64, now: Instant) {
        let Some(fed) = self.feeds.get_mut(&number) else { return };
        fed.phase = Phase::Asked;
        self.made += 1;
        fed.made = self.made;
        fed.feed.clear(fed.made);
        let (feed, paused) = (fed.feed.clone(), fed.paused);
        self.ask(Request::Subscribe(number), now, |corr| frames::subscribe(corr, &feed));
        if paused {
            self.ask(Request::Simple(None), now, |corr| frames::about("PAUSE", corr, &feed));
        }
    }

    pub(super) fn subscribed(&mut self, number: u64, _now: Instant) {
        let Some(fed) = self.feeds.get_mut(&number) else { return };
        fed.phase = Phase::Active;
        if let Some(waiter) = fed.waiter.take() {
            let _ = waiter.send(Ok(()));
        }
    }

    pub(super) fn subscription_refused(&mut self, number: u64, error: HubError, now: Instant) {
        let Some(fed) = self.feeds.get_mut(&number) else { return };
        if fed.waiter.is_none() && error.is_temporary() {
            fed.phase = Phase::Retry(now + RETRY_PAUSE);
            return;
        }
        self.end_feed(number, FeedEnd::Failed(error.into()));
    }

    pub(super) fn end_feed(&mut self, number: u64, end: FeedEnd) {
        let Some(fed) = self.feeds.remove(&number) else { return };
        if let Some(groups) = self.names.get_mut(&fed.feed.topic) {
            groups.remove(&fed.feed.group);
            if groups.is_empty() {
                self.names.remove(&fed.feed.topic);
            }
        }
        fed.end(end);
    }

    pub(super) fn unsubscribe(&mut self, number: u64, done: Option<Done>, now: Instant) {
        let asked = self.feeds.get(&number).map(|fed| (fed.feed.clone(), fed.phase));
        // What was settled before goes out before.
        self.say_again(number, now);
        self.send_acks(number, now);
        self.end_feed(number, FeedEnd::Closed);
        match asked {
            Some((feed, Phase::Asked | Phase::Active)) if self.connected => {
                let request = Request::Unsubscribe { feed: feed.clone(), done };
                self.ask(request, now, |corr| frames::about("UNSUBSCRIBE", corr, &feed));
            }
            _ => done.into_iter().for_each(|done| drop(done.send(Ok(())))),
        }
    }

    pub(super) fn sweep_feeds(&mut self, now: Instant) {
        let gone = self.feeds.iter().filter(|(_, fed)| fed.is_left());
        let gone: Vec<u64> = gone.map(|(number, _)| *number).collect();
        gone.into_iter().for_each(|number| self.unsubscribe(number, None, now));
    }

    pub(super) fn pause(&mut self, number: u64, pause: bool, done: Done, now: Instant) {
        let Some(fed) = self.feeds.get_mut(&number) else {
            let _ = done.send(Err(Failure::ended("the subscription was closed")));
            return;
        };
        fed.paused = pause;
        if matches!(fed.phase, Phase::Asked | Phase::Active) {
            let (feed, op) = (fed.feed.clone(), if pause { "PAUSE" } else { "RESUME" });
            self.ask(Request::Simple(Some(done)), now, |corr| frames::about(op, corr, &feed));
        } else {
            // It will be as wanted when it is made again.
            let _ = done.send(Ok(()));
        }
    }

    /// Ends all of them, so that the hub gives what they hold to others at once, and counts no attempt for it.
    pub(super) fn close_feeds(&mut self, now: Instant) {
        let numbers: Vec<u64> = self.feeds.keys().copied().collect();
        for number in numbers {
            if let Some(fed) = self.feeds.get(&number) {
                fed.feed.end(FeedEnd::Closed);
            }
            self.unsubscribe(number, None, now);
        }
    }

    /// The hub has ended a subscription by itself.
    pub(super) fn subscription_ended(&mut self, error: HubError, now: Instant) {
        let name = |name: &str| error.details.get(name).and_then(|value| value.as_str());
        match (name("topic"), name("group")) {
            (Some(topic), Some(group)) => {
                if let Some(number) = self.named(topic, group)
                    // One that is only being made has taken the name of the one that ended.
                    && self.feeds.get(&number).is_some_and(ActiveSubscription::is_active)
                {
                    self.feed_ended(number, error.into(), now);
                }
            }
            _ => self.probe_all(&error.into(), now),
        }
    }

    /// The hub has ended this subscription, for now or for good.
    pub(super) fn feed_ended(&mut self, number: u64, why: Failure, now: Instant) {
        let Some(fed) = self.feeds.get_mut(&number) else { return };
        if !matches!(&why, Failure::Hub(error) if error.is_temporary()) {
            return self.end_feed(number, FeedEnd::Failed(why));
        }
        fed.phase = Phase::Retry(now + RETRY_PAUSE);
        // Its leases went with it.
        fed.feed.clear(0);
        let unsaid = fed.unsaid();
        self.settles_lost(number, unsaid, now);
    }

    /// The hub has ended a subscription, and not said which: each is asked for a harmless thing.
    fn probe_all(&mut self, why: &Failure, now: Instant) {
        let active = self.feeds.iter().filter(|(_, fed)| fed.is_active());
        let active: Vec<_> = active.map(|(number, fed)| (*number, fed.feed.clone(), fed.paused)).collect();
        for (number, feed, paused) in active {
            let probe = Request::Probe { feed: number, why: why.clone() };
            let op = if paused { "PAUSE" } else { "RESUME" };
            self.ask(probe, now, |corr| frames::about(op, corr, &feed));
        }
    }

    pub(super) fn feeds_lost(&mut self, now: Instant) {
        let numbers: Vec<u64> = self.feeds.keys().copied().collect();
        for number in numbers {
            let Some(fed) = self.feeds.get_mut(&number) else { continue };
            fed.phase = Phase::Idle;
            // Leases of the broken connection are void.
            fed.feed.clear(0);
            let unsaid = fed.unsaid();
            self.settles_lost(number, unsaid, now);
        }
        self.settling.clear();
    }

    pub(super) fn named(&self, topic: &str, group: &str) -> Option<u64> {
        self.names.get(topic)?.get(group).copied()
    }

    /// Logs, once, that the hub delivers what no subscription here takes: nobody settles it, so its attempts are used
    /// up. What comes while a subscription ends is no such thing, as the hub takes it back.
    pub(super) fn stray(&mut self, topic: &str, group: &str) {
        let is_leaving = |request: &Request| matches!(request, Request::Unsubscribe { feed, .. } if feed.topic == topic && feed.group == group);
        if self.stray_told || self.requests.iter().any(|(_, request)| is_leaving(request)) {
            return;
        }
        self.stray_told = true;
        tracing::warn!(
            topic,
            group,
            "the hub delivers events that this connection is not subscribed to; their leases will expire"
        );
    }

    fn named_by(&self, frame: &HubFrame<'_>) -> Option<u64> {
        self.named(frame.topic.as_deref()?, frame.group.as_deref()?)
    }

    pub(super) fn assigned(&mut self, frame: HubFrame<'_>) {
        let fed = self.named_by(&frame).and_then(|number| self.feeds.get(&number));
        if let (Some(fed), Some(partitions)) = (fed.filter(|fed| fed.is_active()), frame.partitions) {
            fed.feed.assigned.send_replace(partitions);
        }
    }

    pub(super) fn deliveries(&mut self, frame: HubFrame<'_>, now: Instant) {
        let Some(number) = self.named_by(&frame) else {
            return self.stray(
                frame.topic.as_deref().unwrap_or_default(),
                frame.group.as_deref().unwrap_or_default(),
            );
        };
        let readable = match (frame.deliveries, frame.event, frame.ctx) {
            (Some(many), ..) => many,
            (None, Some(event), Some(ctx)) => vec![DeliveryRecord { event, ctx }],
            _ => return,
        };
        self.deliver(number, Delivered { readable, unreadable: Vec::new() }, now);
    }

    pub(super) fn deliver(&mut self, number: u64, came: Delivered, now: Instant) {
        let Some(fed) = self.feeds.get_mut(&number) else { return };
        if !fed.is_active() {
            // They belong to a subscription of the same name that has just ended.
            return;
        }
        let (made, before) = (fed.made, fed.acks.len());
        let ActiveSubscription { feed, acks, done, .. } = fed;
        feed.add(came.readable.into_iter().filter_map(|DeliveryRecord { event, ctx }| {
            if done.take(&event.id, now) {
                acks.push(silent_ack(ctx.lease, event.id, made));
                return None;
            }
            let time = Duration::from_millis(ctx.ack_deadline_ms);
            let (deadline, since) = (later(now, time), now);
            let lease = Lease { token: ctx.lease.into(), made, deadline, since, time, feed: feed.clone() };
            Some(Delivery {
                event: Arc::new(event),
                attempt: ctx.attempt,
                max_attempts: ctx.max_attempts,
                lease,
            })
        }));
        if acks.len() > before {
            fed.unanswered += fed.acks.len() - before;
            self.settling.push(number);
        }
        for (token, why) in came.unreadable {
            // Nobody here can do anything with it; in the end it is a dead letter that says so.
            let kind = nack(&format!("the client cannot read this event: {why}"), None);
            self.settle(
                number,
                Settle { kind, token: token.into(), made, event: String::new(), kept: None, done: None },
                now,
            );
        }
    }
}
