//! Following topics as server-sent events: catch up, then live.

mod source;

use crate::auth::Caller;
use crate::error::ApiError;
use crate::gateway::App;
use crate::media::EVENT_STREAM;
use crate::memory::{ConnectionReservation, Memory};
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use prombus_core::Event;
use prombus_engine::Filter;
pub(crate) use source::{Awaited, Source};
use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::mpsc;

/// After this long without an event, a comment keeps the connection open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How many pieces may wait for the socket.
const PIECES_AHEAD: usize = 1;
/// What a piece takes at most, about: what is read at once, and what is written of it.
const MAX_PIECE_BYTES: usize = 4 << 20;
/// What an event takes beside its payload, about.
const EVENT_BYTES: usize = 448;
/// How soon a browser should reconnect, in milliseconds; also the first bytes, so that the client sees the answer.
const HELLO: &str = "retry: 1000\n";

/// Opens a source that looks at many topics, in turn with others.
pub(crate) async fn open<T>(memory: &Memory, opening: impl Future<Output = T>) -> T {
    let _room = memory.reserve_patiently(MAX_PIECE_BYTES).await;
    opening.await
}

/// The events that `source` has, for as long as somebody listens.
pub(crate) fn stream(source: Source, app: App, caller: Caller) -> Result<Response, ApiError> {
    let followed = Followed::new(source, &app.memory)?;
    let source = &followed.source;
    let (sender, mut receiver) = mpsc::channel::<Bytes>(PIECES_AHEAD);
    let id = source.token().map(|token| format!("id: {token}\n")).unwrap_or_default();
    let hello = Bytes::from(format!("{HELLO}{id}\n"));
    tokio::spawn(async move {
        if sender.send(hello).await.is_ok() {
            follow(followed, (&app, &caller), &sender).await;
        }
    });
    let body = Body::from_stream(futures::stream::poll_fn(move |cx| {
        receiver.poll_recv(cx).map(|piece| piece.map(Ok::<Bytes, std::io::Error>))
    }));
    let head = [
        (header::CONTENT_TYPE, EVENT_STREAM),
        (header::CACHE_CONTROL, "no-store"),
        // Proxies may buffer answers.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((head, body).into_response())
}

/// What a stream follows, and its reservation.
struct Followed {
    source: Source,
    reservation: ConnectionReservation,
}

impl Followed {
    fn new(source: Source, memory: &Memory) -> Result<Self, ApiError> {
        let mut reservation = ConnectionReservation::new(memory);
        reservation.resize(source.held_bytes())?;
        Ok(Self { source, reservation })
    }

    /// The next events, as [`Source::next_events`] has them. Topics that came meanwhile take room, too.
    async fn next_events(&mut self) -> Result<Option<Vec<Event>>, ApiError> {
        let events = self.source.next_events().await?;
        self.reservation.resize(self.source.held_bytes())?;
        Ok(events)
    }
}

async fn follow(mut followed: Followed, (app, caller): (&App, &Caller), sender: &mpsc::Sender<Bytes>) {
    let filter = followed.source.filter().cloned();
    let mut counted = 0;
    let mut count_failures = || {
        let failures = filter.as_ref().map_or(0, Filter::failures);
        app.metrics.count_filter_errors(failures - counted);
        counted = failures;
    };
    loop {
        let mut on_silence = || {
            count_failures();
            // Where something is still unsent, the connection is not silent.
            let _ = sender.try_send(Bytes::from_static(b": keep-alive\n\n"));
        };
        let piece = tokio::select! {
            piece = patiently(next_piece(&mut followed, &app.memory), &mut on_silence) => match piece {
                Ok(piece) => piece,
                Err(error) => return end(sender, &error).await,
            },
            why = caller.end() => return end(sender, &ApiError::unauthorized(why)).await,
            () = sender.closed() => return,
            () = app.closing() => return,
        };
        count_failures();
        tokio::select! {
            sent = sender.send(piece) => if sent.is_err() {
                return;
            },
            // A client that does not read is not waited for here.
            _ = caller.end() => return,
            () = app.closing() => return,
        }
    }
}

/// Waits for `piece`, with a call of `on_silence` every [`KEEP_ALIVE`]. The wait itself is never restarted, so that a
/// stream with a slow filter keeps its place in the queue.
async fn patiently<T>(piece: impl Future<Output = T>, on_silence: &mut impl FnMut()) -> T {
    let mut piece = pin!(piece);
    loop {
        match tokio::time::timeout(KEEP_ALIVE, piece.as_mut()).await {
            Ok(piece) => return piece,
            Err(_) => on_silence(),
        }
    }
}

/// The next events, as they are sent. Nothing is lost if it is abandoned.
async fn next_piece(followed: &mut Followed, memory: &Memory) -> Result<Bytes, ApiError> {
    loop {
        let cost = Filter::cost_of(followed.source.filter());
        // Only to look, not to wait: an event that thousands wait for is not read by all of them at once.
        let reserved = memory.reserve_in_turn_patiently(MAX_PIECE_BYTES, cost).await;
        match followed.next_events().await? {
            Some(events) if !events.is_empty() => {
                return Ok(reserved.room.hold(written(&events, &followed.source)));
            }
            // Yields to others, whatever the filter costs.
            Some(_) => tokio::task::yield_now().await,
            None => {
                drop(reserved);
                followed.source.changed().await?;
            }
        }
    }
}

fn written(events: &[Event], source: &Source) -> Vec<u8> {
    let payloads: usize = events.iter().map(|event| event.payload.len()).sum();
    let mut out = Vec::with_capacity(payloads + EVENT_BYTES * events.len());
    for event in events {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(source.token_after(event).as_bytes());
        // Events are compact JSON, so they have no line breaks.
        out.extend_from_slice(b"\ndata: ");
        event.write_json(&mut out);
        out.extend_from_slice(b"\n\n");
    }
    out
}

/// Sends the client the reason why the stream ends.
async fn end(sender: &mpsc::Sender<Bytes>, error: &ApiError) {
    // The client may be gone.
    let _ = sender.send(format!("event: error\ndata: {}\n\n", error.to_json()).into()).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::sync::Semaphore;

    #[tokio::test(start_paused = true)]
    async fn a_stream_keeps_its_place_in_line_while_it_is_silent() {
        let turns = Arc::new(Semaphore::new(0));
        let silences = Arc::new(Semaphore::new(0));
        let wait_in_line = |mut on_silence: Box<dyn FnMut() + Send>| {
            let turns = turns.clone();
            tokio::spawn(async move {
                let turn = patiently(turns.acquire(), &mut on_silence).await;
                turn.map(|turn| turn.forget()).is_ok()
            })
        };
        let told = silences.clone();
        let first = wait_in_line(Box::new(move || told.add_permits(1)));
        silences.acquire().await.unwrap().forget();
        let second = wait_in_line(Box::new(|| {}));
        silences.acquire_many(3).await.unwrap().forget();
        turns.add_permits(1);
        assert!(first.await.unwrap());
        assert!(!second.is_finished());
        second.abort();
    }
}
