//! An event that was delivered, and how to settle it.

use super::command::Command;
use super::failure::Failure;
use super::later::later;
use super::settle::{Lease, Settle, SettleKind, Settled};
use crate::{ClientError, EventRecord, HubError};
use prombus_wire::ErrorCode;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Maximum number of characters of a reason.
const MAX_REASON_CHARS: usize = 1_000;
/// Why a delivery can no longer be nacked or extended.
const COMMITTED: &str = "a commit has settled this delivery already";

/// An event that was delivered under a lease. If it is neither acked nor nacked before the lease expires, it is
/// redelivered.
#[derive(Debug)]
pub struct Delivery {
    /// The event.
    pub event: Arc<EventRecord>,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// Number of attempts before the event is dead-lettered.
    pub max_attempts: u32,
    pub(crate) lease: Lease,
}

impl Delivery {
    /// Decodes the payload.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_str(self.event.payload.get()).map_err(ClientError::BadPayload)
    }

    /// The time left on the lease, as far as the client knows.
    pub fn time_left(&self) -> Duration {
        self.lease.deadline.saturating_duration_since(Instant::now())
    }

    /// Acks the event. Once this returns [`Settled::Confirmed`], the event is never redelivered.
    ///
    /// If the connection breaks before the hub has answered, that is not an error: this returns [`Settled::Unconfirmed`],
    /// and the client remembers that the event is done. If it is redelivered to this subscription, it is acked without
    /// being handed out; only another member may get it, if the hub did not receive the ack. If a
    /// [commit](crate::Commit) that acks this delivery was refused because a lease has expired, nothing is acked, and the
    /// event is redelivered.
    pub async fn ack(self) -> Result<Settled, ClientError> {
        if self.lease.token.is_refused() && !self.lease.token.is_settled() {
            return Ok(Settled::Unconfirmed);
        }
        self.settle(SettleKind::Ack).await
    }

    /// Nacks the event: it is redelivered after `delay`, or else with exponential backoff, and dead-lettered after too many
    /// attempts. The first 1,000 characters of the reason are kept with it. If the connection breaks before the hub has
    /// answered, this returns [`Settled::Unconfirmed`], and the event is redelivered in any case.
    pub async fn nack(self, reason: &str, delay: Option<Duration>) -> Result<Settled, ClientError> {
        self.settle(nack(reason, delay)).await
    }

    /// Extends the lease to this much time from now. If the connection broke, this returns [`Settled::Unconfirmed`]: the
    /// event is redelivered, unless you ack it, which is remembered.
    pub async fn extend(&mut self, time: Duration) -> Result<Settled, ClientError> {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let settled = self.settle(SettleKind::Extend { ms }).await?;
        if settled == Settled::Confirmed {
            self.lease.deadline = later(Instant::now(), time);
        }
        Ok(settled)
    }

    /// A second handle to the delivery, for callers that make sure that it is settled only once.
    pub(super) fn copy(&self) -> Self {
        let Self { event, attempt, max_attempts, lease } = self;
        Self { event: event.clone(), attempt: *attempt, max_attempts: *max_attempts, lease: lease.clone() }
    }

    async fn settle(&self, kind: SettleKind) -> Result<Settled, ClientError> {
        let Lease { token, made, feed, .. } = &self.lease;
        if token.is_settled() {
            return match kind {
                SettleKind::Ack => Ok(Settled::Confirmed),
                _ => Err(Failure::from(HubError::of_code(ErrorCode::LeaseExpired, COMMITTED)).into()),
            };
        }
        let (done, answered) = oneshot::channel();
        let (token, event) = (token.clone(), self.event.id.clone());
        let settle = Settle { kind, token, made: *made, event, kept: None, done: Some(done) };
        feed.tell(Command::Settle { feed: feed.number, settle }).await?;
        let answer = answered.await.unwrap_or(Err(Failure::Closed));
        Ok(answer?)
    }
}

/// The failure of an event.
pub(crate) fn nack(reason: &str, delay: Option<Duration>) -> SettleKind {
    let delay_ms = delay.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
    SettleKind::Nack { reason: Some(reason.chars().take(MAX_REASON_CHARS).collect()), delay_ms }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::live::feed::Feed;

    pub(crate) fn delivery(feed: &Arc<Feed>, offset: u64, deadline: Instant) -> Delivery {
        let event = format!(
            r#"{{"id":"id-{offset}","ts":1,"topic":"t","partition":0,"offset":{offset},"payload":{{"n":{offset}}}}}"#
        );
        let (since, time) = (Instant::now(), Duration::from_secs(30));
        let lease =
            Lease { token: format!("l-{offset}").into(), made: 1, deadline, since, time, feed: feed.clone() };
        let event = Arc::new(serde_json::from_str(&event).unwrap());
        Delivery { event, attempt: 1, max_attempts: 5, lease }
    }

    #[test]
    fn payloads_are_parsed_as_what_is_asked_for() {
        #[derive(serde::Deserialize)]
        struct Numbered {
            n: u64,
        }
        let feed = Arc::new(Feed::for_tests("t", "g"));
        let delivery = delivery(&feed, 7, Instant::now());
        assert_eq!(delivery.payload::<Numbered>().unwrap().n, 7);
        let odd = delivery.payload::<u64>().unwrap_err();
        assert!(matches!(odd, ClientError::BadPayload(_)));
        assert!(odd.to_string().contains("does not match the requested type"), "{odd}");
        assert_eq!(delivery.time_left(), Duration::ZERO);
    }

    #[test]
    fn a_reason_is_no_longer_than_it_may_be() {
        let SettleKind::Nack { reason, .. } = nack(&"ö".repeat(5_000), Some(Duration::MAX)) else {
            panic!()
        };
        assert_eq!(reason.unwrap().chars().count(), MAX_REASON_CHARS);
    }
}
