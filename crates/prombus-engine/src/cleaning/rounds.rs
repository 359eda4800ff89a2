//! The background tasks: from time to time, a pass over each topic that lets events go.

use super::pass::Pace;
use super::snapshots::keep_snapshots;
use super::{CleanError, Cleaning, Task};
use prombus_core::{HomesError, ReadError, TopicName};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;

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

    /// One pass over each topic that lets events go.
    async fn round(&self) {
        let topics = match self.hub.log.topics().await {
            Ok(topics) => topics,
            Err(error) => return tracing::warn!(%error, "topics could not be cleaned: another try follows"),
        };
        let to_clean = topics.into_iter().filter(|topic| topic.config.lets_events_go());
        for name in to_clean.map(|topic| topic.name).collect::<Vec<TopicName>>() {
            tokio::task::yield_now().await;
            match self.work(&name, &Task::Clean(Pace::Gentle)).await {
                Ok(cleaned) if cleaned.events > 0 => {
                    let (events, bytes) = (cleaned.events, cleaned.bytes);
                    tracing::debug!(topic = %name, events, bytes, "a topic was cleaned");
                }
                Ok(_) => {}
                Err(CleanError::Closing) => return,
                // It was deleted, or another hub does that.
                Err(
                    CleanError::Read(ReadError::TopicNotFound(_) | ReadError::TopicGone(_))
                    | CleanError::Home(HomesError::Elsewhere { .. }),
                ) => {}
                Err(error) => {
                    tracing::warn!(topic = %name, %error, "a topic could not be cleaned: another try follows");
                }
            }
        }
        match self.erase().await {
            Ok(()) | Err(CleanError::Closing) => {}
            Err(error) => {
                tracing::warn!(%error, "what was forgotten could not be erased: another try follows")
            }
        }
    }
}

async fn go_round(cleaning: Weak<Cleaning>, mut closing: watch::Receiver<bool>, every: Duration) {
    loop {
        tokio::select! {
            // It is time for the next round.
            () = tokio::time::sleep(every) => {}
            // A sender that is gone means the same.
            _ = closing.wait_for(|closing| *closing) => return,
        }
        let Some(cleaning) = cleaning.upgrade() else { return };
        cleaning.round().await;
    }
}
