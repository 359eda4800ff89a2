//! What remains of a request's body if it is answered early, because of some other error.
//!
//! There is one rule for every answer. It is sent at once. If little of the body remains, that is read and the connection
//! stays usable; otherwise the answer says `Connection: close`. Then more is read for a while all the same, and discarded:
//! closing a connection with unread bytes resets it, and a client that is still sending would never see the answer.

use crate::memory::Received;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;

/// How much is read for a connection to go on. A client with more to send is better off with another one.
const MAX_SMALL_REST: u64 = 64 << 10;
/// How much is read so that a client gets to see the answer.
const MAX_DISCARDED_BYTES: usize = 64 << 20;
/// How long either may take.
const DISCARD_TIME: Duration = Duration::from_secs(5);
/// How long they may take once the hub closes.
const CLOSING_DISCARD_TIME: Duration = Duration::from_secs(1);

/// The body of a connection's request, once whoever deals with the request has let go of it before its end. A connection
/// has one request at a time.
#[derive(Clone, Default)]
pub(crate) struct Unread(Arc<Mutex<RequestBody>>);

#[derive(Default)]
struct RequestBody {
    /// Whether there is no answer yet. What is let go of later is nobody's concern.
    is_awaited: bool,
    left: Option<UnreadBody>,
}

/// What is left.
struct UnreadBody {
    body: Incoming,
    /// Whether the client sends it without being asked for it, or has been asked.
    comes: bool,
}

impl Unread {
    /// Lends the body of a request to whoever deals with it.
    pub fn lend(&self, request: Request<Incoming>) -> Request<Body> {
        *self.0.lock() = RequestBody { is_awaited: true, left: None };
        let comes = !request.headers().contains_key(header::EXPECT);
        request.map(|body| match body.is_end_stream() {
            true => Body::empty(),
            false => Body::new(LentBody { left: Some(UnreadBody { body, comes }), owner: self.clone() }),
        })
    }

    /// Sees to what is left, now that there is an answer. Most often that is nothing, and needs no reader.
    pub fn settle(&self, answer: &mut Response, reader: impl FnOnce() -> Reader) {
        let Some(left) = std::mem::take(&mut *self.0.lock()).left else { return };
        // A client whose body was waited for in vain need not be waited for again, and one that waits to be asked listens.
        let is_read = left.comes && answer.status() != StatusCode::REQUEST_TIMEOUT;
        let is_small = left.body.size_hint().upper().is_some_and(|rest| rest <= MAX_SMALL_REST);
        // One that is not HTTP any more has its own ways to end.
        if !(is_read && is_small) && answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if is_read {
            tokio::spawn(reader().read_for_a_while(left.body));
        }
    }
}

/// Who reads what is left.
pub(crate) struct Reader {
    /// What its connection counts as received.
    pub received: Received,
    /// Whether the hub closes.
    pub stopped: watch::Receiver<bool>,
}

impl Reader {
    async fn read_for_a_while(mut self, body: Incoming) {
        let closing = async {
            // A dropped sender means the same.
            let _ = self.stopped.wait_for(|stopped| *stopped).await;
            // The time itself is what is waited for.
            tokio::time::sleep(CLOSING_DISCARD_TIME).await;
        };
        tokio::select! {
            () = read(body, &self.received) => {}
            // And here. That the body is let go of closes the connection.
            () = tokio::time::sleep(DISCARD_TIME) => {}
            () = closing => {}
        }
    }
}

async fn read(mut body: Incoming, received: &Received) {
    let mut left = MAX_DISCARDED_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let len = frame.data_ref().map_or(0, Bytes::len);
        received.subtract(len);
        match left.checked_sub(len) {
            Some(less) => left = less,
            None => return,
        }
    }
}

/// A body that goes back to its connection unless it is read to its end.
struct LentBody {
    /// `None` once it has come to its end.
    left: Option<UnreadBody>,
    owner: Unread,
}

impl HttpBody for LentBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(left) = &mut self.left else { return Poll::Ready(None) };
        left.comes = true;
        let frame = Pin::new(&mut left.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.left = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.left.as_ref().is_none_or(|left| left.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.left.as_ref().map_or_else(|| SizeHint::with_exact(0), |left| left.body.size_hint())
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        let Some(left) = self.left.take().filter(|left| !left.body.is_end_stream()) else { return };
        let mut place = self.owner.0.lock();
        if place.is_awaited {
            place.left = Some(left);
        }
    }
}
