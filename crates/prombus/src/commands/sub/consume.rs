//! The loop of a consumer: pull, write, flush, ack. Nothing is acked that was not written, so however the loop ends, what
//! was not written is redelivered.

use crate::commands::retry::Retry;
use crate::failure::Failure;
use crate::output;
use crate::say;
use crate::serve::signals::Signals;
use prombus_client::{AckRequest, Client, ExtendRequest, PullRequest, RawDelivery, Text};
use std::borrow::Cow;
use std::pin::pin;
use std::time::{Duration, Instant};

/// How long a pull waits for events: less than the time after which a silent member is removed.
const WAIT: Duration = Duration::from_secs(10);
/// The least time between two pulls of which the first brought nothing, also where the hub does not wait.
const EMPTY_PAUSE: Duration = Duration::from_millis(200);
/// How long a batch may take to be written and acked after a signal.
const LAST_BATCH_GRACE: Duration = Duration::from_secs(5);

/// How long the leases of a batch are extended while its reader is slow. After that, other members get the rest.
const EXTEND_UP_TO: Duration = Duration::from_secs(600);
/// How many times they are extended per lease duration, so that a failed extension is made up for by the next.
const EXTENSIONS_PER_LEASE: u32 = 3;
/// They are extended no more often than this.
const MIN_EXTEND_PAUSE: Duration = Duration::from_millis(50);

/// What is consumed, and how.
pub struct Subscription {
    pub client: Client,
    pub topic: String,
    pub group: String,
    /// What each pull says, but for how many and how long.
    pub request: PullRequest,
    /// How many events are pulled at once.
    pub batch: u64,
    /// The total number of events to consume.
    pub max: Option<u64>,
    /// Whether events are acked.
    pub acks: bool,
    /// Whether lines have the context of the delivery too.
    pub with_ctx: bool,
}

/// Consumes until there were enough events, or a signal comes.
pub async fn consume(subscription: &Subscription, signals: &mut Signals) -> Result<(), Failure> {
    let (topic, group) = (&subscription.topic, &subscription.group);
    if !subscription.acks {
        say!(
            "nothing is acknowledged: each event is delivered again when its lease has expired, \
             and is a dead letter after the last attempt"
        );
    }
    let mut retry = Retry::new();
    let (mut written, mut is_first) = (0, true);
    while let Some(wanted) = subscription.wanted(written) {
        let next = async {
            match is_first {
                true => subscription.first(&mut retry, wanted).await,
                false => subscription.pull(&mut retry, wanted).await,
            }
        };
        let batch = tokio::select! {
            _ = signals.next() => break,
            batch = next => batch?,
        };
        is_first = false;
        let count = batch.len() as u64;
        let mut delivery = pin!(subscription.deliver(&mut retry, batch));
        let is_last = tokio::select! {
            outcome = &mut delivery => {
                outcome?;
                false
            }
            _ = signals.next() => {
                let Ok(outcome) = tokio::time::timeout(LAST_BATCH_GRACE, &mut delivery).await else {
                    let count = output::counted(count, "event");
                    say!("stopped before the last {count} could be written and acknowledged");
                    break;
                };
                outcome?;
                true
            }
        };
        written += count;
        if is_last {
            break;
        }
    }
    say!("{} of {topic} written for group {group}", output::counted(written, "event"));
    Ok(())
}

impl Subscription {
    /// How many events the next pull may bring; `None` where there were enough.
    fn wanted(&self, written: u64) -> Option<u64> {
        let wanted = self.max.map_or(self.batch, |max| self.batch.min(max.saturating_sub(written)));
        (wanted > 0).then_some(wanted)
    }

    /// The same as [`Subscription::pull`], but reports if it created the topic, because the name may be mistyped.
    async fn first(&self, retry: &mut Retry, wanted: u64) -> Result<Vec<RawDelivery>, Failure> {
        // Nothing is reported to callers that may consume a topic but not see it.
        let look = async || self.client.topic(&self.topic).await;
        if !matches!(retry.until_answered(look).await, Ok(None)) {
            return self.pull(retry, wanted).await;
        }
        // The hub refuses this if `topics.auto_create` is off.
        let batch = self.ask(retry, &self.request(wanted, Duration::ZERO)).await?;
        if !batch.is_empty() {
            return Ok(batch);
        }
        say!("created topic {}, which did not exist; waiting for its first event", self.topic);
        self.pull(retry, wanted).await
    }

    /// Waits for events; there is at least one.
    async fn pull(&self, retry: &mut Retry, wanted: u64) -> Result<Vec<RawDelivery>, Failure> {
        let request = self.request(wanted, WAIT);
        loop {
            let asked = Instant::now();
            let batch = self.ask(retry, &request).await?;
            if !batch.is_empty() {
                return Ok(batch);
            }
            // Avoids a tight loop if a hub answers at once although it should wait.
            tokio::time::sleep(EMPTY_PAUSE.saturating_sub(asked.elapsed())).await;
        }
    }

    fn request(&self, wanted: u64, wait: Duration) -> PullRequest {
        PullRequest {
            max: Some(usize::try_from(wanted).unwrap_or(usize::MAX)),
            wait_ms: Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            ..self.request.clone()
        }
    }

    async fn ask(&self, retry: &mut Retry, request: &PullRequest) -> Result<Vec<RawDelivery>, Failure> {
        let call = async || self.client.pull_raw(&self.topic, &self.group, request).await;
        let mut batch = retry.until_answered(call).await?;
        // A hub does not send more than requested; if it did, the rest would be redelivered.
        batch.truncate(request.max.unwrap_or(usize::MAX));
        Ok(batch)
    }

    /// Writes events, and acks them when they are out.
    async fn deliver(&self, retry: &mut Retry, batch: Vec<RawDelivery>) -> Result<(), Failure> {
        let lines = self.lines(&batch)?;
        // A reader may be slow, but signals must still be handled.
        let mut writing = tokio::task::spawn_blocking(move || output::write_all(&lines));
        let written = tokio::select! {
            written = &mut writing => written,
            () = self.keep(&batch), if self.acks => writing.await,
        };
        written.map_err(|error| Failure::Failed(format!("cannot write to stdout: {error}")))??;
        if !self.acks {
            return Ok(());
        }
        let leases = || batch.iter().map(|delivery| delivery.ctx.lease.as_str());
        let call = async || self.client.ack(&self.topic, &self.group, leases()).await;
        let results = retry.until_answered(call).await?;
        let late = results.iter().filter(|result| !result.ok).count() as u64;
        if late > 0 {
            say!(
                "{} could not be acknowledged and may come again, because their leases had expired or the hub was \
                 restarted; if it happens without a restart, try a smaller --batch, or a group with a longer \
                 --ack-timeout-ms",
                output::counted(late, "event")
            );
        }
        Ok(())
    }

    /// Keeps extending the leases of a batch, up to the maximum time.
    async fn keep(&self, batch: &[RawDelivery]) {
        let since = Instant::now();
        let shortest = batch.iter().map(|delivery| delivery.ctx.ack_deadline_ms).min().unwrap_or_default();
        let pause = (Duration::from_millis(shortest) / EXTENSIONS_PER_LEASE).max(MIN_EXTEND_PAUSE);
        while since.elapsed() < EXTEND_UP_TO {
            // Leases expire by the clock, which is what this waits for.
            tokio::time::sleep(pause).await;
            let lease = |delivery: &RawDelivery| Text(Cow::Owned(delivery.ctx.lease.clone()));
            let extend =
                batch.iter().map(|delivery| ExtendRequest { lease: lease(delivery), extend_ms: None });
            let request = AckRequest { extend: extend.collect(), ..AckRequest::default() };
            // If the hub is down, there is another attempt, and the ack reports the outcome.
            drop(self.client.settle(&self.topic, &self.group, &request).await);
        }
    }

    fn lines(&self, batch: &[RawDelivery]) -> Result<Vec<u8>, Failure> {
        let mut lines = Vec::with_capacity(batch.iter().map(|delivery| delivery.event.get().len() + 1).sum());
        for RawDelivery { event, ctx } in batch {
            if self.with_ctx {
                lines.extend_from_slice(b"{\"event\":");
                lines.extend_from_slice(event.get().as_bytes());
                lines.extend_from_slice(b",\"ctx\":");
                serde_json::to_writer(&mut lines, ctx).map_err(|error| Failure::Failed(error.to_string()))?;
                lines.push(b'}');
            } else {
                lines.extend_from_slice(event.get().as_bytes());
            }
            lines.push(b'\n');
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscription(max: Option<u64>, with_ctx: bool) -> Subscription {
        Subscription {
            client: Client::new("http://127.0.0.1:1", None).unwrap(),
            topic: "t".into(),
            group: "g".into(),
            request: PullRequest::default(),
            batch: 100,
            max,
            acks: true,
            with_ctx,
        }
    }

    #[test]
    fn no_more_is_asked_for_than_is_left() {
        let limited = subscription(Some(150), false);
        assert_eq!(
            [0, 100, 149, 150, 151].map(|n| limited.wanted(n)),
            [Some(100), Some(50), Some(1), None, None]
        );
        assert_eq!(subscription(None, false).wanted(u64::MAX), Some(100));
    }

    #[test]
    fn lines_are_events_as_they_came() {
        let event = r#"{"id":"i","payload":1.10}"#;
        let ctx = r#"{"attempt":1,"maxAttempts":5,"ack_deadline_ms":9,"lease":"l"}"#;
        let delivery: RawDelivery =
            serde_json::from_str(&format!(r#"{{"event":{event},"ctx":{ctx}}}"#)).unwrap();
        let batch = [delivery.clone(), delivery];
        let text = |with_ctx| String::from_utf8(subscription(None, with_ctx).lines(&batch).unwrap()).unwrap();
        assert_eq!(text(false), format!("{event}\n{event}\n"));
        assert_eq!(text(true).lines().next(), Some(format!(r#"{{"event":{event},"ctx":{ctx}}}"#).as_str()));
    }
}
