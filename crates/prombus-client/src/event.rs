//! Events to publish. Payloads are kept as JSON text, so that no digit changes.

use prombus_wire::{EventRequest, ExpectRequest, Object, PublishOptions, Text};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// An event to publish. The hub fills in what is omitted.
#[derive(Debug, Clone)]
pub struct NewEvent {
    /// The producer's own id (a UUID), which makes the publish idempotent.
    pub id: Option<String>,
    /// Event time in epoch milliseconds.
    pub ts: Option<u64>,
    /// Determines ordering, compaction and the partition.
    pub key: Option<String>,
    /// A session or correlation id.
    pub sid: Option<String>,
    /// Headers.
    pub headers: BTreeMap<String, String>,
    /// Any JSON.
    pub payload: Box<RawValue>,
    /// The ids of the events that caused this one.
    pub caused_by: Vec<String>,
    /// Tags.
    pub tags: Vec<String>,
    /// The partition, if the producer chooses one (not together with a key).
    pub partition: Option<u32>,
    /// Condition for storing the event.
    pub expect: Option<Expect>,
}

/// A condition for storing an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expect {
    /// The id of the latest event of the key; `None` if the key must not have any.
    pub last_id: Option<String>,
}

/// A field that goes over the wire as JSON.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(untagged)]
pub(crate) enum Field<'a> {
    Text(&'a str),
    List(&'a [String]),
    Headers(&'a BTreeMap<String, String>),
}

impl NewEvent {
    /// An event with this payload, given as JSON text.
    pub fn new(payload: Box<RawValue>) -> Self {
        Self {
            id: None,
            ts: None,
            key: None,
            sid: None,
            headers: BTreeMap::new(),
            payload,
            caused_by: Vec::new(),
            tags: Vec::new(),
            partition: None,
            expect: None,
        }
    }

    /// An event whose payload is `payload`, serialised to JSON.
    pub fn of<P: Serialize + ?Sized>(payload: &P) -> Result<Self, serde_json::Error> {
        Ok(Self::new(serde_json::value::to_raw_value(payload)?))
    }

    /// What is sent beside the payload.
    pub(crate) fn options<'a>(&'a self) -> PublishOptions<'a, Field<'a>> {
        let list = |list: &'a [String]| (!list.is_empty()).then_some(Field::List(list));
        let expect =
            |expect: &'a Expect| Object(ExpectRequest { last_id: expect.last_id.as_deref().map(Text::from) });
        PublishOptions {
            key: self.key.as_deref().map(Text::from),
            id: self.id.as_deref().map(Text::from),
            ts: self.ts,
            sid: self.sid.as_deref().map(Field::Text),
            headers: (!self.headers.is_empty()).then_some(Field::Headers(&self.headers)),
            tags: list(&self.tags),
            caused_by: list(&self.caused_by),
            partition: self.partition,
            expect: self.expect.as_ref().map(expect),
        }
    }

    /// Sets the key.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the producer's id.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }
}

/// As the hub takes it.
impl Serialize for NewEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        EventRequest::new(&self.payload, self.options()).serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_is_not_sent() {
        let event = NewEvent::of(&serde_json::json!({"a": 1})).unwrap();
        assert_eq!(serde_json::to_string(&event).unwrap(), r#"{"payload":{"a":1}}"#);
    }

    #[test]
    fn an_expectation_of_no_event_is_an_explicit_null() {
        let mut event = NewEvent::of(&1).unwrap().with_key("k");
        event.expect = Some(Expect { last_id: None });
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            r#"{"payload":1,"key":"k","expect":{"last_id":null}}"#
        );
    }

    #[test]
    fn payloads_keep_their_digits() {
        let payload = RawValue::from_string(r#"{"n":1.10,"b":12345678901234567890123}"#.into()).unwrap();
        let sent = serde_json::to_string(&NewEvent::new(payload)).unwrap();
        assert_eq!(sent, r#"{"payload":{"n":1.10,"b":12345678901234567890123}}"#);
    }
}
