//! The deliveries of a subscription that its user has not taken yet: a bounded buffer between the connection and the user.

use super::command::Command;
use super::delivery::Delivery;
use super::failure::Failure;
use super::settle::{ExtendPolicy, LeaseToken, Settle};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

/// The minimum time between two warnings about leases that expired before their deliveries were taken.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Why a feed has ended.
#[derive(Debug, Clone)]
pub(crate) enum FeedEnd {
    /// Its user has ended it, or the connection.
    Closed,
    /// It cannot go on.
    Failed(Failure),
}

impl From<Failure> for FeedEnd {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Closed => Self::Closed,
            failure => Self::Failed(failure),
        }
    }
}

#[derive(Debug, Default)]
struct Buffer {
    deliveries: VecDeque<Delivery>,
    end: Option<FeedEnd>,
    /// When something was asked for last, or the first of those that wait came.
    taken: Option<Instant>,
    /// How many ran out before they were taken, and nobody was told of.
    run_out: u64,
    warned: Option<Instant>,
}

impl Buffer {
    /// Says how many have run out, where it is time for that.
    fn warning(&mut self, now: Instant) -> Option<u64> {
        let is_due = self.warned.is_none_or(|warned| now.duration_since(warned) >= WARN_EVERY);
        if self.run_out == 0 || !is_due {
            return None;
        }
        self.warned = Some(now);
        Some(std::mem::take(&mut self.run_out))
    }
}

/// A subscription, as the connection and its user share it.
#[derive(Debug)]
pub(crate) struct Feed {
    pub number: u64,
    pub topic: String,
    pub group: String,
    /// The options of `SUBSCRIBE` as JSON.
    pub opts: String,
    /// Maximum number of deliveries that wait.
    pub max_in_flight: usize,
    /// For what is no publish. Weak, because the connection keeps the feed, and must end when all of its users are
    /// gone.
    pub commands: mpsc::WeakSender<Command>,
    /// The making of the subscription that leases are good for; 0 while there is none.
    pub made: AtomicU64,
    /// The user is gone.
    pub gone: AtomicBool,
    pub assigned: watch::Sender<Vec<u32>>,
    /// How long the last lease held when it came; 0 where none came yet.
    lease_ms: AtomicU64,
    buffer: Mutex<Buffer>,
    changed: Notify,
}

/// How to create a feed.
pub(crate) struct NewFeed<'a> {
    pub number: u64,
    pub topic: &'a str,
    pub group: &'a str,
    pub opts: String,
    pub max_in_flight: usize,
    pub commands: mpsc::WeakSender<Command>,
}

impl Feed {
    pub fn new(new: NewFeed<'_>) -> Self {
        Self {
            number: new.number,
            topic: new.topic.to_owned(),
            group: new.group.to_owned(),
            opts: new.opts,
            max_in_flight: new.max_in_flight,
            commands: new.commands,
            made: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            assigned: watch::Sender::new(Vec::new()),
            lease_ms: AtomicU64::new(0),
            buffer: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Adds what has come, which is no more than `maxInFlight` by the hub's word. Where leases have run out, and the
    /// hub gives out others, the oldest make room.
    pub fn add(&self, deliveries: impl Iterator<Item = Delivery>) {
        let mut buffer = self.buffer.lock();
        if buffer.end.is_some() {
            return;
        }
        if buffer.deliveries.is_empty() {
            buffer.taken = Some(Instant::now());
        }
        buffer.deliveries.extend(deliveries);
        if let Some(last) = buffer.deliveries.back() {
            let ms = u64::try_from(last.lease.time.as_millis()).unwrap_or(u64::MAX);
            self.lease_ms.store(ms, Ordering::SeqCst);
        }
        let beyond = buffer.deliveries.len().saturating_sub(self.max_in_flight);
        buffer.deliveries.drain(..beyond);
        buffer.run_out += beyond as u64;
        drop(buffer);
        self.changed.notify_waiters();
    }

    /// The subscription is gone, or made again: nothing that waits can be settled any more.
    pub fn clear(&self, made: u64) {
        self.made.store(made, Ordering::SeqCst);
        self.buffer.lock().deliveries.clear();
        self.assigned.send_if_modified(|partitions| !std::mem::take(partitions).is_empty());
    }

    /// A lease is void: where its delivery still waits, nobody gets it.
    pub fn forget(&self, token: &LeaseToken) {
        self.buffer.lock().deliveries.retain(|delivery| !delivery.lease.token.is(token));
    }

    /// Nothing more will come.
    pub fn end(&self, end: FeedEnd) {
        let mut buffer = self.buffer.lock();
        buffer.deliveries.clear();
        buffer.end.get_or_insert(end);
        drop(buffer);
        self.changed.notify_waiters();
    }

    pub fn ended(&self) -> Option<FeedEnd> {
        self.buffer.lock().end.clone()
    }

    /// The words that let what waits here hold longer, where it is time for that. A user who has taken nothing for
    /// `up_to` is stuck, and others get what waits.
    pub fn extensions(&self, up_to: Duration, now: Instant) -> Vec<Settle> {
        let mut buffer = self.buffer.lock();
        if buffer.taken.is_none_or(|taken| now.saturating_duration_since(taken) > up_to) {
            return Vec::new();
        }
        let due = |delivery: &mut Delivery| {
            delivery.lease.extension(&delivery.event.id, ExtendPolicy::WAITING, now)
        };
        buffer.deliveries.iter_mut().filter_map(due).collect()
    }

    /// How long leases hold, once one has come.
    pub async fn lease_time(&self) -> Duration {
        loop {
            let changed = self.changed.notified();
            match self.lease_ms.load(Ordering::SeqCst) {
                0 => changed.await,
                ms => return Duration::from_millis(ms),
            }
        }
    }

    /// The next delivery whose lease still holds. Outside: nothing now. Inside: nothing ever.
    pub fn try_next(&self) -> Option<Option<Delivery>> {
        let mut buffer = self.buffer.lock();
        let now = Instant::now();
        buffer.taken = Some(now);
        let mut next = None;
        while let Some(mut delivery) = buffer.deliveries.pop_front() {
            if delivery.lease.deadline > now {
                delivery.lease.since = now;
                next = Some(delivery);
                break;
            }
            buffer.run_out += 1;
        }
        let (warning, has_ended) = (buffer.warning(now), buffer.end.is_some());
        drop(buffer);
        if let Some(count) = warning {
            let (topic, group) = (&self.topic, &self.group);
            tracing::warn!(
                topic,
                group,
                count,
                "leases expired before their deliveries were taken: each counts as an attempt"
            );
        }
        if next.is_none() && !has_ended { None } else { Some(next) }
    }

    /// The next delivery whose lease still holds; `None` at the end. It may be given up at any point.
    pub async fn next(&self) -> Option<Delivery> {
        loop {
            // Before the look into the buffer, so that nothing comes unnoticed in between.
            let changed = self.changed.notified();
            if let Some(next) = self.try_next() {
                return next;
            }
            changed.await;
        }
    }

    /// Sends a command to the connection.
    pub async fn tell(&self, command: Command) -> Result<(), Failure> {
        let gone = || Failure::Closed;
        let commands = self.commands.upgrade().ok_or_else(gone)?;
        commands.send(command).await.map_err(|_| gone())
    }
}

#[cfg(test)]
impl Feed {
    /// A feed without a connection.
    pub fn for_tests(topic: &str, group: &str) -> Self {
        let (commands, _) = mpsc::channel(1);
        let opts = r#"{"batch":true,"maxInFlight":10}"#.to_owned();
        Self::new(NewFeed {
            number: 1,
            topic,
            group,
            opts,
            max_in_flight: 10,
            commands: commands.downgrade(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::delivery::tests::delivery;
    use std::sync::Arc;

    #[tokio::test]
    async fn a_feed_is_bounded_and_passes_over_what_has_run_out() {
        let feed = Arc::new(Feed::for_tests("t", "g"));
        let soon = Instant::now() + Duration::from_secs(60);
        feed.add((0..25).map(|n| delivery(&feed, n, soon)));
        assert_eq!(feed.next().await.unwrap().event.offset, 15, "the oldest made room");
        feed.clear(2);
        feed.add([delivery(&feed, 1, Instant::now()), delivery(&feed, 2, soon)].into_iter());
        assert_eq!(feed.next().await.unwrap().event.offset, 2);
        assert!(feed.try_next().is_none());
        feed.end(FeedEnd::Closed);
        assert!(feed.next().await.is_none());
    }

    #[test]
    fn what_waits_is_kept_for_as_long_as_its_user_takes_something() {
        const UP_TO: Duration = Duration::from_secs(100);
        let (feed, lease) = (Arc::new(Feed::for_tests("t", "g")), Duration::from_secs(30));
        let mut now = Instant::now();
        feed.add((0..3).map(|n| delivery(&feed, n, now + lease)));
        // Whenever it is taken, its full time is left.
        for _ in 0..20 {
            now += lease / 8;
            feed.extensions(UP_TO, now);
            let buffer = feed.buffer.lock();
            assert!(buffer.deliveries.iter().all(|delivery| delivery.lease.deadline >= now + lease));
        }
        // One that is taken is its user's.
        let taken = feed.try_next().unwrap().unwrap().lease.since;
        assert_eq!(feed.extensions(UP_TO, taken + UP_TO + lease / 8).len(), 0, "their user is stuck");
        assert_eq!(feed.extensions(UP_TO, taken + UP_TO).len(), 2);
    }

    #[test]
    fn leases_that_ran_out_are_told_of_now_and_then() {
        let (mut buffer, now) = (Buffer::default(), Instant::now());
        assert_eq!(buffer.warning(now), None);
        buffer.run_out = 2;
        assert_eq!(buffer.warning(now), Some(2));
        buffer.run_out = 3;
        assert_eq!(buffer.warning(now), None);
        assert_eq!(buffer.warning(now + WARN_EVERY), Some(3));
    }
}
