//! Copies of events that go to another topic in the same commit.
//!
//! A copy says which event it is of, and the id of that event may only be known when the store commits it. So a copy is no
//! event that a caller brings along: the store makes it, and no receipt tells of it.

use crate::commit::{Append, Appended, Commit, Placement};
use crate::event::NewEvent;
use crate::json::Json;
use crate::topic::{TopicConfig, TopicName};
use bytes::Bytes;
use std::sync::Arc;

/// A copy of an event of the same commit. It is an event of its own, with an id that the store makes, and the first one is
/// its cause. An event that is a duplicate was copied when it came first, and is not copied again.
#[derive(Debug, Clone, PartialEq)]
pub struct EventCopy {
    /// Which event of the commit, by its index; there is no copy of an event that is not there.
    pub of: usize,
    /// Where the copy goes.
    pub topic: TopicName,
    /// The settings of that topic, if it does not exist yet.
    pub settings: Arc<TopicConfig>,
}

impl EventCopy {
    /// The copy of `first`, which was appended as told, for a topic with so many partitions. Without a key it goes to the
    /// partition of the first one, where there is such a partition, so that those that are in order stay so.
    pub fn append(&self, first: &Append, appended: &Appended, partitions: u32) -> Append {
        let placement = match first.event.key {
            None if appended.partition.0 < partitions => Placement::Named(appended.partition),
            _ => Placement::Auto,
        };
        let cause = format!("[\"{}\"]", appended.id.hyphenated());
        let caused_by = Some(Box::new(Json::from_stored(Bytes::from(cause))));
        let event = NewEvent { id: None, ts: Some(appended.ts), caused_by, ..first.event.clone() };
        Append { placement, ..Append::new(self.topic.clone(), event) }
    }
}

impl Commit {
    /// The sizes of all events that it brings along, and of their copies.
    pub fn event_sizes(&self) -> impl Iterator<Item = usize> {
        let copied = self.event_copies.iter().filter_map(|copy| self.events.get(copy.of));
        self.events.iter().chain(copied).map(|append| append.event.size())
    }
}
