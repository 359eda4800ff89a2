//! A single document, with the headers that caches need.

use super::{collections, states};
use crate::conditional::{self, Current, EntityTag, Modified, Verdict};
use crate::error::ApiError;
use crate::gateway::{App, Shared};
use crate::media::JSON;
use crate::params::Params;
use crate::path::PathNames;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use prombus_core::{Document, Offset, Partition, collection};
use prombus_engine::projections::{MinOffset, ProjectionError};
use prombus_wire::ErrorCode;
use std::time::{Duration, SystemTime};

pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// Approximate size of a document without its body.
const DOCUMENT_BYTES: usize = 128;
/// Maximum number of headers of an answer.
const HEADERS: usize = 8;

/// How long caches may keep documents, and which may: only a client's own where documents are not for everyone.
pub(crate) fn cache_control(max_age: Duration, private: bool) -> HeaderValue {
    let whose = if private { "private" } else { "public" };
    let text = format!("{whose}, max-age={}", max_age.as_secs());
    HeaderValue::try_from(text).unwrap_or(NO_STORE)
}

/// `GET|HEAD /v1/collections/{collection}/snap/{key}`.
pub(crate) async fn snap(State(app): State<App>, names: PathNames, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    answer(&app, &names, &parts).await.unwrap_or_else(|error| {
        // Without this header, caches may keep some errors for too long.
        let mut response = error.into_response();
        response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
        response
    })
}

async fn answer(app: &Shared, names: &PathNames, parts: &Parts) -> Result<Response, ApiError> {
    let (name, key) = (names.get("collection"), names.get("key"));
    let mut at = None;
    if let Some(query) = parts.uri.query() {
        let mut params = Params::parse(Some(query))?;
        let min_offset = min_offset(&mut params)?;
        at = params.time("at")?;
        params.done("at, min_offset")?;
        if let Some(min_offset) = min_offset {
            until_seen(app, name, min_offset).await?;
        }
    }
    let collections = app.hub()?.collections();
    let document = match at {
        Some(at) => states::document_at(app, name, (key, at)).await?,
        None => {
            let document = app.memory.make(
                async || Ok(collections.document(name, key).await?),
                |document| document.as_ref().map_or(0, |document| document.body.len()),
            );
            document.await?
        }
    };
    let now = SystemTime::now();
    let current = document.as_ref().map(|document| Current {
        tag: EntityTag::new(document.etag),
        modified: Modified::new(document.ts, now),
    });
    let verdict = conditional::evaluate(&parts.headers, current.as_ref(), now);
    match (verdict, document.zip(current)) {
        (Verdict::Failed, _) => {
            let message = "the document does not satisfy If-Match or If-Unmodified-Since";
            Err(ApiError::with_code(ErrorCode::ExpectationFailed, message))
        }
        (Verdict::NotModified, Some((_, current))) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            *response.headers_mut() = validators(app, &current);
            Ok(response)
        }
        (_, Some((document, current))) => Ok(whole(&document, validators(app, &current))),
        (_, None) if at.is_some() => {
            let message = format!("collection {name} had no document {key:?} at that time");
            Err(ApiError::not_found(message))
        }
        (_, None) => {
            // A name that no collection can have is a mistake and not something that may come to be.
            collection::check_name(name)?;
            Err(ApiError::not_found(format!("collection {name} has no document {key:?}")))
        }
    }
}

/// The cache headers of a document, for `200` and `304`.
fn validators(app: &Shared, current: &Current) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(HEADERS);
    headers.insert(header::CACHE_CONTROL, app.cache_control.clone());
    if let Some(tag) = current.tag.value() {
        headers.insert(header::ETAG, tag);
    }
    if let Some(date) = current.modified.and_then(Modified::value) {
        headers.insert(header::LAST_MODIFIED, date);
    }
    headers
}

fn whole(document: &Document, mut headers: HeaderMap) -> Response {
    let mut body = Vec::with_capacity(document.body.len() + document.key.len() + DOCUMENT_BYTES);
    document.write_json(&mut body);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    let mut response = Response::new(Body::from(body));
    *response.headers_mut() = headers;
    response
}

/// The place that a reader wants the collection to have seen: `7`, or `3:7` in partition 3.
pub(crate) fn min_offset(params: &mut Params) -> Result<Option<MinOffset>, ApiError> {
    let Some(text) = params.one("min_offset")? else { return Ok(None) };
    let (partition, offset) = match text.split_once(':') {
        Some((partition, offset)) => (Some(partition), offset),
        None => (None, text.as_str()),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = || {
        let partition = match partition {
            Some(text) => Some(Partition(text.parse().ok().filter(|_| digits(text))?)),
            None => None,
        };
        let offset = Offset(offset.parse().ok().filter(|_| digits(offset))?);
        Some(MinOffset { partition, offset })
    };
    match parsed() {
        Some(at) => Ok(Some(at)),
        None => Err(ApiError::bad_request(format!(
            "min_offset must be an offset, or a partition and an offset such as 3:7, not {text:?}"
        ))),
    }
}

/// Waits until the owner of a collection has seen an offset.
pub(crate) async fn until_seen(app: &Shared, name: &str, at: MinOffset) -> Result<(), ApiError> {
    let hub = app.hub()?;
    match hub.projections().until_seen(name, at).await {
        Ok(true) => Ok(()),
        Ok(false) => {
            let message = "the projection has not reached min_offset in time; try again";
            Err(ApiError::unavailable(message))
        }
        // Where there is no such collection, that is what is wrong.
        Err(ProjectionError::Bad(_)) if hub.collections().get(name).await?.is_none() => {
            collection::check_name(name)?;
            Err(collections::missing(name))
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Option<MinOffset> {
        min_offset(&mut Params::parse(Some(text)).unwrap()).unwrap()
    }

    #[test]
    fn places_are_an_offset_or_a_partition_too() {
        assert_eq!(place("x=1"), None);
        assert_eq!(place("min_offset=7"), Some(MinOffset { partition: None, offset: Offset(7) }));
        let both = MinOffset { partition: Some(Partition(3)), offset: Offset(u64::MAX) };
        assert_eq!(place("min_offset=3:18446744073709551615"), Some(both));
        for bad in
            ["", ":", "7:", ":7", "-1", "%2B1", "1:2:3", "x", "4294967296:0", "18446744073709551616", "3: 7"]
        {
            let mut params = Params::parse(Some(&format!("min_offset={bad}"))).unwrap();
            assert!(min_offset(&mut params).is_err(), "{bad}");
        }
        assert!(min_offset(&mut Params::parse(Some("min_offset=1&min_offset=1")).unwrap()).is_err());
    }

    #[test]
    fn caches_are_everyones_or_ones_own() {
        assert_eq!(cache_control(Duration::from_secs(5), false), "public, max-age=5");
        assert_eq!(cache_control(Duration::from_millis(1500), true), "private, max-age=1");
    }
}
