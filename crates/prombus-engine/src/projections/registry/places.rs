//! Which topic a projection belongs to, and so where it runs. It may have been made just now, through another hub.

use super::Projections;
use prombus_core::TopicName;

impl Projections {
    /// The topic of a projection.
    pub async fn topic_of(&self, name: &str) -> Option<TopicName> {
        if let Some(record) = self.record(name) {
            return Some(record.definition.topic);
        }
        if self.hub.has_others && self.catch_up().await.is_err() {
            return None;
        }
        self.record(name).map(|record| record.definition.topic)
    }

    /// The topic of the projection that writes a collection.
    pub async fn topic_behind(&self, collection: &str) -> Option<TopicName> {
        if let Some(topic) = self.known_behind(collection) {
            return Some(topic);
        }
        if self.hub.has_others && self.catch_up().await.is_err() {
            return None;
        }
        self.known_behind(collection)
    }

    fn known_behind(&self, collection: &str) -> Option<TopicName> {
        let running = self.running.lock();
        let owner = running.values().find(|handle| handle.writes(collection))?;
        Some(owner.record.borrow().definition.topic.clone())
    }
}
