//! Answers that are built piece by piece, in constant memory.
//!
//! An answer that fits into one chunk is sent at once, with its errors. A longer one is built by its own task, one chunk
//! ahead of the socket: while a client does not read, no more is built for it. A client must be able to tell a complete
//! answer from a truncated one, so an answer that cannot be completed, or whose caller may no longer have the rest, breaks
//! the connection. Chunks are built in reserved memory, and wait for it.

use crate::answers::JSON_END;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::gateway::Shared;
use crate::media::JSON;
use crate::memory::{InTurn, Memory, Reservation};
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use prombus_core::document::MAX_BODY_BYTES;
use prombus_engine::Cost;
use std::future::Future;
use std::io;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The size at which a chunk is sent.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;
/// Room for the last piece of a chunk.
const SPARE_BYTES: usize = 128 << 10;
/// Maximum size of a chunk: its last piece may be a large document or event.
pub(crate) const MAX_CHUNK_BYTES: usize = CHUNK_BYTES + MAX_BODY_BYTES;
/// How long a chunk is filled before it is sent anyway.
const FILL_TIME: Duration = Duration::from_millis(200);
/// How many chunks may wait for the socket.
const CHUNKS_AHEAD: usize = 1;

/// Something that is written piece by piece.
pub(crate) trait Pieces: Send + 'static {
    /// Appends the next piece to `out`, and says whether there are more.
    fn next(&mut self, out: &mut Vec<u8>) -> impl Future<Output = Result<bool, ApiError>> + Send;

    /// What the expression may cost that is evaluated for them, if there is one. A chunk ends where that changes.
    fn cost(&self) -> Cost {
        Cost::None
    }
}

/// An object whose one field is an array, of items that are made one by one: `{"name":[...]}`.
pub(crate) struct Array {
    name: &'static str,
    items: BoxStream<'static, Result<Vec<u8>, ApiError>>,
    /// How many were written; `None` where not even the beginning was.
    written: Option<usize>,
}

impl Array {
    pub fn new(name: &'static str, items: BoxStream<'static, Result<Vec<u8>, ApiError>>) -> Self {
        Self { name, items, written: None }
    }
}

impl Pieces for Array {
    async fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        let item = self.items.next().await.transpose()?;
        if self.written.is_none() {
            out.extend_from_slice(format!("{{\"{}\":[", self.name).as_bytes());
        }
        let written = self.written.get_or_insert(0);
        let Some(item) = item else {
            out.extend_from_slice(b"]}");
            return Ok(false);
        };
        if *written > 0 {
            out.push(b',');
        }
        *written += 1;
        out.extend_from_slice(&item);
        Ok(true)
    }
}

/// Pieces followed by a fixed end.
struct Ended<P> {
    pieces: P,
    end: &'static [u8],
}

impl<P: Pieces> Pieces for Ended<P> {
    async fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        let more = self.pieces.next(out).await?;
        if !more {
            out.extend_from_slice(self.end);
        }
        Ok(more)
    }

    fn cost(&self) -> Cost {
        self.pieces.cost()
    }
}

/// A part of an answer.
enum Chunk {
    Part(Bytes),
    Last(Vec<u8>, Reservation),
    Broken(ApiError),
}

/// The answer made of `pieces` for `caller`, while its token is valid.
pub(crate) async fn answer(
    pieces: impl Pieces,
    content_type: &'static str,
    (app, caller): (&Shared, Caller),
) -> Result<Response, ApiError> {
    let InTurn { room, turn } = app.memory.reserve_in_turn(MAX_CHUNK_BYTES, pieces.cost()).await?;
    let answer = answer_in(room, pieces, content_type, (app, caller)).await;
    drop(turn);
    answer
}

/// The same, with a reservation for the first chunk.
pub(crate) async fn answer_in(
    room: Reservation,
    pieces: impl Pieces,
    content_type: &'static str,
    (app, caller): (&Shared, Caller),
) -> Result<Response, ApiError> {
    let mut pieces = Ended { pieces, end: if content_type == JSON { JSON_END } else { b"" } };
    let head = [(header::CONTENT_TYPE, content_type)];
    Ok(match chunk(&mut pieces, room).await {
        Chunk::Broken(error) => return Err(error),
        // One that is whole is counted with the others that are (see `request_guard.rs`).
        Chunk::Last(bytes, _) => (head, bytes).into_response(),
        Chunk::Part(bytes) => (head, in_chunks(bytes, pieces, (app.memory.clone(), caller))).into_response(),
    })
}

async fn chunk(pieces: &mut impl Pieces, room: Reservation) -> Chunk {
    let mut out = Vec::with_capacity(CHUNK_BYTES + SPARE_BYTES);
    let (begun, cost) = (Instant::now(), pieces.cost());
    while out.len() < CHUNK_BYTES && begun.elapsed() < FILL_TIME && pieces.cost() == cost {
        match pieces.next(&mut out).await {
            // A piece may be much work and never wait for anything; others must have their turn.
            Ok(true) => tokio::task::yield_now().await,
            Ok(false) => {
                // Most answers are small, and should hold no more than they are.
                out.shrink_to_fit();
                return Chunk::Last(out, room);
            }
            Err(error) => return Chunk::Broken(error),
        }
    }
    Chunk::Part(room.hold(out))
}

fn in_chunks(first: Bytes, mut pieces: impl Pieces, (memory, caller): (Memory, Caller)) -> Body {
    let (sender, mut receiver) = mpsc::channel(CHUNKS_AHEAD);
    tokio::spawn(async move {
        loop {
            let next = async {
                // Room first: a chunk that is made before it has its place would be one more that waits.
                let Ok(place) = sender.reserve().await else { return false };
                let cost = pieces.cost();
                let InTurn { room, turn } = memory.reserve_in_turn_patiently(MAX_CHUNK_BYTES, cost).await;
                let chunk = chunk(&mut pieces, room).await;
                drop(turn);
                let more = matches!(chunk, Chunk::Part(_));
                place.send(chunk);
                more
            };
            tokio::select! {
                more = next => if !more {
                    return;
                },
                // If the client is gone, the rest is not needed.
                () = sender.closed() => return,
                // Dropping the sender aborts the answer.
                _ = caller.end() => return,
            }
        }
    });
    let (mut first, mut complete) = (Some(first), false);
    Body::from_stream(futures::stream::poll_fn(move |cx| {
        if let Some(first) = first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if complete {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(match ready!(receiver.poll_recv(cx)) {
            Some(Chunk::Part(bytes)) => Ok(bytes),
            Some(Chunk::Last(bytes, room)) => {
                complete = true;
                Ok(room.hold(bytes))
            }
            Some(Chunk::Broken(error)) => {
                tracing::warn!(error = error.message(), "cut off an answer");
                Err(io::Error::other(error.message().to_owned()))
            }
            None => Err(io::Error::other("the answer was aborted")),
        }))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::{Gateway, GatewayOptions};
    use futures::FutureExt;
    use http_body_util::BodyExt;

    /// Writes so many pieces of 100 KiB, and then ends as told.
    struct Test(usize, Option<ApiError>);

    impl Pieces for Test {
        async fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
            if self.0 == 0 {
                return self.1.take().map_or(Ok(false), Err);
            }
            assert!(self.0 != 13, "a piece that panics");
            self.0 -= 1;
            out.extend_from_slice(&[b'x'; 100 << 10]);
            Ok(true)
        }
    }

    async fn made(pieces: impl Pieces) -> Result<Body, ApiError> {
        let gateway = Gateway::new(GatewayOptions::default()).unwrap();
        let answer = answer(pieces, "text/plain", (gateway.shared(), Caller::anyone())).await;
        answer.map(IntoResponse::into_response).map(Response::into_body)
    }

    async fn length(pieces: Test) -> Result<usize, ()> {
        let body = made(pieces).await.map_err(|_| ())?;
        body.collect().await.map(|body| body.to_bytes().len()).map_err(|_| ())
    }

    #[tokio::test]
    async fn short_and_long_answers_are_whole() {
        assert_eq!(length(Test(0, None)).await, Ok(0));
        assert_eq!(length(Test(1, None)).await, Ok(100 << 10));
        assert_eq!(length(Test(12, None)).await, Ok(1200 << 10));
    }

    /// Something for which an expression is evaluated, without an end.
    struct Filtered(Cost);

    impl Pieces for Filtered {
        async fn next(&mut self, _: &mut Vec<u8>) -> Result<bool, ApiError> {
            std::future::pending().await
        }

        fn cost(&self) -> Cost {
            self.0
        }
    }

    #[tokio::test]
    async fn however_many_filtered_answers_are_made_others_have_room() {
        let gateway = Gateway::new(GatewayOptions::default()).unwrap();
        let shared = gateway.shared();
        let filtered = [Cost::Cheap, Cost::Costly].into_iter().cycle().take(2_000).map(Filtered);
        let answers = filtered.map(|pieces| answer(pieces, "text/plain", (shared, Caller::anyone())));
        let mut filtered = std::pin::pin!(futures::future::join_all(answers));
        assert!(filtered.as_mut().now_or_never().is_none());
        assert!(shared.memory.used() < 16 * MAX_CHUNK_BYTES, "{}", shared.memory.used());
        let other = answer(Test(0, None), "text/plain", (shared, Caller::anyone())).now_or_never();
        assert!(other.unwrap().is_ok());
    }

    #[tokio::test]
    async fn an_array_has_its_commas() {
        for (count, expected) in [(0, "{\"n\":[]}"), (1, "{\"n\":[0]}"), (3, "{\"n\":[0,1,2]}")] {
            let items = futures::stream::iter(0..count).map(|n: u32| Ok(n.to_string().into_bytes()));
            let body = made(Array::new("n", items.boxed())).await.unwrap();
            assert_eq!(body.collect().await.unwrap().to_bytes(), expected);
        }
    }

    #[tokio::test]
    async fn an_early_error_is_an_error_and_a_late_one_breaks_the_body() {
        assert!(made(Test(1, Some(ApiError::internal("no")))).await.is_err());
        let late = made(Test(12, Some(ApiError::internal("no")))).await.unwrap();
        assert!(late.collect().await.is_err());
    }

    #[tokio::test]
    async fn a_panic_breaks_the_body_too() {
        let broken = made(Test(20, None)).await.unwrap();
        assert!(broken.collect().await.is_err());
    }
}
