//! A request with many events, of which only ids, keys, numbers and the topic are rewritten each time.

use std::ops::Range;
use uuid::Uuid;

/// The smallest payload: its number takes that much.
pub const MIN_PAYLOAD_BYTES: usize = BEFORE_NUMBER.len() + NUMBER_DIGITS + BEFORE_PAD.len() + AFTER_PAD.len();
/// The most keys that fit into the digits of one.
pub const MAX_KEYS: u64 = 10u64.pow(KEY_DIGITS as u32);

const BEFORE_NUMBER: &str = "{\"n\":";
const BEFORE_PAD: &str = ",\"pad\":\"";
const AFTER_PAD: &str = "\"}";
/// Eight fields, for payloads of ten.
const FIELDS: &str = concat!(
    r#","host":"web1.example.com","kind":"process","status":"alive","ok":true,"pid":4242,"#,
    r#""cpu_pct":81.5,"mem_mib":512.25,"labels":["blue","edge"]"#
);
const NUMBER_DIGITS: usize = 12;
/// Numbers start here, because one in JSON has no leading zeros.
const FIRST_NUMBER: u64 = 10u64.pow(NUMBER_DIGITS as u32 - 1);
const KEY_DIGITS: usize = 9;
const ID_BYTES: usize = 36;

/// What the events of a template look like.
#[derive(Debug, Clone)]
pub struct Shape {
    pub payload_bytes: usize,
    pub own_ids: bool,
    pub keys: u64,
    /// Whether payloads have ten fields, and not only a number and padding.
    pub fields: bool,
}

/// Where a request goes.
pub struct Destination<'a> {
    /// What comes before the topic in the path.
    pub base_path: &'a str,
    /// A topic; others must have names of the same length.
    pub topic: &'a str,
    /// The lines of the head that are the same for every request.
    pub head: &'a str,
}

/// One event, and the positions of its variable parts.
struct EventText {
    text: String,
    id: Option<usize>,
    key: Option<usize>,
    number: usize,
}

impl EventText {
    fn new(shape: &Shape) -> Self {
        let mut text = String::from("{");
        let id = shape.own_ids.then(|| leave_room(&mut text, "\"id\":\"", ID_BYTES));
        let key = (shape.keys > 0).then(|| leave_room(&mut text, "\"key\":\"k", KEY_DIGITS));
        text.push_str(&format!("\"payload\":{BEFORE_NUMBER}"));
        let number = text.len();
        let fields = if shape.fields { FIELDS } else { "" };
        let pad = "x".repeat(shape.payload_bytes.saturating_sub(MIN_PAYLOAD_BYTES + fields.len()));
        text.push_str(&format!("{FIRST_NUMBER}{fields}{BEFORE_PAD}{pad}{AFTER_PAD}}}"));
        Self { text, id, key, number }
    }
}

/// Room for `bytes` bytes of a string that ends a field; says where it is.
fn leave_room(text: &mut String, before: &str, bytes: usize) -> usize {
    text.push_str(before);
    let at = text.len();
    text.extend(std::iter::repeat_n('0', bytes));
    text.push_str("\",");
    at
}

/// A request whose events can be filled in.
pub struct Template {
    bytes: Vec<u8>,
    topic: Range<usize>,
    body: usize,
    events: usize,
    event: EventText,
    keys: u64,
}

impl Template {
    /// A request with `events` events.
    pub fn new(events: usize, shape: &Shape, destination: &Destination<'_>) -> Self {
        let Destination { base_path, topic, head } = destination;
        let event = EventText::new(shape);
        let path = format!("POST {base_path}/v1/topics/");
        let body_bytes = 1 + events * (event.text.len() + 1);
        let mut bytes = format!(
            "{path}{topic}/events HTTP/1.1\r\n{head}content-type: application/json\r\ncontent-length: {body_bytes}\r\n\r\n"
        )
        .into_bytes();
        let body = bytes.len();
        for index in 0..events {
            bytes.push(if index == 0 { b'[' } else { b',' });
            bytes.extend_from_slice(event.text.as_bytes());
        }
        bytes.push(b']');
        let topic = path.len()..path.len() + topic.len();
        Self { bytes, topic, body, events, event, keys: shape.keys }
    }

    /// How many events it has.
    pub fn events(&self) -> usize {
        self.events
    }

    /// The length of its body.
    pub fn body_bytes(&self) -> usize {
        self.bytes.len() - self.body
    }

    /// The request to `topic`, with events that are numbered from `first`.
    pub fn fill(&mut self, topic: &str, first: u64) -> &[u8] {
        self.bytes[self.topic.clone()].copy_from_slice(topic.as_bytes());
        for event in 0..self.events {
            // Each event has a bracket or a comma before it.
            let length = self.event.text.len();
            let bytes = &mut self.bytes[self.body + event * (length + 1) + 1..][..length];
            if let Some(id) = self.event.id {
                let random = uuid::Builder::from_random_bytes(fastrand::u128(..).to_ne_bytes()).into_uuid();
                write_id(random, &mut bytes[id..][..ID_BYTES]);
            }
            if let Some(key) = self.event.key {
                write_digits(fastrand::u64(..self.keys), &mut bytes[key..][..KEY_DIGITS]);
            }
            let number = FIRST_NUMBER + (first + event as u64) % (9 * FIRST_NUMBER);
            write_digits(number, &mut bytes[self.event.number..][..NUMBER_DIGITS]);
        }
        &self.bytes
    }
}

fn write_id(id: Uuid, out: &mut [u8]) {
    id.hyphenated().encode_lower(out);
}

fn write_digits(mut number: u64, out: &mut [u8]) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::HashSet;

    fn request(shape: &Shape, events: usize) -> (String, Value) {
        let destination = Destination { base_path: "/b", topic: "bench-0000", head: "host: h\r\n" };
        let mut template = Template::new(events, shape, &destination);
        assert_eq!(template.events(), events);
        let body_bytes = template.body_bytes();
        let text = String::from_utf8(template.fill("bench-0042", 7).to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(body.len(), body_bytes);
        assert!(head.contains(&format!("content-length: {body_bytes}")), "{head}");
        (head.to_owned(), serde_json::from_str(body).unwrap())
    }

    #[test]
    fn a_filled_template_is_a_publish_of_an_array() {
        let (head, body) = request(&Shape { payload_bytes: 250, own_ids: true, keys: 10, fields: false }, 3);
        assert!(head.starts_with("POST /b/v1/topics/bench-0042/events HTTP/1.1\r\nhost: h\r\n"), "{head}");
        let events = body.as_array().unwrap();
        let numbers: Vec<_> = events.iter().map(|event| event["payload"]["n"].as_u64().unwrap()).collect();
        assert_eq!(numbers, [FIRST_NUMBER + 7, FIRST_NUMBER + 8, FIRST_NUMBER + 9]);
        let ids: HashSet<_> = events.iter().map(|event| event["id"].as_str().unwrap()).collect();
        assert_eq!(ids.len(), 3);
        for event in events {
            assert_eq!(event["payload"].to_string().len(), 250);
            assert_eq!(Uuid::parse_str(event["id"].as_str().unwrap()).unwrap().get_version_num(), 4);
            assert!(event["key"].as_str().unwrap().starts_with("k00000000"));
        }
    }

    #[test]
    fn payloads_can_have_ten_fields() {
        let shape = Shape { payload_bytes: 250, own_ids: false, keys: 0, fields: true };
        let (_, body) = request(&shape, 2);
        for (number, event) in (7..).zip(body.as_array().unwrap()) {
            let payload = event["payload"].as_object().unwrap();
            assert_eq!((payload.len(), &payload["n"]), (10, &Value::from(FIRST_NUMBER + number)));
            assert_eq!(event["payload"].to_string().len(), 250);
        }
    }

    #[test]
    fn what_is_not_wanted_is_left_out() {
        let (_, body) =
            request(&Shape { payload_bytes: MIN_PAYLOAD_BYTES, own_ids: false, keys: 0, fields: false }, 1);
        let event = body[0].as_object().unwrap();
        assert_eq!(event.keys().collect::<Vec<_>>(), ["payload"]);
        assert_eq!(event["payload"].to_string().len(), MIN_PAYLOAD_BYTES);
    }
}
