//! Reading what commits ask for, in their transaction.

use crate::document_doc::{self, VALUES, row_path, row_text};
use crate::event_doc;
use crate::event_id::{self, At};
use crate::facts::{CursorId, Facts, Need};
use crate::failure::Failure;
use crate::head::{CATALOG, Catalog, CollectionHead, Head};
use crate::names::Names;
use crate::reads;
use bytes::Bytes;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document as BsonDocument, RawDocumentBuf, doc};
use mongodb::{ClientSession, Collection};
use prombus_core::{Cursor, CursorKey, Epoch, KnownEvent, Offset, Partition, TopicName};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use uuid::Uuid;

/// How many keys one query names at most.
const KEYS_AT_ONCE: usize = 10_000;
/// How many events of a key are read behind the latest, where that was given up.
const MORE_OF_A_KEY: i64 = 100;
/// How many documents one step of making an index goes over, and one more to see whether there are more.
pub const STEP_DOCUMENTS: usize = 500;

/// Reads in the transaction of a session.
pub struct Loader<'a> {
    pub names: &'a Names,
    pub session: &'a mut ClientSession,
    /// See [`event_id::made_id`].
    pub salt: u32,
}

impl Loader<'_> {
    /// Reads everything that is needed.
    pub async fn load(&mut self, facts: &mut Facts, needs: BTreeSet<Need>) -> Result<(), Failure> {
        let (mut heads, mut collections) = (Vec::new(), Vec::new());
        let (mut cursors, mut ids) = (Vec::new(), Vec::new());
        let mut documents: HashMap<u32, Vec<String>> = HashMap::new();
        for need in needs {
            match need {
                Need::Head(name) => heads.push(name),
                Need::Collection(name) => collections.push(name),
                Need::Cursor(id) => cursors.push(id),
                Need::Id(topic, id) => ids.push((topic, id)),
                Need::Document(collection, key) => documents.entry(collection).or_default().push(key),
                Need::Catalog => facts.catalog = Some(self.catalog().await?),
                Need::CollectionNames => facts.collection_names = Some(self.collection_names().await?),
                Need::AllCursors => self.all_cursors(facts).await?,
                Need::Latest(topic, key) => self.latest(facts, topic, key).await?,
                Need::Holders(values) => {
                    let holders = self.holders(&values).await?;
                    facts.holders.insert(values, holders);
                }
                Need::Step(collection, after) => {
                    facts.step = Some(self.step(collection, after).await?);
                }
                Need::Published(topic, partition, offsets) => {
                    let found = self.given_up(topic, partition, &offsets).await?;
                    let known = facts.published.entry((topic, partition)).or_default();
                    known.extend(offsets.into_iter().map(|offset| (offset, None)));
                    known.extend(found.into_iter().map(|one| (one.first.offset.0, Some(one))));
                }
            }
        }
        self.heads(facts, heads).await?;
        self.collections(facts, collections).await?;
        self.cursors(facts, cursors).await?;
        self.ids(facts, ids).await?;
        for (collection, keys) in documents {
            self.documents(facts, collection, keys).await?;
        }
        Ok(())
    }

    async fn find(
        &mut self,
        from: Collection<BsonDocument>,
        filter: BsonDocument,
    ) -> Result<Vec<BsonDocument>, Failure> {
        let mut cursor = from.find(filter).session(&mut *self.session).await?;
        let mut found = Vec::new();
        while let Some(document) = cursor.next(self.session).await {
            found.push(document?);
        }
        Ok(found)
    }

    async fn find_raw<T>(
        &mut self,
        from: Collection<RawDocumentBuf>,
        (filter, projection): (BsonDocument, BsonDocument),
        read: impl Fn(&mongodb::bson::RawDocument) -> Option<T>,
    ) -> Result<Vec<T>, Failure> {
        let mut cursor = from.find(filter).projection(projection).session(&mut *self.session).await?;
        let mut found = Vec::new();
        while cursor.advance(self.session).await? {
            found.push(read(cursor.current()).ok_or_else(|| reads::damaged(from.name()))?);
        }
        Ok(found)
    }

    async fn heads(&mut self, facts: &mut Facts, names: Vec<TopicName>) -> Result<(), Failure> {
        for names in names.chunks(KEYS_AT_ONCE) {
            let keys: Vec<&str> = names.iter().map(TopicName::as_str).collect();
            for document in self.find(self.names.heads(), doc! { "_id": { "$in": keys } }).await? {
                let head = Head::of_document(&document)?;
                facts.heads.insert(head.state.name.clone(), Some(Arc::new(head)));
            }
            for name in names {
                facts.heads.entry(name.clone()).or_insert(None);
            }
        }
        Ok(())
    }

    async fn collections(&mut self, facts: &mut Facts, names: Vec<Arc<str>>) -> Result<(), Failure> {
        for names in names.chunks(KEYS_AT_ONCE) {
            let keys: Vec<&str> = names.iter().map(|name| &**name).collect();
            for document in self.find(self.names.collections(), doc! { "_id": { "$in": keys } }).await? {
                let head = CollectionHead::of_document(&document)?;
                facts.collections.insert(head.state.name.clone(), Some(Arc::new(head)));
            }
            for name in names {
                facts.collections.entry(name.clone()).or_insert(None);
            }
        }
        Ok(())
    }

    async fn catalog(&mut self) -> Result<Catalog, Failure> {
        let found = self.find(self.names.meta(), doc! { "_id": CATALOG }).await?;
        Ok(found.first().map(Catalog::of_document).transpose()?.unwrap_or_default())
    }

    async fn collection_names(&mut self) -> Result<Vec<Arc<str>>, Failure> {
        let named = |document: &BsonDocument| document.get_str("_id").ok().map(Arc::from);
        Ok(self.find(self.names.collections(), doc! {}).await?.iter().filter_map(named).collect())
    }

    async fn all_cursors(&mut self, facts: &mut Facts) -> Result<(), Failure> {
        let mut names = HashMap::new();
        for document in self.find(self.names.heads(), doc! {}).await? {
            let head = Head::of_document(&document)?;
            names.insert(head.number(), head.state.name.clone());
            facts.heads.entry(head.state.name.clone()).or_insert_with(|| Some(Arc::new(head)));
        }
        let mut all = Vec::new();
        for document in self.find(self.names.cursors(), doc! { "_id.partition": 0_i64 }).await? {
            let id = cursor_id(&document).ok_or_else(|| reads::damaged("cursors"))?;
            if let Some(topic) = names.get(&id.topic).cloned() {
                let (reader, partition) = (id.reader.clone(), id.partition);
                all.push((id, CursorKey { topic, reader, partition }));
            }
        }
        facts.all_cursors = Some(all);
        Ok(())
    }

    async fn cursors(&mut self, facts: &mut Facts, ids: Vec<CursorId>) -> Result<(), Failure> {
        for ids in ids.chunks(KEYS_AT_ONCE) {
            let keys: Vec<Bson> = ids.iter().map(cursor_key).collect();
            for document in self.find(self.names.cursors(), doc! { "_id": { "$in": keys } }).await? {
                let (id, cursor) = cursor(&document).ok_or_else(|| reads::damaged("cursors"))?;
                facts.cursors.insert(id, Some(cursor));
            }
            for id in ids {
                facts.cursors.entry(id.clone()).or_insert(None);
            }
        }
        Ok(())
    }

    async fn documents(&mut self, facts: &mut Facts, number: u32, keys: Vec<String>) -> Result<(), Failure> {
        for some in keys.chunks(KEYS_AT_ONCE) {
            let wanted = doc! { "_id": { "$in": some } };
            let what = (wanted, document_doc::exact_fields());
            let found = self.find_raw(self.names.documents(number), what, document_doc::of_bson).await?;
            let known = facts.documents.entry(number).or_default();
            known.extend(found.into_iter().map(|document| (document.key.clone(), Some(document))));
        }
        let known = facts.documents.entry(number).or_default();
        for key in keys {
            known.entry(key).or_insert(None);
        }
        Ok(())
    }

    /// Looks ids up where hubs put those that they make, among those that producers made, and among those of events that
    /// are gone. Of several events, it is the one that was recorded last that counts.
    async fn ids(&mut self, facts: &mut Facts, ids: Vec<(u32, Uuid)>) -> Result<(), Failure> {
        let mut found: HashMap<(u32, Uuid), KnownEvent> = HashMap::new();
        let mut keep = |topic: u32, one: KnownEvent| {
            let known = found.entry((topic, one.first.id)).or_insert(one);
            let age = |one: &KnownEvent| (one.recorded_ts, one.first.partition, one.first.offset);
            if age(known) < age(&one) {
                *known = one;
            }
        };
        let mut by_topic: HashMap<u32, Vec<Uuid>> = HashMap::new();
        ids.iter().for_each(|(topic, id)| by_topic.entry(*topic).or_default().push(*id));
        for (topic, ids) in by_topic {
            for ids in ids.chunks(KEYS_AT_ONCE) {
                let places = ids.iter().filter_map(|id| event_id::place_of(*id, topic, self.salt));
                let places: Vec<Bson> = places.map(|at| event_id::key(topic, at)).collect();
                let keys: Vec<Bson> = ids.iter().map(|id| event_id::id_bson(*id)).collect();
                let gone: Vec<Bson> = ids.iter().map(|id| event_doc::gone_key(topic, *id)).collect();
                let (start, end) = topic_range(topic);
                let own =
                    doc! { "id": { "$in": &keys }, "own_id": true, "_id": { "$gte": start, "$lte": end } };
                if !places.is_empty() {
                    let made = doc! { "_id": { "$in": places } };
                    for one in self.published(made).await? {
                        keep(topic, one);
                    }
                }
                for one in self.published(own).await? {
                    keep(topic, one);
                }
                for document in self.find(self.names.ids(), doc! { "_id": { "$in": gone } }).await? {
                    let raw = RawDocumentBuf::try_from(&document).map_err(|_| reads::damaged("ids"))?;
                    keep(topic, event_doc::read_gone(&raw).ok_or_else(|| reads::damaged("ids"))?);
                }
            }
        }
        facts.ids.extend(ids.into_iter().map(|id| (id, found.get(&id).copied())));
        Ok(())
    }

    async fn published(&mut self, filter: BsonDocument) -> Result<Vec<KnownEvent>, Failure> {
        let what = (filter, event_doc::published_fields());
        self.find_raw(self.names.events(), what, event_doc::published).await
    }

    async fn given_up(
        &mut self,
        topic: u32,
        partition: Partition,
        offsets: &[u64],
    ) -> Result<Vec<KnownEvent>, Failure> {
        let mut found = Vec::new();
        for some in offsets.chunks(KEYS_AT_ONCE) {
            let keys = some.iter().map(|offset| event_id::key(topic, (partition, Offset(*offset))));
            let keys: Vec<Bson> = keys.collect();
            found.extend(self.published(doc! { "_id": { "$in": keys } }).await?);
        }
        Ok(found)
    }

    async fn latest(&mut self, facts: &mut Facts, topic: TopicName, key: String) -> Result<(), Failure> {
        if !facts.heads.contains_key(&topic) {
            self.heads(facts, vec![topic.clone()]).await?;
        }
        let head = facts.heads.get(&topic).cloned().flatten();
        let known = facts.latest.entry((topic, key.clone())).or_default();
        let Some(head) = head else {
            known.is_all = true;
            return Ok(());
        };
        let limit = if known.found.is_empty() { 1 } else { MORE_OF_A_KEY };
        let mut before = known.found.last().map(|(at, _)| *at);
        let mut read = 0;
        while read < limit {
            match self.one_before(&head, &key, before).await? {
                Some((at, id)) => {
                    known.found.push((at, id));
                    before = Some(at);
                    read += 1;
                }
                None => {
                    known.is_all = true;
                    break;
                }
            }
        }
        Ok(())
    }

    /// The last kept event of a key before a place.
    async fn one_before(
        &mut self,
        head: &Head,
        key: &str,
        mut before: Option<At>,
    ) -> Result<Option<(At, Uuid)>, Failure> {
        loop {
            let filter = reads::of_key_before(head.number(), key, before);
            let events = self.names.events();
            let find = events.find(filter).sort(doc! { "_id": -1 }).limit(1);
            let mut cursor =
                find.projection(event_doc::published_fields()).session(&mut *self.session).await?;
            if !cursor.advance(self.session).await? {
                return Ok(None);
            }
            let found = event_doc::published(cursor.current()).ok_or_else(|| reads::damaged("events"))?;
            let (partition, offset) = (found.first.partition, found.first.offset);
            if offset.0 >= head.part(partition.0).first {
                return Ok(Some(((partition, offset), found.first.id)));
            }
            // Whatever there is of this partition is given up.
            before = Some((partition, Offset(0)));
        }
    }

    async fn holders(&mut self, values: &Bytes) -> Result<Vec<String>, Failure> {
        let number = prombus_rows::collection_of_row(values).unwrap_or_default();
        let range = prombus_rows::prefixed(values.to_vec());
        let (start, end) = (row_text(&range.start[VALUES..]), row_text(&range.end[VALUES..]));
        let filter = doc! { row_path(values): { "$gte": start, "$lt": end } };
        let key = |document: &mongodb::bson::RawDocument| document.get_str("_id").ok().map(str::to_owned);
        self.find_raw(self.names.documents(number), (filter, doc! { "_id": 1 }), key).await
    }

    async fn step(
        &mut self,
        number: u32,
        after: Option<String>,
    ) -> Result<Vec<prombus_core::Document>, Failure> {
        let filter = after.map_or(doc! {}, |after| doc! { "_id": { "$gt": after } });
        let documents = self.names.documents(number);
        let find = documents.find(filter).sort(doc! { "_id": 1 }).limit(STEP_DOCUMENTS as i64 + 1);
        let mut cursor = find.projection(document_doc::exact_fields()).session(&mut *self.session).await?;
        let mut found = Vec::new();
        while cursor.advance(self.session).await? {
            let document = document_doc::of_bson(cursor.current());
            found.push(document.ok_or_else(|| reads::damaged(documents.name()))?);
        }
        Ok(found)
    }
}

/// The keys between which all events of a topic lie.
pub fn topic_range(topic: u32) -> (Bson, Bson) {
    (event_id::key(topic, (Partition(0), Offset(0))), event_id::end_of_topic(topic))
}

/// The key of the document of a cursor.
pub fn cursor_key(id: &CursorId) -> Bson {
    let CursorId { topic, reader, partition } = id;
    Bson::Document(doc! { "topic": i64::from(*topic), "reader": reader, "partition": i64::from(partition.0) })
}

fn cursor_id(document: &BsonDocument) -> Option<CursorId> {
    let id = document.get_document("_id").ok()?;
    Some(CursorId {
        topic: u32::try_from(id.get_i64("topic").ok()?).ok()?,
        reader: id.get_str("reader").ok()?.to_owned(),
        partition: Partition(u32::try_from(id.get_i64("partition").ok()?).ok()?),
    })
}

/// The cursor of a document.
pub fn cursor(document: &BsonDocument) -> Option<(CursorId, Cursor)> {
    let cursor = Cursor {
        version: document.get_i64("version").ok()? as u64,
        epoch: Epoch(document.get_i64("epoch").ok()? as u64),
        next: Offset(document.get_i64("next").ok()? as u64),
        detail: Bytes::from(document.get_binary_generic("detail").ok()?.clone()),
    };
    Some((cursor_id(document)?, cursor))
}

/// The document of a cursor.
pub fn cursor_document(id: &CursorId, cursor: &Cursor) -> BsonDocument {
    let detail = Binary { subtype: BinarySubtype::Generic, bytes: cursor.detail.to_vec() };
    doc! {
        "_id": cursor_key(id),
        "version": cursor.version as i64,
        "epoch": cursor.epoch.0 as i64,
        "next": cursor.next.0 as i64,
        "detail": detail,
    }
}
