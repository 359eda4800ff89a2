//! Merging by RFC 7396 in which values keep their text: big integers and `1.10` come out as they went in.

use super::{MANY_BYTES, TimeTravelError};
use crate::filter::off_the_runtime;
use prombus_core::{Json, json};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;

/// The most that a merged state may take, in bytes; each value counts for as much as it takes in memory.
pub const MAX_STATE_BYTES: usize = 16 << 20;
/// What a value takes beside its text, about.
const VALUE_BYTES: usize = 64;

/// A value that payloads were merged into.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged {
    root: Node,
    /// What all of it takes.
    bytes: usize,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    /// Anything but an object, as it was written.
    Text(Box<str>),
    /// Fields by their names, which are JSON strings in one spelling.
    Object(BTreeMap<Box<str>, Node>),
}

impl Merged {
    /// What a patch makes of the value before.
    pub fn after(before: Option<Self>, patch: &Json) -> Result<Self, TimeTravelError> {
        let (target, mut bytes) = match before {
            Some(Self { root, bytes }) => (Some(root), bytes),
            None => (None, 0),
        };
        let patch = std::str::from_utf8(patch.as_bytes()).unwrap_or("null");
        let root = merged(target, patch, &mut bytes);
        match bytes > MAX_STATE_BYTES {
            true => Err(TimeTravelError::TooLarge),
            false => Ok(Self { root, bytes }),
        }
    }

    /// Its text. Fields come in the order of their names.
    pub fn into_json(self) -> Json {
        let is_much = self.bytes > MANY_BYTES;
        let text = move || {
            let mut out = Vec::new();
            self.root.write(&mut out);
            Json::from_stored(out.into())
        };
        if is_much { off_the_runtime(text) } else { text() }
    }
}

impl Node {
    fn bytes(&self) -> usize {
        VALUE_BYTES
            + match self {
                Self::Text(text) => text.len(),
                Self::Object(fields) => fields.iter().map(|(name, node)| name.len() + node.bytes()).sum(),
            }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Object(fields) => {
                out.push(b'{');
                for (n, (name, node)) in fields.iter().enumerate() {
                    if n > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(name.as_bytes());
                    out.push(b':');
                    node.write(out);
                }
                out.push(b'}');
            }
        }
    }
}

/// The algorithm of the RFC. `bytes` counts what the value takes that `target` is part of. Texts here are nested as deep as
/// a payload may be, and no deeper.
fn merged(target: Option<Node>, patch: &str, bytes: &mut usize) -> Node {
    let Some(patch) = fields(patch) else {
        let node = Node::Text(patch.into());
        *bytes = (*bytes + node.bytes()).saturating_sub(target.map_or(0, |old| old.bytes()));
        return node;
    };
    let mut all = match target {
        Some(Node::Object(fields)) => fields,
        other => {
            *bytes = (*bytes + VALUE_BYTES).saturating_sub(other.map_or(0, |old| old.bytes()));
            BTreeMap::new()
        }
    };
    for (name, change) in patch {
        let old = all.remove(&name);
        let name_bytes = name.len();
        if change == "null" {
            *bytes = bytes.saturating_sub(old.map_or(0, |old| name_bytes + old.bytes()));
            continue;
        }
        if old.is_none() {
            *bytes += name_bytes;
        }
        let new = merged(old, change, bytes);
        all.insert(name, new);
    }
    Node::Object(all)
}

/// The fields of an object, of those with the same name the last one; `None` where it is no object.
fn fields(text: &str) -> Option<BTreeMap<Box<str>, &str>> {
    struct Object;
    impl<'de> Visitor<'de> for Object {
        type Value = BTreeMap<Box<str>, &'de str>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut fields = BTreeMap::new();
            while let Some((name, value)) = map.next_entry::<&RawValue, &RawValue>()? {
                fields.insert(one_spelling(name.get()), value.get());
            }
            Ok(fields)
        }
    }
    // Each level is read on its own, so nothing is nested too deep for the parser.
    text.starts_with('{')
        .then(|| serde_json::Deserializer::from_str(text).deserialize_map(Object).ok())
        .flatten()
}

/// A name as a JSON string without needless escapes. One that is no text, such as half a character, stays as it is.
fn one_spelling(name: &str) -> Box<str> {
    if !name.contains('\\') {
        return name.into();
    }
    let Ok(text) = serde_json::from_str::<String>(name) else { return name.into() };
    let mut out = Vec::with_capacity(name.len());
    json::write_string(&mut out, &text);
    String::from_utf8(out).unwrap_or_else(|_| name.to_owned()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use prombus_fixtures::merge_patch;
    use proptest::prelude::*;
    use serde_json::Value;

    fn json(text: &str) -> Json {
        Json::parse(text.to_owned().into()).unwrap()
    }

    fn after(payloads: &[&str]) -> String {
        let merge = |before, patch: &&str| Some(Merged::after(before, &json(patch)).unwrap());
        let merged = payloads.iter().fold(None, merge).unwrap();
        assert_eq!(merged.bytes, merged.root.bytes(), "what it takes is counted");
        String::from_utf8(merged.into_json().as_bytes().to_vec()).unwrap()
    }

    /// The table of RFC 7396, appendix A, whole. An original is merged into nothing first, which leaves all but the one with
    /// a `null` in it as it is.
    #[test]
    fn the_test_table_of_the_rfc() {
        for (original, patch, result) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"[1,2]"#, r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            assert_eq!(after(&[original, patch]), result, "{original} and {patch}");
        }
        // The one row whose original no merge can make: a field that is null.
        let fields = [("\"e\"".into(), Node::Text("null".into()))];
        let root = Node::Object(BTreeMap::from(fields));
        let original = Merged { bytes: root.bytes(), root };
        assert_eq!(original.clone().into_json().as_bytes(), br#"{"e":null}"#);
        let merged = Merged::after(Some(original), &json(r#"{"a":1}"#)).unwrap();
        assert_eq!(merged.into_json().as_bytes(), br#"{"a":1,"e":null}"#);
    }

    #[test]
    fn values_keep_their_text_and_names_have_one_spelling() {
        assert_eq!(
            after(&[r#"{"n":1.10,"big":123456789012345678901234567890}"#, r#"{"s":"\u00e9"}"#]),
            r#"{"big":123456789012345678901234567890,"n":1.10,"s":"\u00e9"}"#
        );
        assert_eq!(after(&[r#"{"é":1}"#, r#"{"\u00e9":2}"#]), r#"{"é":2}"#);
        assert_eq!(after(&[r#"{"\ud800":1}"#, r#"{"\ud800":null,"a":1}"#]), r#"{"a":1}"#);
        assert_eq!(after(&[r#"{"a":{"x":1},"a":{"y":2}}"#]), r#"{"a":{"y":2}}"#, "the last of a name counts");
    }

    #[test]
    fn the_deepest_payloads_are_merged_and_the_largest_refused() {
        let deep = |leaf: &str| format!("{}{leaf}{}", "{\"a\":".repeat(128), "}".repeat(128));
        assert_eq!(after(&[&deep("1"), &deep("2")]), deep("2"));
        let patch = |n: usize| json(&format!("{{\"f{n}\":\"{}\"}}", "x".repeat(1 << 20)));
        let all = (0..17).try_fold(None, |before, n| Merged::after(before, &patch(n)).map(Some));
        assert!(matches!(all, Err(TimeTravelError::TooLarge)));
        let same = (0..40).try_fold(None, |before, _| Merged::after(before, &patch(0)).map(Some));
        assert!(same.is_ok(), "what was replaced does not count");
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            ".{0,6}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::hash_map("[ab\"\u{e9}]{0,2}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn merging_is_what_the_rfc_says(patches in prop::collection::vec(value(), 1..6)) {
            let (mut merged, mut expected) = (None, None);
            for patch in &patches {
                let next = Merged::after(merged, &Json::from_value(patch)).unwrap();
                expected = Some(merge_patch(expected, patch));
                prop_assert_eq!(&next.clone().into_json().to_value().unwrap(), expected.as_ref().unwrap());
                prop_assert_eq!(next.bytes, next.root.bytes());
                merged = Some(next);
            }
        }
    }
}
