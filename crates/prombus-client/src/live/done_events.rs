//! Events that are done, but whose ack was unanswered when the connection broke, so the hub may not know. If they are
//! redelivered, they are acked at once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The most that are remembered; the oldest are forgotten first, and handled again if they come.
const MAX_REMEMBERED: usize = 100_000;
/// How long they are remembered. If they are redelivered, that happens right after reconnecting; later it is because
/// someone has reset the group, and wants them handled again.
const REMEMBERED_FOR: Duration = Duration::from_secs(300);

/// Ids of events that are done.
#[derive(Debug, Default)]
pub(crate) struct DoneEvents {
    until: HashMap<Arc<str>, Instant>,
    /// The oldest first. One whose time is not that of the map was taken, or remembered again, and stands for nothing.
    order: VecDeque<(Instant, Arc<str>)>,
}

impl DoneEvents {
    pub fn remember(&mut self, id: String, now: Instant) {
        self.forget_old(now);
        let (until, id) = (now + REMEMBERED_FOR, Arc::from(id));
        self.order.push_back((until, Arc::clone(&id)));
        self.until.insert(id, until);
    }

    /// Makes room for one more.
    fn forget_old(&mut self, now: Instant) {
        while let Some((until, id)) = self.order.front() {
            let stands = self.until.get(id) == Some(until);
            if stands && *until > now && self.order.len() < MAX_REMEMBERED {
                return;
            }
            if stands {
                self.until.remove(id);
            }
            self.order.pop_front();
        }
    }

    /// Whether the event is one of them; it is then forgotten.
    pub fn take(&mut self, id: &str, now: Instant) -> bool {
        if self.until.is_empty() {
            return false;
        }
        let taken = self.until.remove(id).is_some_and(|until| until > now);
        if self.until.is_empty() {
            self.order.clear();
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_remembered_once_for_a_while_and_not_without_end() {
        let now = Instant::now();
        let mut done = DoneEvents::default();
        done.remember("a".into(), now);
        assert!(!done.take("b", now) && done.take("a", now) && !done.take("a", now));
        done.remember("a".into(), now);
        assert!(!done.take("a", now + REMEMBERED_FOR));
        (0..MAX_REMEMBERED + 10).for_each(|n| done.remember(n.to_string(), now));
        assert_eq!((done.until.len(), done.order.len()), (MAX_REMEMBERED, MAX_REMEMBERED));
        assert!(!done.take("9", now) && done.take("10", now));
    }

    #[test]
    fn one_that_was_taken_and_came_back_is_remembered_for_its_full_time() {
        let (now, later) = (Instant::now(), Instant::now() + REMEMBERED_FOR / 2);
        let mut done = DoneEvents::default();
        done.remember("a".into(), now);
        done.remember("b".into(), now);
        assert!(done.take("a", now));
        done.remember("a".into(), later);
        // The first one of "a" is old by now, and "b" with it.
        done.remember("c".into(), now + REMEMBERED_FOR);
        assert_eq!((done.until.len(), done.order.len()), (2, 2));
        assert!(done.take("a", now + REMEMBERED_FOR) && !done.take("b", now + REMEMBERED_FOR));
    }
}
