//! Rate limits for publishing: token buckets per connection and per topic.
//!
//! A publish takes from both buckets or from neither, and what it took comes back where nothing was published. No batch is too large for a bucket:
//! whoever finds a token may overdraw it, and those who come next wait until that is made up for.

use crate::error::ApiError;
use parking_lot::Mutex;
use prombus_core::TopicName;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of topics' buckets that are kept; then those that are full are released, which makes no difference.
const MAX_BUCKETS: usize = 10_000;

/// A batch counts for at most what this time allows, so that others do not wait longer for it to be made up for.
const MAX_CHARGE_S: f64 = 10.0;

/// A token bucket that allows a number of events per second, with a burst of one second's worth. A caller that finds
/// any tokens may overdraw it, and the next ones wait until that is made up for: so no batch is too large, and the rate
/// still holds, except for batches so large that others would be blocked for long.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Which setting it is.
    name: &'static str,
    per_s: u64,
    state: Mutex<Level>,
}

#[derive(Debug)]
struct Level {
    level: f64,
    at: Instant,
}

impl Bucket {
    pub fn new(name: &'static str, per_s: u64) -> Self {
        Self { name, per_s, state: Mutex::new(Level { level: per_s as f64, at: Instant::now() }) }
    }

    fn fill(&self, state: &mut Level) {
        let now = Instant::now();
        let gained = now.duration_since(state.at).as_secs_f64() * self.per_s as f64;
        *state = Level { level: (state.level + gained).min(self.per_s as f64), at: now };
    }

    /// Takes `count` tokens, or returns how long to wait.
    pub fn take(&self, count: usize) -> Result<(), Duration> {
        let mut state = self.state.lock();
        self.fill(&mut state);
        if state.level < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - state.level) / self.per_s as f64));
        }
        state.level -= self.charge(count);
        Ok(())
    }

    /// Returns tokens that were taken in vain.
    fn put_back(&self, count: usize) {
        let mut state = self.state.lock();
        state.level = (state.level + self.charge(count)).min(self.per_s as f64);
    }

    /// What a batch of `count` counts for.
    fn charge(&self, count: usize) -> f64 {
        (count as f64).min(MAX_CHARGE_S * self.per_s as f64)
    }

    fn is_full(&self) -> bool {
        let mut state = self.state.lock();
        self.fill(&mut state);
        state.level >= self.per_s as f64
    }

    fn refusal(&self, wait: Duration) -> ApiError {
        ApiError::rate_limited(format!("limits.{} is {}; try again later", self.name, self.per_s), wait)
    }
}

/// The bucket of a connection, if there is one.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionRate(Option<Arc<Bucket>>);

impl ConnectionRate {
    /// Whether there is one.
    pub fn is_limited(&self) -> bool {
        self.0.is_some()
    }

    /// Admits `count` events, whatever their topic.
    pub fn admit(&self, count: usize) -> Result<(), ApiError> {
        let Some(bucket) = self.0.as_ref().filter(|_| count > 0) else { return Ok(()) };
        bucket.take(count).map_err(|wait| bucket.refusal(wait))
    }

    /// Returns tokens for events that were admitted but not published.
    pub fn put_back(&self, count: usize) {
        self.0.iter().for_each(|bucket| bucket.put_back(count));
    }

    /// This many events per second; 0 means no limit.
    pub fn new(per_s: u64) -> Self {
        Self((per_s > 0).then(|| Arc::new(Bucket::new("connection_events_per_s", per_s))))
    }
}

/// The buckets of topics.
#[derive(Debug)]
pub(crate) struct TopicRates {
    per_s: u64,
    buckets: Mutex<HashMap<TopicName, Arc<Bucket>>>,
}

impl TopicRates {
    /// Whether there are any.
    pub fn are_limited(&self) -> bool {
        self.per_s > 0
    }

    /// This many events per second for each; 0 means no limit.
    pub fn new(per_s: u64) -> Self {
        Self { per_s, buckets: Mutex::default() }
    }

    fn of(&self, topic: &TopicName) -> Option<Arc<Bucket>> {
        if self.per_s == 0 {
            return None;
        }
        let mut buckets = self.buckets.lock();
        if let Some(bucket) = buckets.get(topic) {
            return Some(bucket.clone());
        }
        if buckets.len() >= MAX_BUCKETS {
            buckets.retain(|_, bucket| !bucket.is_full());
        }
        if buckets.len() >= MAX_BUCKETS {
            // With this many busy topics, it is better to give some a second's worth for free than to grow.
            buckets.clear();
        }
        let bucket = Arc::new(Bucket::new("topic_events_per_s", self.per_s));
        buckets.insert(topic.clone(), bucket.clone());
        Some(bucket)
    }

    /// Admits `count` events for `topic` from a connection with that rate.
    pub fn admit(
        &self,
        connection: &ConnectionRate,
        topic: &TopicName,
        count: usize,
    ) -> Result<(), ApiError> {
        if let Some(bucket) = &connection.0 {
            bucket.take(count).map_err(|wait| bucket.refusal(wait))?;
        }
        let Some(bucket) = self.of(topic) else { return Ok(()) };
        bucket.take(count).map_err(|wait| {
            if let Some(connection) = &connection.0 {
                connection.put_back(count);
            }
            bucket.refusal(wait)
        })
    }
}

impl TopicRates {
    /// Returns tokens for events that were admitted but not published.
    pub fn put_back(&self, connection: &ConnectionRate, topic: &TopicName, count: usize) {
        connection.0.iter().for_each(|bucket| bucket.put_back(count));
        self.of(topic).iter().for_each(|bucket| bucket.put_back(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prombus_wire::ErrorCode;

    fn topic(name: &str) -> TopicName {
        TopicName::parse(name).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_holds_its_rate_whatever_the_batches() {
        let bucket = Bucket::new("x", 10);
        bucket.take(25).unwrap();
        let wait = bucket.take(1).unwrap_err();
        assert_eq!(wait.as_millis(), 1_600, "15 to make up for, and one to take");
        // The held clock goes on by exactly that.
        tokio::time::sleep(wait).await;
        bucket.take(1).unwrap();
        bucket.take(1).unwrap_err();
        // However large a batch is, others are not kept out for long.
        tokio::time::sleep(Duration::from_secs(1)).await;
        bucket.take(1_000_000).unwrap();
        assert_eq!(bucket.take(1).unwrap_err().as_millis(), 9_100);
        // What is put back is what was taken.
        bucket.put_back(1_000_000);
        (0..10).for_each(|_| bucket.take(1).unwrap());
        bucket.take(1).unwrap_err();
        // The held clock goes on until there is one again.
        tokio::time::sleep(Duration::from_millis(100)).await;
        bucket.take(1_000_000).unwrap();
        bucket.put_back(1_000_000);
        bucket.take(1).unwrap();
        bucket.take(1).unwrap_err();
        // Long silence fills it, and not more.
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert!(bucket.is_full());
        (0..10).for_each(|_| bucket.take(1).unwrap());
        bucket.take(1).unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn topics_and_connections_have_their_own() {
        let (rates, one, other) = (TopicRates::new(5), ConnectionRate::new(3), ConnectionRate::new(0));
        rates.admit(&one, &topic("a"), 3).unwrap();
        let refused = rates.admit(&one, &topic("b"), 1).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::RateLimited);
        assert!(refused.message().contains("limits.connection_events_per_s is 3"), "{refused:?}");
        rates.admit(&other, &topic("a"), 2).unwrap();
        let refused = rates.admit(&other, &topic("a"), 1).unwrap_err();
        assert!(refused.message().contains("limits.topic_events_per_s is 5"), "{refused:?}");
        rates.admit(&other, &topic("b"), 100).unwrap();
        rates.put_back(&other, &topic("a"), 5);
        rates.admit(&other, &topic("a"), 1).expect("what did not happen does not count");
        rates.admit(&other, &topic("a"), 9).unwrap();
        let fresh = ConnectionRate::new(3);
        rates.admit(&fresh, &topic("a"), 3).unwrap_err();
        rates
            .admit(&fresh, &topic("c"), 3)
            .expect("what the topic refused was not taken from the connection");
    }
}
