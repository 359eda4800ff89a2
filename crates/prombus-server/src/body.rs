//! Taking in bodies: never more than allowed, and never from a client that has stopped sending or only pretends to send.
//!
//! A body may stand still for `limits.body_timeout_ms`, and a body or a line of it has that long, and a second more for
//! every [`MIN_BYTES_PER_S`] of it that have come, to be whole. So a slow line gets its time, whatever the size, and a
//! client that sends a byte now and then to hold its connection does not.

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
use tokio::time::Instant;

/// The most that is set aside for a body before any of it has come.
const MAX_RESERVED_BYTES: usize = 1 << 20;
/// A body that comes more slowly than this, beyond what `limits.body_timeout_ms` gives it, is not waited for.
const MIN_BYTES_PER_S: u64 = 1 << 10;
/// How much of a refused body is still read, so that the client gets to see the answer.
const MAX_DISCARDED_BYTES: usize = 64 << 20;
/// How long that may take.
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// A body that is being taken in.
pub(crate) struct Intake {
    body: Body,
    timeout: Duration,
    /// Since when what is awaited as a whole is awaited, and how many bytes of it have come.
    since: Instant,
    came: u64,
    max_bytes: usize,
    /// Whether the client sends its body only once it is asked for, and was not asked yet.
    waits_for_go: bool,
}

impl Intake {
    pub fn new(body: Body, headers: &HeaderMap, options: &GatewayOptions) -> Self {
        Self {
            body,
            timeout: options.body_timeout,
            since: Instant::now(),
            came: 0,
            max_bytes: options.max_body_bytes,
            waits_for_go: headers.contains_key(header::EXPECT),
        }
    }

    /// Says that something whole has come: for what comes next, time starts anew.
    pub fn start_anew(&mut self) {
        (self.since, self.came) = (Instant::now(), 0);
    }

    /// The next bytes; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        self.waits_for_go = false;
        let idle_until = Instant::now() + self.timeout;
        loop {
            let whole_until = self.since + self.timeout + Duration::from_secs(self.came / MIN_BYTES_PER_S);
            let until = idle_until.min(whole_until);
            let frame = match tokio::time::timeout_at(until, self.body.frame()).await {
                Err(_) => return Err(self.too_slow(idle_until <= whole_until)),
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
                self.came += data.len() as u64;
                return Ok(Some(data));
            }
        }
    }

    fn too_slow(&self, stands_still: bool) -> ApiError {
        let ms = self.timeout.as_millis();
        ApiError::timed_out(match stands_still {
            true => format!("no byte of the body has come for {ms} ms, which is limits.body_timeout_ms"),
            false => format!(
                "the body, or a line of it, comes too slowly: it has limits.body_timeout_ms, {ms} ms, and a second more for \
                 every {MIN_BYTES_PER_S} bytes"
            ),
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use std::convert::Infallible;

    const TIMEOUT: Duration = Duration::from_secs(30);

    /// A body of so many parts of so many bytes, each a while after the one before.
    fn intake(parts: usize, bytes: usize, pause: Duration) -> Intake {
        let parts = futures::stream::iter(0..parts).then(move |_| async move {
            // How slowly a body comes is what is tested; the clock is held.
            tokio::time::sleep(pause).await;
            Ok::<_, Infallible>(Bytes::from(vec![b'x'; bytes]))
        });
        let options = GatewayOptions { body_timeout: TIMEOUT, ..GatewayOptions::default() };
        Intake::new(Body::from_stream(parts), &HeaderMap::new(), &options)
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_line_gets_its_time() {
        // Five minutes in all.
        let whole = intake(30, 10 << 10, Duration::from_secs(10)).whole().await.unwrap();
        assert_eq!(whole.len(), 300 << 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_is_not_waited_for() {
        let begun = Instant::now();
        let error = intake(1_000, 1, Duration::from_secs(1)).whole().await.unwrap_err();
        assert!(error.message().contains("too slowly"), "{error:?}");
        assert_eq!(begun.elapsed(), TIMEOUT);
        let begun = Instant::now();
        let error = intake(2, 20 << 10, TIMEOUT * 2).whole().await.unwrap_err();
        assert!(error.message().contains("no byte"), "{error:?}");
        assert_eq!(begun.elapsed(), TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn time_starts_anew_with_what_is_whole() {
        let mut intake = intake(100, 1, Duration::from_secs(20));
        for _ in 0..100 {
            assert!(intake.next().await.unwrap().is_some());
            intake.start_anew();
        }
        assert!(intake.next().await.unwrap().is_none());
    }
}
