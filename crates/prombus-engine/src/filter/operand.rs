//! An event as expressions see it: those parts of it that one touches.
//!
//! Payloads are carried as text that was found to be JSON, so what is here only has to find its way in it. Not all
//! JSON has a value (`1e400`, half a character): such a field is absent, and an array with it is absent as a whole,
//! because its other items must stay where they are.

use super::budget::STEP;
use super::touched::{Root, Touched};
use crate::json_walk::Walk;
use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString};
use cel::common::value::{CowVal, Val};
use prombus_core::{Event, Json};
use std::borrow::Cow;
use std::collections::HashMap;

type Object<'a> = HashMap<CelMapKey<'a>, Box<dyn Val + 'a>>;

/// What an expression touches of what it is over.
pub(super) struct Operand<'a> {
    pub value: Box<dyn Val + 'a>,
    /// Whether something that is touched has no value.
    pub has_gaps: bool,
    /// What it took to read it.
    pub work: u64,
}

/// To go over so many bytes takes one unit of work.
const BYTES_A_UNIT: usize = 8;

/// The work of going over so many bytes without making anything of them.
pub(crate) fn looked_over(bytes: usize) -> u64 {
    (bytes / BYTES_A_UNIT) as u64
}

impl<'a> Operand<'a> {
    pub fn of(event: &'a Event, touched: &Touched) -> Self {
        let (mut fields, mut has_gaps, mut work) = (Object::new(), false, 0);
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
                let Read { value, has_gaps: gaps, work: more } = read(json, touched);
                (has_gaps, work) = (has_gaps | gaps, work + more);
                fields.extend(value.map(|value| (name.into(), value)));
            }
        }
        Self { value: Box::new(CelMap::from(fields)), has_gaps, work }
    }

    /// Of a payload by itself.
    pub fn of_payload(payload: &'a Json, touched: &Touched) -> Self {
        let Read { value, has_gaps, work } = read(payload, touched);
        Self { value: value.unwrap_or_else(|| Box::new(CelNull)), has_gaps, work }
    }
}

/// What is touched of a JSON text: see [`Operand`].
struct Read<'a> {
    value: Option<Box<dyn Val + 'a>>,
    has_gaps: bool,
    work: u64,
}

fn read<'a>(json: &'a Json, touched: &Touched) -> Read<'a> {
    let Ok(text) = std::str::from_utf8(json.as_bytes()) else {
        return Read { value: None, has_gaps: true, work: 0 };
    };
    let mut reader = Reader { walk: Walk::through(text), has_gaps: false, values: 0 };
    let value = reader.value(touched);
    let work = reader.values * STEP + looked_over(text.len());
    Read { value, has_gaps: reader.has_gaps, work }
}

/// JSON integers that fit are CEL ints, other numbers doubles.
fn integer<'a>(value: u64) -> Box<dyn Val + 'a> {
    match i64::try_from(value) {
        Ok(int) => Box::new(CelInt::from(int)),
        Err(_) => Box::new(CelDouble::from(value as f64)),
    }
}

/// Reads values on a walk through JSON.
struct Reader<'a> {
    walk: Walk<'a>,
    has_gaps: bool,
    /// How many values were read.
    values: u64,
}

impl<'a> Reader<'a> {
    /// Goes over a value; `None` where it has none.
    fn value(&mut self, touched: &Touched) -> Option<Box<dyn Val + 'a>> {
        self.values += 1;
        let value: Option<Box<dyn Val + 'a>> = match self.walk.peek() {
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
        self.walk.at += word.len();
        Some(value)
    }

    fn object(&mut self, touched: &Touched) -> Box<dyn Val + 'a> {
        let mut fields = Object::new();
        self.walk.at += 1;
        if self.walk.peek() == b'}' {
            self.walk.at += 1;
            return Box::new(CelMap::from(fields));
        }
        loop {
            let name = self.string();
            self.walk.at += 1;
            match name.as_ref().map(|name| touched.field(name)) {
                // A name that has no value is none that an expression could name.
                None => {
                    self.has_gaps |= *touched == Touched::Whole;
                    self.walk.skip();
                }
                Some(None) => self.walk.skip(),
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
            if self.walk.is_last() {
                return Box::new(CelMap::from(fields));
            }
        }
    }

    fn list(&mut self, touched: &Touched) -> Option<Box<dyn Val + 'a>> {
        let mut items = Vec::new();
        self.walk.at += 1;
        if self.walk.peek() == b']' {
            self.walk.at += 1;
            return Some(Box::new(CelList::from(items)));
        }
        let mut is_whole = true;
        loop {
            match self.value(touched) {
                Some(item) => items.push(item),
                None => is_whole = false,
            }
            if self.walk.is_last() {
                return is_whole.then(|| Box::new(CelList::from(items)) as _);
            }
        }
    }

    fn number(&mut self) -> Option<Box<dyn Val + 'a>> {
        let start = self.walk.at;
        let rest = self.walk.text.get(start..).unwrap_or_default();
        self.walk.at += rest.find([',', ']', '}']).unwrap_or(rest.len()).max(1);
        let text = self.walk.since(start);
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
        let start = self.walk.at;
        let is_plain = self.walk.skip_string();
        let text = self.walk.since(start);
        if is_plain {
            return text.get(1..text.len().saturating_sub(1)).map(Cow::Borrowed);
        }
        serde_json::from_str(text).ok().map(Cow::Owned)
    }
}

/// What the names of an expression stand for.
pub(super) struct Names<'a> {
    pub root: Root,
    pub operand: &'a Operand<'a>,
    pub budget: &'a super::budget::Budget,
}

impl cel::context::VariableResolver for Names<'_> {
    fn resolve<'b>(&'b self, name: &str) -> Option<CowVal<'b, 'b>> {
        match name {
            name if name == self.root.name() => Some(CowVal::Borrowed(&*self.operand.value)),
            super::language::BUDGET => Some(CowVal::Borrowed(self.budget)),
            _ => None,
        }
    }
}
