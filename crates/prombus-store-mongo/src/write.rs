//! Writing what commits change, in their transaction.
//!
//! Heads come first, in the order of their names: whoever else changes them is met there, before anything large is written.

use crate::changes::{Changes, Which};
use crate::document_doc::{self, VALUES, row_path, row_text};
use crate::event_doc;
use crate::event_id;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::head::{CATALOG, CollectionHead, Head};
use crate::load::{cursor_document, cursor_key};
use crate::names::Names;
use crate::trash::Trash;
use mongodb::ClientSession;
use mongodb::bson::{Bson, Document as BsonDocument, RawDocumentBuf, doc, serialize_to_vec};
use prombus_core::{Offset, TopicName};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How much one command may hold; MongoDB takes 16 MiB.
const COMMAND_BYTES: usize = 8 << 20;
/// How many changes one command may hold; MongoDB takes 100,000.
const COMMAND_CHANGES: usize = 50_000;
/// How many events are deleted by one command that names them.
const DELETED_AT_ONCE: usize = 50_000;
/// Ids of events that are gone are kept for so long after their window, by the clock of the database.
const IDS_KEPT_MS: i64 = 24 * 3_600_000;

/// Writes in the transaction of a session.
pub struct Writing<'a> {
    pub names: &'a Names,
    pub session: &'a mut ClientSession,
    pub facts: &'a Facts,
    pub changes: &'a Changes,
}

/// Changes of one collection, as the commands of MongoDB have them.
#[derive(Default)]
struct Updates {
    updates: Vec<Bson>,
    bytes: usize,
}

impl Writing<'_> {
    /// Writes everything.
    pub async fn write(&mut self) -> Result<(), Failure> {
        self.heads().await?;
        self.collection_heads().await?;
        self.catalog().await?;
        self.events().await?;
        self.given_up().await?;
        self.cursors().await?;
        self.documents().await?;
        self.index_rows().await
    }

    /// Sends one command of updates or deletes. With `must_match`, it is a conflict where one of them changes nothing.
    async fn send(&mut self, command: BsonDocument, must_match: Option<usize>) -> Result<(), Failure> {
        let answer = self.names.db().run_command(command).session(&mut *self.session).await?;
        if let Some(error) = answer.get_array("writeErrors").ok().and_then(|errors| errors.first()) {
            let code = error.as_document().and_then(|error| error.get_i32("code").ok());
            return Err(match code {
                Some(11000 | 112) => Failure::Conflict,
                _ => Failure::Down(error.to_string()),
            });
        }
        let matched = answer.get_i32("n").unwrap_or_default() as usize;
        if must_match.is_some_and(|wanted| wanted != matched) { Err(Failure::Conflict) } else { Ok(()) }
    }

    async fn update(
        &mut self,
        collection: &str,
        updates: Vec<Bson>,
        must_match: bool,
    ) -> Result<(), Failure> {
        let count = updates.len();
        if count == 0 {
            return Ok(());
        }
        self.send(doc! { "update": collection, "updates": updates }, must_match.then_some(count)).await
    }

    /// Adds an update, and sends what there is where it would become too large.
    async fn add(&mut self, collection: &str, to: &mut Updates, update: BsonDocument) -> Result<(), Failure> {
        let bytes = serialize_to_vec(&update).map_or(0, |bytes| bytes.len());
        if to.bytes + bytes > COMMAND_BYTES || to.updates.len() == COMMAND_CHANGES {
            self.update(collection, std::mem::take(&mut to.updates), false).await?;
            to.bytes = 0;
        }
        to.bytes += bytes;
        to.updates.push(Bson::Document(update));
        Ok(())
    }

    async fn heads(&mut self) -> Result<(), Failure> {
        let (mut updates, mut inserts, mut deletes) = (Vec::new(), Vec::new(), Vec::new());
        for name in self.changes.topic_names() {
            let before = self.facts.heads.get(name).and_then(Option::as_ref);
            match (before, self.changes.head(self.facts, name)) {
                (None, Some(head)) => inserts.push(Bson::Document(head.to_document())),
                (Some(before), Some(head)) => updates.push(self.head_update(name, before, &head)),
                (Some(before), None) => {
                    let which = doc! { "_id": name.as_str(), "number": i64::from(before.number()), "rev": before.rev };
                    deletes.push(Bson::Document(doc! { "q": which, "limit": 1 }));
                }
                (None, None) => {}
            }
        }
        let heads = self.names.name("heads");
        self.update(&heads, updates, true).await?;
        if !inserts.is_empty() {
            let count = inserts.len();
            self.send(doc! { "insert": &heads, "documents": inserts }, Some(count)).await?;
        }
        if !deletes.is_empty() {
            let count = deletes.len();
            self.send(doc! { "delete": &heads, "deletes": deletes }, Some(count)).await?;
        }
        Ok(())
    }

    /// What is only appended to is changed where it changes, so that the stream of changes tells no more than that.
    fn head_update(&self, name: &TopicName, before: &Head, head: &Head) -> Bson {
        let which = doc! { "_id": name.as_str(), "number": i64::from(before.number()), "rev": before.rev };
        let is_changed = self.changes.topics.contains_key(name);
        let number = head.number();
        let trims = self.changes.given_up.iter().any(|given_up| given_up.topic == number);
        if is_changed || trims {
            return Bson::Document(doc! { "q": which, "u": head.to_document() });
        }
        let mut set = doc! { "rev": head.rev };
        for ((_, partition), part) in self.changes.parts.range((number, 0)..=(number, u32::MAX)) {
            for (field, value) in part.fields() {
                set.insert(format!("{field}.{partition}"), value);
            }
        }
        Bson::Document(doc! { "q": which, "u": { "$set": set } })
    }

    async fn collection_heads(&mut self) -> Result<(), Failure> {
        let (mut updates, mut inserts, mut deletes) = (Vec::new(), Vec::new(), Vec::new());
        for name in self.changes.collections.keys() {
            let before = self.facts.collections.get(name).and_then(Option::as_ref);
            let which = |before: &CollectionHead| {
                doc! { "_id": &**name, "number": i64::from(before.state.number), "rev": before.rev }
            };
            match (before, self.changes.collection(self.facts, name)) {
                (None, Some(head)) => inserts.push(Bson::Document(head.to_document())),
                (Some(before), Some(head)) => {
                    let update = doc! { "q": which(before), "u": collection_update(before, &head) };
                    updates.push(Bson::Document(update));
                }
                (Some(before), None) => {
                    deletes.push(Bson::Document(doc! { "q": which(before), "limit": 1 }));
                }
                (None, None) => {}
            }
        }
        let heads = self.names.name("collections");
        if !deletes.is_empty() {
            let count = deletes.len();
            self.send(doc! { "delete": &heads, "deletes": deletes }, Some(count)).await?;
        }
        self.update(&heads, updates, true).await?;
        if !inserts.is_empty() {
            let count = inserts.len();
            self.send(doc! { "insert": &heads, "documents": inserts }, Some(count)).await?;
        }
        Ok(())
    }

    async fn catalog(&mut self) -> Result<(), Failure> {
        let Some(mut catalog) = self.changes.catalog else { return Ok(()) };
        let before = self.facts.catalog.unwrap_or_default().rev;
        catalog.rev = before + 1;
        let which = doc! { "_id": CATALOG, "rev": before };
        let update = doc! { "q": which, "u": catalog.to_document() };
        self.update(&self.names.name("meta"), vec![Bson::Document(update)], true).await
    }

    async fn events(&mut self) -> Result<(), Failure> {
        if self.changes.events.is_empty() {
            return Ok(());
        }
        let documents: Vec<RawDocumentBuf> =
            self.changes.events.iter().map(event_doc::NewEvent::to_document).collect();
        self.names.events().insert_many(documents).session(&mut *self.session).await?;
        Ok(())
    }

    async fn given_up(&mut self) -> Result<(), Failure> {
        let mut remembered = Updates::default();
        let ids = self.names.name("ids");
        for ((topic, id), published) in &self.changes.remembered {
            let mut gone = event_doc::gone(published);
            gone.insert("topic", i64::from(*topic));
            let set = doc! { "$replaceWith": { "$mergeObjects": [
                { "$literal": { "_id": event_doc::gone_key(*topic, *id) } },
                { "$literal": gone },
                { "expires": { "$add": ["$$NOW", self.window_ms(*topic) + IDS_KEPT_MS] } },
            ] } };
            let which = doc! { "_id": event_doc::gone_key(*topic, *id) };
            self.add(&ids, &mut remembered, doc! { "q": which, "u": [set], "upsert": true }).await?;
        }
        self.update(&ids, remembered.updates, false).await?;
        let mut trash = Vec::new();
        for given_up in &self.changes.given_up {
            let (topic, partition) = (given_up.topic, given_up.partition);
            match &given_up.which {
                Which::Below(before, first) => {
                    trash.push(Trash::Events { topic, partition, from: *before, to: *first }.to_document());
                }
                Which::Single(offsets) => {
                    let all: Vec<Offset> = offsets.iter().collect();
                    for some in all.chunks(DELETED_AT_ONCE) {
                        let keys = some.iter().map(|offset| event_id::key(topic, (partition, *offset)));
                        let keys: Vec<Bson> = keys.collect();
                        let events = self.names.events();
                        events
                            .delete_many(doc! { "_id": { "$in": keys } })
                            .session(&mut *self.session)
                            .await?;
                    }
                }
            }
        }
        let topics = self.changes.dropped_topics.iter();
        trash.extend(topics.map(|topic| Trash::Topic(*topic).to_document()));
        let collections = self.changes.dropped_collections.iter();
        trash.extend(collections.map(|number| Trash::Documents(*number).to_document()));
        if !trash.is_empty() {
            self.names.trash().insert_many(trash).session(&mut *self.session).await?;
        }
        Ok(())
    }

    fn window_ms(&self, topic: u32) -> i64 {
        let heads = self.facts.heads.values().flatten();
        let head = heads.into_iter().find(|head| head.number() == topic);
        let window = head.map_or(0, |head| head.state.config.dedupe_window_ms);
        // A century is as good as ever.
        i64::try_from(window).unwrap_or(i64::MAX).min(100 * 366 * IDS_KEPT_MS)
    }

    async fn cursors(&mut self) -> Result<(), Failure> {
        let cursors = self.names.name("cursors");
        let (mut updates, mut deletes) = (Updates::default(), Vec::new());
        for (id, (_, cursor)) in &self.changes.cursors {
            let which = doc! { "_id": cursor_key(id) };
            match cursor {
                Some(cursor) => {
                    let update = doc! { "q": which, "u": cursor_document(id, cursor), "upsert": true };
                    self.add(&cursors, &mut updates, update).await?;
                }
                None => deletes.push(Bson::Document(doc! { "q": which, "limit": 1 })),
            }
        }
        self.update(&cursors, updates.updates, false).await?;
        for some in deletes.chunks(COMMAND_CHANGES) {
            self.send(doc! { "delete": &cursors, "deletes": some }, None).await?;
        }
        Ok(())
    }

    async fn documents(&mut self) -> Result<(), Failure> {
        let states: BTreeMap<u32, &Arc<str>> = self
            .changes
            .collections
            .iter()
            .filter_map(|(name, state)| Some((state.as_ref()?.number, name)))
            .collect();
        let mut by_collection: BTreeMap<u32, (Updates, Vec<Bson>)> = BTreeMap::new();
        for ((number, key), document) in &self.changes.documents {
            let state = states.get(number).and_then(|name| self.changes.collections[*name].as_ref());
            // Whatever was written to a collection that goes, goes with it.
            let Some(state) = state else { continue };
            let (mut updates, mut deletes) = by_collection.remove(number).unwrap_or_default();
            match document {
                Some(document) => {
                    let content = document_doc::to_bson(state, document);
                    let content = BsonDocument::try_from(content).map_err(|_| Failure::TooLarge)?;
                    let update = doc! { "q": { "_id": key }, "u": content, "upsert": true };
                    self.add(&self.names.documents_name(*number), &mut updates, update).await?;
                }
                None => deletes.push(Bson::String(key.clone())),
            }
            by_collection.insert(*number, (updates, deletes));
        }
        for (number, (updates, deletes)) in by_collection {
            self.update(&self.names.documents_name(number), updates.updates, false).await?;
            for keys in deletes.chunks(DELETED_AT_ONCE) {
                let documents = self.names.documents(number);
                documents.delete_many(doc! { "_id": { "$in": keys } }).session(&mut *self.session).await?;
            }
        }
        Ok(())
    }

    async fn index_rows(&mut self) -> Result<(), Failure> {
        let mut updates = Updates::default();
        let Some((number, _, _)) = self.changes.index_rows.first() else { return Ok(()) };
        let documents = self.names.documents_name(*number);
        for (_, key, row) in &self.changes.index_rows {
            let set = doc! { row_path(row): row_text(&row[VALUES..]) };
            self.add(&documents, &mut updates, doc! { "q": { "_id": key }, "u": { "$set": set } }).await?;
        }
        self.update(&documents, updates.updates, false).await
    }
}

/// Where only documents were written, no more is changed: the stream of changes tells that from other changes.
fn collection_update(before: &CollectionHead, head: &CollectionHead) -> BsonDocument {
    let (old, new) = (&before.state, &head.state);
    let is_same = (old.number, old.revision, &old.indexes) == (new.number, new.revision, &new.indexes);
    match is_same {
        true => {
            let (documents, bytes) = (new.documents as i64, new.bytes as i64);
            doc! { "$set": { "rev": head.rev, "documents": documents, "bytes": bytes } }
        }
        false => head.to_document(),
    }
}
