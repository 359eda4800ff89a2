//! Moving everything out of a database, and into one.
//!
//! What is put goes past the writer, without transactions: nobody else uses the database, each piece can be put again, and what
//! counts (the end of a partition, the keys of a collection) is written behind what it counts.

use crate::document_doc;
use crate::event_doc::{self, NewEvent};
use crate::event_id;
use crate::facts::CursorId;
use crate::failure::{text, unreadable};
use crate::head::{CATALOG, Catalog, CollectionHead, Head, Part};
use crate::keeping;
use crate::load::{cursor, cursor_document, cursor_key};
use crate::moving;
use crate::reads::damaged;
use crate::shared::Shared;
use crate::store::MongoStore;
use crate::trash::remember;
use crate::writer::make_indexes;
use async_trait::async_trait;
use bytes::Bytes;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document as BsonDocument, RawDocumentBuf, doc};
use mongodb::options::{Acknowledgment, ReadConcern, WriteConcern};
use prombus_core::transfer::{Counters, CursorsRequest, RememberedPage, RememberedRequest};
use prombus_core::{
    CollectionState, CommitError, Cursor, CursorKey, Document, Event, Kept, KnownEvent, Partition, Piece,
    ReadError, TopicName, TopicNumber, TopicState, Transfer,
};
use std::collections::HashMap;
use std::sync::Arc;
use uuid::Uuid;

/// How many ids are read at a time.
const IDS_AT_ONCE: i64 = 1_000;
/// How much one command may hold; MongoDB takes 16 MiB.
const COMMAND_BYTES: usize = 8 << 20;

fn refused(error: &mongodb::error::Error) -> CommitError {
    CommitError::Unavailable(text(error))
}

fn unread(error: ReadError) -> CommitError {
    CommitError::Unavailable(error.to_string())
}

fn majority() -> WriteConcern {
    WriteConcern::builder().w(Acknowledgment::Majority).build()
}

#[async_trait]
impl Transfer for MongoStore {
    async fn counters(&self) -> Result<Counters, ReadError> {
        let names = &self.shared().names;
        let meta = names.meta();
        let find = meta.find_one(doc! { "_id": CATALOG }).read_concern(ReadConcern::majority());
        let found = find.await.map_err(unreadable)?.unwrap_or_default();
        let catalog = Catalog::of_document(&found)?;
        let heads = heads(self.shared()).await?;
        let recorded = heads.iter().flat_map(|head| &head.parts).map(|part| part.recorded_ts);
        Ok(Counters {
            next_topic: TopicNumber(catalog.next_topic),
            next_collection: catalog.next_collection,
            recorded_ts: recorded.max().unwrap_or(0),
        })
    }

    async fn remembered(&self, request: RememberedRequest) -> Result<RememberedPage, ReadError> {
        let names = &self.shared().names;
        let by_number: HashMap<u32, Head> =
            heads(self.shared()).await?.into_iter().map(|head| (head.number(), head)).collect();
        let filter = request.from.map_or(doc! {}, |from| {
            doc! { "_id": { "$gt": Binary { subtype: BinarySubtype::Generic, bytes: from.to_vec() } } }
        });
        let ids = names.ids();
        let find = ids.find(filter).sort(doc! { "_id": 1 }).limit(IDS_AT_ONCE);
        let mut found = find.read_concern(ReadConcern::majority()).await.map_err(unreadable)?;
        let (mut known, mut next) = (Vec::new(), None);
        while found.advance().await.map_err(unreadable)? {
            let document = found.deserialize_current().map_err(unreadable)?;
            let raw = RawDocumentBuf::try_from(&document).map_err(|_| damaged("ids"))?;
            let one = event_doc::read_gone(&raw).ok_or_else(|| damaged("ids"))?;
            let id = raw.get_binary("_id").map_err(|_| damaged("ids"))?.bytes;
            next = Some(Bytes::copy_from_slice(id));
            let topic = id[..4].try_into().map(u32::from_be_bytes).map_err(|_| damaged("ids"))?;
            let Some(head) = by_number.get(&topic) else { continue };
            if one.recorded_ts >= request.now_ms.saturating_sub(head.state.config.dedupe_window_ms) {
                known.push((topic, one));
            }
        }
        let later = self.recorded_later(&by_number, &known).await?;
        let is_meant = |(topic, one): &(u32, KnownEvent)| {
            later.get(&(*topic, one.first.id)).is_none_or(|recorded_ts| *recorded_ts <= one.recorded_ts)
        };
        let name = |(topic, one): (u32, KnownEvent)| Some((by_number.get(&topic)?.state.name.clone(), one));
        let events = known.into_iter().filter(is_meant).filter_map(name).collect();
        Ok(RememberedPage { events, next })
    }

    async fn cursors(&self, request: CursorsRequest) -> Result<Vec<(CursorKey, Cursor)>, ReadError> {
        let CursorsRequest { topic, after, limit } = request;
        let heads = self.shared().names.heads();
        let found = heads.find_one(doc! { "_id": topic.as_str() }).read_concern(ReadConcern::majority());
        let head = found.await.map_err(unreadable)?.as_ref().map(Head::of_document).transpose()?;
        let Some(number) = head.map(|head| head.number()) else { return Ok(Vec::new()) };
        let mut filter = match after {
            Some((reader, partition)) => {
                let key = CursorKey { topic: topic.clone(), reader, partition };
                doc! { "$gt": cursor_key(&CursorId::new(number, &key)) }
            }
            None => doc! { "$gte": { "topic": i64::from(number) } },
        };
        filter.insert("$lt", doc! { "topic": i64::from(number) + 1 });
        let cursors = self.shared().names.cursors();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let find = cursors.find(doc! { "_id": filter }).sort(doc! { "_id": 1 }).limit(limit);
        let mut found = find.read_concern(ReadConcern::majority()).await.map_err(unreadable)?;
        let mut all = Vec::new();
        while found.advance().await.map_err(unreadable)? {
            let document = found.deserialize_current().map_err(unreadable)?;
            let (CursorId { reader, partition, .. }, one) =
                cursor(&document).ok_or_else(|| damaged("cursors"))?;
            all.push((CursorKey { topic: topic.clone(), reader, partition }, one));
        }
        Ok(all)
    }

    async fn put(&self, pieces: Vec<Piece>) -> Result<(), CommitError> {
        for piece in pieces {
            match piece {
                Piece::Topic(topic) => self.put_topic(topic).await?,
                Piece::Events(events) => self.put_events(events).await?,
                Piece::Kept { topic, partition, kept } => self.put_kept(&topic, partition, kept).await?,
                Piece::Remembered(events) => self.put_remembered(events).await?,
                Piece::Cursors(cursors) => self.put_cursors(cursors).await?,
                Piece::Collection(collection) => self.put_collection(collection).await?,
                Piece::Documents { collection, documents } => {
                    self.put_documents(&collection, documents).await?;
                }
                Piece::Counters(counters) => self.put_counters(counters).await?,
            }
        }
        Ok(())
    }

    async fn complete(&self) -> Result<(), CommitError> {
        moving::filled(&self.shared().names).await.map_err(|error| refused(&error))
    }
}

/// All topics.
async fn heads(shared: &Shared) -> Result<Vec<Head>, ReadError> {
    let find = shared.names.heads();
    let mut found = find.find(doc! {}).read_concern(ReadConcern::majority()).await.map_err(unreadable)?;
    let mut heads = Vec::new();
    while found.advance().await.map_err(unreadable)? {
        heads.push(Head::of_document(&found.deserialize_current().map_err(unreadable)?)?);
    }
    Ok(heads)
}

impl MongoStore {
    /// When kept events with the ids of these were recorded, where there are any.
    async fn recorded_later(
        &self,
        heads: &HashMap<u32, Head>,
        known: &[(u32, KnownEvent)],
    ) -> Result<HashMap<(u32, Uuid), u64>, ReadError> {
        let ids: Vec<Bson> = known.iter().map(|(_, one)| event_id::id_bson(one.first.id)).collect();
        let events = self.shared().names.events();
        let find = events.find(doc! { "id": { "$in": ids }, "own_id": true });
        let find = find.projection(event_doc::published_fields()).read_concern(ReadConcern::majority());
        let mut found = find.await.map_err(unreadable)?;
        let mut later = HashMap::new();
        while found.advance().await.map_err(unreadable)? {
            let raw = found.current();
            let (topic, (partition, offset)) = event_doc::place(raw).ok_or_else(|| damaged("events"))?;
            let one = event_doc::published(raw).ok_or_else(|| damaged("events"))?;
            if heads.get(&topic).is_some_and(|head| offset.0 >= head.part(partition.0).first) {
                let recorded_ts = later.entry((topic, one.first.id)).or_insert(0);
                *recorded_ts = one.recorded_ts.max(*recorded_ts);
            }
        }
        Ok(later)
    }

    /// Writes documents in their order, in place of those that are there.
    async fn put_all(
        &self,
        collection: &str,
        documents: Vec<(Bson, RawDocumentBuf)>,
    ) -> Result<(), CommitError> {
        let mut rest = documents.into_iter().peekable();
        while rest.peek().is_some() {
            let (mut updates, mut bytes) = (Vec::new(), 0);
            while let Some((_, next)) = rest.peek()
                && (updates.is_empty() || bytes + next.as_bytes().len() <= COMMAND_BYTES)
                && let Some((id, content)) = rest.next()
            {
                bytes += content.as_bytes().len();
                let content = BsonDocument::try_from(content);
                let content = content.map_err(|error| CommitError::Unavailable(error.to_string()))?;
                updates.push(doc! { "q": { "_id": id }, "u": content, "upsert": true });
            }
            let command = doc! {
                "update": collection,
                "updates": updates,
                "ordered": true,
                "writeConcern": { "w": "majority" },
            };
            let answer =
                self.shared().names.db().run_command(command).await.map_err(|error| refused(&error))?;
            if let Some(error) = answer.get_array("writeErrors").ok().and_then(|errors| errors.first()) {
                return Err(CommitError::Unavailable(error.to_string()));
            }
        }
        Ok(())
    }

    async fn head_of(&self, name: &TopicName) -> Result<Option<Head>, CommitError> {
        let heads = self.shared().names.heads();
        let found = heads.find_one(doc! { "_id": name.as_str() }).await.map_err(|error| refused(&error))?;
        found.as_ref().map(Head::of_document).transpose().map_err(unread)
    }

    async fn put_head(&self, head: Head) -> Result<(), CommitError> {
        let head = Head { rev: head.rev + 1, ..head };
        let which = doc! { "_id": head.state.name.as_str() };
        let heads = self.shared().names.heads();
        let put = heads.replace_one(which, head.to_document()).upsert(true).write_concern(majority());
        put.await.map(drop).map_err(|error| refused(&error))
    }

    async fn known_head(&self, name: &TopicName) -> Result<Head, CommitError> {
        self.head_of(name).await?.ok_or_else(|| CommitError::TopicNotFound(name.clone()))
    }

    async fn put_topic(&self, topic: TopicState) -> Result<(), CommitError> {
        let known = self.head_of(&topic.name).await?.filter(|head| head.state.number == topic.number);
        let (rev, mut parts) = known.map_or((0, Vec::new()), |head| (head.rev, head.parts));
        parts.resize(topic.config.partitions as usize, Part::default());
        self.put_head(Head { state: Arc::new(topic), rev, parts }).await
    }

    async fn put_events(&self, events: Vec<Event>) -> Result<(), CommitError> {
        let Some((topic, partition)) = events.first().map(|event| (event.topic.clone(), event.partition))
        else {
            return Ok(());
        };
        let mut head = self.known_head(&topic).await?;
        let (number, salt) = (head.number(), self.shared().salt);
        let mut part = head.part(partition.0);
        let mut documents = Vec::with_capacity(events.len());
        for event in events {
            if event.offset.0 < part.next {
                continue;
            }
            part.next = event.offset.0 + 1;
            part.recorded_ts = part.recorded_ts.max(event.recorded_ts);
            part.max_ts = part.max_ts.max(event.ts);
            part.bytes += event.size() as u64;
            let at = (event.partition, event.offset);
            // Ids that another store made say nothing of where their events are.
            let is_own_id = event_id::place_of(event.id, number, salt) != Some(at);
            let known = KnownEvent::of(&event);
            let new = NewEvent { event, topic: number, is_own_id, max_ts: part.max_ts, known };
            documents.push((event_id::key(number, at), new.to_document()));
        }
        self.put_all(&self.shared().names.name("events"), documents).await?;
        if let Some(known) = head.parts.get_mut(partition.0 as usize) {
            *known = part;
        }
        self.put_head(head).await
    }

    async fn put_kept(&self, topic: &TopicName, partition: Partition, kept: Kept) -> Result<(), CommitError> {
        let mut head = self.known_head(topic).await?;
        let before = head.part(partition.0);
        let Kept { bounds, bytes, horizon_ts, has_holes } = kept;
        let (first, next) = (bounds.first.0, bounds.next.0);
        if let Some(part) = head.parts.get_mut(partition.0 as usize) {
            *part = Part { first, next, bytes, horizon_ts, has_holes, ..before };
        }
        self.put_head(head).await
    }

    async fn put_remembered(&self, events: Vec<(TopicName, KnownEvent)>) -> Result<(), CommitError> {
        let mut heads: HashMap<TopicName, Head> = HashMap::new();
        for (topic, known) in events {
            let head = match heads.get(&topic) {
                Some(head) => head,
                None => {
                    let head = self.known_head(&topic).await?;
                    heads.entry(topic).or_insert(head)
                }
            };
            let window = head.state.config.dedupe_window_ms;
            remember(&self.shared().names, head.number(), &known, window).await.map_err(unread)?;
        }
        Ok(())
    }

    async fn put_cursors(&self, cursors: Vec<(CursorKey, Cursor)>) -> Result<(), CommitError> {
        let mut numbers: HashMap<TopicName, u32> = HashMap::new();
        let mut documents = Vec::with_capacity(cursors.len());
        for (key, cursor) in cursors {
            let number = match numbers.get(&key.topic) {
                Some(number) => *number,
                None => {
                    let number = self.known_head(&key.topic).await?.number();
                    *numbers.entry(key.topic.clone()).or_insert(number)
                }
            };
            let id = CursorId::new(number, &key);
            let document = RawDocumentBuf::try_from(&cursor_document(&id, &cursor));
            let document = document.map_err(|error| CommitError::Unavailable(error.to_string()))?;
            documents.push((cursor_key(&id), document));
        }
        self.put_all(&self.shared().names.name("cursors"), documents).await
    }

    async fn put_collection(&self, state: CollectionState) -> Result<(), CommitError> {
        let names = &self.shared().names;
        let which = doc! { "_id": &*state.name };
        let found = names.collections().find_one(which.clone()).await.map_err(|error| refused(&error))?;
        let known = found.as_ref().map(CollectionHead::of_document).transpose().map_err(unread)?;
        let known = known.filter(|known| known.state.number == state.number);
        if known.is_none() {
            let indexes = document_doc::mongo_indexes(&state, |_| true);
            let made = make_indexes(self.shared(), state.number, &indexes).await;
            made.map_err(|failure| CommitError::Unavailable(format!("{failure:?}")))?;
        }
        let rev = known.map_or(0, |known| known.rev) + 1;
        let head = CollectionHead { state, rev };
        let collections = names.collections();
        let put = collections.replace_one(which, head.to_document());
        let put = put.upsert(true).write_concern(majority());
        put.await.map(drop).map_err(|error| refused(&error))
    }

    async fn put_documents(&self, name: &str, documents: Vec<Document>) -> Result<(), CommitError> {
        let names = &self.shared().names;
        let found =
            names.collections().find_one(doc! { "_id": name }).await.map_err(|error| refused(&error))?;
        let known = found.as_ref().map(CollectionHead::of_document).transpose().map_err(unread)?;
        let Some(CollectionHead { state, .. }) = known else {
            return Err(CommitError::Unavailable(format!("there is no collection {name}")));
        };
        let stored = |document: &Document| {
            (Bson::String(document.key.clone()), document_doc::to_bson(&state, document))
        };
        self.put_all(&names.documents_name(state.number), documents.iter().map(stored).collect()).await
    }

    async fn put_counters(&self, counters: Counters) -> Result<(), CommitError> {
        let heads = heads(self.shared()).await.map_err(unread)?;
        let collections = keeping::collections(self.shared()).await.map_err(unread)?;
        let catalog = Catalog {
            rev: 1,
            next_topic: counters.next_topic.0,
            next_collection: counters.next_collection,
            topics: heads.len(),
            collections: collections.len(),
        };
        let meta = self.shared().names.meta();
        let put = meta.replace_one(doc! { "_id": CATALOG }, catalog.to_document());
        put.upsert(true).write_concern(majority()).await.map_err(|error| refused(&error))?;
        for mut head in heads {
            head.parts
                .iter_mut()
                .for_each(|part| part.recorded_ts = part.recorded_ts.max(counters.recorded_ts));
            self.put_head(head).await?;
        }
        Ok(())
    }
}
