//! The layout of an event in the journal.
//!
//! An item starts with its length, a checksum of what follows, and its kind. An event's header has a fixed layout, so its
//! identity can be checked without reading the rest, and its texts follow as the producer sent them, so that reading one is
//! a slice.

use crate::journal::position::PartitionRef;
use bytes::Bytes;
use bytestring::ByteString;
use prombus_core::{CommitError, Event, Json, NewEvent, Offset, Partition, TopicName, publish_digest};
use std::io;
use uuid::Uuid;

/// Length, checksum and kind: what every item starts with.
pub const ITEM_HEAD: usize = 9;
/// The kind of an event.
pub const EVENT: u8 = 1;
/// The kind of what is left of an event that was given up, as long as its id must be recognised.
pub const GONE: u8 = 18;
/// The fixed part of an event.
pub const EVENT_HEAD: usize = 64;
/// Maximum length of an item: a longer one is never written, so it is damage, and not worth the memory.
pub const MAX_ITEM: usize = 64 << 20;

const HAS_KEY: u8 = 1;
const HUB_ID: u8 = 2;
const HAS_SID: u8 = 4;
const HAS_HEADERS: u8 = 8;
const HAS_CAUSED_BY: u8 = 16;
const HAS_TAGS: u8 = 32;

/// What the engine decides about an event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EventHead {
    /// Where it belongs.
    pub partition: PartitionRef,
    /// Its offset there.
    pub offset: u64,
    /// Its id.
    pub id: Uuid,
    /// Whether the engine made the id.
    pub hub_id: bool,
    /// Event time.
    pub ts: u64,
    /// Its recorded time.
    pub recorded_ts: u64,
}

/// An item exceeds the maximum length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an item of {bytes} bytes exceeds the {limit} that the journal accepts")]
pub struct TooLong {
    /// Its length.
    pub bytes: usize,
    /// The maximum.
    pub limit: usize,
}

impl From<TooLong> for CommitError {
    fn from(TooLong { bytes, limit }: TooLong) -> Self {
        Self::TooLarge { bytes, limit }
    }
}

impl From<TooLong> for io::Error {
    fn from(error: TooLong) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

/// The length of a text in an item. One that does not fit is in an item that is refused as a whole.
pub fn text_len(text: &[u8]) -> [u8; 4] {
    u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes()
}

/// Appends an item of `kind` whose content `fill` writes. After an error, what is behind the last item means nothing.
pub fn write_item(out: &mut Vec<u8>, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), TooLong> {
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    out.push(kind);
    fill(out);
    let bytes = out.len() - start;
    let too_long = TooLong { bytes, limit: MAX_ITEM };
    let len = u32::try_from(bytes).ok().filter(|_| bytes <= MAX_ITEM).ok_or(too_long)?;
    let crc = crc32fast::hash(&out[start + 8..]);
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    Ok(())
}

/// Appends an event. After an error, what is behind the last item means nothing.
pub fn write_event(out: &mut Vec<u8>, head: &EventHead, event: &NewEvent) -> Result<(), TooLong> {
    let extras = [
        (HAS_SID, &event.sid),
        (HAS_HEADERS, &event.headers),
        (HAS_CAUSED_BY, &event.caused_by),
        (HAS_TAGS, &event.tags),
    ];
    let mut flags = 0;
    if event.key.is_some() {
        flags |= HAS_KEY;
    }
    for (flag, extra) in &extras {
        if extra.is_some() {
            flags |= flag;
        }
    }
    let key = event.key.as_deref().unwrap_or_default();
    let too_long = |_| TooLong { bytes: key.len(), limit: usize::from(u16::MAX) };
    let key_len = u16::try_from(key.len()).map_err(too_long)?;
    write_item(out, EVENT, |out| {
        let payload_len = u32::from_le_bytes(text_len(event.payload.as_bytes()));
        out.extend_from_slice(&fixed(head, (flags, key_len), payload_len));
        for (_, extra) in &extras {
            if let Some(extra) = extra {
                out.extend_from_slice(&text_len(extra.as_bytes()));
            }
        }
        out.extend_from_slice(key.as_bytes());
        for (_, extra) in &extras {
            if let Some(extra) = extra {
                out.extend_from_slice(extra.as_bytes());
            }
        }
        out.extend_from_slice(event.payload.as_bytes());
    })
}

/// Appends what is left of an event: its head, and a digest of its key and payload.
pub fn write_gone(out: &mut Vec<u8>, event: &[u8]) -> Result<(), TooLong> {
    let fixed = event.get(ITEM_HEAD..EVENT_HEAD).unwrap_or_default();
    let text = |at: usize, len: usize| event.get(at..at + len).unwrap_or_default();
    let key = event_key(event);
    let payload_len = number(event, 20).map_or(0, u32::from_le_bytes) as usize;
    let payload = text(event.len().saturating_sub(payload_len), payload_len);
    write_item(out, GONE, |out| {
        out.extend_from_slice(fixed);
        out.extend_from_slice(&publish_digest(key, payload).to_le_bytes());
    })
}

/// Appends the same of an event that another store gave up.
pub fn write_known(out: &mut Vec<u8>, head: &EventHead, digest: u128) -> Result<(), TooLong> {
    write_item(out, GONE, |out| {
        out.extend_from_slice(&fixed(head, (0, 0), 0));
        out.extend_from_slice(&digest.to_le_bytes());
    })
}

/// The digest in what is left of an event.
pub fn gone_digest(gone: &[u8]) -> Option<u128> {
    Some(u128::from_le_bytes(gone.get(EVENT_HEAD..)?.try_into().ok()?))
}

/// The fixed part of an event, with its flags, the length of its key and that of its payload.
fn fixed(head: &EventHead, (flags, key_len): (u8, u16), payload_len: u32) -> [u8; EVENT_HEAD - ITEM_HEAD] {
    let mut fixed = [0u8; EVENT_HEAD - ITEM_HEAD];
    fixed[0] = flags | if head.hub_id { HUB_ID } else { 0 };
    fixed[1..3].copy_from_slice(&key_len.to_le_bytes());
    fixed[3..7].copy_from_slice(&head.partition.topic.to_le_bytes());
    fixed[7..11].copy_from_slice(&head.partition.partition.to_le_bytes());
    fixed[11..15].copy_from_slice(&payload_len.to_le_bytes());
    fixed[15..23].copy_from_slice(&head.offset.to_le_bytes());
    fixed[23..31].copy_from_slice(&head.ts.to_le_bytes());
    fixed[31..39].copy_from_slice(&head.recorded_ts.to_le_bytes());
    fixed[39..55].copy_from_slice(head.id.as_bytes());
    fixed
}

/// Whether `new` is the same publish again as the event that left this item.
pub fn is_repeated(gone: &[u8], new: &NewEvent) -> bool {
    gone_digest(gone) == Some(new.digest())
}

/// The length that an item claims to have; at least its head.
pub fn item_len(bytes: &[u8]) -> Option<usize> {
    let len = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    (len >= ITEM_HEAD).then_some(len)
}

/// The item at the start of `bytes`: its kind and content, if it is whole and its checksum right.
pub fn item(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let item = bytes.get(..item_len(bytes)?)?;
    let crc = u32::from_le_bytes(item[4..8].try_into().ok()?);
    (crc32fast::hash(&item[8..]) == crc).then(|| (item[8], &item[ITEM_HEAD..]))
}

/// The item at the start of `bytes`, whose checksum was verified with its batch.
pub fn verified_item(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let item = bytes.get(..item_len(bytes)?)?;
    Some((item[8], &item[ITEM_HEAD..]))
}

fn number<const N: usize>(item: &[u8], at: usize) -> Option<[u8; N]> {
    item.get(at..at + N)?.try_into().ok()
}

/// The head of an event item, or of what is left of one. The caller has checked the item.
pub fn event_head(item: &[u8]) -> Option<EventHead> {
    if item.len() < EVENT_HEAD || !matches!(item[8], EVENT | GONE) {
        return None;
    }
    Some(EventHead {
        partition: PartitionRef {
            topic: u32::from_le_bytes(number(item, 12)?),
            partition: u32::from_le_bytes(number(item, 16)?),
        },
        offset: u64::from_le_bytes(number(item, 24)?),
        ts: u64::from_le_bytes(number(item, 32)?),
        recorded_ts: u64::from_le_bytes(number(item, 40)?),
        id: Uuid::from_bytes(number(item, 48)?),
        hub_id: item[9] & HUB_ID != 0,
    })
}

/// What the event counts for, as [`Event::size`] says.
pub fn event_size(item: &[u8]) -> u64 {
    let flags = item.get(9).copied().unwrap_or_default();
    item.len().saturating_sub(4 * extras(flags)) as u64
}

/// How many texts there are beside key and payload.
fn extras(flags: u8) -> usize {
    (flags & (HAS_SID | HAS_HEADERS | HAS_CAUSED_BY | HAS_TAGS)).count_ones() as usize
}

/// The key of an event item, as bytes.
pub fn event_key(item: &[u8]) -> Option<&[u8]> {
    let flags = *item.get(9)?;
    if flags & HAS_KEY == 0 || item[8] != EVENT {
        return None;
    }
    let len = u16::from_le_bytes(number(item, 10)?) as usize;
    let start = EVENT_HEAD + 4 * extras(flags);
    item.get(start..start + len)
}

/// The event of an item, sharing its memory. The caller has checked the item.
pub fn event(item: &Bytes, topic: TopicName) -> Option<Event> {
    let head = event_head(item).filter(|_| item[8] == EVENT)?;
    let flags = item[9];
    let key_len = u16::from_le_bytes(number(item, 10)?) as usize;
    let payload_len = u32::from_le_bytes(number(item, 20)?) as usize;
    let mut lengths = EVENT_HEAD;
    let mut extra_lens = [None; 4];
    for (len, flag) in extra_lens.iter_mut().zip([HAS_SID, HAS_HEADERS, HAS_CAUSED_BY, HAS_TAGS]) {
        if flags & flag != 0 {
            *len = Some(u32::from_le_bytes(number(item, lengths)?) as usize);
            lengths += 4;
        }
    }
    let mut at = lengths;
    let mut take = |len: usize| {
        let end = at.checked_add(len).filter(|end| *end <= item.len())?;
        let slice = item.slice(at..end);
        at = end;
        Some(slice)
    };
    let key = take(key_len)?;
    let key = if flags & HAS_KEY != 0 { Some(ByteString::try_from(key).ok()?) } else { None };
    let mut extras = [None, None, None, None];
    for (extra, len) in extras.iter_mut().zip(extra_lens) {
        if let Some(len) = len {
            *extra = Some(Box::new(Json::from_stored(take(len)?)));
        }
    }
    let [sid, headers, caused_by, tags] = extras;
    let payload = Json::from_stored(take(payload_len)?);
    Some(Event {
        id: head.id,
        ts: head.ts,
        recorded_ts: head.recorded_ts,
        topic,
        key,
        partition: Partition(head.partition.partition),
        offset: Offset(head.offset),
        sid,
        headers,
        payload,
        caused_by,
        tags,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(extras: u8, key: Option<String>) -> (EventHead, NewEvent) {
        let json = |text: &str| Json::parse(text.to_owned().into()).unwrap();
        let head = EventHead {
            partition: PartitionRef { topic: 7, partition: 3 },
            offset: u64::MAX - 1,
            id: Uuid::from_u128(99),
            hub_id: extras & 1 != 0,
            ts: 12,
            recorded_ts: 13,
        };
        let event = NewEvent {
            key: key.map(Into::into),
            sid: (extras & 1 != 0).then(|| json("\"s\"").into()),
            headers: (extras & 2 != 0).then(|| json(r#"{"x-a":"b"}"#).into()),
            caused_by: (extras & 4 != 0).then(|| json(r#"["c"]"#).into()),
            tags: (extras & 8 != 0).then(|| json("[]").into()),
            ..NewEvent::new(json(r#"{"n":1.10}"#))
        };
        (head, event)
    }

    #[test]
    fn what_the_journal_cannot_say_is_refused() {
        let (head, mut new) = sample(0, Some("k".repeat(usize::from(u16::MAX))));
        write_event(&mut Vec::new(), &head, &new).unwrap();
        new.key = Some("k".repeat(usize::from(u16::MAX) + 1).into());
        let refused = write_event(&mut Vec::new(), &head, &new).unwrap_err();
        assert_eq!(refused, TooLong { bytes: 1 << 16, limit: usize::from(u16::MAX) });
        let mut out = Vec::new();
        write_item(&mut out, EVENT, |out| out.resize(MAX_ITEM, 0)).unwrap();
        assert_eq!(item_len(&out), Some(MAX_ITEM));
        let refused = write_item(&mut Vec::new(), EVENT, |out| out.resize(MAX_ITEM + 1, 0));
        assert_eq!(refused, Err(TooLong { bytes: MAX_ITEM + 1, limit: MAX_ITEM }));
    }

    proptest! {
        #[test]
        fn events_come_back_as_they_went(extras in 0u8..16, key in prop::option::of(".{0,40}")) {
            let (head, new) = sample(extras, key);
            let mut out = vec![1, 2, 3];
            write_event(&mut out, &head, &new).unwrap();
            let bytes = Bytes::from(out).slice(3..);
            let (kind, _) = item(&bytes).unwrap();
            prop_assert_eq!(kind, EVENT);
            prop_assert_eq!(event_head(&bytes).unwrap(), head);
            prop_assert_eq!(event_key(&bytes), new.key.as_ref().map(|key| &key.as_bytes()[..]));
            let back = event(&bytes, TopicName::parse("t").unwrap()).unwrap();
            prop_assert_eq!((event_size(&bytes), new.size()), (back.size() as u64, back.size()));
            prop_assert_eq!(&back.key, &new.key);
            prop_assert_eq!(&back.payload, &new.payload);
            prop_assert_eq!((&back.sid, &back.headers, &back.caused_by, &back.tags), (&new.sid, &new.headers, &new.caused_by, &new.tags));
        }

        #[test]
        fn what_is_left_recognises_the_same_publish(extras in 0u8..16, key in prop::option::of(".{0,40}")) {
            let (head, new) = sample(extras, key);
            let mut event = Vec::new();
            write_event(&mut event, &head, &new).unwrap();
            let mut gone = Vec::new();
            write_gone(&mut gone, &event).unwrap();
            prop_assert_eq!(item(&gone).unwrap().0, GONE);
            prop_assert_eq!(event_head(&gone), Some(head));
            prop_assert!(is_repeated(&gone, &new));
            prop_assert_eq!((event_key(&gone), super::event(&gone.clone().into(), TopicName::parse("t").unwrap())), (None, None));
            let other = NewEvent { key: Some("another".into()), ..new.clone() };
            prop_assert!(!is_repeated(&gone, &other));
            let payload = Json::parse("{}".to_owned().into()).unwrap();
            let other = NewEvent { payload, ..new };
            prop_assert!(!is_repeated(&gone, &other));
        }

        #[test]
        fn a_flipped_bit_is_found(bit in 0usize..8 * 100) {
            let (head, new) = sample(15, Some("key".into()));
            let mut out = Vec::new();
            write_event(&mut out, &head, &new).unwrap();
            let bit = bit % (out.len() * 8);
            out[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(item(&out).is_none());
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = item(&bytes);
            let _ = event_key(&bytes);
            let _ = event(&Bytes::from(bytes), TopicName::parse("t").unwrap());
        }
    }
}
