//! Two spellings of a name: every field of a request may be written as `delay_ms` or as `delayMs`, whichever of them
//! its type declares. Both at once are refused.
//!
//! This is done in one place: while a request is parsed, the names of its fields, and of the objects inside it, are
//! turned into the declared ones. Names that are data (payloads, documents, headers, and all other maps) are not fields
//! of a type and stay as they are.

use serde::de::{DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use std::borrow::Cow;
use std::fmt;

/// How many fields of an object are remembered by the spelling that they had. No request has nearly as many.
const MAX_FIELDS: usize = u64::BITS as usize;

/// The other spelling of a name, where it has more than one word.
pub fn other_spelling(name: &str) -> Option<String> {
    let mut other = String::with_capacity(name.len() + 4);
    if name.contains('_') {
        let mut words = name.split('_').filter(|word| !word.is_empty());
        other.push_str(words.next()?);
        for word in words {
            let mut letters = word.chars();
            other.extend(letters.next().map(|first| first.to_ascii_uppercase()));
            other.push_str(letters.as_str());
        }
    } else {
        for letter in name.chars() {
            if letter.is_ascii_uppercase() {
                other.push('_');
            }
            other.push(letter.to_ascii_lowercase());
        }
    }
    (other != name).then_some(other)
}

/// Whether `given` is `name` in its other spelling.
pub fn is_other_spelling(given: &str, name: &str) -> bool {
    // Most names are one word, and this is asked of all of them.
    let has_words = |name: &str| name.bytes().any(|b| b == b'_' || b.is_ascii_uppercase());
    has_words(name) && has_words(given) && other_spelling(name).is_some_and(|other| other == given)
}

/// What is said of a name that was given in both spellings.
pub fn given_twice(name: &str) -> String {
    let other = other_spelling(name).map_or(Cow::Borrowed(name), Cow::Owned);
    format!("{name} and {other} are two spellings of the same name; give only one of them")
}

/// The object behind a map: a struct that is made of it gets its declared names.
pub(crate) struct SpelledObject<A>(pub(crate) A);

impl<'de, A: MapAccess<'de>> Deserializer<'de> for SpelledObject<A> {
    type Error = A::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, A::Error> {
        visitor.visit_map(self.0)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        visitor.visit_map(SpelledFields { map: self.0, fields, seen: Seen::default() })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Which fields were met, by their number: in the declared spelling, and in the other one.
#[derive(Default)]
struct Seen {
    declared: u64,
    other: u64,
}

/// The fields of an object, under their declared names.
struct SpelledFields<A> {
    map: A,
    fields: &'static [&'static str],
    seen: Seen,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for SpelledFields<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        self.map.next_key_seed(FieldName { seed, fields: self.fields, seen: &mut self.seen })
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.map.next_value_seed(Spelled(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.map.size_hint()
    }
}

/// One name of an object.
struct FieldName<'s, K> {
    seed: K,
    fields: &'static [&'static str],
    seen: &'s mut Seen,
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for FieldName<'_, K> {
    type Value = K::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<K::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<'de, K: DeserializeSeed<'de>> Visitor<'de> for FieldName<'_, K> {
    type Value = K::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, given: &str) -> Result<K::Value, E> {
        let Self { seed, fields, seen } = self;
        let exact = fields.iter().position(|name| *name == given);
        let field = exact.or_else(|| fields.iter().position(|name| is_other_spelling(given, name)));
        let Some(field) = field else { return seed.deserialize(given.into_deserializer()) };
        let bit = if field < MAX_FIELDS { 1 << field } else { 0 };
        *(if exact.is_some() { &mut seen.declared } else { &mut seen.other }) |= bit;
        if seen.declared & seen.other & bit != 0 {
            return Err(E::custom(given_twice(fields[field])));
        }
        seed.deserialize(fields[field].into_deserializer())
    }
}

/// A value of a request, or what makes one: objects inside it have their names in either spelling too.
struct Spelled<T>(T);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Spelled<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Spelled(deserializer))
    }
}

/// Passes calls on that nothing with fields can come of.
macro_rules! pass_on {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method(visitor)
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Spelled<D> {
    type Error = D::Error;

    pass_on! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_unit deserialize_map deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(StructVisitor { visitor, fields })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_option(Inside(visitor))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_seq(Inside(visitor))
    }

    // The text of a payload is one: what is in it is nobody's field.
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_unit_struct(name, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple(len, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple_struct(name, len, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }
}

/// Takes an object, and nothing else, for a struct.
struct StructVisitor<V> {
    visitor: V,
    fields: &'static [&'static str],
}

impl<'de, V: Visitor<'de>> Visitor<'de> for StructVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        let Self { visitor, fields } = self;
        visitor.visit_map(SpelledFields { map, fields, seen: Seen::default() })
    }
}

/// Goes on inside an optional value or a list.
struct Inside<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for Inside<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Spelled(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Spelled(items))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Spelled<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Spelled(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

#[cfg(test)]
mod tests;
