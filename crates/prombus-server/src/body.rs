//! Taking in bodies: never more than allowed, and never from a client that has stopped sending.

use crate::error::ApiError;
use crate::gateway::{App, GatewayOptions};
use crate::media;
use crate::params::Params;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use prombus_wire::parse_object;
use serde::Deserialize;
use std::time::Duration;

/// The most that is set aside for a body before any of it has come.
const MAX_RESERVED_BYTES: usize = 1 << 20;
/// How much of a refused body is still read, so that the client gets to see the answer.
const MAX_DISCARDED_BYTES: usize = 64 << 20;
/// How long that may take.
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// A body that is being taken in.
pub(crate) struct Intake {
    body: Body,
    timeout: Duration,
    max_bytes: usize,
    /// Whether the client sends its body only once it is asked for, and was not asked yet.
    waits_for_go: bool,
}

impl Intake {
    pub fn new(body: Body, headers: &HeaderMap, options: &GatewayOptions) -> Self {
        Self {
            body,
            timeout: options.body_timeout,
            max_bytes: options.max_body_bytes,
            waits_for_go: headers.contains_key(header::EXPECT),
        }
    }

    /// The next bytes; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        self.waits_for_go = false;
        loop {
            let frame = match tokio::time::timeout(self.timeout, self.body.frame()).await {
                Err(_) => {
                    let ms = self.timeout.as_millis();
                    return Err(ApiError::timed_out(format!(
                        "no byte of the body has come for {ms} ms, which is limits.body_timeout_ms"
                    )));
                }
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => {
                    return Err(ApiError::bad_request(format!("the body broke off: {error}")));
                }
                Ok(Some(Ok(frame))) => frame,
            };
            // Anything but data is a trailer, which nobody asks for.
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                return Ok(Some(data));
            }
        }
    }

    /// The whole body.
    pub async fn whole(mut self) -> Result<Bytes, ApiError> {
        let announced = self.body.size_hint().lower();
        if announced > self.max_bytes as u64 {
            return Err(self.refuse().await);
        }
        let Some(first) = self.next().await? else { return Ok(Bytes::new()) };
        if first.len() > self.max_bytes {
            return Err(self.refuse().await);
        }
        // Many bodies come in one piece, which is taken as it is.
        let Some(mut data) = self.next().await? else { return Ok(first) };
        let mut whole = BytesMut::with_capacity((announced as usize).min(MAX_RESERVED_BYTES));
        whole.extend_from_slice(&first);
        loop {
            if whole.len() + data.len() > self.max_bytes {
                return Err(self.refuse().await);
            }
            whole.extend_from_slice(&data);
            match self.next().await? {
                Some(more) => data = more,
                None => return Ok(whole.freeze()),
            }
        }
    }

    async fn refuse(self) -> ApiError {
        let limit = self.max_bytes;
        self.discard().await;
        ApiError::too_large(format!(
            "the body is larger than limits.body_bytes, {limit} bytes; send it in smaller pieces"
        ))
        .with("limit", limit)
    }

    /// Reads on for a while without keeping anything. A connection that is closed on unread bytes is reset,
    /// and the client would never see why.
    pub async fn discard(mut self) {
        if self.waits_for_go {
            // A client that has sent nothing yet listens.
            return;
        }
        let discard = async {
            let mut left = MAX_DISCARDED_BYTES;
            while let Ok(Some(data)) = self.next().await {
                match left.checked_sub(data.len()) {
                    Some(less) => left = less,
                    None => break,
                }
            }
        };
        // Whether it came to its end makes no difference.
        let _ = tokio::time::timeout(DISCARD_TIME, discard).await;
    }
}

/// The body of a call that takes JSON or nothing, and no parameters.
pub(crate) async fn json_body(app: &App, request: Request) -> Result<Bytes, ApiError> {
    let (parts, body) = request.into_parts();
    // The body comes first, whatever else may be wrong, because a client that is still sending reads no answer.
    let body = Intake::new(body, &parts.headers, &app.options).whole().await?;
    Params::parse(parts.uri.query())?.done("none")?;
    if !body.is_empty() {
        media::require_json(&parts.headers)?;
    }
    Ok(body)
}

/// The object of a body that may be absent.
pub(crate) fn parse_optional<'a, T: Deserialize<'a> + Default>(body: &'a [u8]) -> Result<T, ApiError> {
    if body.is_empty() { Ok(T::default()) } else { Ok(parse_object(body)?) }
}
