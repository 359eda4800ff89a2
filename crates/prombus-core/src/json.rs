//! JSON as text: validated once, stripped of insignificant white space, and otherwise carried byte for byte.
//!
//! Big integers, `1.10`, key order and escapes reach the consumer as the producer sent them, because nobody
//! in between turns the text into values and back.

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::fmt;

/// How deep arrays and objects may nest.
pub const MAX_DEPTH: usize = 128;

/// One JSON value as compact, valid UTF-8 text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Bytes);

/// Why a text is not acceptable JSON.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// Not JSON at all.
    #[error("not valid JSON: {0}")]
    Syntax(#[from] serde_json::Error),
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("arrays and objects are nested more than {MAX_DEPTH} deep")]
    TooDeep,
}

/// See [`Json::values`].
pub(crate) fn values(json: &[u8]) -> usize {
    let (mut values, mut rest) = (1, json);
    while let Some((first, after)) = rest.split_first() {
        rest = match first {
            b'"' => behind_string(after),
            b',' | b'[' | b'{' => {
                values += 1;
                after
            }
            _ => after,
        };
    }
    values
}

/// What follows a string, of which the first quotation mark was read.
fn behind_string(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        if rest[at] == b'"' {
            return &rest[at + 1..];
        }
        // Whatever is behind a backslash is part of the string.
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    &[]
}

impl Json {
    /// Checks `text` and drops its insignificant white space.
    pub fn parse(text: Bytes) -> Result<Self, JsonError> {
        let raw: &RawValue = serde_json::from_slice(&text)?;
        // The raw value lies inside `text`, so the slice shares its memory.
        let value = text.slice_ref(raw.get().as_bytes());
        Self::compact(value)
    }

    /// Takes a value that a JSON parser has already accepted; drops white space and checks the depth.
    pub fn from_raw(raw: &RawValue, within: &Bytes) -> Result<Self, JsonError> {
        Self::compact(within.slice_ref(raw.get().as_bytes()))
    }

    /// The text of a value that this process made itself.
    pub fn from_value(value: &serde_json::Value) -> Self {
        Self(Bytes::from(value.to_string()))
    }

    /// The text of an object with these fields.
    pub fn from_object(fields: &serde_json::Map<String, serde_json::Value>) -> Self {
        // Names are texts, so there is nothing that could not be written.
        Self(Bytes::from(serde_json::to_vec(fields).unwrap_or_default()))
    }

    /// Text that was a `Json` when it was stored. The caller vouches for it (a checksum covers it).
    pub fn from_stored(text: Bytes) -> Self {
        Self(text)
    }

    /// How many values it holds at most, itself included: what it takes as a tree goes by them, and not by its text. An
    /// empty list or object counts for two.
    pub fn values(&self) -> usize {
        values(&self.0)
    }

    /// The compact text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The compact text, sharing memory.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Length of the compact text in bytes.
    #[allow(clippy::len_without_is_empty, reason = "no JSON value is empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether this is `null`, which makes an event a tombstone.
    pub fn is_null(&self) -> bool {
        &self.0[..] == b"null"
    }

    /// The text as a tree of values; big numbers lose digits here, which is why nothing on the event's way does it.
    pub fn to_value(&self) -> Result<serde_json::Value, serde_json::Error> {
        let mut text = serde_json::Deserializer::from_slice(&self.0);
        // The parser's own limit is a little lower than ours, which holds for every text here.
        text.disable_recursion_limit();
        serde_json::Value::deserialize(&mut text)
    }

    fn compact(valid: Bytes) -> Result<Self, JsonError> {
        match first_white_space(&valid)? {
            None => Ok(Self(valid)),
            Some(at) => Ok(Self(Bytes::from(without_white_space(&valid, at)))),
        }
    }
}

/// JSON that is carried as its text, as payloads of events are, and is read as a value where it is needed:
/// `let order: Order = event.payload.parse()?;`
pub trait ParseJson {
    /// The text as a value.
    fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error>;
}

impl ParseJson for Json {
    fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.0)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// Where the first insignificant white space stands, having checked the depth on the way.
fn first_white_space(json: &[u8]) -> Result<Option<usize>, JsonError> {
    let (mut at, mut depth, mut found) = (0, 0usize, None);
    while at < json.len() {
        match json[at] {
            b'"' => at = string_end(json, at),
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(JsonError::TooDeep);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b' ' | b'\t' | b'\n' | b'\r' if found.is_none() => found = Some(at),
            _ => {}
        }
        at += 1;
    }
    Ok(found)
}

fn without_white_space(json: &[u8], first: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    out.extend_from_slice(&json[..first]);
    let mut at = first;
    while at < json.len() {
        match json[at] {
            b'"' => {
                let end = string_end(json, at);
                out.extend_from_slice(&json[at..=end.min(json.len() - 1)]);
                at = end;
            }
            b' ' | b'\t' | b'\n' | b'\r' => {}
            other => out.push(other),
        }
        at += 1;
    }
    out
}

/// The index of the quote that closes the string which opens at `open`.
fn string_end(json: &[u8], open: usize) -> usize {
    let mut at = open + 1;
    while let Some(step) = memchr::memchr2(b'"', b'\\', &json[at.min(json.len())..]) {
        at += step;
        if json[at] == b'"' {
            return at;
        }
        at += 2;
    }
    json.len()
}

/// Appends `text` to `out` as a JSON string with its quotes.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    if text.bytes().all(|b| b >= 0x20 && b != b'"' && b != b'\\') {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        // Writing a string to a Vec cannot fail.
        let _ = serde_json::to_writer(out, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn compact(text: &str) -> String {
        String::from_utf8(Json::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap().as_bytes().to_vec())
            .unwrap()
    }

    #[test]
    fn white_space_goes_and_everything_else_stays() {
        let text = " { \"a b\" : [ 1.10 , 12345678901234567890123 , \"x \\\" \\u00e9 y\\\\\" , -0.0e+1 ] ,\n\"a b\":null } ";
        assert_eq!(
            compact(text),
            r#"{"a b":[1.10,12345678901234567890123,"x \" \u00e9 y\\",-0.0e+1],"a b":null}"#
        );
    }

    #[test]
    fn values_are_counted_without_reading_them() {
        let values = |text: &str| Json::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap().values();
        assert_eq!(
            ["1", r#""a,[{""#, r#""\\",1"#, "null"].map(|text| values(&format!("[{text}]"))),
            [2, 2, 3, 2]
        );
        assert_eq!(values(r#"{"a,\"[":[1,{"b":"x\\"}],"c":{"d":null}}"#), 7);
        assert_eq!([values("[]"), values("{}"), values("[[],{}]")], [2, 2, 5]);
    }

    #[test]
    fn compact_text_is_shared_not_copied() {
        let text = Bytes::from_static(br#"{"a":1}"#);
        assert_eq!(Json::parse(text.clone()).unwrap().as_bytes().as_ptr(), text.as_ptr());
    }

    #[test]
    fn depth_is_limited() {
        let nested = |n: usize| Bytes::from([vec![b'['; n], vec![b']'; n]].concat());
        assert!(Json::parse(nested(MAX_DEPTH)).is_ok());
        assert!(matches!(Json::parse(nested(MAX_DEPTH + 1)), Err(JsonError::TooDeep)));
        assert!(matches!(Json::parse(nested(200_000)), Err(JsonError::TooDeep | JsonError::Syntax(_))));
    }

    #[test]
    fn the_deepest_text_is_a_value_and_doubles_keep_their_digits() {
        let nested = Bytes::from([vec![b'['; MAX_DEPTH], vec![b']'; MAX_DEPTH]].concat());
        assert!(Json::parse(nested).unwrap().to_value().is_ok());
        let double = "1.9425545817716919e295";
        let value = Json::parse(Bytes::from_static(double.as_bytes())).unwrap().to_value().unwrap();
        assert_eq!(value.to_string().replace("e+", "e"), double);
    }

    #[test]
    fn a_text_is_read_as_what_is_asked_for() {
        let json = Json::parse(Bytes::from_static(b"[1, 2]")).unwrap();
        assert_eq!(json.parse::<Vec<u8>>().unwrap(), [1, 2]);
        assert!(json.parse::<String>().is_err());
    }

    #[test]
    fn bad_text_is_refused() {
        for bad in [&b""[..], b"{", b"{\"a\":}", b"1 2", b"\"\xff\"", b"nul", b"[1,]", b"\"\x01\""] {
            assert!(matches!(Json::parse(Bytes::copy_from_slice(bad)), Err(JsonError::Syntax(_))), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn strings_round_trip(text in ".*") {
            let mut out = Vec::new();
            write_string(&mut out, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }

        #[test]
        fn compacting_never_panics_and_keeps_the_value(text in "[\\[\\]{}\":,0-9a-z \\\\\n]{0,60}") {
            if let Ok(json) = Json::parse(Bytes::from(text.clone())) {
                let before: serde_json::Value = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(json.to_value().unwrap(), before);
            }
        }
    }
}
