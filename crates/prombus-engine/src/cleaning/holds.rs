//! Topics that somebody reads as of one position: passes that nobody asked for leave those alone, so that reading them can
//! come to its end beside compaction. Not for ever: a topic that is read all the time has to be cleaned as well.

use parking_lot::Mutex;
use prombus_core::TopicName;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The longest that a topic is left alone.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// The topics that are held.
#[derive(Default)]
pub(super) struct Holds(Mutex<HashMap<TopicName, Held>>);

/// A topic that is held, or that was and has not been cleaned since.
#[derive(Default)]
struct Held {
    readers: usize,
    /// Since when it would have been cleaned.
    waits_since: Option<Instant>,
}

/// A topic is left alone until this is dropped, or for so long.
pub(crate) struct Hold {
    holds: Arc<Holds>,
    topic: TopicName,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut topics = self.holds.0.lock();
        if let Some(held) = topics.get_mut(&self.topic) {
            held.readers -= 1;
            if held.readers == 0 && held.waits_since.is_none() {
                topics.remove(&self.topic);
            }
        }
    }
}

impl Holds {
    /// Has a topic left alone.
    pub fn hold(self: &Arc<Self>, topic: &TopicName) -> Hold {
        self.0.lock().entry(topic.clone()).or_default().readers += 1;
        Hold { holds: self.clone(), topic: topic.clone() }
    }

    /// Whether a pass that nobody asked for may be done over a topic. If so, it is about to be.
    pub fn may_clean(&self, topic: &TopicName) -> bool {
        let mut topics = self.0.lock();
        let Some(held) = topics.get_mut(topic) else { return true };
        let may =
            held.readers == 0 || held.waits_since.get_or_insert_with(Instant::now).elapsed() >= LONGEST_WAIT;
        if may {
            held.waits_since = None;
        }
        if held.readers == 0 {
            topics.remove(topic);
        }
        may
    }

    /// Forgets topics that nobody holds and that are not there any more.
    pub fn keep_only(&self, is_there: impl Fn(&TopicName) -> bool) {
        self.0.lock().retain(|topic, held| held.readers > 0 || is_there(topic));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_topic_is_left_alone_while_it_is_held_and_not_for_ever() {
        let holds = Arc::new(Holds::default());
        let [one, other] = ["one", "other"].map(|name| TopicName::parse(name).unwrap());
        let hold = holds.hold(&one);
        assert!(!holds.may_clean(&one) && holds.may_clean(&other));
        drop(hold);
        assert!(holds.may_clean(&one));
        assert!(holds.0.lock().is_empty());
        // Somebody always reads it, one after the other.
        let mut hold = holds.hold(&one);
        assert!(!holds.may_clean(&one));
        for _ in 0..3 {
            tokio::time::advance(LONGEST_WAIT / 4).await;
            hold = {
                let next = holds.hold(&one);
                drop(hold);
                next
            };
            assert!(!holds.may_clean(&one));
        }
        tokio::time::advance(LONGEST_WAIT / 4).await;
        assert!(holds.may_clean(&one), "it has waited for long");
        assert!(!holds.may_clean(&one), "and waits anew");
        drop(hold);
        holds.keep_only(|_| false);
        assert!(holds.0.lock().is_empty());
    }
}
