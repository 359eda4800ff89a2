//! Events that are done, and for which nobody knows whether the hub has heard of it: when the line broke, their acks
//! were not answered. If they come again, they are acked at once.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// The most that are remembered; the oldest are forgotten first, and handled again if they come.
const MAX_REMEMBERED: usize = 100_000;
/// How long they are remembered. They come again right after the line is back, if they do; later it is because someone
/// has moved the group back, and wants them handled again.
const REMEMBERED_FOR: Duration = Duration::from_secs(300);

/// Ids of events that are done.
#[derive(Debug, Default)]
pub(crate) struct DoneEvents {
    until: HashMap<String, Instant>,
    order: VecDeque<String>,
}

impl DoneEvents {
    pub fn remember(&mut self, id: String, now: Instant) {
        if self.order.len() >= MAX_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.until.remove(&oldest);
        }
        if self.until.insert(id.clone(), now + REMEMBERED_FOR).is_none() {
            self.order.push_back(id);
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
}
