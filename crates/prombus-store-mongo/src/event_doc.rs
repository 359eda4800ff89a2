//! Events as documents: plain fields for users, and beside them the texts as they came, which are the truth.

use crate::event_id::{self, At};
use crate::shadow;
use bytes::Bytes;
use mongodb::bson::raw::{CStr, RawBsonRef, cstr};
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Document, RawDocument, RawDocumentBuf, doc};
use mongodb::bson::{RawBinaryRef, RawBson};
use prombus_core::{Appended, Event, Json, KnownEvent, Offset, Partition, TopicName};
use uuid::Uuid;

/// An event on its way into the database.
#[derive(Debug, Clone)]
pub struct NewEvent {
    /// The event.
    pub event: Event,
    /// The number of its topic.
    pub topic: u32,
    /// Whether its producer made its id.
    pub is_own_id: bool,
    /// The greatest `ts` of its partition up to it.
    pub max_ts: u64,
    /// What its id is recognised by.
    pub known: KnownEvent,
}

impl NewEvent {
    pub fn at(&self) -> At {
        (self.event.partition, self.event.offset)
    }

    /// The document.
    pub fn to_document(&self) -> RawDocumentBuf {
        let event = &self.event;
        let mut to = RawDocumentBuf::new();
        let binary = |subtype, bytes| RawBinaryRef { subtype, bytes };
        let key = event_id::key_bytes(self.topic, self.at());
        to.append(cstr!("_id"), binary(BinarySubtype::Generic, &key));
        to.append(cstr!("topic"), event.topic.as_str());
        to.append(cstr!("partition"), event.partition.0 as i32);
        to.append(cstr!("offset"), event.offset.0 as i64);
        to.append(cstr!("id"), binary(BinarySubtype::Uuid, event.id.as_bytes()));
        to.append(cstr!("ts"), event.ts as i64);
        to.append(cstr!("recorded_ts"), event.recorded_ts as i64);
        if let Some(key) = &event.key {
            to.append(cstr!("key"), &**key);
        }
        for (name, json) in texts(event) {
            if let Some(shadow) = shadow::of_json(json) {
                to.append(name, shadow);
            }
        }
        let mut exact = RawDocumentBuf::new();
        for (name, json) in texts(event) {
            exact.append(name, text(json));
        }
        to.append(cstr!("exact"), RawBson::Document(exact));
        to.append(cstr!("max_ts"), self.max_ts as i64);
        to.append(cstr!("digest"), binary(BinarySubtype::Generic, &self.known.digest.to_le_bytes()));
        if self.is_own_id {
            to.append(cstr!("own_id"), true);
        }
        to
    }
}

fn text(json: &Json) -> &str {
    // All JSON here is valid UTF-8.
    std::str::from_utf8(json.as_bytes()).unwrap_or_default()
}

fn texts(event: &Event) -> impl Iterator<Item = (&'static CStr, &Json)> {
    let optional = [
        (cstr!("sid"), &event.sid),
        (cstr!("headers"), &event.headers),
        (cstr!("caused_by"), &event.caused_by),
        (cstr!("tags"), &event.tags),
    ];
    let given = optional.into_iter().filter_map(|(name, json)| Some((name, json.as_deref()?)));
    std::iter::once((cstr!("payload"), &event.payload)).chain(given)
}

/// Leaves out what is only there for users' queries.
pub fn exact_fields() -> Document {
    doc! { "payload": 0, "sid": 0, "headers": 0, "caused_by": 0, "tags": 0, "max_ts": 0, "digest": 0 }
}

/// What [`published`] needs.
pub fn published_fields() -> Document {
    doc! { "id": 1, "ts": 1, "recorded_ts": 1, "digest": 1 }
}

/// The event of a document; `None` where it is not what was written.
pub fn event(document: &RawDocument, topic: &TopicName) -> Option<Event> {
    let (_, (partition, offset)) = place(document)?;
    let mut event = Event {
        id: Uuid::nil(),
        ts: 0,
        recorded_ts: 0,
        topic: topic.clone(),
        key: None,
        partition,
        offset,
        sid: None,
        headers: None,
        payload: Json::from_stored(Bytes::new()),
        caused_by: None,
        tags: None,
    };
    for element in document {
        let (name, value) = element.ok()?;
        match (name.as_str(), value) {
            ("id", RawBsonRef::Binary(id)) => event.id = Uuid::from_slice(id.bytes).ok()?,
            ("ts", RawBsonRef::Int64(ts)) => event.ts = ts as u64,
            ("recorded_ts", RawBsonRef::Int64(ts)) => event.recorded_ts = ts as u64,
            ("key", RawBsonRef::String(key)) => event.key = Some(key.into()),
            ("exact", RawBsonRef::Document(exact)) => read_texts(exact, &mut event)?,
            _ => {}
        }
    }
    Some(event).filter(|event| event.payload.len() > 0)
}

fn read_texts(exact: &RawDocument, event: &mut Event) -> Option<()> {
    for element in exact {
        let (name, RawBsonRef::String(text)) = element.ok()? else { return None };
        let json = Json::from_stored(Bytes::copy_from_slice(text.as_bytes()));
        match name.as_str() {
            "payload" => event.payload = json,
            "sid" => event.sid = Some(Box::new(json)),
            "headers" => event.headers = Some(Box::new(json)),
            "caused_by" => event.caused_by = Some(Box::new(json)),
            "tags" => event.tags = Some(Box::new(json)),
            _ => {}
        }
    }
    Some(())
}

/// The number of its topic, and where an event is, by the key of its document.
pub fn place(document: &RawDocument) -> Option<(u32, At)> {
    event_id::parts(document.get_binary("_id").ok()?.bytes)
}

/// What is remembered of the event of a document.
pub fn published(document: &RawDocument) -> Option<KnownEvent> {
    let (_, (partition, offset)) = place(document)?;
    read_published(document, (partition, offset))
}

fn read_published(document: &RawDocument, (partition, offset): At) -> Option<KnownEvent> {
    let id = Uuid::from_slice(document.get_binary("id").ok()?.bytes).ok()?;
    let ts = document.get_i64("ts").ok()? as u64;
    let digest = u128::from_le_bytes(document.get_binary("digest").ok()?.bytes.try_into().ok()?);
    let first = Appended { id, partition, offset, ts, duplicate: true };
    Some(KnownEvent { first, recorded_ts: document.get_i64("recorded_ts").ok()? as u64, digest })
}

/// The key under which an id is remembered once its event is gone.
pub fn gone_key(topic: u32, id: Uuid) -> mongodb::bson::Bson {
    let bytes = [&topic.to_be_bytes()[..], id.as_bytes()].concat();
    mongodb::bson::Bson::Binary(mongodb::bson::Binary { subtype: BinarySubtype::Generic, bytes })
}

/// What is remembered of an event that is gone.
pub fn gone(published: &KnownEvent) -> Document {
    let Appended { id, partition, offset, ts, .. } = published.first;
    let digest = published.digest.to_le_bytes().to_vec();
    doc! {
        "id": event_id::id_bson(id),
        "partition": i64::from(partition.0),
        "offset": offset.0 as i64,
        "ts": ts as i64,
        "recorded_ts": published.recorded_ts as i64,
        "digest": mongodb::bson::Binary { subtype: BinarySubtype::Generic, bytes: digest },
    }
}

/// What [`gone`] wrote.
pub fn read_gone(document: &RawDocument) -> Option<KnownEvent> {
    let partition = Partition(u32::try_from(document.get_i64("partition").ok()?).ok()?);
    read_published(document, (partition, Offset(document.get_i64("offset").ok()? as u64)))
}
