//! Reading events: each read is of one snapshot of head and events, so no trim in between shows as a hole.

use crate::event_doc;
use crate::event_id::{self, At};
use crate::facts::CursorId;
use crate::failure::unreadable;
use crate::head::Head;
use crate::load::{cursor, cursor_key, topic_range};
use crate::names::Names;
use mongodb::bson::{Document, RawDocument, RawDocumentBuf, doc};
use mongodb::options::FindOptions;
use mongodb::{ClientSession, SessionCursor};
use prombus_core::{
    Cursor, CursorKey, Event, HistoryRequest, Kept, Offset, Page, Partition, PreviousRequest, ReadError,
    ReadRequest, TopicName, TopicRef, TsRequest,
};
use uuid::Uuid;

/// How many documents a batch has at most.
const MOST_IN_A_BATCH: usize = 10_000;

/// That something is not as it was written.
pub fn damaged(collection: &str) -> ReadError {
    ReadError::Corrupt(format!("a document of {collection} in the database is not as the hub wrote it"))
}

/// Events of a key before a place, or all.
pub fn of_key_before(topic: u32, key: &str, before: Option<At>) -> Document {
    let (start, end) = topic_range(topic);
    match before {
        Some(at) => doc! { "key": key, "_id": { "$gte": start, "$lt": event_id::key(topic, at) } },
        None => doc! { "key": key, "_id": { "$gte": start, "$lte": end } },
    }
}

/// A session that reads one snapshot of the database.
pub struct SnapshotSession<'a> {
    names: &'a Names,
    session: ClientSession,
    salt: u32,
}

impl<'a> SnapshotSession<'a> {
    pub async fn new(names: &'a Names, salt: u32) -> Result<Self, ReadError> {
        let session = names.db().client().start_session().snapshot(true).await.map_err(unreadable)?;
        Ok(Self { names, session, salt })
    }

    /// The head of a topic.
    pub async fn head(&mut self, name: &TopicName) -> Result<Option<Head>, ReadError> {
        let from = self.names.heads();
        let find = from.find_one(doc! { "_id": name.as_str() }).session(&mut self.session);
        find.await.map_err(unreadable)?.as_ref().map(Head::of_document).transpose()
    }

    /// The head of the topic that is meant.
    async fn topic(&mut self, asked: &TopicRef) -> Result<Head, ReadError> {
        let head = self.head(&asked.name).await?;
        asked.pick(head, |head| head.state.number)
    }

    async fn partition(&mut self, asked: &TopicRef, partition: Partition) -> Result<Head, ReadError> {
        let head = self.topic(asked).await?;
        let partitions = head.state.config.partitions;
        match partition.0 < partitions {
            true => Ok(head),
            false => Err(ReadError::NoSuchPartition { topic: asked.name.clone(), partitions }),
        }
    }

    pub async fn kept(&mut self, topic: &TopicRef, partition: Partition) -> Result<Kept, ReadError> {
        Ok(self.partition(topic, partition).await?.part(partition.0).kept())
    }

    async fn events(
        &mut self,
        filter: Document,
        options: FindOptions,
    ) -> Result<SessionCursor<RawDocumentBuf>, ReadError> {
        let events = self.names.events();
        let find = events.find(filter).with_options(options).session(&mut self.session);
        find.await.map_err(unreadable)
    }

    async fn next<T>(
        &mut self,
        cursor: &mut SessionCursor<RawDocumentBuf>,
        read: impl Fn(&RawDocument) -> Option<T>,
    ) -> Result<Option<T>, ReadError> {
        match cursor.advance(&mut self.session).await.map_err(unreadable)? {
            true => read(cursor.current()).map(Some).ok_or_else(|| damaged("events")),
            false => Ok(None),
        }
    }

    pub async fn read(&mut self, request: ReadRequest) -> Result<Page, ReadError> {
        let ReadRequest { topic, partition, from, limit, max_bytes } = request;
        let head = self.partition(&topic, partition).await?;
        let part = head.part(partition.0);
        let (first, end) = (Offset(part.first), Offset(part.next));
        if from < first {
            return Err(ReadError::Gone { first });
        }
        if from >= end {
            return Ok(Page { events: Vec::new(), next: end, end });
        }
        let key = |offset| event_id::key(head.number(), (partition, offset));
        let within = doc! { "_id": { "$gte": key(from), "$lt": key(end) } };
        // No more than about the page takes, by what events take here on average, and one more.
        let average = (part.bytes / (part.next - part.first).max(1)).max(1);
        let by_bytes = (max_bytes as u64 / average).saturating_add(2);
        let batch = by_bytes.min(limit.saturating_add(1).min(MOST_IN_A_BATCH) as u64) as u32;
        let options = page_options(1, batch, i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1));
        let mut cursor = self.events(within, options).await?;
        let (mut events, mut bytes) = (Vec::new(), 0);
        while let Some(event) = self.next(&mut cursor, |raw| event_doc::event(raw, &topic.name)).await? {
            let fits = events.is_empty() || bytes < max_bytes;
            if events.len() == limit || !fits {
                return Ok(Page { events, next: event.offset, end });
            }
            bytes += event.payload.len();
            events.push(event);
        }
        Ok(Page { events, next: end, end })
    }

    pub async fn offset_at(&mut self, request: TsRequest) -> Result<Offset, ReadError> {
        let TsRequest { topic, partition, ts } = request;
        let head = self.partition(&topic, partition).await?;
        let part = head.part(partition.0);
        let key = |offset| event_id::key(head.number(), (partition, Offset(offset)));
        if ts > part.max_ts || part.first == part.next {
            return Ok(Offset(part.next));
        }
        // Events carry the greatest time up to them, which only grows: so the first that can be meant is found by halves.
        let (mut low, mut high) = (part.first, part.next);
        while low < high {
            let middle = low + (high - low) / 2;
            let within = doc! { "_id": { "$gte": key(middle), "$lt": key(high) } };
            let options = FindOptions::builder()
                .sort(doc! { "_id": 1 })
                .limit(1)
                .projection(doc! { "max_ts": 1 })
                .build();
            let mut cursor = self.events(within, options).await?;
            let look = |raw: &RawDocument| {
                let (_, (_, offset)) = event_doc::place(raw)?;
                Some((offset.0, raw.get_i64("max_ts").ok()? as u64))
            };
            match self.next(&mut cursor, look).await? {
                Some((at, max_ts)) if max_ts < ts => low = at + 1,
                _ => high = middle,
            }
        }
        // The event with that time may be gone, and those after it are earlier.
        let ts = i64::try_from(ts).unwrap_or(i64::MAX);
        let within = doc! { "_id": { "$gte": key(low), "$lt": key(part.next) }, "ts": { "$gte": ts } };
        let options = page_options(1, 1, 1);
        let mut cursor = self.events(within, options).await?;
        let found = self.next(&mut cursor, event_doc::place).await?;
        Ok(found.map_or(Offset(part.next), |(_, (_, offset))| offset))
    }

    pub async fn by_id(&mut self, topic: &TopicRef, id: Uuid) -> Result<Option<Event>, ReadError> {
        let head = self.topic(topic).await?;
        let number = head.number();
        if let Some(at) = event_id::place_of(id, number, self.salt) {
            let found = self.one_of(&head, doc! { "_id": event_id::key(number, at) }, id).await?;
            if found.is_some() {
                return Ok(found);
            }
        }
        let (start, end) = topic_range(number);
        let own = doc! {
            "id": event_id::id_bson(id),
            "own_id": true,
            "_id": { "$gte": start, "$lte": end },
        };
        self.one_of(&head, own, id).await
    }

    async fn one_of(&mut self, head: &Head, filter: Document, id: Uuid) -> Result<Option<Event>, ReadError> {
        let mut cursor = self.events(filter, page_options(-1, 100, 0)).await?;
        while let Some(event) = self.next(&mut cursor, |raw| event_doc::event(raw, &head.state.name)).await? {
            if event.id == id && is_kept(head, &event) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    pub async fn latest_by_key(&mut self, topic: &TopicRef, key: &str) -> Result<Option<Event>, ReadError> {
        let head = self.topic(topic).await?;
        self.before(&head, key, None).await
    }

    pub async fn previous_by_key(
        &mut self,
        request: PreviousRequest,
    ) -> Result<Vec<Option<Event>>, ReadError> {
        let PreviousRequest { topic, events, max_bytes } = request;
        let head = self.topic(&topic).await?;
        let (mut found, mut bytes) = (Vec::with_capacity(events.len()), 0);
        for (key, place) in events {
            let event = self.before(&head, &key, Some(place)).await?;
            bytes += event.as_ref().map_or(0, |event| event.payload.len());
            found.push(event);
            if bytes >= max_bytes {
                break;
            }
        }
        Ok(found)
    }

    /// The last kept event of a key before a place, or of all.
    async fn before(
        &mut self,
        head: &Head,
        key: &str,
        mut at: Option<At>,
    ) -> Result<Option<Event>, ReadError> {
        loop {
            let filter = of_key_before(head.number(), key, at);
            let mut cursor = self.events(filter, page_options(-1, 1, 1)).await?;
            match self.next(&mut cursor, |raw| event_doc::event(raw, &head.state.name)).await? {
                None => return Ok(None),
                Some(event) if is_kept(head, &event) => return Ok(Some(event)),
                // Whatever there is of this partition below is given up, too.
                Some(event) => at = Some((event.partition, Offset(0))),
            }
        }
    }

    pub async fn history(&mut self, request: HistoryRequest) -> Result<Vec<Event>, ReadError> {
        let HistoryRequest { topic, key, after, limit, max_bytes } = request;
        let head = self.topic(&topic).await?;
        let (start, end) = topic_range(head.number());
        let from = match after {
            Some(at) => doc! { "$gt": event_id::key(head.number(), at), "$lte": end },
            None => doc! { "$gte": start, "$lte": end },
        };
        let batch = limit.min(MOST_IN_A_BATCH) as u32;
        let mut cursor = self.events(doc! { "key": &key, "_id": from }, page_options(1, batch, 0)).await?;
        let (mut events, mut bytes) = (Vec::new(), 0);
        while events.len() < limit && (events.is_empty() || bytes < max_bytes) {
            let next = self.next(&mut cursor, |raw| event_doc::event(raw, &topic.name)).await?;
            let Some(event) = next else { break };
            if is_kept(&head, &event) {
                bytes += event.payload.len();
                events.push(event);
            }
        }
        Ok(events)
    }

    pub async fn cursor(&mut self, key: &CursorKey) -> Result<Option<Cursor>, ReadError> {
        let Some(head) = self.head(&key.topic).await? else { return Ok(None) };
        let id = CursorId::new(head.number(), key);
        let from = self.names.cursors();
        let find = from.find_one(doc! { "_id": cursor_key(&id) }).session(&mut self.session);
        match find.await.map_err(unreadable)? {
            Some(document) => {
                cursor(&document).map(|(_, cursor)| Some(cursor)).ok_or_else(|| damaged("cursors"))
            }
            None => Ok(None),
        }
    }

    pub async fn readers(&mut self, topic: &TopicName, prefix: &str) -> Result<Vec<String>, ReadError> {
        let Some(head) = self.head(topic).await? else { return Ok(Vec::new()) };
        let number = i64::from(head.number());
        let from = doc! { "topic": number, "reader": prefix };
        // Readers go by the bytes of their names, and none of them has what comes after all that begin so.
        let to = doc! { "topic": number, "reader": format!("{prefix}{}", char::MAX) };
        let cursors = self.names.cursors();
        let find = cursors.find(doc! { "_id": { "$gte": from, "$lt": to } }).sort(doc! { "_id": 1 });
        let mut found =
            find.projection(doc! { "_id": 1 }).session(&mut self.session).await.map_err(unreadable)?;
        let mut readers: Vec<String> = Vec::new();
        while let Some(document) = found.next(&mut self.session).await {
            let document = document.map_err(unreadable)?;
            let id = document.get_document("_id").ok();
            let reader = id.and_then(|id| id.get_str("reader").ok()).ok_or_else(|| damaged("cursors"))?;
            if readers.last().is_none_or(|last| last != reader) {
                readers.push(reader.to_owned());
            }
        }
        Ok(readers)
    }
}

fn is_kept(head: &Head, event: &Event) -> bool {
    event.offset.0 >= head.part(event.partition.0).first
}

fn page_options(order: i32, batch: u32, limit: i64) -> FindOptions {
    FindOptions::builder()
        .sort(doc! { "_id": order })
        .batch_size(batch)
        .limit(Some(limit).filter(|limit| *limit > 0))
        .projection(event_doc::exact_fields())
        .build()
}
