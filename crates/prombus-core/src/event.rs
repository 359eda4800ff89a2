//! Events: as a producer brings them, and as they are once committed.

use crate::commit::Appended;
use crate::json::{self, Json};
use crate::position::{Offset, Partition};
use crate::topic::TopicName;
use bytestring::ByteString;
use std::borrow::Cow;
use uuid::Uuid;

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;
/// The most that an event's headers may take, in bytes of JSON.
pub const MAX_HEADER_BYTES: usize = 16 * 1024;
/// What an event costs beside its texts, when sizes are compared with limits.
const FIXED_BYTES: usize = 64;

/// An event on its way in. What is `None` was not given.
///
/// What few events have is boxed, here and in [`Event`]: lists of events are moved about a lot.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// The producer's own id; the store makes one where there is none.
    pub id: Option<Uuid>,
    /// Event time in epoch milliseconds; the store's clock where there is none.
    pub ts: Option<u64>,
    /// What compaction, partitioning and order per key go by.
    pub key: Option<ByteString>,
    /// A session or correlation id, carried as given (a JSON string).
    pub sid: Option<Box<Json>>,
    /// A JSON object of strings.
    pub headers: Option<Box<Json>>,
    /// Any JSON.
    pub payload: Json,
    /// A JSON array of strings.
    pub caused_by: Option<Box<Json>>,
    /// A JSON array of strings.
    pub tags: Option<Box<Json>>,
}

impl NewEvent {
    /// An event with a payload and nothing else.
    pub fn new(payload: Json) -> Self {
        Self { id: None, ts: None, key: None, sid: None, headers: None, payload, caused_by: None, tags: None }
    }

    /// The size that limits go by.
    pub fn size(&self) -> usize {
        let optional = |json: &Option<Box<Json>>| json.as_deref().map_or(0, Json::len);
        FIXED_BYTES
            + self.key.as_ref().map_or(0, |key| key.len())
            + self.payload.len()
            + optional(&self.sid)
            + optional(&self.headers)
            + optional(&self.caused_by)
            + optional(&self.tags)
    }

    /// The event as it is in its topic.
    pub fn appended(&self, topic: &TopicName, at: Appended, recorded_ts: u64) -> Event {
        Event {
            id: at.id,
            ts: at.ts,
            recorded_ts,
            topic: topic.clone(),
            key: self.key.clone(),
            partition: at.partition,
            offset: at.offset,
            sid: self.sid.clone(),
            headers: self.headers.clone(),
            payload: self.payload.clone(),
            caused_by: self.caused_by.clone(),
            tags: self.tags.clone(),
        }
    }
}

/// What is wrong with an event that a producer brought.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEvent {
    /// The key is too long.
    #[error("the key is {0} bytes long; {MAX_KEY_BYTES} are allowed")]
    LongKey(usize),
    /// `headers` is not an object of strings.
    #[error("headers must be an object whose values are strings, each name once")]
    Headers,
    /// A header has a name that is not allowed.
    #[error("{0:?} is not a header name; use x-<a-z, 0-9, ->, content-type, traceparent or tracestate")]
    HeaderName(String),
    /// The headers are too long.
    #[error("the headers take {0} bytes; {MAX_HEADER_BYTES} are allowed")]
    LongHeaders(usize),
    /// `sid` is not a string.
    #[error("sid must be a string")]
    Sid,
    /// `tags` or `caused_by` is not an array of strings.
    #[error("{0} must be an array of strings")]
    NotStrings(&'static str),
}

impl NewEvent {
    /// Checks everything that is not a matter of the topic or of configured limits.
    pub fn check(&self) -> Result<(), BadEvent> {
        if let Some(key) = &self.key
            && key.len() > MAX_KEY_BYTES
        {
            return Err(BadEvent::LongKey(key.len()));
        }
        if let Some(headers) = &self.headers {
            check_headers(headers)?;
        }
        if let Some(sid) = &self.sid
            && serde_json::from_slice::<Cow<'_, str>>(sid.as_bytes()).is_err()
        {
            return Err(BadEvent::Sid);
        }
        for (name, list) in [("tags", &self.tags), ("caused_by", &self.caused_by)] {
            if let Some(list) = list
                && serde_json::from_slice::<Vec<Cow<'_, str>>>(list.as_bytes()).is_err()
            {
                return Err(BadEvent::NotStrings(name));
            }
        }
        Ok(())
    }
}

fn check_headers(headers: &Json) -> Result<(), BadEvent> {
    if headers.len() > MAX_HEADER_BYTES {
        return Err(BadEvent::LongHeaders(headers.len()));
    }
    let names = serde_json::from_slice::<HeaderNames>(headers.as_bytes()).map_err(|_| BadEvent::Headers)?.0;
    match names.into_iter().find(|name| !is_header_name(name)) {
        Some(bad) => Err(BadEvent::HeaderName(bad)),
        None => Ok(()),
    }
}

fn is_header_name(name: &str) -> bool {
    let custom = |rest: &str| {
        !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    matches!(name, "content-type" | "traceparent" | "tracestate")
        || name.strip_prefix("x-").is_some_and(custom)
}

/// The names of an object of strings; a name that comes twice is an error.
struct HeaderNames(Vec<String>);

impl<'de> serde::Deserialize<'de> for HeaderNames {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = HeaderNames;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<HeaderNames, A::Error> {
                let mut names: Vec<String> = Vec::new();
                while let Some((name, _)) = map.next_entry::<String, Cow<'_, str>>()? {
                    if names.contains(&name) {
                        return Err(serde::de::Error::custom("a name appears twice"));
                    }
                    names.push(name);
                }
                Ok(HeaderNames(names))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

/// An event that was committed. Cloning shares its texts.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Unique within the topic (and everywhere, where the hub made it).
    pub id: Uuid,
    /// Event time in epoch milliseconds.
    pub ts: u64,
    /// When the store took it; never decreasing within a partition.
    pub recorded_ts: u64,
    /// Its topic.
    pub topic: TopicName,
    /// Its key.
    pub key: Option<ByteString>,
    /// Its partition.
    pub partition: Partition,
    /// Its place in the partition.
    pub offset: Offset,
    /// A JSON string.
    pub sid: Option<Box<Json>>,
    /// A JSON object of strings.
    pub headers: Option<Box<Json>>,
    /// Any JSON; `null` makes it a tombstone.
    pub payload: Json,
    /// A JSON array of strings.
    pub caused_by: Option<Box<Json>>,
    /// A JSON array of strings.
    pub tags: Option<Box<Json>>,
}

impl Event {
    /// What its texts take.
    pub fn text_bytes(&self) -> usize {
        let optional = |json: &Option<Box<Json>>| json.as_deref().map_or(0, Json::len);
        self.key.as_ref().map_or(0, |key| key.len())
            + self.payload.len()
            + optional(&self.sid)
            + optional(&self.headers)
            + optional(&self.caused_by)
            + optional(&self.tags)
    }

    /// What it counts for where kept events are counted: as much as [`NewEvent::size`] did.
    pub fn size(&self) -> usize {
        FIXED_BYTES + self.text_bytes()
    }

    /// The event with memory of its own: one small event must not keep the page that it was read with, or the request that
    /// it came in.
    pub fn detached(self) -> Self {
        let own = |json: Json| Json::from_stored(bytes::Bytes::copy_from_slice(json.as_bytes()));
        let own_boxed = |json: Option<Box<Json>>| json.map(|json| Box::new(own(*json)));
        Self {
            key: self.key.map(|key| key.to_string().into()),
            sid: own_boxed(self.sid),
            headers: own_boxed(self.headers),
            payload: own(self.payload),
            caused_by: own_boxed(self.caused_by),
            tags: own_boxed(self.tags),
            ..self
        }
    }

    /// Appends the event to `out` as users see it: one line of JSON, absent fields left out.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        let mut number = itoa::Buffer::new();
        out.extend_from_slice(b"{\"id\":\"");
        out.extend_from_slice(self.id.hyphenated().encode_lower(&mut Uuid::encode_buffer()).as_bytes());
        out.extend_from_slice(b"\",\"ts\":");
        out.extend_from_slice(number.format(self.ts).as_bytes());
        if self.recorded_ts != self.ts {
            out.extend_from_slice(b",\"recorded_ts\":");
            out.extend_from_slice(number.format(self.recorded_ts).as_bytes());
        }
        out.extend_from_slice(b",\"topic\":\"");
        out.extend_from_slice(self.topic.as_str().as_bytes());
        out.push(b'"');
        if let Some(key) = &self.key {
            out.extend_from_slice(b",\"key\":");
            json::write_string(out, key);
        }
        out.extend_from_slice(b",\"partition\":");
        out.extend_from_slice(number.format(self.partition.0).as_bytes());
        out.extend_from_slice(b",\"offset\":");
        out.extend_from_slice(number.format(self.offset.0).as_bytes());
        let mut field = |name: &[u8], value: Option<&Json>| {
            if let Some(value) = value {
                out.extend_from_slice(name);
                out.extend_from_slice(value.as_bytes());
            }
        };
        field(b",\"sid\":", self.sid.as_deref());
        field(b",\"headers\":", self.headers.as_deref());
        field(b",\"payload\":", Some(&self.payload));
        field(b",\"caused_by\":", self.caused_by.as_deref());
        field(b",\"tags\":", self.tags.as_deref());
        out.push(b'}');
    }

    /// Whether `new` is the same publish again: same key and payload, byte for byte.
    pub fn is_repeated_by(&self, new: &NewEvent) -> bool {
        self.key == new.key && self.payload == new.payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn json(text: &'static str) -> Json {
        Json::parse(Bytes::from_static(text.as_bytes())).unwrap()
    }

    #[test]
    fn bad_events_are_told_apart() {
        let with = |change: fn(&mut NewEvent)| {
            let mut event = NewEvent::new(json("null"));
            change(&mut event);
            event.check()
        };
        let headers = |text: &'static str| {
            let mut event = NewEvent::new(json("null"));
            event.headers = Some(json(text).into());
            event.check()
        };
        assert_eq!(with(|e| e.key = Some("k".repeat(MAX_KEY_BYTES).into())), Ok(()));
        assert_eq!(
            with(|e| e.key = Some("k".repeat(MAX_KEY_BYTES + 1).into())),
            Err(BadEvent::LongKey(1025))
        );
        assert_eq!(headers(r#"{"x-a":"b","content-type":"c","traceparent":"d"}"#), Ok(()));
        assert_eq!(headers(r#"{"x-a":1}"#), Err(BadEvent::Headers));
        assert_eq!(headers(r#"{"x-a":"1","x-a":"2"}"#), Err(BadEvent::Headers));
        assert_eq!(headers("[]"), Err(BadEvent::Headers));
        assert_eq!(headers(r#"{"X-A":"1"}"#), Err(BadEvent::HeaderName("X-A".into())));
        assert_eq!(headers(r#"{"x-":"1"}"#), Err(BadEvent::HeaderName("x-".into())));
        assert_eq!(with(|e| e.sid = Some(json("1").into())), Err(BadEvent::Sid));
        assert_eq!(with(|e| e.tags = Some(json("[1]").into())), Err(BadEvent::NotStrings("tags")));
        assert_eq!(
            with(|e| e.caused_by = Some(json("\"a\"").into())),
            Err(BadEvent::NotStrings("caused_by"))
        );
        assert_eq!(with(|e| e.tags = Some(json(r#"["a","\u00e9"]"#).into())), Ok(()));
    }

    #[test]
    fn json_has_the_fields_in_their_order_and_leaves_out_what_is_absent() {
        let mut event = Event {
            id: Uuid::from_u128(0x0198_c0de_0000_7000_8000_0000_0000_0001),
            ts: 5,
            recorded_ts: 5,
            topic: TopicName::parse("a.b").unwrap(),
            key: None,
            partition: Partition(3),
            offset: Offset(7),
            sid: None,
            headers: None,
            payload: json(r#"{"n":1.10}"#),
            caused_by: None,
            tags: None,
        };
        let text = |event: &Event| {
            let mut out = Vec::new();
            event.write_json(&mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            text(&event),
            r#"{"id":"0198c0de-0000-7000-8000-000000000001","ts":5,"topic":"a.b","partition":3,"offset":7,"payload":{"n":1.10}}"#
        );
        event.recorded_ts = 6;
        event.key = Some("k\"ö\n".into());
        event.sid = Some(json("\"s\"").into());
        event.headers = Some(json(r#"{"x-a":"b"}"#).into());
        event.caused_by = Some(json(r#"["c"]"#).into());
        event.tags = Some(json("[\"#t\"]").into());
        assert_eq!(
            text(&event),
            r##"{"id":"0198c0de-0000-7000-8000-000000000001","ts":5,"recorded_ts":6,"topic":"a.b","key":"k\"ö\n","partition":3,"offset":7,"sid":"s","headers":{"x-a":"b"},"payload":{"n":1.10},"caused_by":["c"],"tags":["#t"]}"##
        );
    }
}
