//! JSON values with numbers as they were written, and the way to and from those of `serde_json`.

use crate::{decimal::Decimal, schema::DEPTH_LIMIT};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// A JSON value. Cheap to clone, and equal whenever JSON Schema says that two values are: `1` is `1.0`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Json {
    Null,
    Bool(bool),
    Number(Decimal),
    String(Arc<str>),
    Array(Arc<[Json]>),
    Object(Arc<BTreeMap<Arc<str>, Json>>),
}

/// Why a text is not taken.
#[derive(Debug, PartialEq, Eq)]
pub enum JsonError {
    Syntax { at: usize, message: String },
    Depth,
    Number { at: usize },
    Twice { at: usize, name: String },
}

impl Json {
    /// Reads a text. Values may be nested as deep as `depth`, and names may not come twice.
    pub fn parse(text: &str, depth: usize) -> Result<Self, JsonError> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(depth)?;
        reader.blank();
        if reader.at < text.len() {
            return Err(reader.wrong("something after the end of the value"));
        }
        Ok(value)
    }

    pub fn object(&self) -> Option<&BTreeMap<Arc<str>, Json>> {
        if let Self::Object(members) = self { Some(members) } else { None }
    }

    pub fn array(&self) -> Option<&[Json]> {
        if let Self::Array(items) = self { Some(items) } else { None }
    }

    pub fn text(&self) -> Option<&Arc<str>> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    pub fn number(&self) -> Option<&Decimal> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }

    /// How many parts a value has, long texts counted as several; not gone into once there are `limit`.
    pub fn size(&self, limit: u64) -> u64 {
        let inside =
            |size: u64, inner: &Json| if size < limit { size + inner.size(limit - size) } else { size };
        match self {
            Self::String(text) => 1 + text.len() as u64 / 16,
            Self::Array(items) => items.iter().fold(1, inside),
            Self::Object(members) => members.values().fold(1 + members.len() as u64, inside),
            _ => 1,
        }
    }

    /// Where it is in memory: for what is shared, the same for all that share it. Tells values apart as long as they live.
    pub fn address(&self) -> usize {
        match self {
            Self::String(text) => text.as_ptr() as usize,
            Self::Array(items) => items.as_ptr() as usize,
            Self::Object(members) => Arc::as_ptr(members) as usize,
            // The first item of an array is where the array is, too.
            Self::Null | Self::Bool(_) | Self::Number(_) => std::ptr::from_ref(self) as usize + 1,
        }
    }

    /// What a JSON pointer leads to.
    pub fn pointer(&self, pointer: &str) -> Option<&Json> {
        let mut value = self;
        for token in pointer.strip_prefix('/').map(|rest| rest.split('/')).into_iter().flatten() {
            let token = token.replace("~1", "/").replace("~0", "~");
            value = match value {
                Self::Object(members) => members.get(token.as_str())?,
                Self::Array(items) if token == "0" || !token.starts_with('0') => {
                    items.get(token.parse::<usize>().ok()?)?
                }
                _ => return None,
            };
        }
        (pointer.is_empty() || pointer.starts_with('/')).then_some(value)
    }

    /// The same for `serde_json`; `None` if a number would be rounded.
    pub fn to_value(&self) -> Option<Value> {
        self.convert(&|number| number.to_number())
    }

    /// The same for `serde_json`, with the nearest numbers that it can hold.
    pub fn to_nearest(&self) -> Value {
        self.convert(&|number| Some(number.to_nearest())).unwrap_or(Value::Null)
    }

    fn convert(&self, number: &dyn Fn(&Decimal) -> Option<serde_json::Number>) -> Option<Value> {
        Some(match self {
            Self::Null => Value::Null,
            Self::Bool(truth) => Value::Bool(*truth),
            Self::Number(decimal) => Value::Number(number(decimal)?),
            Self::String(text) => Value::String(text.to_string()),
            Self::Array(items) => {
                Value::Array(items.iter().map(|item| item.convert(number)).collect::<Option<_>>()?)
            }
            Self::Object(members) => {
                let member =
                    |(name, value): (&Arc<str>, &Json)| Some((name.to_string(), value.convert(number)?));
                Value::Object(members.iter().map(member).collect::<Option<_>>()?)
            }
        })
    }
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(truth) => Self::Bool(*truth),
            Value::Number(number) => {
                Self::Number(Decimal::parse(&number.to_string()).unwrap_or_else(|| 0.into()))
            }
            Value::String(text) => text.as_str().into(),
            Value::Array(items) => Self::Array(items.iter().map(Self::from).collect()),
            Value::Object(members) => {
                let member = |(name, value): (&String, &Value)| (name.as_str().into(), value.into());
                Self::Object(Arc::new(members.iter().map(member).collect()))
            }
        }
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

/// Where in the text we are.
pub struct Reader<'t> {
    pub text: &'t str,
    pub at: usize,
}

impl Reader<'_> {
    fn wrong(&self, message: &str) -> JsonError {
        JsonError::Syntax { at: self.at, message: message.to_owned() }
    }

    pub fn blank(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
    }

    pub fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    pub fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    pub fn value(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.blank();
        let word = |reader: &mut Self, word: &str, value: Json| {
            let there = reader.text[reader.at..].starts_with(word);
            reader.at += if there { word.len() } else { 0 };
            if there { Ok(value) } else { Err(reader.wrong("a value is expected")) }
        };
        match self.peek() {
            Some(b'{') => self.object(depth.checked_sub(1).ok_or(JsonError::Depth)?),
            Some(b'[') => self.array(depth.checked_sub(1).ok_or(JsonError::Depth)?),
            Some(b'"') => Ok(Json::String(self.string()?.into())),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => word(self, "true", Json::Bool(true)),
            Some(b'f') => word(self, "false", Json::Bool(false)),
            Some(b'n') => word(self, "null", Json::Null),
            _ => Err(self.wrong("a value is expected")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.at += 1;
        let mut members = BTreeMap::new();
        self.blank();
        if self.take(b'}') {
            return Ok(Json::Object(members.into()));
        }
        loop {
            self.blank();
            if self.peek() != Some(b'"') {
                return Err(self.wrong("a name in quotes is expected"));
            }
            let at = self.at;
            let name: Arc<str> = self.string()?.into();
            self.blank();
            if !self.take(b':') {
                return Err(self.wrong("a colon is expected"));
            }
            let value = self.value(depth)?;
            if members.insert(name.clone(), value).is_some() {
                return Err(JsonError::Twice { at, name: name.to_string() });
            }
            self.blank();
            if self.take(b'}') {
                return Ok(Json::Object(members.into()));
            }
            if !self.take(b',') {
                return Err(self.wrong("a comma or a closing brace is expected"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.at += 1;
        let mut items = Vec::new();
        self.blank();
        if self.take(b']') {
            return Ok(Json::Array(items.into()));
        }
        loop {
            items.push(self.value(depth)?);
            self.blank();
            if self.take(b']') {
                return Ok(Json::Array(items.into()));
            }
            if !self.take(b',') {
                return Err(self.wrong("a comma or a closing bracket is expected"));
            }
        }
    }

    /// A text in quotes, which `serde_json` unescapes.
    pub fn string(&mut self) -> Result<String, JsonError> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut end = start + 1;
        while end < bytes.len() && bytes[end] != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        let quoted = self.text.get(start..=end).ok_or_else(|| self.wrong("a text without an end"))?;
        self.at = end + 1;
        serde_json::from_str(quoted).map_err(|error| JsonError::Syntax {
            at: start,
            message: format!("a text that is not valid: {error}"),
        })
    }

    fn number(&mut self) -> Result<Json, JsonError> {
        let start = self.at;
        let length = number_length(&self.text.as_bytes()[start..]);
        let token = &self.text[start..start + length];
        if !is_number(token) {
            return Err(self.wrong("a number that is not valid"));
        }
        self.at += length;
        Decimal::parse(token).map(Json::Number).ok_or(JsonError::Number { at: start })
    }
}

/// Whether two texts are the same JSON value, whichever way they are written: in another order of members, or `1.0` for `1`.
/// A text that is not JSON, or is nested deeper than schemas may be, is the same only as itself.
pub fn is_same_json(one: &[u8], other: &[u8]) -> bool {
    let read = |text: &[u8]| Json::parse(std::str::from_utf8(text).ok()?, DEPTH_LIMIT).ok();
    one == other || read(one).is_some_and(|one| read(other).is_some_and(|other| one == other))
}

/// A document, if it has a number that `serde_json` would round. Most have none, which is seen without reading them.
pub fn with_long_numbers(document: &[u8], depth: usize) -> Option<Json> {
    if !has_long_number(document) {
        return None;
    }
    Json::parse(std::str::from_utf8(document).ok()?, depth).ok()
}

/// Whether there is a number outside of texts that would be rounded.
fn has_long_number(document: &[u8]) -> bool {
    let mut at = 0;
    while let Some(byte) = document.get(at) {
        match byte {
            b'"' => {
                at += 1;
                while document.get(at).is_some_and(|byte| *byte != b'"') {
                    at += if document[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let token = &document[at..at + number_length(&document[at..])];
                if is_long(token) {
                    return true;
                }
                at += token.len();
            }
            _ => at += 1,
        }
    }
    false
}

/// Whether a number would be rounded. Up to 15 digits, none is.
fn is_long(token: &[u8]) -> bool {
    if token.len() <= 15 && !token.iter().any(|byte| matches!(byte, b'e' | b'E')) {
        return false;
    }
    let number = std::str::from_utf8(token).ok().and_then(Decimal::parse);
    number.is_some_and(|number| number.to_number().is_none())
}

fn number_length(text: &[u8]) -> usize {
    text.iter().take_while(|b| matches!(b, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')).count()
}

/// Whether a token is a number by the grammar of JSON.
fn is_number(token: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let body = token.strip_prefix('-').unwrap_or(token);
    let (body, power) = match body.find(['e', 'E']) {
        Some(at) => (&body[..at], Some(&body[at + 1..])),
        None => (body, None),
    };
    let (whole, fraction) = match body.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (body, None),
    };
    let power_fits = power.is_none_or(|power| digits(power.strip_prefix(['+', '-']).unwrap_or(power)));
    digits(whole) && (whole == "0" || !whole.starts_with('0')) && fraction.is_none_or(digits) && power_fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_serde_json_reads_them() {
        for text in [
            r#"{"a":[1,-2.5e3,true,false,null,"x\n\u00e9\ud83e\udd80"],"b":{}}"#,
            "[]",
            " 12 ",
            r#""""#,
            "[[],{}]",
        ] {
            let ours = Json::parse(text, 9).unwrap().to_value().unwrap();
            let theirs: Value = serde_json::from_str(text).unwrap();
            assert_eq!(ours.to_string().replace("-2500,", "-2500.0,"), theirs.to_string());
        }
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in [
            "",
            "{",
            "[1,]",
            "{\"a\"}",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "nul",
            "\"a",
            "\"\\",
            "\"\\u12\"",
            "[] []",
            "-",
            "\"\n\"",
        ] {
            assert!(Json::parse(text, 9).is_err(), "{text}");
            assert!(serde_json::from_str::<Value>(text).is_err(), "{text}");
        }
        assert_eq!(Json::parse("[[[]]]", 2), Err(JsonError::Depth));
        assert!(matches!(Json::parse(r#"{"a":1,"a":2}"#, 2), Err(JsonError::Twice { .. })));
    }

    #[test]
    fn numbers_that_would_be_rounded_are_seen() {
        for text in [
            "1e400",
            "[1, -1e-400]",
            r#"{"a\"5": 0.30000000000000000001}"#,
            "18446744073709551616",
            "-9223372036854775809.5",
            "-18446744073709551615",
        ] {
            assert!(with_long_numbers(text.as_bytes(), 9).is_some(), "{text}");
        }
        for text in [
            "18446744073709551615",
            "-9223372036854775808",
            "[0.1, 1e3, 0.1234567890123456, 1.7976931348623157e308]",
            r#"{"1e400": "0.30000000000000000001 \" 1e400"}"#,
            "\"1e400",
            "\"\\",
        ] {
            assert!(with_long_numbers(text.as_bytes(), 9).is_none(), "{text}");
        }
    }

    #[test]
    fn the_same_value_can_be_written_in_many_ways() {
        let same = |one: &str, other: &str| is_same_json(one.as_bytes(), other.as_bytes());
        assert!(same(r#"{"a":1,"b":[1e2]}"#, "{ \"b\": [100.0], \"\\u0061\": 1.0 }"));
        assert!(!same("[1,2]", "[2,1]"));
        assert!(!same("9007199254740992", "9007199254740993"));
        assert!(!same(r#"{"a":null}"#, "{}"));
        assert!(same("{", "{") && !same("{", "{ "));
    }

    #[test]
    fn pointers_lead_somewhere() {
        let value = Json::parse(r#"{"a/b":[{"~":7}]}"#, 9).unwrap();
        assert_eq!(value.pointer("/a~1b/0/~0"), Some(&Json::Number(7.into())));
        assert_eq!(value.pointer("/a~1b/00"), None);
        assert_eq!(value.pointer("a"), None);
        assert_eq!(value.pointer(""), Some(&value));
    }
}
