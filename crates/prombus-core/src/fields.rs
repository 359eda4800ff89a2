//! The fields of a JSON object as texts, for whoever needs some of them and not the whole tree.

use crate::json::{self, Json};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;

/// The fields of an object in the order of their names. Of a name that is there twice, the last one counts.
#[derive(Debug)]
pub struct Fields<'a> {
    fields: Vec<Field<'a>>,
    has_repeats: bool,
}

/// A field, whose value is read at most once.
#[derive(Debug)]
pub struct Field<'a> {
    name: Cow<'a, str>,
    text: &'a str,
    value: OnceCell<Value>,
}

impl<'a> Field<'a> {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text of its value.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// Its value. Not every text has one: a number may be too large for a double, and a string may end in half a
    /// character.
    pub fn value(&self) -> Result<&Value, serde_json::Error> {
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        // On its own, because a value within the deepest object is as deep as can be read.
        let value = serde_json::from_str(self.text)?;
        Ok(self.value.get_or_init(|| value))
    }

    /// How many values it holds at most: see [`Json::values`].
    pub fn values(&self) -> usize {
        json::values(self.text.as_bytes())
    }

    /// The string that it is, where its text stands for itself.
    pub fn plain_string(&self) -> Option<&'a str> {
        let inner = self.text.strip_prefix('"')?.strip_suffix('"')?;
        memchr::memchr(b'\\', inner.as_bytes()).is_none().then_some(inner)
    }

    /// Whether its text is for certain what its value is written as: most are.
    pub fn is_normal(&self) -> bool {
        /// An integer of no more digits has 64 bits.
        const DIGITS: usize = 18;
        match self.text.as_bytes() {
            [b'"', ..] => self.plain_string().is_some(),
            [b'-', b'0', ..] => false,
            [b'-', digits @ ..] | digits @ [b'0'..=b'9', ..] => {
                digits.len() <= DIGITS && digits.iter().all(u8::is_ascii_digit)
            }
            [b'[' | b'{', ..] => false,
            // What is left is true, false or null.
            _ => true,
        }
    }
}

impl<'a> Fields<'a> {
    /// The fields of `json`; `None` where that is no object, or a name in it cannot be read.
    pub fn of(json: &'a Json) -> Option<Self> {
        let mut fields: Vec<Field<'a>> =
            serde_json::Deserializer::from_slice(json.as_bytes()).deserialize_map(Object).ok()?;
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        let all = fields.len();
        // The sort is stable, so the last one of a name stands behind the others.
        fields.dedup_by(|later, earlier| {
            let is_same = later.name == earlier.name;
            if is_same {
                earlier.text = later.text;
            }
            is_same
        });
        Some(Self { has_repeats: fields.len() < all, fields })
    }

    /// The field with this name.
    pub fn get(&self, name: &str) -> Option<&Field<'a>> {
        let at = self.fields.binary_search_by(|field| (*field.name).cmp(name)).ok()?;
        self.fields.get(at)
    }

    /// All fields.
    pub fn iter(&self) -> impl Iterator<Item = &Field<'a>> {
        self.fields.iter()
    }

    /// Whether there was more than these: a name twice.
    pub fn has_repeats(&self) -> bool {
        self.has_repeats
    }
}

struct Object;

impl<'de> Visitor<'de> for Object {
    type Value = Vec<Field<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::with_capacity(16);
        while let Some(name) = map.next_key_seed(Name)? {
            let text = map.next_value::<&RawValue>()?.get();
            fields.push(Field { name, text, value: OnceCell::new() });
        }
        Ok(fields)
    }
}

/// Reads a name, and copies it only where it is not in the text as it is.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name() {
        let json = Json::parse(r#"{"b":1,"\u0061":[2,{"x":"y"}],"c":"\"","b":{"z":1.10}}"#.into()).unwrap();
        let fields = Fields::of(&json).unwrap();
        let text = |name| fields.get(name).map(Field::text);
        assert_eq!(text("a"), Some(r#"[2,{"x":"y"}]"#));
        assert_eq!(text("b"), Some(r#"{"z":1.10}"#), "the last one counts");
        assert_eq!(text("d"), None);
        assert_eq!(fields.iter().map(Field::name).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(fields.get("c").unwrap().value().unwrap(), "\"");
        assert!(
            fields.has_repeats() && !Fields::of(&Json::parse("{}".into()).unwrap()).unwrap().has_repeats()
        );
        assert!(Fields::of(&Json::parse("[1]".into()).unwrap()).is_none());
    }

    #[test]
    fn plain_strings_are_those_without_escapes() {
        let plain = |text: &str| {
            let json = Json::parse(format!("{{\"a\":{text}}}").into()).unwrap();
            let fields = Fields::of(&json).unwrap();
            fields.get("a").unwrap().plain_string().map(str::to_owned)
        };
        assert_eq!(plain(r#""né""#).as_deref(), Some("né"));
        assert_eq!(plain(r#""""#).as_deref(), Some(""));
        for other in [r#""a\n""#, "1", "null", r#"["a"]"#] {
            assert_eq!(plain(other), None, "{other}");
        }
    }

    #[test]
    fn what_has_no_value_is_told() {
        let json = Json::parse(r#"{"a":1e400,"b":"\ud800","c":[1e400],"d":1e300}"#.into()).unwrap();
        let fields = Fields::of(&json).unwrap();
        let is_read: Vec<bool> = fields.iter().map(|field| field.value().is_ok()).collect();
        assert_eq!(is_read, [false, false, false, true]);
        assert!(fields.iter().all(|field| !field.is_normal()));
    }
}
