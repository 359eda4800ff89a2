//! One document over HTTP: what caches are told, and what they need not be sent again.

use crate::common::{Served, Setup, as_one_who, document, guarded, send, start, start_with};
use prombus_core::{DocumentWrite, Documents, WriteOp};
use reqwest::Method;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATH: &str = "/v1/collections/c/snap/k";
/// 2023-11-14T22:13:20Z, and a bit.
const TS: u64 = 1_700_000_000_123;
const DATE: &str = "Tue, 14 Nov 2023 22:13:20 GMT";

async fn filled(setup: Setup) -> Served {
    let hub = start_with(setup).await;
    hub.write(vec![document("c", "k", TS, &json!({"a": 1, "b": "ö"}))]).await;
    hub
}

#[tokio::test]
async fn a_document_with_all_that_a_cache_wants_to_know() {
    let hub = filled(Setup::default()).await;
    let answer = hub.get(PATH).await;
    assert_eq!(answer.is(200).text, format!(r#"{{"_key":"k","_ts":{TS},"a":1,"b":"ö"}}"#));
    let stored = hub.store.document("c", "k").await.unwrap().unwrap();
    assert_eq!(answer.header("etag").unwrap(), format!("\"{:032x}\"", stored.etag));
    assert_eq!(answer.header("cache-control"), Some("public, max-age=5"));
    assert_eq!(answer.header("last-modified"), Some(DATE));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("content-length").unwrap(), answer.text.len().to_string());
    let ranged = hub.get_with(PATH, &[("range", "bytes=0-3")]).await;
    assert_eq!((ranged.is(200).text.as_str(), ranged.header("content-range")), (answer.text.as_str(), None));
}

#[tokio::test]
async fn head_has_the_same_headers_and_no_body() {
    let hub = filled(Setup::default()).await;
    let (get, head) = (hub.get(PATH).await, send(hub.request(Method::HEAD, PATH)).await);
    assert_eq!(head.is(200).text, "");
    let but_date = |headers: &reqwest::header::HeaderMap| {
        let mut headers = headers.clone();
        headers.remove("date");
        headers
    };
    assert_eq!(but_date(&head.headers), but_date(&get.headers));
    let tag = get.header("etag").unwrap();
    let known = send(hub.request(Method::HEAD, PATH).header("if-none-match", tag)).await;
    assert_eq!(known.is(304).header("etag"), Some(tag));
    send(hub.request(Method::HEAD, "/v1/collections/c/snap/x")).await.is(404);
}

#[tokio::test]
async fn conditions() {
    let hub = filled(Setup::default()).await;
    let tag = hub.get(PATH).await.header("etag").unwrap().to_owned();
    let (weak, list) = (format!("W/{tag}"), format!("\"x\", {tag}"));
    for (name, value, status) in [
        ("if-none-match", tag.as_str(), 304),
        ("if-none-match", &weak, 304),
        ("if-none-match", &list, 304),
        ("if-none-match", "*", 304),
        ("if-none-match", "\"x\"", 200),
        ("if-modified-since", DATE, 304),
        ("if-modified-since", "Tue, 14 Nov 2023 22:13:19 GMT", 200),
        ("if-modified-since", "Tuesday, 14-Nov-23 22:13:20 GMT", 304),
        ("if-modified-since", "Tue Nov 14 22:13:20 2023", 304),
        ("if-modified-since", "soon", 200),
        ("if-match", &tag, 200),
        ("if-match", "*", 200),
        ("if-match", &weak, 412),
        ("if-match", "\"x\"", 412),
        ("if-unmodified-since", DATE, 200),
        ("if-unmodified-since", "Tue, 14 Nov 2023 22:13:19 GMT", 412),
    ] {
        let answer = hub.get_with(PATH, &[(name, value)]).await;
        answer.is(status);
        match status {
            304 => {
                assert_eq!(answer.text, "");
                assert_eq!(answer.header("etag"), Some(tag.as_str()));
                assert_eq!(answer.header("cache-control"), Some("public, max-age=5"));
                assert_eq!(answer.header("last-modified"), Some(DATE));
            }
            412 => drop(answer.is_error(412, "expectation_failed")),
            _ => {}
        }
    }
    let both = [("if-none-match", "\"x\""), ("if-modified-since", DATE)];
    hub.get_with(PATH, &both).await.is(200);
}

#[tokio::test]
async fn a_304_ends_after_its_head() {
    let hub = filled(Setup::default()).await;
    let mut stream = TcpStream::connect(hub.address).await.unwrap();
    let ask = format!("GET {PATH} HTTP/1.1\r\nhost: localhost\r\nif-none-match: *\r\n\r\n");
    let last =
        format!("GET {PATH} HTTP/1.1\r\nhost: localhost\r\nif-none-match: *\r\nconnection: close\r\n\r\n");
    stream.write_all(format!("{ask}{last}").as_bytes()).await.unwrap();
    let mut text = String::new();
    let all = tokio::time::timeout(Duration::from_secs(20), stream.read_to_string(&mut text));
    all.await.expect("it ends").unwrap();
    let answers: Vec<&str> = text.split_terminator("\r\n\r\n").collect();
    assert_eq!(answers.len(), 2, "{text}");
    for answer in answers {
        assert!(answer.starts_with("HTTP/1.1 304 "), "{text}");
        let head = answer.to_lowercase();
        assert!(!head.contains("content-length") && !head.contains("transfer-encoding"), "{text}");
        assert!(!head.contains("content-type"), "{text}");
    }
}

#[tokio::test]
async fn what_is_not_there() {
    let hub = filled(Setup::default()).await;
    for path in ["/v1/collections/c/snap/x", "/v1/collections/c/snap/", "/v1/collections/d/snap/k"] {
        let answer = hub.get(path).await;
        answer.is_error(404, "not_found");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        hub.get_with(path, &[("if-none-match", "*")]).await.is_error(404, "not_found");
        hub.get_with(path, &[("if-modified-since", DATE)]).await.is_error(404, "not_found");
        hub.get_with(path, &[("if-match", "*")]).await.is_error(412, "expectation_failed");
    }
    for path in ["/v1/collections/C/snap/k", "/v1/collections/a~b/snap/k", "/v1/collections/c/snap/%ff"] {
        hub.get(path).await.is_error(400, "bad_request");
    }
    hub.get("/v1/collections/c/snap").await.is_error(404, "not_found");
    hub.post(PATH, "{}").await.is_error(405, "method_not_allowed");
    hub.write(vec![DocumentWrite::new("c", "k", WriteOp::Delete)]).await;
    hub.get(PATH).await.is_error(404, "not_found");
}

#[tokio::test]
async fn keys_of_any_kind() {
    let hub = start().await;
    for (key, path) in [
        ("a/b", "a%2Fb"),
        ("ö ü", "%C3%B6%20%C3%BC"),
        ("100%", "100%25"),
        ("a+b", "a+b"),
        ("?&#", "%3F%26%23"),
        ("\u{1F980}", "%F0%9F%A6%80"),
        ("", ""),
        ("\"\\\n", "%22%5C%0A"),
    ] {
        hub.write(vec![document("c", key, 1, &json!({}))]).await;
        let answer = hub.get(&format!("/v1/collections/c/snap/{path}")).await;
        assert_eq!(answer.is(200).json(), json!({"_key": key, "_ts": 1}));
    }
}

#[tokio::test]
async fn dates_that_cannot_be_told() {
    let hub = start().await;
    hub.write(vec![document("c", "far", u64::MAX, &json!({}))]).await;
    let far = hub.get("/v1/collections/c/snap/far").await;
    assert_eq!(far.is(200).header("last-modified"), None);
    hub.get_with("/v1/collections/c/snap/far", &[("if-modified-since", DATE)]).await.is(200);
    let ahead = 4_000_000_000_000;
    hub.write(vec![document("c", "ahead", ahead, &json!({}))]).await;
    let ahead = hub.get("/v1/collections/c/snap/ahead").await;
    let told = httpdate::parse_http_date(ahead.is(200).header("last-modified").unwrap()).unwrap();
    assert!(
        told <= httpdate::parse_http_date(ahead.header("date").unwrap()).unwrap() + Duration::from_secs(1)
    );
}

#[tokio::test]
async fn parameters() {
    let hub = filled(Setup::default()).await;
    for bad in
        ["x=1", "min_offset=", "min_offset=x", "min_offset=1:", "min_offset=-1", "min_offset=1&min_offset=2"]
    {
        hub.get(&format!("{PATH}?{bad}")).await.is_error(400, "bad_request");
    }
    hub.get(&format!("{PATH}?")).await.is(200);
    let owned_by_commits = hub.get(&format!("{PATH}?min_offset=0")).await;
    owned_by_commits.is_error(400, "bad_request");
    hub.get("/v1/collections/none/snap/k?min_offset=0").await.is_error(404, "not_found");
    hub.get("/v1/collections/none/list?min_offset=0").await.is_error(404, "not_found");
}

#[tokio::test]
async fn caches_of_documents_that_are_not_for_everyone() {
    let mut setup = guarded(&["read:c", "read:d"]);
    setup.gateway.snapshot_max_age = Duration::from_secs(60);
    let hub = filled(setup).await;
    let answer = send(as_one_who("read:c", hub.request(Method::GET, PATH))).await;
    assert_eq!(answer.is(200).header("cache-control"), Some("private, max-age=60"));
    send(as_one_who("read:d", hub.request(Method::GET, PATH))).await.is_error(403, "forbidden");
    send(as_one_who("read:d", hub.request(Method::HEAD, PATH))).await.is(403);
    hub.get(PATH).await.is_error(401, "unauthorized");
}

#[tokio::test]
async fn answers_to_pages_of_other_origins_are_kept_apart() {
    let mut setup = Setup::default();
    setup.gateway.allow_origins = vec!["https://app.example".into()];
    let hub = filled(setup).await;
    let origin = ("origin", "https://app.example");
    for headers in [&[][..], &[origin], &[origin, ("if-none-match", "*")], &[("if-none-match", "*")]] {
        let answer = hub.get_with(PATH, headers).await;
        assert_eq!(answer.header("vary"), Some("origin"), "{headers:?}");
        let allowed = headers.contains(&origin).then_some(origin.1);
        assert_eq!(answer.header("access-control-allow-origin"), allowed);
    }
    assert_eq!(filled(Setup::default()).await.get(PATH).await.header("vary"), None);
}
