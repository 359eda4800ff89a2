//! Request objects are JSON objects: an array of a struct's fields in their order, which serde would take
//! as well, is refused. Their fields may have [either spelling](crate::spelling).

use crate::spelling::SpelledObject;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// A `T` that came as a JSON object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(SpelledObject(map))
            }
        }
        deserializer.deserialize_map(ObjectVisitor(PhantomData)).map(Object)
    }
}

impl<T: Serialize> Serialize for Object<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Parses a body that is one JSON object. What is not even JSON is told as such, whatever it starts with.
pub fn parse_object<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(body).map(|Object(value)| value).map_err(|error| {
        let syntax = serde_json::from_slice::<IgnoredAny>(body).err();
        syntax.unwrap_or(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Pair {
        a: u32,
        b: u32,
    }

    #[test]
    fn only_objects_are_taken() {
        let pair: Pair = parse_object(br#"{"a":1,"b":2}"#).unwrap();
        assert_eq!((pair.a, pair.b), (1, 2));
        for bad in ["[1,2]", "null", "1", "\"a\"", r#"{"a":1}"#, r#"{"a":1,"b":2,"c":3}"#] {
            let error = parse_object::<Pair>(bad.as_bytes()).unwrap_err();
            assert!(error.is_data(), "{bad}: {error}");
        }
        for bad in ["", "{", "[1,", r#"{"c":1"#, r#"{"a":1,"b":2}}"#] {
            let error = parse_object::<Pair>(bad.as_bytes()).unwrap_err();
            assert!(error.is_syntax() || error.is_eof(), "{bad}: {error}");
        }
    }
}
