//! Documents by random keys, one at a time; conditional on their ETag if requested.

use super::http::{Connection, HttpError, More};
use super::{Shared, Target, on_each_connection};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use std::cell::{Cell, RefCell};
use std::time::Instant;

/// How many documents a page of keys has.
const PAGE: usize = 1_000;
/// The most documents that are asked for, so that memory stays bounded.
const MAX_DOCUMENTS: usize = 200_000;
/// How many connections learn the tags of documents at once.
const TAG_CONNECTIONS: u32 = 16;
/// What is escaped in a key. A dot alone would be a step in the path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');
/// The status of an answer with a document, and of one for an unchanged document.
const FOUND: u16 = 200;
const NOT_MODIFIED: u16 = 304;

/// The requests of a load, all written before it starts.
pub struct Requests {
    requests: Vec<Vec<u8>>,
    expected: u16,
}

#[derive(Deserialize)]
struct Page {
    items: Vec<Item>,
    next: Option<usize>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(rename = "_key")]
    key: String,
}

/// Lists the documents of a collection, with their tags if requests are to be conditional.
pub async fn prepare(target: &Target, collection: &str, conditional: bool) -> Result<Requests, HttpError> {
    let keys = keys(target, collection).await?;
    if keys.is_empty() {
        return Err(HttpError::NoDocuments(collection.to_owned()));
    }
    let plain: Vec<Vec<u8>> = keys.iter().map(|key| request(target, (collection, key), "")).collect();
    if !conditional {
        return Ok(Requests { requests: plain, expected: FOUND });
    }
    let tags = tags(target, &plain).await?;
    let with_tag = |(key, tag): (&String, &String)| {
        request(target, (collection, key), &format!("if-none-match: {tag}\r\n"))
    };
    Ok(Requests { requests: keys.iter().zip(&tags).map(with_tag).collect(), expected: NOT_MODIFIED })
}

fn request(target: &Target, (collection, key): (&str, &str), lines: &str) -> Vec<u8> {
    let Target { base_path, head, .. } = target;
    let key = utf8_percent_encode(key, ESCAPED);
    format!("GET {base_path}/v1/collections/{collection}/snap/{key} HTTP/1.1\r\n{head}{lines}\r\n")
        .into_bytes()
}

async fn keys(target: &Target, collection: &str) -> Result<Vec<String>, HttpError> {
    let mut connection = target.connect().await?;
    let (mut keys, mut body, mut offset) = (Vec::new(), Vec::new(), 0);
    while keys.len() < MAX_DOCUMENTS {
        let Target { base_path, head, .. } = target;
        let path =
            format!("{base_path}/v1/collections/{collection}/list?sort=_key&limit={PAGE}&offset={offset}");
        body.clear();
        let list = format!("GET {path} HTTP/1.1\r\n{head}\r\n");
        connection
            .call(list.as_bytes(), |piece| {
                body.extend_from_slice(piece);
                More::Yes
            })
            .await?;
        let page: Page = serde_json::from_slice(&body)
            .map_err(|_| HttpError::Malformed("it is not a page of documents"))?;
        keys.extend(page.items.into_iter().map(|item| item.key));
        match page.next {
            Some(next) => offset = next,
            None => break,
        }
    }
    Ok(keys)
}

/// The tag of each document.
async fn tags(target: &Target, requests: &[Vec<u8>]) -> Result<Vec<String>, HttpError> {
    let tags = RefCell::new(vec![String::new(); requests.len()]);
    let next = Cell::new(0);
    on_each_connection(TAG_CONNECTIONS, |_| async {
        let mut connection = target.connect().await?;
        while let Some(request) = requests.get(next.get()) {
            let at = next.replace(next.get() + 1);
            let tag = tag_of(&mut connection, request).await?;
            tags.borrow_mut()[at] = tag;
        }
        Ok(())
    })
    .await?;
    Ok(tags.into_inner())
}

async fn tag_of(connection: &mut Connection, request: &[u8]) -> Result<String, HttpError> {
    let mut tag = None;
    let head = |line: &[u8]| {
        let value = line.get(..5).filter(|name| name.eq_ignore_ascii_case(b"etag:")).map(|_| &line[5..]);
        tag = tag.take().or(value.map(|value| String::from_utf8_lossy(value.trim_ascii()).into_owned()));
    };
    connection.call_with_head(request, head, |_| More::Yes).await?;
    tag.ok_or(HttpError::Malformed("a document has no ETag"))
}

/// Asks for one document after the other until there were enough.
pub async fn connection(shared: &Shared<'_>, requests: &Requests) -> Result<(), HttpError> {
    let Requests { requests, expected } = requests;
    let mut connection = shared.target.connect().await?;
    while shared.events.get() < shared.args.events {
        shared.events.set(shared.events.get() + 1);
        let request = &requests[fastrand::usize(..requests.len())];
        let mut bytes = 0;
        let started = Instant::now();
        let status = connection
            .call(request, |piece| {
                bytes += piece.len() as u64;
                More::Yes
            })
            .await?;
        if status != *expected {
            return Err(HttpError::Unexpected { status, expected: *expected });
        }
        shared.finished(started, bytes);
        shared.progress.inc(1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_one_segment_of_a_path() {
        let encoded = |key| utf8_percent_encode(key, ESCAPED).to_string();
        assert_eq!(encoded("web1:stt-4_2~"), "web1%3Astt-4_2~");
        assert_eq!(encoded("a/b?c#é %"), "a%2Fb%3Fc%23%C3%A9%20%25");
        assert_eq!(encoded(".."), "%2E%2E");
    }

    #[test]
    fn a_condition_is_a_line_of_the_head() {
        let target = Target {
            address: String::new(),
            base_path: "/b".to_owned(),
            head: "host: h\r\naccept: application/json\r\n".to_owned(),
        };
        let text = request(&target, ("c", "k"), "if-none-match: \"7\"\r\n");
        let expected = "GET /b/v1/collections/c/snap/k HTTP/1.1\r\nhost: h\r\naccept: application/json\r\nif-none-match: \"7\"\r\n\r\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
