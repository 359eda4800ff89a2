//! An event as the text that is sent, serialised once however often it is sent.

use crate::NewEvent;
use uuid::Uuid;

/// The text of an event: its payload, then its other fields.
#[derive(Debug)]
pub(crate) struct EventText {
    text: String,
    payload: usize,
}

impl EventText {
    /// The event, with an id of its own where it has none: what was sent twice then counts once.
    pub fn new(event: &NewEvent) -> Result<Self, serde_json::Error> {
        let mut buffer = Uuid::encode_buffer();
        let mut options = event.options();
        if options.id.is_none() {
            let id: &str = Uuid::now_v7().hyphenated().encode_lower(&mut buffer);
            options.id = Some(id.into());
        }
        let fields = serde_json::to_string(&options)?;
        let payload = event.payload.get();
        let mut text = String::with_capacity(payload.len() + fields.len());
        text.push_str(payload);
        // Without its brackets, so that it fits into both kinds of frames.
        text.push_str(&fields[1..fields.len() - 1]);
        Ok(Self { text, payload: payload.len() })
    }

    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// The id, which is looked for only where something went wrong.
    pub fn id(&self) -> String {
        #[derive(serde::Deserialize)]
        struct Id {
            id: String,
        }
        // It was written here, so it can be read.
        let fields: Result<Id, _> = serde_json::from_str(&format!("{{{}}}", self.fields()));
        fields.map(|fields| fields.id).unwrap_or_default()
    }

    /// The payload.
    pub fn payload(&self) -> &str {
        &self.text[..self.payload]
    }

    /// The other fields, as JSON without brackets. There is always an id.
    pub fn fields(&self) -> &str {
        &self.text[self.payload..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Expect;
    use serde_json::{Value, json};

    fn fields(event: &NewEvent) -> Value {
        let text = EventText::new(event).unwrap();
        serde_json::from_str(&format!("{{{}}}", text.fields())).unwrap()
    }

    #[test]
    fn an_event_without_an_id_gets_one_that_is_its_own() {
        let event = NewEvent::of(&1).unwrap();
        let (a, b) = (fields(&event), fields(&event));
        let id: Uuid = a["id"].as_str().unwrap().parse().unwrap();
        assert_eq!(id.get_version_num(), 7);
        assert_ne!(a["id"], b["id"]);
        assert_eq!(fields(&event.with_id("x")), json!({"id": "x"}));
    }

    #[test]
    fn all_that_an_event_can_have_is_sent() {
        let mut event = NewEvent::of(&json!({"a": "}\""})).unwrap().with_id("i").with_key("k\"");
        event.ts = Some(1);
        event.sid = Some("s".into());
        event.headers.insert("x-a".into(), "b".into());
        event.tags.push("#t".into());
        event.caused_by.push("c".into());
        event.partition = Some(2);
        event.expect = Some(Expect { last_id: None });
        let expected = json!({"id": "i", "key": "k\"", "ts": 1, "sid": "s", "headers": {"x-a": "b"}, "tags": ["#t"],
            "caused_by": ["c"], "partition": 2, "expect": {"last_id": null}});
        assert_eq!(fields(&event), expected);
        assert_eq!(EventText::new(&event).unwrap().payload(), r#"{"a":"}\""}"#);
    }
}
