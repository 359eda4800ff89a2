//! An event as expressions see it: those parts of it that one touches.
//!
//! Payloads are carried as text that was found to be JSON, so what is here only has to find its way in it. Not all
//! JSON has a value (`1e400`, half a character): such a field is absent, and an array with it is absent as a whole,
//! because its other items must stay where they are.

use super::touched::{EVENT, Touched};
use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString};
use cel::common::value::{CowVal, Val};
use prombus_core::{Event, Json};
use std::borrow::Cow;
use std::collections::HashMap;

type Object<'a> = HashMap<CelMapKey<'a>, Box<dyn Val + 'a>>;

/// What an expression touches of an event.
pub(super) struct Operand<'a> {
    pub value: CelMap<'a>,
    /// Whether something that is touched has no value.
    pub has_gaps: bool,
}

impl<'a> Operand<'a> {
    pub fn of(event: &'a Event, touched: &Touched) -> Self {
        let (mut fields, mut has_gaps) = (Object::new(), false);
        let mut put = |name: &'static str, value: &dyn Fn(&Touched) -> Option<Box<dyn Val + 'a>>| {
            if let Some(value) = touched.field(name).and_then(value) {
                fields.insert(name.into(), value);
            }
        };
        put("id", &|_| Some(Box::new(CelString::from(event.id.hyphenated().to_string()))));
        put("ts", &|_| Some(integer(event.ts)));
        put("recorded_ts", &|_| (event.recorded_ts != event.ts).then(|| integer(event.recorded_ts)));
        put("topic", &|_| Some(Box::new(CelString::from(event.topic.as_str()))));
        put("key", &|_| Some(Box::new(CelString::from(event.key.as_deref()?))));
        put("partition", &|_| Some(integer(event.partition.0.into())));
        put("offset", &|_| Some(integer(event.offset.0)));
        for (name, json) in [
            ("sid", event.sid.as_deref()),
            ("headers", event.headers.as_deref()),
            ("payload", Some(&event.payload)),
            ("caused_by", event.caused_by.as_deref()),
            ("tags", event.tags.as_deref()),
        ] {
            if let (Some(json), Some(touched)) = (json, touched.field(name)) {
                let (value, gaps) = read(json, touched);
                has_gaps |= gaps;
                fields.extend(value.map(|value| (name.into(), value)));
            }
        }
        Self { value: fields.into(), has_gaps }
    }
}

/// What is touched of a JSON text, and whether a part of that has no value.
fn read<'a>(json: &'a Json, touched: &Touched) -> (Option<Box<dyn Val + 'a>>, bool) {
    let Ok(text) = std::str::from_utf8(json.as_bytes()) else { return (None, true) };
    let mut reader = Reader { text, at: 0, has_gaps: false };
    (reader.value(touched), reader.has_gaps)
}

/// JSON integers that fit are CEL ints, other numbers doubles.
fn integer<'a>(value: u64) -> Box<dyn Val + 'a> {
    match i64::try_from(value) {
        Ok(int) => Box::new(CelInt::from(int)),
        Err(_) => Box::new(CelDouble::from(value as f64)),
    }
}

/// A walk through valid JSON without white space.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    has_gaps: bool,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(b']')
    }

    /// The text from `start` to the present place.
    fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// Goes behind a separator or the end of an array or object, and says whether that was the end.
    fn is_last(&mut self) -> bool {
        let last = self.peek() != b',';
        self.at += 1;
        last
    }

    /// Goes over a value; `None` where it has none.
    fn value(&mut self, touched: &Touched) -> Option<Box<dyn Val + 'a>> {
        let value: Option<Box<dyn Val + 'a>> = match self.peek() {
            b'{' => Some(self.object(touched)),
            b'[' => return self.list(touched),
            b'"' => self.string().map(|text| Box::new(CelString::from(text)) as _),
            b't' => self.word("true", Box::new(CelBool::from(true))),
            b'f' => self.word("false", Box::new(CelBool::from(false))),
            b'n' => self.word("null", Box::new(CelNull)),
            _ => self.number(),
        };
        self.has_gaps |= value.is_none();
        value
    }

    fn word(&mut self, word: &str, value: Box<dyn Val + 'a>) -> Option<Box<dyn Val + 'a>> {
        self.at += word.len();
        Some(value)
    }

    fn object(&mut self, touched: &Touched) -> Box<dyn Val + 'a> {
        let mut fields = Object::new();
        self.at += 1;
        if self.peek() == b'}' {
            self.at += 1;
            return Box::new(CelMap::from(fields));
        }
        loop {
            let name = self.string();
            self.at += 1;
            match name.as_ref().map(|name| touched.field(name)) {
                // A name that has no value is none that an expression could name.
                None => {
                    self.has_gaps |= *touched == Touched::Whole;
                    self.skip();
                }
                Some(None) => self.skip(),
                Some(Some(below)) => {
                    let value = self.value(below);
                    let name = CelMapKey::String(CelString::from(name.unwrap_or_default()));
                    // The last one of a name counts, also where it has no value.
                    match value {
                        Some(value) => drop(fields.insert(name, value)),
                        None => drop(fields.remove(&name)),
                    }
                }
            }
            if self.is_last() {
                return Box::new(CelMap::from(fields));
            }
        }
    }

    fn list(&mut self, touched: &Touched) -> Option<Box<dyn Val + 'a>> {
        let mut items = Vec::new();
        self.at += 1;
        if self.peek() == b']' {
            self.at += 1;
            return Some(Box::new(CelList::from(items)));
        }
        let mut is_whole = true;
        loop {
            match self.value(touched) {
                Some(item) => items.push(item),
                None => is_whole = false,
            }
            if self.is_last() {
                return is_whole.then(|| Box::new(CelList::from(items)) as _);
            }
        }
    }

    fn number(&mut self) -> Option<Box<dyn Val + 'a>> {
        let start = self.at;
        let rest = self.text.get(start..).unwrap_or_default();
        self.at += rest.find([',', ']', '}']).unwrap_or(rest.len()).max(1);
        let text = self.since(start);
        // The sign of a zero is a double's.
        if text != "-0"
            && let Ok(int) = text.parse::<i64>()
        {
            return Some(Box::new(CelInt::from(int)));
        }
        let double = text.parse::<f64>().ok().filter(|double| double.is_finite())?;
        Some(Box::new(CelDouble::from(double)))
    }

    /// Goes over a string, which is borrowed where the text stands for itself.
    fn string(&mut self) -> Option<Cow<'a, str>> {
        let start = self.at;
        let is_plain = self.skip_string();
        let text = self.since(start);
        if is_plain {
            return text.get(1..text.len().saturating_sub(1)).map(Cow::Borrowed);
        }
        serde_json::from_str(text).ok().map(Cow::Owned)
    }

    /// Goes over a string, and says whether it is without escapes.
    fn skip_string(&mut self) -> bool {
        let mut is_plain = true;
        self.at += 1;
        loop {
            let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
            match memchr::memchr2(b'"', b'\\', rest) {
                Some(step) if rest.get(step) == Some(&b'\\') => {
                    is_plain = false;
                    self.at += step + 2;
                }
                Some(step) => {
                    self.at += step + 1;
                    return is_plain;
                }
                None => {
                    self.at = self.text.len();
                    return is_plain;
                }
            }
        }
    }

    /// Goes over a value without reading it.
    fn skip(&mut self) {
        let mut depth = 0usize;
        while let Some(byte) = self.text.as_bytes().get(self.at) {
            match byte {
                b'"' => {
                    self.skip_string();
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b',' | b'}' | b']' if depth == 0 => return,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
    }
}

/// What the names of an expression stand for.
pub(super) struct Names<'a> {
    pub event: &'a Operand<'a>,
    pub budget: &'a super::budget::Budget,
}

impl cel::context::VariableResolver for Names<'_> {
    fn resolve<'b>(&'b self, name: &str) -> Option<CowVal<'b, 'b>> {
        match name {
            EVENT => Some(CowVal::Borrowed(&self.event.value)),
            super::language::BUDGET => Some(CowVal::Borrowed(self.budget)),
            _ => None,
        }
    }
}
