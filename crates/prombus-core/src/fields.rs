//! The fields of a JSON object as texts, for whoever needs some of them and not the whole tree.

use crate::json::Json;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The fields of an object in the order of their names, each with the text of its value. Of a name that is there
/// twice, the last one counts.
#[derive(Debug)]
pub struct Fields<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'a> Fields<'a> {
    /// The fields of `json`; `None` where that is no object.
    pub fn of(json: &'a Json) -> Option<Self> {
        let mut fields: Vec<(Cow<'a, str>, &'a str)> =
            serde_json::Deserializer::from_slice(json.as_bytes()).deserialize_map(Object).ok()?;
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        // The sort is stable, so the last one of a name stands behind the others.
        fields.dedup_by(|later, earlier| {
            let is_same = later.0 == earlier.0;
            if is_same {
                earlier.1 = later.1;
            }
            is_same
        });
        Some(Self(fields))
    }

    /// The text of the value of a field.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.0.binary_search_by(|(known, _)| (**known).cmp(name)).ok().map(|at| self.0[at].1)
    }

    /// All names and texts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0.iter().map(|(name, text)| (&**name, *text))
    }
}

/// The string that a JSON text stands for, where it stands for itself.
pub fn plain_string(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    memchr::memchr(b'\\', inner.as_bytes()).is_none().then_some(inner)
}

struct Object;

impl<'de> Visitor<'de> for Object {
    type Value = Vec<(Cow<'de, str>, &'de str)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::with_capacity(16);
        while let Some(name) = map.next_key_seed(Name)? {
            fields.push((name, map.next_value::<&RawValue>()?.get()));
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
        assert_eq!(fields.get("a"), Some(r#"[2,{"x":"y"}]"#));
        assert_eq!(fields.get("b"), Some(r#"{"z":1.10}"#), "the last one counts");
        assert_eq!(fields.get("d"), None);
        assert_eq!(fields.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!(Fields::of(&Json::parse("[1]".into()).unwrap()).is_none());
    }

    #[test]
    fn plain_strings_are_those_without_escapes() {
        assert_eq!(plain_string(r#""né""#), Some("né"));
        assert_eq!(plain_string(r#""""#), Some(""));
        for other in [r#""a\n""#, "1", "null", r#"["a"]"#, r#"""#] {
            assert_eq!(plain_string(other), None, "{other}");
        }
    }
}
