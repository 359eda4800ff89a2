//! From requests to events: everything is carried as the bytes that came in.

use crate::error::ApiError;
use crate::params::{Params, parse_id};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use bytes::Bytes;
use bytestring::ByteString;
use prombus_core::json::write_string;
use prombus_core::{Append, Expect, Json, NewEvent, Partition, TopicName};
use prombus_wire::{EventRequest, Text};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The prefix of request headers that become event headers.
const HEADER_PREFIX: &str = "x-event-";

/// The event that `request`, which was parsed from `body`, publishes to `topic`.
pub(crate) fn from_request(
    topic: TopicName,
    request: EventRequest<'_>,
    body: &Bytes,
) -> Result<Append, ApiError> {
    let json = |raw: Option<&RawValue>| raw.map(|raw| Json::from_raw(raw, body).map(Box::new)).transpose();
    let expect = match request.expect {
        None => None,
        Some(expect) => {
            let last_id = expect.0.last_id.map(|id| parse_id("expect.last_id", &id)).transpose()?;
            Some(Expect { last_id })
        }
    };
    let event = NewEvent {
        id: request.id.map(|id| parse_id("id", &id)).transpose()?,
        ts: request.ts,
        key: request.key.map(|key| shared(key, body)).transpose()?,
        sid: json(request.sid)?,
        headers: json(request.headers)?,
        payload: Json::from_raw(request.payload, body)?,
        caused_by: json(request.caused_by)?,
        tags: json(request.tags)?,
    };
    Ok(Append { topic, placement: request.partition.map(Partition).into(), expect, event })
}

/// Writes the request that publishes an event to its topic: what [`from_request`] makes an event of.
pub(crate) fn write_request(append: &Append, out: &mut Vec<u8>) {
    let Append { placement, expect, event, .. } = append;
    let NewEvent { id, ts, key, sid, headers, payload, caused_by, tags } = event;
    out.extend_from_slice(b"{\"payload\":");
    out.extend_from_slice(payload.as_bytes());
    if let Some(key) = key {
        out.extend_from_slice(b",\"key\":");
        write_string(out, key);
    }
    let fields = [("sid", sid), ("headers", headers), ("tags", tags), ("caused_by", caused_by)];
    for (name, json) in fields.into_iter().filter_map(|(name, json)| Some((name, json.as_deref()?))) {
        out.extend_from_slice(format!(",\"{name}\":").as_bytes());
        out.extend_from_slice(json.as_bytes());
    }
    if let Some(id) = id {
        out.extend_from_slice(format!(",\"id\":\"{id}\"").as_bytes());
    }
    if let Some(ts) = ts {
        out.extend_from_slice(format!(",\"ts\":{ts}").as_bytes());
    }
    if let Some(Partition(partition)) = placement.named() {
        out.extend_from_slice(format!(",\"partition\":{partition}").as_bytes());
    }
    if let Some(Expect { last_id }) = expect {
        let id = last_id.map_or_else(|| "null".to_owned(), |id| format!("\"{id}\""));
        out.extend_from_slice(format!(",\"expect\":{{\"last_id\":{id}}}").as_bytes());
    }
    out.push(b'}');
}

/// The text as a part of the body, where it is one.
fn shared(text: Text<'_>, body: &Bytes) -> Result<ByteString, ApiError> {
    match text.0 {
        Cow::Owned(text) => Ok(text.into()),
        Cow::Borrowed(text) => ByteString::try_from(body.slice_ref(text.as_bytes()))
            .map_err(|_| ApiError::bad_json("the key is not valid UTF-8")),
    }
}

/// The event for `topic` whose payload is `body` and whose other fields are in the query and the request's headers.
pub(crate) fn from_parts(topic: TopicName, parts: &Parts, body: Bytes) -> Result<Append, ApiError> {
    let mut params = Params::parse(parts.uri.query())?;
    let partition = params.partition()?;
    let event = NewEvent {
        id: params.id("id")?,
        ts: params.number("ts")?,
        key: params.one("key")?.map(ByteString::from),
        sid: params.one("sid")?.map(|sid| json_string(&sid).into()),
        headers: event_headers(&parts.headers)?.map(Box::new),
        caused_by: json_strings(params.all("caused_by")?).map(Box::new),
        tags: json_strings(params.all("tag")?).map(Box::new),
        payload: Json::parse(body)?,
    };
    params.done("key, id, ts, sid, partition, tag, caused_by")?;
    Ok(Append { placement: partition.into(), ..Append::new(topic, event) })
}

fn json_string(text: &str) -> Json {
    let mut out = Vec::with_capacity(text.len() + 2);
    write_string(&mut out, text);
    Json::from_stored(out.into())
}

fn json_strings(texts: Vec<String>) -> Option<Json> {
    if texts.is_empty() {
        return None;
    }
    let mut out = vec![b'['];
    for text in texts {
        if out.len() > 1 {
            out.push(b',');
        }
        write_string(&mut out, &text);
    }
    out.push(b']');
    Some(Json::from_stored(out.into()))
}

/// `x-event-foo` becomes `x-foo`, trace headers are taken over, and no other header is.
fn event_headers(headers: &HeaderMap) -> Result<Option<Json>, ApiError> {
    let mut out = vec![b'{'];
    for name in headers.keys() {
        let event_name = match name.as_str().strip_prefix(HEADER_PREFIX) {
            Some(rest) => Cow::Owned(format!("x-{rest}")),
            None if matches!(name.as_str(), "traceparent" | "tracestate") => Cow::Borrowed(name.as_str()),
            None => continue,
        };
        let mut values = Vec::new();
        for value in headers.get_all(name) {
            values.push(std::str::from_utf8(value.as_bytes()).map_err(|_| {
                ApiError::bad_request(format!("the value of header {name} is not valid UTF-8"))
            })?);
        }
        if out.len() > 1 {
            out.push(b',');
        }
        write_string(&mut out, &event_name);
        out.push(b':');
        // As HTTP has it: a header that comes several times is a list.
        write_string(&mut out, &values.join(", "));
    }
    out.push(b'}');
    Ok((out.len() > 2).then(|| Json::from_stored(out.into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue, Request};
    use prombus_wire::parse_object;
    use proptest::prelude::*;

    fn topic() -> TopicName {
        TopicName::parse("t").unwrap()
    }

    /// The event of a bare payload, if the query can be one at all.
    fn bare(query: &str, body: Bytes) -> Option<Result<Append, ApiError>> {
        let request = Request::builder().uri(format!("/publish/t?{query}")).body(()).ok()?;
        Some(from_parts(topic(), &request.into_parts().0, body))
    }

    fn text(json: Option<Box<Json>>) -> String {
        json.map_or_else(String::new, |json| String::from_utf8(json.as_bytes().to_vec()).unwrap())
    }

    #[test]
    fn bytes_are_shared_with_the_body() {
        let body = Bytes::from_static(br#"{"payload":{"n":1.10},"key":"k","sid":"s","tags":[ "a" ]}"#);
        let event = from_request(topic(), parse_object(&body).unwrap(), &body).unwrap().event;
        let inside = |bytes: &[u8]| body.as_ptr_range().contains(&bytes.as_ptr());
        assert!(inside(event.payload.as_bytes()));
        assert!(inside(event.key.as_ref().unwrap().as_bytes()));
        assert_eq!(text(event.tags), r#"["a"]"#);
        assert_eq!(text(event.sid), r#""s""#);
    }

    #[test]
    fn what_is_written_is_the_same_event() {
        let id = "0198c0de-0000-7000-8000-000000000001";
        for text in [
            r#"{"payload":{"n":1.10,"big":123456789012345678901234567890}}"#.to_owned(),
            r#"{"payload":null,"key":"a\"\u0001b","sid":"s","tags":["x"],"caused_by":["y"],"headers":{"x-a":"b"}}"#.to_owned(),
            format!(r#"{{"payload":1,"id":"{id}","ts":7,"partition":3,"expect":{{"last_id":null}}}}"#),
            format!(r#"{{"payload":1,"expect":{{"last_id":"{id}"}}}}"#),
        ] {
            let parse = |text: Vec<u8>| {
                let body = Bytes::from(text);
                from_request(topic(), parse_object(&body).unwrap(), &body).unwrap()
            };
            let event = parse(text.into_bytes());
            let mut written = Vec::new();
            write_request(&event, &mut written);
            assert_eq!(parse(written), event);
        }
    }

    #[test]
    fn headers_are_renamed_taken_over_or_left() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-event-a-b", "1 \"2\""),
            ("traceparent", "t"),
            ("x-other", "no"),
            ("x-event-c", "x"),
            ("x-event-c", "y"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let got = event_headers(&headers).unwrap().unwrap().to_value().unwrap();
        assert_eq!(got, serde_json::json!({"x-a-b": "1 \"2\"", "traceparent": "t", "x-c": "x, y"}));
        assert!(event_headers(&HeaderMap::new()).unwrap().is_none());
        headers.insert("x-event-bad", HeaderValue::from_bytes(b"\xff").unwrap());
        assert!(event_headers(&headers).is_err());
    }

    #[test]
    fn the_query_becomes_fields() {
        let query = "key=k&ts=5&sid=a%22b&partition=2&tag=%23x&tag=y&caused_by=z&id=0198c0de-0000-7000-8000-000000000001";
        let Append { placement, event, .. } = bare(query, Bytes::from_static(b" { } ")).unwrap().unwrap();
        assert_eq!(placement.named(), Some(Partition(2)));
        assert_eq!(event.ts, Some(5));
        assert_eq!(text(event.sid), r#""a\"b""#);
        assert_eq!(text(event.tags), r##"["#x","y"]"##);
        assert_eq!(text(event.caused_by), r#"["z"]"#);
        assert_eq!(event.payload.as_bytes(), b"{}");
    }

    proptest! {
        #[test]
        fn random_bytes_and_queries_never_panic(
            body in prop::collection::vec(any::<u8>(), 0..100),
            query in "(key|id|ts|tag|sid|=|&|%|[0-9a-f+]){0,20}",
        ) {
            let body = Bytes::from(body);
            if let Ok(request) = parse_object(&body) {
                let _ = from_request(topic(), request, &body);
            }
            let _ = bare(&query, body);
        }

        #[test]
        fn almost_events_never_panic(
            key in ".{0,5}", id in "[0-9a-f-]{0,40}", payload in r#"[\[\]{}",:0-9a ]{0,20}"#,
        ) {
            let key = serde_json::to_string(&key).unwrap();
            let body = Bytes::from(format!(r#"{{"key":{key},"id":"{id}","payload":{payload}}}"#));
            if let Ok(request) = parse_object(&body) {
                let _ = from_request(topic(), request, &body);
            }
        }
    }
}
