//! Trying again. A change is often made from what was read a moment ago; if somebody else has changed that since, the
//! log refuses the commit, and whoever made it reads again and makes a new one. Which errors that helps against is the
//! error's own business: [`CommitError::retry`]. How often and after which pauses is decided here, once for everyone.

use crate::bus::{Bus, BusError};
use prombus_core::error::Retry;
use prombus_core::{Commit, CommitError, Receipt};
use std::sync::Arc;
use std::time::Duration;

/// How often a change is tried before it is given up as [`CommitError::Busy`].
const MAX_TRIES: usize = 16;
/// The pause before the second try.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// How long whoever works by itself waits before it tries again, by what is in the way. Nobody waits for an answer there.
pub(crate) mod pause {
    use prombus_core::error::Retry;
    use std::time::Duration;

    /// Others change the same things.
    pub const BUSY: Duration = Duration::from_millis(5);
    /// A store cannot be used, or a topic is at home elsewhere.
    pub const UNAVAILABLE: Duration = Duration::from_millis(500);
    /// There is no room: on the disk, or among topics and collections; or the topic of a changefeed is missing.
    pub const NO_ROOM: Duration = Duration::from_secs(1);
    /// A claim could not be renewed, and ends if that takes long.
    pub const CLAIM: Duration = Duration::from_millis(100);
    /// Collections that were made anew could not be put in place, and readers wait for them.
    pub const SWITCH: Duration = Duration::from_millis(100);

    /// The pause after an error against which this helps; `None` where nothing does.
    pub fn after(helps: Retry) -> Option<Duration> {
        match helps {
            Retry::Never => None,
            // Whoever is in the way is another hub, or someone who changes the topic.
            Retry::Same | Retry::Anew => Some(BUSY),
            Retry::WithRoom => Some(NO_ROOM),
            Retry::Later => Some(UNAVAILABLE),
        }
    }
}

/// Pauses that double.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(FIRST_PAUSE, LONGEST_PAUSE)
    }
}

impl Backoff {
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, longest }
    }

    /// Waits; the next time twice as long.
    pub async fn pause(&mut self) {
        // Whoever is in the way may be another hub, which tells nobody here when it is done.
        tokio::time::sleep(self.next).await;
        self.next = self.longest.min(self.next * 2);
    }
}

/// Makes a commit, as often as only others were in the way. Whoever makes a new one of a commit that was refused has it back.
pub(crate) async fn commit(bus: &dyn Bus, commit: &mut Arc<Commit>) -> Result<Receipt, BusError> {
    let mut backoff = Backoff::default();
    loop {
        match bus.enqueue(commit).await?.await {
            Err(error) if error.retry() == Retry::Same => backoff.pause().await,
            answer => return Ok(answer?),
        }
    }
}

/// The tries of one change.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    failed: usize,
    backoff: Backoff,
}

impl Tries {
    /// Returns once it is time to read again and make a new commit. If that would not help, or has been tried often
    /// enough, it is an error.
    pub async fn again(&mut self, error: BusError) -> Result<(), BusError> {
        match error.retry() {
            Retry::Same | Retry::Anew => self.look_again().await,
            Retry::Never | Retry::WithRoom | Retry::Later => Err(error),
        }
    }

    /// The same if no error said so: what was just made is gone again.
    pub async fn look_again(&mut self) -> Result<(), BusError> {
        self.failed += 1;
        if self.failed >= MAX_TRIES {
            return Err(CommitError::Busy.into());
        }
        self.backoff.pause().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prombus_core::TopicName;

    #[tokio::test(start_paused = true)]
    async fn only_what_helps_is_tried_again_and_not_forever() {
        let topic = TopicName::parse("t").unwrap();
        let outdated = || BusError::from(CommitError::TopicChanged(topic.clone()));
        let mut tries = Tries::default();
        assert_eq!(tries.again(CommitError::NoRoom.into()).await, Err(CommitError::NoRoom.into()));
        assert_eq!(tries.again(BusError::BadConfig("b".into())).await, Err(BusError::BadConfig("b".into())));
        for _ in 1..MAX_TRIES {
            assert_eq!(tries.again(outdated()).await, Ok(()));
        }
        assert_eq!(tries.again(outdated()).await, Err(CommitError::Busy.into()));
    }
}
