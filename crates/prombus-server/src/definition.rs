//! Requests that must say which of their fields is invalid: definitions of projections, which people write by hand.

use crate::error::ApiError;
use prombus_wire::{Object, parse_object};
use serde::de::{DeserializeOwned, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// The most fields of a definition: far more than it knows, and so few that they can be compared with each other.
const MAX_FIELDS: usize = 64;

/// The fields of a JSON object, as texts and in order.
#[derive(Debug)]
pub(crate) struct Fields(Vec<(String, Box<RawValue>)>);

impl<'de> serde::Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields: Vec<(String, Box<RawValue>)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, _>()? {
                    if fields.len() == MAX_FIELDS {
                        return Err(A::Error::custom(format_args!(
                            "there are more than {MAX_FIELDS} fields"
                        )));
                    }
                    if fields.iter().any(|(known, _)| *known == name) {
                        return Err(A::Error::custom(format_args!("the field {name:?} appears twice")));
                    }
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

impl Fields {
    /// Takes a body apart.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        Ok(parse_object(body)?)
    }

    /// Takes a field out, if it is there.
    pub fn take(&mut self, name: &str) -> Option<Box<RawValue>> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1)
    }

    /// All fields together as a `T`; an error names the field that it is about.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let all: Vec<String> = self.0.iter().map(text_of).collect();
        let text = format!("{{{}}}", all.join(","));
        let mut json = serde_json::Deserializer::from_str(&text);
        let read: Result<Object<T>, _> = serde_path_to_error::deserialize(&mut json);
        read.map(|Object(value)| value).map_err(|error| {
            let (path, message) = (error.path().to_string(), plain(error.inner()));
            // What is missing or unknown at the top is named by the message.
            let is_field =
                error.path().iter().next().is_some() && !message.contains(&format!("field `{path}`"));
            ApiError::bad_request(if is_field { format!("{path}: {message}") } else { message })
        })
    }
}

fn text_of((name, value): &(String, Box<RawValue>)) -> String {
    format!("{}:{}", serde_json::Value::from(name.as_str()), value.get())
}

/// The message without its place, which is not one in the body.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((message, _)) => message.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prombus_engine::projections::Definition;

    fn read(text: &str) -> Result<Definition, String> {
        let mut fields = Fields::parse(text.as_bytes()).map_err(|error| error.message().to_owned())?;
        fields.take("name");
        fields.read().map_err(|error| error.message().to_owned())
    }

    #[test]
    fn a_definition_is_read() {
        let text = r#"{"name":"p","topic":"t","collection":"c","key":"event.key","fields":["a"],
            "indexes":[["a","b"],{"fields":["c"],"unique":true}],"retries":5}"#;
        let definition = read(text).unwrap();
        assert_eq!((definition.topic.as_str(), definition.retries), ("t", Some(5)));
        assert_eq!(definition.indexes.len(), 2);
        let text = r#"{"topic":"t","write":[{"collection":"c","key":"k","set":{"a":"1"},"inc":{"n":"1"}}]}"#;
        assert_eq!(read(text).unwrap().write.len(), 1);
    }

    #[test]
    fn errors_name_the_field() {
        for (text, named) in [
            (r#"{"collection":"c"}"#, "missing field `topic`"),
            (r#"{"topic":"t","colection":"c"}"#, "unknown field `colection`"),
            (r#"{"topic":"t","collection":5}"#, "collection: invalid type: integer `5`"),
            (r#"{"collection":"c","topic":"T!"}"#, "topic: \"T!\" is not a topic name"),
            (r#"{"topic":7}"#, "topic: invalid type"),
            (r#"{"topic":"t","retries":-1}"#, "retries: invalid value"),
            (r#"{"topic":"t","fields":"a"}"#, "fields: invalid type"),
            (r#"{"topic":"t","indexes":[[1]]}"#, "indexes[0]: "),
            (r#"{"topic":"t","indexes":[["a..b"]]}"#, "indexes[0]: "),
            (r#"{"topic":"t","write":[{"key":"k"}]}"#, "write[0]: missing field `collection`"),
            (
                r#"{"topic":"t","write":[{"collection":"c","key":"k","when":1}]}"#,
                "write[0].when: invalid type",
            ),
            (r#"{"topic":"t","topic":"t"}"#, "the field \"topic\" appears twice"),
            (r#"[]"#, "an object"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
            assert!(
                !error.contains("at line") || text == "[]" || text.contains("\"topic\":\"t\",\"topic\""),
                "{error}"
            );
        }
    }

    #[test]
    fn a_definition_of_many_fields_is_refused_before_they_are_compared() {
        let fields: Vec<String> = (0..300_000).map(|n| format!("\"f{n}\":0")).collect();
        let error = read(&format!("{{{}}}", fields.join(","))).unwrap_err();
        assert!(error.contains("more than 64 fields"), "{error}");
    }

    #[test]
    fn what_is_no_json_is_told_as_such() {
        for bad in ["", "{", "{\"topic\":}", "{\"topic\":1e}"] {
            assert_eq!(Fields::parse(bad.as_bytes()).unwrap_err().code().as_str(), "bad_json", "{bad}");
        }
    }
}
