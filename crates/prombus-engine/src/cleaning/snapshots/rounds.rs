//! The background task: passes over all topics that have a snapshot topic, each as often as it says.

use super::super::pass::Pace;
use super::super::{CleanError, Cleaning, Task};
use super::compactor::PASSES_AT_ONCE;
use crate::retry::pause;
use crate::topics::rest_after;
use prombus_core::{HomesError, ReadError, Sequence, TopicName, Watched};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The longest time until somebody looks again.
const LONGEST_PAUSE: Duration = Duration::from_secs(3_600);

/// When the next pass over a topic is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    /// One is under way.
    Begun,
    /// The last one ended then.
    Ended(Instant),
}

/// Has passes done for as long as the hub is there.
pub(in super::super) async fn keep_snapshots(cleaning: Weak<Cleaning>, mut closing: watch::Receiver<bool>) {
    let (mut passes, permits) = (JoinSet::new(), Arc::new(Semaphore::new(PASSES_AT_ONCE)));
    let (mut lasts, mut begun, mut seen) = (HashMap::new(), HashMap::new(), Sequence(0));
    loop {
        let Some(strong) = cleaning.upgrade() else { return };
        let began = std::time::Instant::now();
        let (pause, due) = strong.due(&mut lasts).await;
        for topic in due {
            let (strong, permits, name) = (strong.clone(), permits.clone(), topic.clone());
            let pass = passes.spawn(async move {
                // The semaphore is never closed.
                let _permit = permits.acquire_owned().await;
                strong.snapshot_quietly(&topic).await;
            });
            begun.insert(pass.id(), name);
        }
        let log = strong.hub.log.clone();
        drop(strong);
        tokio::select! {
            // It is time for the next pass.
            () = tokio::time::sleep(pause) => {}
            now = log.changed(&Watched::Topics, seen) => seen = now,
            Some(ended) = passes.join_next_with_id() => {
                // One that panicked has said so itself, and is tried again as all are.
                let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
                if let Some(topic) = begun.remove(&id) {
                    lasts.insert(topic, Last::Ended(Instant::now()));
                }
            }
            // A sender that is gone means the same.
            _ = closing.wait_for(|closing| *closing) => break,
        }
        tokio::select! {
            // There may be thousands to look at, and many that change one after another.
            () = rest_after(began) => {}
            _ = closing.wait_for(|closing| *closing) => break,
        }
    }
    // They end by themselves within moments, and a commit that is under way is waited for.
    while passes.join_next().await.is_some() {}
}

impl Cleaning {
    /// The topics that a pass is due for, which are noted as begun, and how long it is until the next one is.
    async fn due(&self, lasts: &mut HashMap<TopicName, Last>) -> (Duration, Vec<TopicName>) {
        let topics = match self.hub.log.topics().await {
            Ok(topics) => topics,
            Err(error) => {
                tracing::warn!(%error, "failed to list topics for snapshots; will retry");
                return (pause::UNAVAILABLE, Vec::new());
            }
        };
        let every: HashMap<TopicName, Duration> = topics
            .into_iter()
            .filter_map(|topic| Some((topic.name, Duration::from_millis(topic.config.snapshot?.every_ms))))
            .collect();
        lasts.retain(|topic, last| *last == Last::Begun || every.contains_key(topic));
        let (mut pause, mut due) = (LONGEST_PAUSE, Vec::new());
        for (topic, every) in every {
            let left = match lasts.get(&topic) {
                Some(Last::Begun) => continue,
                Some(Last::Ended(at)) => every.saturating_sub(at.elapsed()),
                None => Duration::ZERO,
            };
            if left.is_zero() {
                lasts.insert(topic.clone(), Last::Begun);
                due.push(topic);
            } else {
                pause = pause.min(left);
            }
        }
        (pause, due)
    }

    /// A pass that nobody waits for.
    async fn snapshot_quietly(&self, topic: &TopicName) {
        match self.work(topic, &Task::Snapshot(Pace::gentle())).await {
            Ok(done) if done.events > 0 => {
                let (records, bytes) = (done.events, done.bytes);
                tracing::debug!(%topic, records, bytes, "published snapshots of a topic");
            }
            Ok(_) | Err(CleanError::Closing) => {}
            // It was deleted, or another hub does that.
            Err(
                CleanError::Read(ReadError::TopicNotFound(_) | ReadError::TopicGone(_))
                | CleanError::Home(HomesError::Elsewhere { .. }),
            ) => {}
            Err(error) => {
                tracing::warn!(%topic, %error, "failed to publish snapshots of a topic; will retry");
            }
        }
    }
}
