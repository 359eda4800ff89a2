//! Reading request bodies: never more than allowed, and never from a client that has stopped sending or merely pretends
//! to send.
//!
//! A body may stall for `limits.body_timeout_ms`. A body, or a line of it, has that long plus a second for every
//! [`MIN_BYTES_PER_S`] received to be complete. So a slow connection gets the time it needs, and a client that sends a
//! byte now and then to hold its connection does not. While memory is short, a large body that stalls is abandoned,
//! because it holds memory that others wait for.
//!
//! A body may take longer than its caller's token is valid: from then on, nothing of it is handed on.

use crate::auth::Caller;
use crate::error::ApiError;
use crate::gateway::{App, Shared};
use crate::gathered::Gathered;
use crate::media;
use crate::memory::{Memory, Received};
use crate::params::Params;
use crate::serve::Via;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::request::Parts;
use bytes::Bytes;
use http_body_util::BodyExt;
use prombus_wire::parse_object;
use serde::Deserialize;
use std::time::Duration;
use tokio::time::Instant;

/// The minimum rate of a body, beyond the time that `limits.body_timeout_ms` gives it.
pub(crate) const MIN_BYTES_PER_S: u64 = 1 << 10;

/// How long a large body may stall while memory is short, whether its client does not send or it is not read.
const SHORT_BODY_PATIENCE: Duration = Duration::from_secs(3);
/// How often to check whether memory is short.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A body that is being received.
pub(crate) struct BodyReader {
    body: Body,
    caller: Caller,
    memory: Memory,
    /// What its connection counts as received.
    received: Received,
    timeout: Duration,
    /// When the current unit began, and how many bytes of it have arrived.
    since: Instant,
    came: u64,
    max_bytes: usize,
}

impl BodyReader {
    pub fn new(body: Body, head: &Parts, app: &Shared) -> Self {
        Self {
            body,
            // The guard lets no request through to a route with a body whose caller it does not know.
            caller: head.extensions.get().cloned().unwrap_or_else(Caller::anyone),
            memory: app.memory.clone(),
            received: match head.extensions.get::<Via>() {
                Some(via) => via.received.clone(),
                None => Received::new(&app.memory),
            },
            timeout: app.options.body_timeout,
            since: Instant::now(),
            came: 0,
            max_bytes: app.options.max_body_bytes,
        }
    }

    /// With another limit than requests of clients have.
    pub fn at_most(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }

    /// Marks a complete unit: the time for the next one starts now. `held` bytes are still in memory.
    pub fn start_anew(&mut self, held: usize) {
        (self.since, self.came) = (Instant::now(), 0);
        self.received.is_dealt_with_but_for(held);
    }

    /// The next bytes; `None` at the end. Neither is told once the caller's token would be refused.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        let part = self.receive().await?;
        self.check_token()?;
        Ok(part)
    }

    fn check_token(&self) -> Result<(), ApiError> {
        self.caller.ended().map_or(Ok(()), |why| Err(ApiError::unauthorized(why)))
    }

    /// The next bytes, whoever sends them.
    async fn receive(&mut self) -> Result<Option<Bytes>, ApiError> {
        let idle_until = Instant::now() + self.timeout;
        loop {
            let whole_until = self.since + self.timeout + Duration::from_secs(self.came / MIN_BYTES_PER_S);
            let until = idle_until.min(whole_until);
            let frame = tokio::select! {
                biased;
                frame = tokio::time::timeout_at(until, self.body.frame()) => frame,
                () = starved(&self.memory), if self.received.is_much() => {
                    // The caller releases what it has received.
                    self.received.is_dealt_with();
                    return Err(self.memory.refusal());
                }
            };
            let frame = match frame {
                Err(_) => return Err(self.too_slow(idle_until <= whole_until)),
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => {
                    return Err(ApiError::bad_request(format!("the body was cut off: {error}")));
                }
                Ok(Some(Ok(frame))) => frame,
            };
            // Anything but data is a trailer, which is ignored.
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
            true => format!("no byte of the body has arrived for {ms} ms, which is limits.body_timeout_ms"),
            false => format!(
                "the body, or a line of it, comes too slowly: it has limits.body_timeout_ms, {ms} ms, and a second more for \
                 every {MIN_BYTES_PER_S} bytes"
            ),
        })
    }

    /// The whole body, if the caller's token is still valid when it is complete. Until then it is read in any case, so that
    /// the client is not cut off before it reads why it was refused.
    pub async fn whole(mut self) -> Result<Bytes, ApiError> {
        let announced = self.body.size_hint().lower();
        if announced > self.max_bytes as u64 {
            return Err(self.too_large());
        }
        let whole = self.gather(announced as usize).await?.ok_or_else(|| self.too_large())?;
        self.check_token()?;
        Ok(whole)
    }

    /// The whole body, or `None` if it is too large. Then nothing of it is kept.
    async fn gather(&mut self, announced: usize) -> Result<Option<Bytes>, ApiError> {
        let Some(first) = self.receive().await? else { return Ok(Some(Bytes::new())) };
        if first.len() > self.max_bytes {
            return Ok(None);
        }
        // Many bodies arrive in one piece, which is used as it is.
        if self.body.is_end_stream() {
            return Ok(Some(first));
        }
        let Some(second) = self.receive().await? else { return Ok(Some(first)) };
        let mut whole = Gathered::expecting(announced);
        whole.push(&first);
        // What was received is released before more is awaited: each part holds all of the buffer that it came in.
        drop(first);
        let mut next = Some(second);
        while let Some(data) = next {
            if whole.len() + data.len() > self.max_bytes {
                return Ok(None);
            }
            whole.push(&data);
            drop(data);
            next = self.receive().await?;
        }
        Ok(Some(whole.take()))
    }

    fn too_large(&self) -> ApiError {
        let limit = self.max_bytes;
        ApiError::too_large(format!(
            "the body is larger than limits.body_bytes, {limit} bytes; send it in smaller pieces"
        ))
        .with("limit", limit)
    }
}

/// Waits until memory has been short for long enough.
async fn starved(memory: &Memory) {
    let mut patience = SHORT_BODY_PATIENCE;
    while !patience.is_zero() {
        // There is no notification when memory becomes short: that is rare, and polling costs less.
        tokio::time::sleep(LOOK_EVERY).await;
        patience = if memory.is_short() { patience.saturating_sub(LOOK_EVERY) } else { SHORT_BODY_PATIENCE };
    }
}

/// The body of a call that takes JSON or nothing, and no query parameters.
pub(crate) async fn json_body(app: &App, request: Request) -> Result<Bytes, ApiError> {
    let (parts, body) = request.into_parts();
    // The body is read first, whatever else may be wrong: then its connection stays usable, however large it is.
    let body = BodyReader::new(body, &parts, app).whole().await?;
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
    const MUCH: usize = 1 << 20;

    /// A body of so many parts of so many bytes, each a while after the one before.
    fn intake(parts: usize, bytes: usize, pause: Duration) -> BodyReader {
        let parts = futures::stream::iter(0..parts).then(move |_| async move {
            // How slowly a body comes is what is tested; the clock is held.
            tokio::time::sleep(pause).await;
            Ok::<_, Infallible>(Bytes::from(vec![b'x'; bytes]))
        });
        let memory = Memory::new(8 << 20);
        BodyReader {
            body: Body::from_stream(parts),
            caller: Caller::anyone(),
            received: Received::new(&memory),
            memory,
            timeout: TIMEOUT,
            since: Instant::now(),
            came: 0,
            max_bytes: 1 << 20,
        }
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
            intake.start_anew(0);
        }
        assert!(intake.next().await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_body_that_stands_still_makes_room_while_memory_is_short() {
        let mut stalled = intake(1, 1, TIMEOUT * 2);
        stalled.received.add(MUCH);
        let (begun, others) = (Instant::now(), stalled.memory.charge(8 << 20));
        let error = stalled.next().await.unwrap_err();
        assert!(error.message().contains("limits.buffer_bytes"), "{error:?}");
        assert_eq!(begun.elapsed(), SHORT_BODY_PATIENCE);
        drop(others);
        // Where there is room it has all its time.
        stalled.start_anew(MUCH);
        let begun = Instant::now();
        assert!(stalled.next().await.unwrap_err().message().contains("no byte"));
        assert_eq!(begun.elapsed(), TIMEOUT);
    }
}
