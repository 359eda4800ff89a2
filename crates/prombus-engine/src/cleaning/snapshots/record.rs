//! A record of a snapshot topic: the latest event of a key, as the payload of another event with that key.

use prombus_core::{Append, Event, Json, NewEvent, Offset, Partition, TopicName, json};
use serde::Deserialize;

/// About how many bytes a record takes beside payload and key.
const RECORD_BYTES: usize = 160;

/// The record of an event, to be published to `target`. `max_ts` is the greatest time of all events of the key so far.
pub fn of(event: &Event, max_ts: u64, target: &TopicName) -> Append {
    let key = event.key.as_deref().unwrap_or_default();
    let mut text = Vec::with_capacity(event.payload.len() + key.len() + RECORD_BYTES);
    text.extend_from_slice(b"{\"key\":");
    json::write_string(&mut text, key);
    text.extend_from_slice(b",\"payload\":");
    text.extend_from_slice(event.payload.as_bytes());
    let Event { ts, partition, offset, .. } = event;
    let rest =
        format!(",\"ts\":{ts},\"partition\":{},\"offset\":{},\"max_ts\":{max_ts}}}", partition.0, offset.0);
    text.extend_from_slice(rest.as_bytes());
    let mut record = NewEvent::new(Json::from_stored(text.into()));
    record.key = Some(key.into());
    Append::new(target.clone(), record)
}

/// What a record says about where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Origin {
    partition: u32,
    offset: u64,
    /// The greatest time of all events of the key up to there.
    pub max_ts: u64,
}

impl Origin {
    /// What an event of a snapshot topic says; `None` where it is not a record. Whoever may publish there may say anything,
    /// so this is where to look, and no more.
    pub fn of(record: &Event) -> Option<Self> {
        serde_json::from_slice(record.payload.as_bytes()).ok()
    }

    /// Where the event is.
    pub fn place(&self) -> (Partition, Offset) {
        (Partition(self.partition), Offset(self.offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn event(key: &str, payload: &str) -> Event {
        Event {
            id: Uuid::nil(),
            ts: 7,
            recorded_ts: 8,
            topic: TopicName::parse("t").unwrap(),
            key: Some(key.into()),
            partition: Partition(3),
            offset: Offset(4),
            sid: None,
            headers: None,
            payload: Json::from_stored(payload.to_owned().into()),
            caused_by: None,
            tags: None,
        }
    }

    #[test]
    fn records_carry_the_payload_byte_for_byte() {
        let target = TopicName::parse("t.snapshot").unwrap();
        let record = of(&event("a\"\u{1}", r#"{"n":1.10,"z":99999999999999999999}"#), 9, &target).event;
        let text = std::str::from_utf8(record.payload.as_bytes()).unwrap();
        let expected = r#"{"key":"a\"\u0001","payload":{"n":1.10,"z":99999999999999999999},"ts":7,"partition":3,"offset":4,"max_ts":9}"#;
        assert_eq!(text, expected);
        assert_eq!(record.key.as_deref(), Some("a\"\u{1}"));
    }

    #[test]
    fn only_records_have_an_origin() {
        let target = TopicName::parse("t.snapshot").unwrap();
        let deep = format!("{}{}", "[".repeat(128), "]".repeat(128));
        let text = of(&event("k", &deep), 9, &target).event.payload;
        let origin = Origin::of(&Event { payload: text, ..event("k", "1") }).unwrap();
        assert_eq!((origin.place(), origin.max_ts), ((Partition(3), Offset(4)), 9));
        for other in ["null", "{}", "[]", r#"{"partition":-1,"offset":1,"max_ts":1}"#] {
            assert_eq!(Origin::of(&event("k", other)), None, "{other}");
        }
    }
}
