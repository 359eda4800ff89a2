//! Content types: what a body contains, and what the client wants back.

use crate::error::ApiError;
use axum::http::{HeaderMap, HeaderValue, header};

pub(crate) const JSON: &str = "application/json";
pub(crate) const NDJSON: &str = "application/x-ndjson";
pub(crate) const EVENT_STREAM: &str = "text/event-stream";

/// The declared type of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyType {
    Json,
    Lines,
}

/// The requested type of answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerType {
    Page,
    Lines,
    Live,
}

/// Refuses a body that is compressed or otherwise encoded.
pub(crate) fn check_coding(headers: &HeaderMap) -> Result<(), ApiError> {
    for (name, plain) in [(header::CONTENT_ENCODING, "identity"), (header::TRANSFER_ENCODING, "chunked")] {
        let is_plain = |coding: &&HeaderValue| coding.as_bytes().eq_ignore_ascii_case(plain.as_bytes());
        if let Some(coding) = headers.get_all(&name).iter().find(|coding| !is_plain(coding)) {
            let message = format!("{name} {coding:?} is not supported; send the body uncompressed");
            return Err(ApiError::unsupported_type(message));
        }
    }
    Ok(())
}

/// What the body is; JSON by default.
pub(crate) fn body_type(headers: &HeaderMap) -> Result<BodyType, ApiError> {
    check_coding(headers)?;
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(BodyType::Json) };
    let text = value.to_str().unwrap_or_default();
    let (kind, charset_is_fine) = media_type(text);
    match kind.as_str() {
        JSON if charset_is_fine => Ok(BodyType::Json),
        NDJSON if charset_is_fine => Ok(BodyType::Lines),
        _ => Err(ApiError::unsupported_type(format!(
            "a body of type {text:?} is not supported here; use content-type: {JSON} or {NDJSON}, in UTF-8"
        ))),
    }
}

/// Refuses a body that is not declared as JSON.
pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    match body_type(headers)? {
        BodyType::Json => Ok(()),
        BodyType::Lines => Err(ApiError::unsupported_type(format!(
            "only a single object is accepted here; use content-type: {JSON}"
        ))),
    }
}

/// The type in lower case, and whether its charset is supported.
fn media_type(text: &str) -> (String, bool) {
    let mut parts = text.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
    let charset = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then_some(value.trim().trim_matches('"'))
    });
    (kind, charset.is_none_or(|charset| charset.eq_ignore_ascii_case("utf-8")))
}

/// The supported type that the client prefers.
pub(crate) fn answer_type(headers: &HeaderMap) -> Result<AnswerType, ApiError> {
    let mut best: Option<(AnswerType, f32)> = None;
    let mut said = false;
    for value in headers.get_all(header::ACCEPT) {
        for range in value.to_str().unwrap_or("?").split(',').map(str::trim).filter(|range| !range.is_empty())
        {
            said = true;
            let (kind, quality) = media_range(range);
            let answer = match kind.as_str() {
                JSON | "application/*" | "*/*" => AnswerType::Page,
                NDJSON => AnswerType::Lines,
                EVENT_STREAM => AnswerType::Live,
                _ => continue,
            };
            if quality > best.map_or(0.0, |(_, quality)| quality) {
                best = Some((answer, quality));
            }
        }
    }
    match best {
        Some((answer, _)) => Ok(answer),
        None if !said => Ok(AnswerType::Page),
        None => Err(ApiError::not_acceptable(format!(
            "accept {JSON} for pages, {NDJSON} for the whole range or {EVENT_STREAM} to follow; nothing else is supported"
        ))),
    }
}

/// Refuses clients that do not accept a stream, if that is the only type.
pub(crate) fn require_live(headers: &HeaderMap) -> Result<(), ApiError> {
    let ranges = || {
        let values = headers.get_all(header::ACCEPT).iter();
        values.flat_map(|value| value.to_str().unwrap_or("?").split(',')).map(str::trim)
    };
    let takes_it = |range: &str| {
        let (kind, quality) = media_range(range);
        quality > 0.0 && matches!(kind.as_str(), EVENT_STREAM | "text/*" | "*/*")
    };
    if ranges().all(str::is_empty) || ranges().any(takes_it) {
        return Ok(());
    }
    Err(ApiError::not_acceptable(format!(
        "accept {EVENT_STREAM} to follow topics; nothing else is supported here"
    )))
}

fn media_range(text: &str) -> (String, f32) {
    let mut parts = text.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
    let quality = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse().unwrap_or(0.0))
    });
    (kind, quality.unwrap_or(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn bodies() {
        let kind = |value: &str| body_type(&headers(header::CONTENT_TYPE, value)).ok();
        assert_eq!(body_type(&HeaderMap::new()).unwrap(), BodyType::Json);
        for json in
            ["application/json", "Application/JSON; charset=UTF-8", "application/json;charset=\"utf-8\""]
        {
            assert_eq!(kind(json), Some(BodyType::Json), "{json}");
        }
        assert_eq!(kind("application/x-ndjson"), Some(BodyType::Lines));
        for bad in ["", "text/plain", "application/json; charset=latin1", "application/jsonx", "ndjson"] {
            assert_eq!(kind(bad), None, "{bad}");
        }
        let coded = |value: &str| body_type(&headers(header::CONTENT_ENCODING, value)).ok();
        assert_eq!((coded("identity"), coded("gzip")), (Some(BodyType::Json), None));
        let sent = |value: &str| body_type(&headers(header::TRANSFER_ENCODING, value)).ok();
        assert_eq!((sent("Chunked"), sent("gzip, chunked")), (Some(BodyType::Json), None));
    }

    #[test]
    fn answers() {
        let kind = |value: &str| answer_type(&headers(header::ACCEPT, value)).ok();
        assert_eq!(answer_type(&HeaderMap::new()).unwrap(), AnswerType::Page);
        for page in ["*/*", "application/json", "text/html, application/json;q=0.9", "application/*", ""] {
            assert_eq!(kind(page), Some(AnswerType::Page), "{page}");
        }
        assert_eq!(kind("application/x-ndjson"), Some(AnswerType::Lines));
        assert_eq!(kind("application/json;q=0.5, application/x-ndjson"), Some(AnswerType::Lines));
        assert_eq!(kind("application/x-ndjson, */*"), Some(AnswerType::Lines));
        assert_eq!(kind("text/event-stream"), Some(AnswerType::Live));
        for bad in ["text/html", "application/json;q=0", "application/json;q=x"] {
            assert_eq!(kind(bad), None, "{bad}");
        }
    }
}
