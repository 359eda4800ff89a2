//! The background tasks: from time to time, a pass over each topic that lets events go.

use super::pass::Pace;
use super::snapshots::keep_snapshots;
use super::{CleanError, Cleaning, Task};
use prombus_core::error::Retry;
use prombus_core::{HomesError, ReadError, TopicName};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// No more rounds than these go by between attempts to erase something: five minutes by default.
const MOST_ROUNDS: u32 = 30;

impl Cleaning {
    /// Does a pass over each topic that lets events go, each time that so much time has passed after the last one, and
    /// publishes snapshots as often as topics say. Only the first call does that.
    pub fn start(self: &Arc<Self>, every: Duration) {
        let mut rounds = self.rounds.lock();
        if rounds.is_empty() {
            rounds.push(tokio::spawn(go_round(Arc::downgrade(self), self.closing.subscribe(), every)));
            rounds.push(tokio::spawn(keep_snapshots(Arc::downgrade(self), self.closing.subscribe())));
        }
    }

    /// Begins nothing any more, and ends what is under way, by hand or not, within moments.
    pub fn stop(&self) {
        self.closing.send_replace(true);
    }

    /// Stops, and waits until the background tasks have ended.
    pub async fn close(&self) {
        self.stop();
        let rounds = std::mem::take(&mut *self.rounds.lock());
        for rounds in rounds {
            // One that panicked has said so itself.
            let _ = rounds.await;
        }
    }

    /// One pass over each topic that lets events go. What was forgotten is erased.
    async fn round(&self, backoff: &mut EraseBackoff) {
        let topics = match self.hub.log.topics().await {
            Ok(topics) => topics,
            Err(error) => return tracing::warn!(%error, "failed to clean topics; will retry"),
        };
        let to_clean = topics.into_iter().filter(|topic| topic.config.lets_events_go());
        let to_clean: Vec<TopicName> = to_clean.map(|topic| topic.name).collect();
        self.holds.keep_only(|topic| to_clean.contains(topic));
        for name in to_clean {
            tokio::task::yield_now().await;
            if !self.holds.may_clean(&name) {
                continue;
            }
            match self.work(&name, &Task::Clean(Pace::gentle())).await {
                Ok(cleaned) if cleaned.events > 0 => {
                    let (events, bytes) = (cleaned.events, cleaned.bytes);
                    tracing::debug!(topic = %name, events, bytes, "cleaned a topic");
                }
                Ok(_) => {}
                Err(CleanError::Closing) => return,
                // It was deleted, or another hub does that.
                Err(
                    CleanError::Read(ReadError::TopicNotFound(_) | ReadError::TopicGone(_))
                    | CleanError::Home(HomesError::Elsewhere { .. }),
                ) => {}
                Err(error) => {
                    tracing::warn!(topic = %name, %error, "failed to clean a topic; will retry");
                }
            }
        }
        if backoff.skips_round() {
            return;
        }
        match self.erase().await {
            Err(CleanError::Closing) => {}
            Ok(()) => *backoff = EraseBackoff::default(),
            Err(error) => {
                // Where there was no room, there may be some at any time, and it costs little to find out.
                if !matches!(&error, CleanError::Bus(error) if error.retry() == Retry::WithRoom) {
                    backoff.grow();
                }
                let rounds = backoff.left;
                tracing::warn!(%error, rounds, "failed to erase forgotten keys from disk; will retry");
            }
        }
    }
}

/// Until when nobody tries to erase what could not be erased, as where a part of the journal is damaged: each attempt ends
/// the part that is being written, and reads all of the others.
#[derive(Debug, Default)]
struct EraseBackoff {
    /// How many rounds went by without an attempt before the last one.
    rounds: u32,
    /// How many are left until the next.
    left: u32,
}

impl EraseBackoff {
    fn skips_round(&mut self) -> bool {
        let skips = self.left > 0;
        self.left = self.left.saturating_sub(1);
        skips
    }

    fn grow(&mut self) {
        self.rounds = (2 * self.rounds + 1).min(MOST_ROUNDS);
        self.left = self.rounds;
    }
}

async fn go_round(cleaning: Weak<Cleaning>, mut closing: watch::Receiver<bool>, every: Duration) {
    let mut backoff = EraseBackoff::default();
    loop {
        tokio::select! {
            // It is time for the next round.
            () = tokio::time::sleep(every) => {}
            // A sender that is gone means the same.
            _ = closing.wait_for(|closing| *closing) => return,
        }
        let Some(cleaning) = cleaning.upgrade() else { return };
        cleaning.round(&mut backoff).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_become_rare_and_never_end() {
        let (mut backoff, mut rounds) = (EraseBackoff::default(), Vec::new());
        for round in 0..200 {
            if !backoff.skips_round() {
                rounds.push(round);
                backoff.grow();
            }
        }
        assert_eq!(rounds[..6], [0, 2, 6, 14, 30, 61]);
        assert!(rounds.windows(2).skip(4).all(|pair| pair[1] - pair[0] == MOST_ROUNDS + 1), "{rounds:?}");
    }
}
