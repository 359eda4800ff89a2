//! What a commit has given up and is still to be deleted: a commit only notes it, because deleting takes long.
//!
//! Nobody sees it any more: bounds and numbers leave it out. Any hub may delete it, also several at a time, and after a
//! crash it is just begun anew.

use crate::event_doc;
use crate::event_id;
use crate::failure::unreadable;
use crate::head::Head;
use crate::load::topic_range;
use crate::names::Names;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{Acknowledgment, ReadConcern, UpdateModifications, WriteConcern};
use prombus_core::{Clock, KnownEvent, Offset, Partition, ReadError};
use std::sync::Arc;
use uuid::Uuid;

/// How many events are deleted at a time.
const EVENTS_AT_ONCE: u64 = 1_000;
/// How long an id is kept after its window.
const IDS_KEPT_MS: i64 = 24 * 3_600_000;

/// Something to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trash {
    /// Events of a partition.
    Events { topic: u32, partition: Partition, from: Offset, to: Offset },
    /// Everything of a topic.
    Topic(u32),
    /// The documents of a collection.
    Documents(u32),
}

impl Trash {
    pub fn to_document(&self) -> Document {
        let mut document = match self {
            Self::Events { topic, partition, from, to } => doc! {
                "topic": i64::from(*topic),
                "partition": i64::from(partition.0),
                "from": from.0 as i64,
                "to": to.0 as i64,
            },
            Self::Topic(topic) => doc! { "topic": i64::from(*topic) },
            Self::Documents(number) => doc! { "collection": i64::from(*number) },
        };
        document.insert("_id", ObjectId::new());
        document
    }

    fn of_document(document: &Document) -> Option<Self> {
        let int = |field: &str| document.get_i64(field).ok();
        let number = |field: &str| u32::try_from(int(field)?).ok();
        match (number("collection"), number("topic"), number("partition")) {
            (Some(collection), _, _) => Some(Self::Documents(collection)),
            (None, Some(topic), Some(partition)) => Some(Self::Events {
                topic,
                partition: Partition(partition),
                from: Offset(int("from")? as u64),
                to: Offset(int("to")? as u64),
            }),
            (None, Some(topic), None) => Some(Self::Topic(topic)),
            (None, None, _) => None,
        }
    }
}

/// Deletes what is noted.
pub struct Sweeper {
    pub names: Names,
    pub clock: Arc<dyn Clock>,
}

impl Sweeper {
    /// Deletes all that is noted now.
    pub async fn sweep(&self) -> Result<(), ReadError> {
        let majority = ReadConcern::majority();
        let from = self.names.trash();
        let find = from.find(doc! {}).sort(doc! { "_id": 1 }).read_concern(majority);
        let mut cursor = find.await.map_err(unreadable)?;
        let mut noted = Vec::new();
        while cursor.advance().await.map_err(unreadable)? {
            noted.push(cursor.deserialize_current().map_err(unreadable)?);
        }
        for document in noted {
            match Trash::of_document(&document) {
                Some(Trash::Events { topic, partition, from, to }) => {
                    self.delete_events(topic, partition, from, to).await?;
                }
                Some(Trash::Topic(topic)) => self.delete_topic(topic).await?,
                Some(Trash::Documents(number)) => {
                    self.names.documents(number).drop().await.map_err(unreadable)?;
                }
                // A later format knows what it means.
                None => continue,
            }
            let id = document.get("_id").cloned().unwrap_or(Bson::Null);
            let from = self.names.trash();
            let delete = from.delete_one(doc! { "_id": id });
            delete.write_concern(majority_write()).await.map_err(unreadable)?;
        }
        Ok(())
    }

    async fn delete_topic(&self, topic: u32) -> Result<(), ReadError> {
        let (start, end) = topic_range(topic);
        let within = doc! { "_id": { "$gte": start, "$lte": end } };
        self.names.events().delete_many(within).await.map_err(unreadable)?;
        let number = i64::from(topic);
        let cursors = doc! { "_id": { "$gte": { "topic": number }, "$lt": { "topic": number + 1 } } };
        self.names.cursors().delete_many(cursors).await.map_err(unreadable)?;
        let (first, last) = [Uuid::nil(), Uuid::max()].map(|id| event_doc::gone_key(topic, id)).into();
        let ids = doc! { "_id": { "$gte": first, "$lte": last } };
        self.names.ids().delete_many(ids).await.map_err(unreadable)?;
        Ok(())
    }

    async fn delete_events(
        &self,
        topic: u32,
        partition: Partition,
        from: Offset,
        to: Offset,
    ) -> Result<(), ReadError> {
        let window = self.window_ms(topic).await?;
        let mut at = from;
        while at < to {
            let end = Offset(to.0.min(at.0 + EVENTS_AT_ONCE));
            let key = |offset| event_id::key(topic, (partition, offset));
            let within = doc! { "_id": { "$gte": key(at), "$lt": key(end) } };
            if let Some(window) = window {
                self.remember(topic, &within, window).await?;
            }
            let from = self.names.events();
            let delete = from.delete_many(within).write_concern(majority_write());
            delete.await.map_err(unreadable)?;
            at = end;
        }
        Ok(())
    }

    /// Keeps what events within the window of their topic are remembered by, before they go.
    async fn remember(&self, topic: u32, within: &Document, window: u64) -> Result<(), ReadError> {
        let since = self.clock.now_ms().saturating_sub(window);
        let mut filter = within.clone();
        filter.insert("recorded_ts", doc! { "$gte": since as i64 });
        let events = self.names.events();
        let find = events.find(filter).projection(event_doc::published_fields());
        let mut cursor = find.read_concern(ReadConcern::majority()).await.map_err(unreadable)?;
        while cursor.advance().await.map_err(unreadable)? {
            if let Some(published) = event_doc::published(cursor.current()) {
                remember(&self.names, topic, &published, window).await?;
            }
        }
        Ok(())
    }

    /// The window of a topic, while it is there.
    async fn window_ms(&self, topic: u32) -> Result<Option<u64>, ReadError> {
        let from = self.names.heads();
        let found = from.find_one(doc! { "number": i64::from(topic) });
        let head = found.await.map_err(unreadable)?.as_ref().map(Head::of_document).transpose()?;
        Ok(head.map(|head| head.state.config.dedupe_window_ms))
    }
}

/// Keeps what recognises the id of an event that is gone, unless one that was recorded later has the same.
pub async fn remember(
    names: &Names,
    topic: u32,
    published: &KnownEvent,
    window: u64,
) -> Result<(), ReadError> {
    let kept_ms = i64::try_from(window).unwrap_or(i64::MAX).min(100 * 366 * IDS_KEPT_MS) + IDS_KEPT_MS;
    let key = event_doc::gone_key(topic, published.first.id);
    let mut gone = event_doc::gone(published);
    gone.insert("topic", i64::from(topic));
    let is_later = doc! { "$gt": [published.recorded_ts as i64, { "$ifNull": ["$recorded_ts", -1_i64] }] };
    let expires = doc! { "expires": { "$add": ["$$NOW", kept_ms] } };
    let new =
        doc! { "$mergeObjects": [{ "$literal": { "_id": key.clone() } }, { "$literal": gone }, expires] };
    let stages = vec![doc! { "$replaceWith": { "$cond": [is_later, new, "$$ROOT"] } }];
    let from = names.ids();
    let update = from.update_one(doc! { "_id": key }, UpdateModifications::Pipeline(stages)).upsert(true);
    update.write_concern(majority_write()).await.map(drop).map_err(unreadable)
}

fn majority_write() -> WriteConcern {
    WriteConcern::builder().w(Acknowledgment::Majority).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_read_again() {
        let events = Trash::Events { topic: 7, partition: Partition(3), from: Offset(1), to: Offset(9) };
        for trash in [events, Trash::Topic(8), Trash::Documents(9)] {
            assert_eq!(Trash::of_document(&trash.to_document()), Some(trash));
        }
        assert_eq!(Trash::of_document(&doc! { "later": 1 }), None);
    }
}
