//! The encoding of state changes in the journal and in checkpoints.

use crate::journal::part_set::PartSet;
use crate::journal::position::{PartitionRef, Pos};
use crate::journal::record::{TooLong, text_len, write_item};
use crate::state::view::{Change, Counters, IndexChange, PartitionExtent};
use bytes::Bytes;
use prombus_core::collection::{CollectionConfig, IndexState, Progress};
use prombus_core::{
    Bounds, CollectionState, Cursor, CursorKey, Document, Epoch, Json, Offset, Offsets, Partition, TopicName,
    TopicNumber, TopicState,
};
use std::sync::Arc;
use uuid::Uuid;

const TOPIC: u8 = 2;
const TOPIC_GONE: u8 = 3;
const EXTENT: u8 = 4;
const DOCUMENT: u8 = 5;
const DOCUMENT_GONE: u8 = 6;
const CURSOR: u8 = 7;
const CURSOR_GONE: u8 = 8;
const COUNTERS: u8 = 9;
const COLLECTION: u8 = 10;
const COLLECTION_GONE: u8 = 11;
const COLLECTION_SWAP: u8 = 12;
const REVISED_DOCUMENT: u8 = 13;
const TABLES: u8 = 14;
const INDEX: u8 = 15;
const KEPT_EXTENT: u8 = 16;
const HOLES: u8 = 17;
const PARTS: u8 = 19;
const FORGET: u8 = 20;
const ERASED: u8 = 21;

/// Appends a change as an item. After an error, the bytes after the last item are meaningless.
pub fn write(out: &mut Vec<u8>, change: &Change) -> Result<(), TooLong> {
    match change {
        Change::Topic(state) => write_item(out, TOPIC, |out| {
            number(out, u64::from(state.number.0));
            number(out, state.revision);
            text(out, state.name.as_str().as_bytes());
            text(out, &serde_json::to_vec(&state.config).unwrap_or_default());
            for ends in &state.growths {
                number(out, ends.len() as u64);
                ends.iter().for_each(|end| number(out, end.0));
            }
        }),
        Change::TopicGone(name) => write_item(out, TOPIC_GONE, |out| text(out, name.as_str().as_bytes())),
        Change::Extent(partition, extent) => write_item(out, KEPT_EXTENT, |out| {
            partition_ref(out, *partition);
            for value in
                [extent.first, extent.next, extent.bytes, extent.horizon_ts, u64::from(extent.has_holes)]
            {
                number(out, value);
            }
        }),
        Change::EarlyExtent(partition, Bounds { first, next }) => write_item(out, EXTENT, |out| {
            partition_ref(out, *partition);
            number(out, first.0);
            number(out, next.0);
        }),
        Change::Holes(partition, offsets) => write_item(out, HOLES, |out| {
            partition_ref(out, *partition);
            text(out, &offsets.to_bytes());
        }),
        Change::Collection(state) => write_item(out, COLLECTION, |out| {
            number(out, u64::from(state.number));
            number(out, state.revision);
            text(out, state.name.as_bytes());
            text(out, &serde_json::to_vec(&*state.config).unwrap_or_default());
            number(out, state.documents);
            number(out, state.bytes);
            // As early builds wrote it, where there is no more to say.
            if state.indexes.iter().any(|index| index.number > 0 || !index.is_ready()) {
                let indexes: Vec<_> = state.indexes.iter().map(|i| (i.number, &i.progress)).collect();
                text(out, &serde_json::to_vec(&indexes).unwrap_or_default());
            }
        }),
        Change::Index(change) => write_item(out, INDEX, |out| {
            text(out, change.collection.as_bytes());
            number(out, change.index as u64);
            text(out, &serde_json::to_vec(&change.progress).unwrap_or_default());
        }),
        Change::CollectionGone(name) => write_item(out, COLLECTION_GONE, |out| text(out, name.as_bytes())),
        Change::CollectionSwap(from, to) => write_item(out, COLLECTION_SWAP, |out| {
            text(out, from.as_bytes());
            text(out, to.as_bytes());
        }),
        Change::Document(collection, document) => {
            let kind = if document.revision.is_some() { REVISED_DOCUMENT } else { DOCUMENT };
            write_item(out, kind, |out| {
                text(out, collection.as_bytes());
                text(out, document.key.as_bytes());
                number(out, document.version);
                number(out, document.ts);
                document.revision.into_iter().for_each(|revision| number(out, revision as u64));
                text(out, document.body.as_bytes());
            })
        }
        Change::DocumentGone(collection, key) => write_item(out, DOCUMENT_GONE, |out| {
            text(out, collection.as_bytes());
            text(out, key.as_bytes());
        }),
        Change::Cursor(key, cursor) => write_item(out, CURSOR, |out| {
            cursor_key(out, key);
            number(out, cursor.version);
            number(out, cursor.epoch.0);
            number(out, cursor.next.0);
            text(out, &cursor.detail);
        }),
        Change::CursorGone(key) => write_item(out, CURSOR_GONE, |out| cursor_key(out, key)),
        Change::Tables(tables) => write_item(out, TABLES, |out| {
            tables.iter().for_each(|table| number(out, *table));
        }),
        Change::Parts(parts) => write_item(out, PARTS, |out| {
            number(out, u64::from(parts.first()));
            for (part, rewrite) in parts.changed() {
                number(out, u64::from(part));
                number(out, rewrite.map_or(u64::MAX, u64::from));
            }
        }),
        Change::Forget { topic, key, sequence } => write_item(out, FORGET, |out| {
            number(out, u64::from(*topic));
            number(out, *sequence);
            text(out, key.as_bytes());
        }),
        Change::Erased(sequence) => write_item(out, ERASED, |out| number(out, *sequence)),
        Change::Counters(counters) => write_item(out, COUNTERS, |out| {
            number(out, counters.sequence);
            number(out, counters.end.pack());
            number(out, u64::from(counters.next_topic));
            number(out, counters.last_recorded_ts);
            out.extend_from_slice(counters.last_hub_id.as_bytes());
            number(out, counters.epoch);
            counters.next_collection.into_iter().for_each(|next| number(out, u64::from(next)));
        }),
    }
}

/// The change in an item of `kind`; `None` if it is invalid.
pub fn parse(kind: u8, content: &[u8]) -> Option<Change> {
    let mut rest = Reader(content);
    let change = match kind {
        TOPIC => {
            let number = TopicNumber(rest.number()?.try_into().ok()?);
            let revision = rest.number()?;
            let name = TopicName::parse(rest.string()?).ok()?;
            let config = serde_json::from_slice(rest.text()?).ok()?;
            let mut growths: Vec<Arc<[Offset]>> = Vec::new();
            // Topics that never grew, and those that were written before growth was noted, end here.
            while !rest.0.is_empty() {
                let partitions = rest.number()?;
                growths.push((0..partitions).map(|_| rest.number().map(Offset)).collect::<Option<_>>()?);
            }
            Change::Topic(TopicState { name, number, revision, config, growths })
        }
        TOPIC_GONE => Change::TopicGone(TopicName::parse(rest.string()?).ok()?),
        EXTENT => {
            let partition = rest.partition_ref()?;
            let (first, next) = (Offset(rest.number()?), Offset(rest.number()?));
            Change::EarlyExtent(partition, Bounds { first, next })
        }
        KEPT_EXTENT => {
            let partition = rest.partition_ref()?;
            let (first, next, bytes) = (rest.number()?, rest.number()?, rest.number()?);
            let (horizon_ts, has_holes) = (rest.number()?, rest.number()? != 0);
            Change::Extent(partition, PartitionExtent { first, next, bytes, horizon_ts, has_holes })
        }
        HOLES => Change::Holes(rest.partition_ref()?, Offsets::from_bytes(rest.text()?).ok()?),
        COLLECTION => {
            let (number, revision) = (rest.number()?.try_into().ok()?, rest.number()?);
            let name = rest.string()?.into();
            let config: CollectionConfig = serde_json::from_slice(rest.text()?).ok()?;
            let (documents, bytes) = (rest.number()?, rest.number()?);
            let mut state = CollectionState::new(name, number, config);
            if !rest.0.is_empty() {
                state.indexes = indexes(&state, rest.text()?)?;
            }
            Change::Collection(CollectionState { revision, documents, bytes, ..state })
        }
        INDEX => {
            let (collection, index) = (rest.string()?.into(), rest.number()?.try_into().ok()?);
            let progress = serde_json::from_slice(rest.text()?).ok()?;
            Change::Index(IndexChange { collection, index, progress })
        }
        COLLECTION_GONE => Change::CollectionGone(rest.string()?.into()),
        COLLECTION_SWAP => Change::CollectionSwap(rest.string()?.into(), rest.string()?.into()),
        DOCUMENT | REVISED_DOCUMENT => {
            let collection = rest.string()?.into();
            let (key, version, ts) = (rest.string()?.to_owned(), rest.number()?, rest.number()?);
            let revision = if kind == DOCUMENT { None } else { Some(rest.number()? as i64) };
            let body = Json::from_stored(Bytes::copy_from_slice(rest.text()?));
            Change::Document(collection, Document::new(key, version, revision, ts, body))
        }
        DOCUMENT_GONE => Change::DocumentGone(rest.string()?.into(), rest.string()?.to_owned()),
        CURSOR => {
            let key = rest.cursor_key()?;
            let (version, epoch, next) = (rest.number()?, Epoch(rest.number()?), Offset(rest.number()?));
            Change::Cursor(key, Cursor { version, epoch, next, detail: Bytes::copy_from_slice(rest.text()?) })
        }
        CURSOR_GONE => Change::CursorGone(rest.cursor_key()?),
        TABLES => {
            let tables = (0..content.len() / size_of::<u64>()).map(|_| rest.number());
            Change::Tables(tables.collect::<Option<_>>()?)
        }
        PARTS => {
            let first = rest.number()?.try_into().ok()?;
            let mut changed = Vec::new();
            while !rest.0.is_empty() {
                let part = rest.number()?.try_into().ok()?;
                let rewrite = match rest.number()? {
                    u64::MAX => None,
                    rewrite => Some(rewrite.try_into().ok()?),
                };
                changed.push((part, rewrite));
            }
            Change::Parts(PartSet::new(first, changed))
        }
        FORGET => {
            let (topic, sequence) = (rest.number()?.try_into().ok()?, rest.number()?);
            Change::Forget { topic, key: rest.string()?.into(), sequence }
        }
        ERASED => Change::Erased(rest.number()?),
        COUNTERS => Change::Counters(Counters {
            sequence: rest.number()?,
            end: Pos::unpack(rest.number()?),
            next_topic: rest.number()?.try_into().ok()?,
            last_recorded_ts: rest.number()?,
            last_hub_id: Uuid::from_slice(rest.take(16)?).ok()?,
            epoch: rest.number()?,
            next_collection: match rest.0.is_empty() {
                true => None,
                false => Some(rest.number()?.try_into().ok()?),
            },
        }),
        _ => return None,
    };
    rest.0.is_empty().then_some(change)
}

/// The indexes of a collection as `text` says that they are.
fn indexes(state: &CollectionState, text: &[u8]) -> Option<Arc<[IndexState]>> {
    let known: Vec<(u64, Progress)> = serde_json::from_slice(text).ok()?;
    let of = |(index, (number, progress)): (&IndexState, _)| IndexState { number, progress, ..index.clone() };
    (known.len() == state.indexes.len()).then(|| state.indexes.iter().zip(known).map(of).collect())
}

fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&text_len(text));
    out.extend_from_slice(text);
}

fn cursor_key(out: &mut Vec<u8>, key: &CursorKey) {
    text(out, key.topic.as_str().as_bytes());
    text(out, key.reader.as_bytes());
    number(out, u64::from(key.partition.0));
}

fn partition_ref(out: &mut Vec<u8>, partition: PartitionRef) {
    number(out, u64::from(partition.topic));
    number(out, u64::from(partition.partition));
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = u32::from_le_bytes(self.take(4)?.try_into().ok()?);
        self.take(len as usize)
    }

    fn string(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.text()?).ok()
    }

    fn partition_ref(&mut self) -> Option<PartitionRef> {
        let (topic, partition) = (self.number()?.try_into().ok()?, self.number()?.try_into().ok()?);
        Some(PartitionRef { topic, partition })
    }

    fn cursor_key(&mut self) -> Option<CursorKey> {
        let topic = TopicName::parse(self.string()?).ok()?;
        let reader = self.string()?.to_owned();
        Some(CursorKey { topic, reader, partition: Partition(self.number()?.try_into().ok()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::record::item;
    use prombus_core::collection::{Index, IndexFailure};
    use prombus_core::{FieldPath, Owner, TopicConfig};
    use proptest::prelude::*;

    #[test]
    fn changes_come_back_as_they_went() {
        let name = TopicName::parse("a.b").unwrap();
        let key = CursorKey { topic: name.clone(), reader: "g ö".into(), partition: Partition(3) };
        let body = Json::parse(Bytes::from_static(b"{\"a\":1}")).unwrap();
        let state = TopicState {
            name: name.clone(),
            number: TopicNumber(4),
            revision: 5,
            config: TopicConfig::default(),
            growths: vec![[Offset(3)].into(), [Offset(4), Offset(0)].into()],
        };
        let config = CollectionConfig {
            owner: Owner::projection("p"),
            indexes: vec![Index { fields: vec![FieldPath::parse("a.b").unwrap()], unique: true }],
            changefeed: Some(name.clone()),
        };
        let collection =
            CollectionState { documents: 3, bytes: 4, ..CollectionState::new("c".into(), 5, config) };
        let of = |progress| IndexChange { collection: "c".into(), index: 3, progress };
        let building = Progress::Building { done: 2, of: 3, after: Some("ö".into()) };
        let failed = Progress::Failed(IndexFailure::SameValues { keys: ["a".into(), "b".into()] });
        let too_long = Progress::Failed(IndexFailure::TooLong { key: "a".into(), bytes: 5_000 });
        let cursor =
            Cursor { version: 1, epoch: Epoch(2), next: Offset(3), detail: Bytes::from_static(b"\0\xff") };
        let changes = [
            Change::Topic(state),
            Change::TopicGone(name),
            Change::Extent(
                PartitionRef { topic: 1, partition: 2 },
                PartitionExtent { first: 3, next: 4, bytes: 5, horizon_ts: 6, has_holes: true },
            ),
            Change::EarlyExtent(
                PartitionRef { topic: 1, partition: 2 },
                Bounds { first: Offset(3), next: Offset(4) },
            ),
            Change::Holes(PartitionRef { topic: 1, partition: 2 }, [3, 9].map(Offset).into_iter().collect()),
            Change::Collection(collection.with_progress(0, building.clone())),
            Change::Collection(collection.with_progress(0, failed.clone())),
            Change::Collection(collection.with_settings(CollectionConfig::default())),
            Change::Collection(collection),
            Change::Index(of(Progress::Ready)),
            Change::Index(of(building)),
            Change::Index(of(failed)),
            Change::Index(of(too_long)),
            Change::CollectionGone("c".into()),
            Change::CollectionSwap("c~1".into(), "c".into()),
            Change::Document("c".into(), Document::new("k".into(), 1, None, 2, body.clone())),
            Change::Document("c".into(), Document::new("k".into(), 1, Some(-7), 2, body)),
            Change::DocumentGone("c".into(), "k".into()),
            Change::Cursor(key.clone(), cursor),
            Change::CursorGone(key),
            Change::Tables(Vec::new()),
            Change::Parts(PartSet::default()),
            Change::Parts(PartSet::new(3, [(4, None), (5, Some(2))])),
            Change::Forget { topic: 3, key: "ö".into(), sequence: 9 },
            Change::Erased(9),
            Change::Tables(vec![3, 1, u64::MAX]),
            Change::Counters(Counters {
                next_collection: None,
                sequence: 1,
                end: Pos { part: 2, at: 3 },
                next_topic: 4,
                last_recorded_ts: 5,
                last_hub_id: Uuid::from_u128(6),
                epoch: 7,
            }),
            Change::Counters(Counters {
                next_collection: Some(8),
                sequence: 1,
                end: Pos { part: 2, at: 3 },
                next_topic: 4,
                last_recorded_ts: 5,
                last_hub_id: Uuid::from_u128(6),
                epoch: 7,
            }),
        ];
        for change in changes {
            let mut out = Vec::new();
            write(&mut out, &change).unwrap();
            let (kind, content) = item(&out).unwrap();
            assert_eq!(parse(kind, content), Some(change));
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(kind: u8, content in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(kind, &content);
        }
    }
}
