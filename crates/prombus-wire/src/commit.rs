//! Commits: acks, writes of documents and publishes that happen as a whole.

use crate::answer::Published;
use crate::object::Object;
use crate::publish::{EventRequest, absent, given, with_event_fields};
use crate::text::Text;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The body of `POST /v1/commit`. A field that is `null` counts as absent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommitRequest<'a, J = &'a RawValue> {
    /// The same one within 24 hours is answered as it was first, and nothing happens.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub commit_id: Option<Text<'a>>,
    /// Leases to settle.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub ack: Option<Vec<Text<'a>>>,
    /// Documents to write.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<Vec<Object<WriteRequest<'a>>>>,
    /// Events to publish.
    #[serde(borrow, default = "absent", skip_serializing_if = "Option::is_none")]
    pub publish: Option<Vec<Object<CommitEventRequest<'a, J>>>>,
}

/// One write: exactly one of `set`, `merge`, `inc` and `delete`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteRequest<'a> {
    /// The collection.
    #[serde(borrow)]
    pub collection: Text<'a>,
    /// The document's key.
    #[serde(borrow)]
    pub key: Text<'a>,
    /// The whole document.
    #[serde(borrow, default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub set: Option<&'a RawValue>,
    /// What is merged into it (RFC 7396).
    #[serde(borrow, default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub merge: Option<&'a RawValue>,
    /// Numbers that are added to fields.
    #[serde(borrow, default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub inc: Option<&'a RawValue>,
    /// `true`: it is removed.
    #[serde(borrow, default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub delete: Option<&'a RawValue>,
    /// The version that it must have; 0 where there must be none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_version: Option<u64>,
}

with_event_fields! {
    /// One event: that of a publish, and where it goes.
    pub struct CommitEventRequest {
        /// Where to.
        pub topic: Text<'a>,
        /// Any JSON.
        pub payload: &'a RawValue,
    }
}

impl<'a> CommitEventRequest<'a> {
    /// Where the event goes, and the event.
    pub fn into_event(self) -> (Text<'a>, EventRequest<'a>) {
        let Self { topic, payload, key, id, ts, sid, headers, tags, caused_by, partition, expect } = self;
        (topic, EventRequest { payload, key, id, ts, sid, headers, tags, caused_by, partition, expect })
    }
}

/// What a commit has done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Committed {
    /// Where the events are, in the order of their publishes.
    pub events: Vec<Published>,
    /// The versions of the written documents, by collection and key; 0 for a deleted one.
    pub versions: BTreeMap<String, BTreeMap<String, u64>>,
}

impl Committed {
    /// The version that a document was written with.
    pub fn version(&self, collection: &str, key: &str) -> Option<u64> {
        self.versions.get(collection)?.get(key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CommitFrame, parse_object};
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<CommitRequest<'_>, serde_json::Error> {
        parse_object(text.as_bytes())
    }

    #[test]
    fn all_parts() {
        let text = r#"{"commit_id":"c","ack":["l"],"writes":[{"collection":"a","key":"k","set":{"n":1.10},"if_version":0}],
            "publish":[{"topic":"t","payload":null,"key":"x"}]}"#;
        let commit = parse(text).unwrap();
        assert_eq!(commit.commit_id.as_deref(), Some("c"));
        assert_eq!(&*commit.ack.unwrap()[0], "l");
        let writes = commit.writes.unwrap();
        assert_eq!((writes[0].0.set.unwrap().get(), writes[0].0.if_version), (r#"{"n":1.10}"#, Some(0)));
        let (topic, event) = commit.publish.unwrap().remove(0).0.into_event();
        assert_eq!((&*topic, event.payload.get(), event.key.as_deref()), ("t", "null", Some("x")));
    }

    #[test]
    fn a_frame_has_the_same_fields() {
        let text =
            r#"{"op":"COMMIT","corr":1,"ack":["l"],"writes":[{"collection":"a","key":"k","delete":true}]}"#;
        let request = parse_object::<CommitFrame<'_>>(text.as_bytes()).unwrap().into_request();
        assert_eq!((&*request.ack.unwrap()[0], request.writes.unwrap().len()), ("l", 1));
        assert!(parse(text).is_err(), "op is no field of a body");
    }

    #[test]
    fn null_is_absent_but_for_what_a_write_does() {
        let nothing = parse(r#"{"commit_id":null,"ack":null,"writes":null,"publish":null}"#).unwrap();
        assert!(nothing.ack.is_none() && nothing.writes.is_none() && nothing.publish.is_none());
        let write = parse(r#"{"writes":[{"collection":"a","key":"k","set":null}]}"#).unwrap();
        assert_eq!(write.writes.unwrap()[0].0.set.unwrap().get(), "null");
    }

    #[test]
    fn wrong_types_unknown_and_repeated_fields_are_refused() {
        for bad in [
            r#"{"acks":[]}"#,
            r#"{"ack":"l"}"#,
            r#"{"ack":[1]}"#,
            r#"{"ack":[],"ack":[]}"#,
            r#"{"commit_id":1}"#,
            r#"{"writes":[["a","k"]]}"#,
            r#"{"writes":[{"collection":"a"}]}"#,
            r#"{"writes":[{"collection":"a","key":"k","set":{},"set":{}}]}"#,
            r#"{"writes":[{"collection":"a","key":"k","put":{}}]}"#,
            r#"{"writes":[{"collection":"a","key":"k","set":{},"if_version":-1}]}"#,
            r#"{"publish":[{"payload":1}]}"#,
            r#"{"publish":[{"topic":"t"}]}"#,
            r#"{"publish":[{"topic":"t","payload":1,"x":1}]}"#,
            "[]",
        ] {
            assert!(parse(bad).unwrap_err().is_data(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn almost_commits_never_panic(
            text in r#"\{("(ack|writes|publish|collection|key|set|delete|topic|payload)"|[\[\]{}:,"0-9a-z\\ ]){0,30}"#,
        ) {
            let _ = parse(&text);
        }
    }
}
