//! What a producer sends: one event, or an array of them.

use crate::object::Object;
use crate::text::Text;
use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fmt;

/// Declares a request with fields of its own before those that an event can have beside its payload. (`flatten` would do,
/// but it does not go together with `deny_unknown_fields`.)
///
/// Fields that are carried as JSON are a `J`: the text of it in what was parsed, and something that becomes it in what
/// is to be sent.
macro_rules! with_event_fields {
    ($(#[$doc:meta])* pub struct $name:ident { $($(#[$own_doc:meta])* pub $own:ident: $own_type:ty,)+ }) => {
        $crate::publish::with_event_fields! { @only
            $(#[$doc])* pub struct $name { $($(#[$own_doc])* #[serde(borrow)] pub $own: $own_type,)+ }
        }

        impl<'a, J> $name<'a, J> {
            /// With what goes beside the payload.
            pub fn new($($own: $own_type,)+ options: $crate::PublishOptions<'a, J>) -> Self {
                let $crate::PublishOptions { key, id, ts, sid, headers, tags, caused_by, partition, expect } = options;
                Self { $($own,)+ key, id, ts, sid, headers, tags, caused_by, partition, expect }
            }
        }
    };
    (@only $(#[$doc:meta])* pub struct $name:ident { $($(#[$own_doc:meta])* pub $own:ident: $own_type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name<'a, J = &'a RawValue> {
            $($(#[$own_doc])* pub $own: $own_type,)*
            /// What compaction, partitioning and order per key go by.
            #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
            pub key: Option<$crate::Text<'a>>,
            /// The producer's own id, a UUID.
            #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
            pub id: Option<$crate::Text<'a>>,
            /// Event time in epoch milliseconds.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub ts: Option<u64>,
            /// A string.
            #[serde(default = "absent", skip_serializing_if = "Option::is_none")]
            pub sid: Option<J>,
            /// An object of strings.
            #[serde(default = "absent", skip_serializing_if = "Option::is_none")]
            pub headers: Option<J>,
            /// An array of strings.
            #[serde(default = "absent", skip_serializing_if = "Option::is_none")]
            pub tags: Option<J>,
            /// An array of strings.
            #[serde(default = "absent", skip_serializing_if = "Option::is_none")]
            pub caused_by: Option<J>,
            /// The partition that the producer names.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub partition: Option<u32>,
            /// What must hold for it.
            #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
            pub expect: Option<$crate::Object<$crate::ExpectRequest<'a>>>,
        }
    };
}

pub(crate) use with_event_fields;

/// Serde wants a default of `J` itself otherwise.
pub(crate) fn absent<J>() -> Option<J> {
    None
}

with_event_fields! {
    /// One event of `POST /v1/topics/{topic}/events`. A field that is `null` counts as absent, but for the
    /// payload, which may be `null`.
    pub struct EventRequest {
        /// Any JSON.
        pub payload: &'a RawValue,
    }
}

with_event_fields! { @only
    /// What goes with the payload of a `PUBLISH`.
    pub struct PublishOptions {}
}

impl<J> Default for PublishOptions<'_, J> {
    fn default() -> Self {
        let (key, id, ts, sid, headers, tags) = (None, None, None, None, None, None);
        Self { key, id, ts, sid, headers, tags, caused_by: None, partition: None, expect: None }
    }
}

/// A condition on the latest event of the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectRequest<'a> {
    /// The id that it must have; `null`: there must be none. It must be said which.
    #[serde(borrow, deserialize_with = "present")]
    pub last_id: Option<Text<'a>>,
}

/// Makes serde insist on an optional value's name: only `null` means none.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text<'a>>, D::Error> {
    Option::deserialize(deserializer)
}

/// Makes serde tell `null` from absent.
pub(crate) fn given<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The body of `POST /v1/topics/{topic}/keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeysRequest {
    /// The keys whose latest events are wanted.
    pub keys: Vec<String>,
}

/// Why an array of events was not taken.
#[derive(Debug)]
pub enum ArrayError<E> {
    /// It is not an array of events.
    Json {
        /// Which event is to blame, where it is an event.
        index: Option<usize>,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// Whoever takes the events refused one.
    Refused {
        /// Which one.
        index: usize,
        /// Why.
        error: E,
    },
}

/// Parses an array of events and hands each one to `take` as it comes, so that no second array is built.
/// Says how many there were.
pub fn each_event<'a, E>(
    text: &'a str,
    take: impl FnMut(EventRequest<'a>) -> Result<(), E>,
) -> Result<usize, ArrayError<E>> {
    let (mut count, mut refused) = (0, None);
    let mut json = serde_json::Deserializer::from_str(text);
    let taker = Taker { take, count: &mut count, refused: &mut refused };
    let parsed = taker.deserialize(&mut json).and_then(|()| json.end());
    match (refused, parsed) {
        (Some(error), _) => Err(ArrayError::Refused { index: count, error }),
        (None, Err(error)) => Err(ArrayError::Json { index: error.is_data().then_some(count), error }),
        (None, Ok(())) => Ok(count),
    }
}

struct Taker<'t, F, E> {
    take: F,
    count: &'t mut usize,
    refused: &'t mut Option<E>,
}

impl<'de, F: FnMut(EventRequest<'de>) -> Result<(), E>, E> DeserializeSeed<'de> for Taker<'_, F, E> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(EventRequest<'de>) -> Result<(), E>, E> Visitor<'de> for Taker<'_, F, E> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut events: A) -> Result<(), A::Error> {
        while let Some(Object(event)) = events.next_element()? {
            if let Err(error) = (self.take)(event) {
                *self.refused = Some(error);
                return Err(A::Error::custom("refused"));
            }
            *self.count += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_object;
    use proptest::prelude::*;
    use std::borrow::Cow;

    fn event(text: &str) -> Result<EventRequest<'_>, serde_json::Error> {
        parse_object(text.as_bytes())
    }

    #[test]
    fn a_payload_of_null_is_not_a_missing_payload() {
        assert_eq!(event(r#"{"payload":null}"#).unwrap().payload.get(), "null");
        assert!(event("{}").unwrap_err().is_data());
    }

    #[test]
    fn null_stands_for_absent() {
        let text = r#"{"payload":1,"key":null,"id":null,"ts":null,"sid":null,"headers":null,"tags":null,
            "caused_by":null,"partition":null,"expect":null}"#;
        let event = event(text).unwrap();
        assert!(event.key.is_none() && event.id.is_none() && event.ts.is_none() && event.sid.is_none());
        assert!(event.headers.is_none() && event.tags.is_none() && event.caused_by.is_none());
        assert!(event.partition.is_none() && event.expect.is_none());
    }

    #[test]
    fn texts_are_borrowed_where_they_have_no_escapes() {
        let plain = event(r#"{"payload":1,"key":"k"}"#).unwrap();
        assert!(matches!(plain.key.unwrap().0, Cow::Borrowed("k")));
        let escaped = event(r#"{"payload":1,"key":"\u00e9"}"#).unwrap();
        assert_eq!(&*escaped.key.unwrap(), "é");
    }

    #[test]
    fn wrong_types_unknown_and_repeated_fields_are_refused() {
        for bad in [
            r#"{"payload":1,"x":1}"#,
            r#"{"payload":1,"payload":2}"#,
            r#"{"payload":1,"ts":-1}"#,
            r#"{"payload":1,"ts":1.5}"#,
            r#"{"payload":1,"ts":"1"}"#,
            r#"{"payload":1,"key":1}"#,
            r#"{"payload":1,"partition":-1}"#,
            r#"{"payload":1,"partition":4294967296}"#,
            r#"{"payload":1,"expect":{}}"#,
            r#"{"payload":1,"expect":[null]}"#,
            r#"{"payload":1,"expect":{"last_id":1}}"#,
            r#"{"payload":1,"expect":{"last_id":null,"x":1}}"#,
            r#"[1]"#,
        ] {
            assert!(event(bad).unwrap_err().is_data(), "{bad}");
        }
    }

    #[test]
    fn an_expectation_says_which_id_or_none() {
        let expect = |text| event(text).unwrap().expect.unwrap().0.last_id;
        assert_eq!(expect(r#"{"payload":1,"expect":{"last_id":null}}"#), None);
        assert_eq!(expect(r#"{"payload":1,"expect":{"last_id":"a"}}"#), Some(Text("a".into())));
    }

    #[test]
    fn an_array_hands_out_its_events_and_names_the_bad_one() {
        let run = |text: &str| {
            let mut seen = Vec::new();
            let answer = each_event(text, |event| match event.payload.get() {
                "13" => Err("unlucky"),
                payload => {
                    seen.push(payload.to_owned());
                    Ok(())
                }
            });
            (answer, seen)
        };
        let (answer, seen) = run(r#" [ {"payload":1} , {"payload":[2]} ] "#);
        assert_eq!((answer.unwrap(), seen), (2, vec!["1".to_owned(), "[2]".to_owned()]));
        assert_eq!(run("[]").0.unwrap(), 0);
        let (answer, _) = run(r#"[{"payload":1},{"payload":1,"x":1}]"#);
        assert!(matches!(answer, Err(ArrayError::Json { index: Some(1), .. })), "{answer:?}");
        let (answer, _) = run(r#"[{"payload":1},[2]]"#);
        assert!(matches!(answer, Err(ArrayError::Json { index: Some(1), .. })), "{answer:?}");
        let (answer, _) = run(r#"[{"payload":1},{"payload":13}]"#);
        assert!(matches!(answer, Err(ArrayError::Refused { index: 1, error: "unlucky" })), "{answer:?}");
        for broken in [r#"[{"payload":1}"#, r#"[{"payload":1}] x"#, r#"[{"payload":1},]"#] {
            let (answer, _) = run(broken);
            assert!(matches!(answer, Err(ArrayError::Json { index: None, .. })), "{broken}: {answer:?}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_object::<EventRequest<'_>>(&bytes);
            let _ = parse_object::<KeysRequest>(&bytes);
            if let Ok(text) = std::str::from_utf8(&bytes) {
                let _ = each_event(text, |_| Ok::<_, ()>(()));
            }
        }

        #[test]
        fn almost_json_never_panics(text in r#"[\[{]{0,3}("(payload|key|id|ts|expect|last_id)"|[\[\]{}:,"0-9a-z\\ ]){0,30}"#) {
            let _ = parse_object::<EventRequest<'_>>(text.as_bytes());
            let _ = each_event(&text, |_| Ok::<_, ()>(()));
        }
    }
}
