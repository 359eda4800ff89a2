//! Turns at a topic: of those who must not work on it at the same time, one does.

use parking_lot::Mutex;
use prombus_core::TopicName;
use std::collections::HashMap;
use std::sync::Arc;

/// Turns at topics, for work of one kind.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<TopicName, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    /// Whoever has locked this has the turn.
    pub fn of(&self, topic: &TopicName) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock();
        // Those that nobody has or waits for.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(topic.clone()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_at_the_same_topic() {
        let (turns, topic) = (Turns::default(), |name| TopicName::parse(name).unwrap());
        let held = turns.of(&topic("a")).try_lock_owned().unwrap();
        assert!(turns.of(&topic("a")).try_lock_owned().is_err());
        assert!(turns.of(&topic("b")).try_lock_owned().is_ok());
        drop(held);
        assert!(turns.of(&topic("a")).try_lock_owned().is_ok());
        assert_eq!(turns.0.lock().len(), 1, "those that nobody uses are forgotten");
    }
}
