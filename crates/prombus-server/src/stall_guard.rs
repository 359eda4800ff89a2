//! A socket that does not wait indefinitely: a client that reads nothing for too long is disconnected.
//!
//! It wraps the bare socket, below TLS, HTTP and WebSockets, so it covers every kind of answer, and whatever an answer
//! holds is released when its client is disconnected. For the same reason, incoming bytes are counted here. While memory
//! is short, clients are waited for much less, and those with much in flight are not read from. A large WebSocket frame has
//! the time that a body of a request has (see `body.rs`).

use crate::memory::Received;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// While memory is short, a client may take no byte for so long. A system tells that bytes have left only when a good part
/// of its own buffer has, so less would cut off clients that read steadily.
const SHORT_PATIENCE: Duration = Duration::from_secs(3);
/// And has to take so many bytes a second, of the time that it is waited for.
const SHORT_BYTES_PER_S: u64 = 64 << 10;
/// And one that has much of a frame or of a request's head in flight may send none for so long.
const SHORT_READ_PATIENCE: Duration = Duration::from_secs(5);
/// How often whoever waits checks whether memory is short.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A stream that is waited for only so long.
pub struct StallGuard<S> {
    stream: S,
    patience: Duration,
    writing: Wait,
    /// How long writes had to wait since one last went without, and how many bytes have left since then.
    waited: Duration,
    left: u64,
    reading: Wait,
    /// How long a large frame has been on its way, and when that was last looked at.
    frame_took: Duration,
    looked: Option<Instant>,
    /// What has come, where memory is shared with others.
    received: Option<Received>,
}

/// How long something has waited.
#[derive(Default)]
struct Wait {
    since: Option<Instant>,
    /// When it is looked at again. Most connections never need one.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Wait {
    /// It is over; says how long it was.
    fn end(&mut self) -> Option<Duration> {
        self.since.take().map(|since| since.elapsed())
    }

    /// Waits on, for as long as there is `patience`, from its first moment; `None` has no end. It is asked again every
    /// now and then, because it may have become less.
    fn poll(&mut self, cx: &mut Context<'_>, patience: impl Fn() -> Option<Duration>) -> Poll<()> {
        loop {
            let now = Instant::now();
            let waited = now - *self.since.get_or_insert(now);
            let left = patience().map_or(LOOK_EVERY, |patience| patience.saturating_sub(waited));
            if left.is_zero() {
                return Poll::Ready(());
            }
            // Nobody sleeps: it is a deadline, and set again.
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(LOOK_EVERY)));
            timer.as_mut().reset(now + left.min(LOOK_EVERY));
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl<S> StallGuard<S> {
    /// Gives up a write of which no byte goes out for as long as `patience`.
    pub fn new(stream: S, patience: Duration) -> Self {
        let (waited, left) = (Duration::ZERO, 0);
        let (writing, reading) = Default::default();
        let (frame_took, looked) = Default::default();
        Self { stream, patience, writing, waited, left, reading, frame_took, looked, received: None }
    }

    /// The same for a connection that shares memory with others: what comes is counted in `received`.
    pub(crate) fn sharing(self, received: Received) -> Self {
        Self { received: Some(received), ..self }
    }

    /// Whether a large frame has been on its way for too long. Only time in which it was read counts: the hub itself may
    /// have been too busy for it.
    fn frame_is_late(&mut self) -> bool {
        let Some(time) = self.received.as_ref().and_then(Received::time_for_frame) else {
            (self.frame_took, self.looked) = Default::default();
            return false;
        };
        let now = Instant::now();
        let since = self.looked.replace(now).map_or(Duration::ZERO, |looked| now - looked);
        self.frame_took += since.min(2 * LOOK_EVERY);
        self.frame_took > time
    }

    /// The outcome of a write: one that waits counts from its first moment, and any byte that goes out ends the wait.
    fn judge(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(result) = &written {
            match self.writing.end() {
                None => (self.waited, self.left) = (Duration::ZERO, 0),
                Some(waited) => {
                    self.waited += waited;
                    self.left += *result.as_ref().unwrap_or(&0) as u64;
                }
            }
            return written;
        }
        let Self { patience, writing, received, .. } = self;
        // One that takes a byte now and then holds its answer just as long as one that takes none.
        let earned = Duration::from_millis(self.left * 1_000 / SHORT_BYTES_PER_S);
        let short = (SHORT_PATIENCE + earned).saturating_sub(self.waited).min(*patience);
        let is_short = || received.as_ref().is_some_and(Received::memory_is_short);
        let patience = || Some(if is_short() { short } else { *patience });
        writing.poll(cx, patience).map(|()| {
            tracing::debug!(
                "disconnecting a client that has read nothing for limits.send_timeout_ms, or for a few seconds while memory is short"
            );
            Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing"))
        })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.frame_is_late() {
            tracing::debug!(
                "disconnecting a client whose frame comes too slowly: see limits.body_timeout_ms"
            );
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the frame comes too slowly")));
        }
        let Self { stream, reading, received, .. } = &mut *self;
        let Some(received) = received else { return Pin::new(stream).poll_read(cx, buffer) };
        let before = buffer.filled().len();
        if !received.is_much() || !received.memory_is_short() {
            let read = Pin::new(stream).poll_read(cx, buffer);
            if read.is_ready() || !received.is_much() {
                reading.end();
                received.add(buffer.filled().len() - before);
                return read;
            }
        }
        // Whether the client sends nothing or nothing is taken from it: it holds what others wait for. A request whose
        // head has come is refused by itself, or has come as a whole and is in flight.
        let patience = || match received.is_unattended() && received.memory_is_short() {
            true => Some(SHORT_READ_PATIENCE),
            false => received.frame_timeout(),
        };
        reading.poll(cx, patience).map(|()| {
            tracing::debug!(
                "disconnecting a client that sends no more of a large frame for limits.body_timeout_ms, or for a few seconds while memory is short"
            );
            Err(io::Error::new(io::ErrorKind::TimedOut, "nothing more comes of what the client sends"))
        })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // A bare socket has nothing to flush, so neither of these waits.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::MIN_BYTES_PER_S;
    use crate::memory::Memory;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_a_byte_now_and_then_is_waited_for() {
        let (near, mut far) = duplex(8);
        let mut near = StallGuard::new(near, PATIENCE);
        let reading = tokio::spawn(async move {
            for _ in 0..24 {
                // How slowly it reads is what is tested; the clock is held.
                tokio::time::sleep(PATIENCE / 2).await;
                far.read_u8().await.unwrap();
            }
            far
        });
        near.write_all(&[7; 32]).await.unwrap();
        drop(reading.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_is_given_up_and_only_the_wait_counts() {
        let (near, mut far) = duplex(8);
        let mut near = StallGuard::new(near, PATIENCE);
        near.write_all(&[7; 8]).await.unwrap();
        // Time in which nothing waits to be written; the clock is held.
        tokio::time::sleep(PATIENCE * 2).await;
        far.read_exact(&mut [0; 4]).await.unwrap();
        let begun = Instant::now();
        let error = near.write_all(&[7; 8]).await.unwrap_err();
        assert_eq!((error.kind(), begun.elapsed().as_secs()), (io::ErrorKind::TimedOut, PATIENCE.as_secs()));
    }

    const MUCH: usize = 1 << 20;
    const FRAME_TIME: Duration = Duration::from_secs(600);

    /// A connection that has received much of a frame, and memory that has room for it and `spare` bytes.
    async fn with_much_received(
        spare: usize,
    ) -> (StallGuard<tokio::io::DuplexStream>, tokio::io::DuplexStream, Memory, Received) {
        let memory = Memory::new(2 * MUCH + spare);
        let received = Received::new(&memory);
        received.is_of_frames(FRAME_TIME);
        let (near, mut far) = duplex(2 * MUCH);
        let mut near = StallGuard::new(near, PATIENCE).sharing(received.clone());
        far.write_all(&vec![7; MUCH]).await.unwrap();
        near.read_exact(&mut vec![0; MUCH]).await.unwrap();
        (near, far, memory, received)
    }

    #[tokio::test(start_paused = true)]
    async fn while_memory_is_short_nobody_is_waited_for_who_holds_it() {
        let (mut near, _far, memory, received) = with_much_received(0).await;
        // It holds much, and there is room for it: a client may think for as long as it likes.
        let wait = PATIENCE * 2;
        assert!(tokio::time::timeout(wait, near.read_u8()).await.is_err());
        assert_eq!(memory.used(), 2 * MUCH, "with what it was read into");
        let others = memory.charge(2 * MUCH + 1);
        assert_eq!(near.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        // What was dealt with counts no more, and so a client that holds nothing is waited for.
        received.is_dealt_with();
        assert!(tokio::time::timeout(wait, near.read_u8()).await.is_err());
        assert_eq!(memory.used(), others.bytes());
        near.write_all(&vec![7; 2 * MUCH]).await.unwrap();
        let begun = Instant::now();
        assert_eq!(near.write_u8(7).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), SHORT_PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_frame_that_drips_is_given_up_however_much_memory_there_is() {
        let (mut near, mut far, memory, received) = with_much_received(MUCH).await;
        let allowed = FRAME_TIME + Duration::from_secs(MUCH as u64 / MIN_BYTES_PER_S);
        let dripping = tokio::spawn(async move {
            while far.write_u8(7).await.is_ok() {
                // How slowly it comes is what is tested; the clock is held.
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let begun = Instant::now();
        let error = loop {
            if let Err(error) = near.read_u8().await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let took = begun.elapsed();
        assert!(took >= allowed && took < allowed + FRAME_TIME, "{took:?}");
        assert!(!memory.is_short());
        // One that has come as a whole is nothing to wait for.
        received.is_dealt_with();
        near.read_u8().await.unwrap();
        drop(near);
        dripping.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_frame_of_which_no_more_comes_is_given_up() {
        let (mut near, _far, memory, _received) = with_much_received(0).await;
        let begun = Instant::now();
        assert_eq!(near.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), FRAME_TIME);
        assert!(!memory.is_short());
    }

    #[tokio::test(start_paused = true)]
    async fn while_memory_is_short_a_head_is_not_waited_for_and_a_request_sees_to_itself() {
        const HEAD: usize = 16 << 10;
        let memory = Memory::new(MUCH);
        let received = Received::new(&memory);
        let (near, mut far) = duplex(HEAD);
        let mut near = StallGuard::new(near, PATIENCE).sharing(received.clone());
        far.write_all(&[7; HEAD]).await.unwrap();
        near.read_exact(&mut [0; HEAD]).await.unwrap();
        let others = memory.charge(MUCH);
        received.is_in_request();
        assert!(tokio::time::timeout(PATIENCE * 2, near.read_u8()).await.is_err());
        received.is_done_with_request();
        // Between requests nothing is held.
        assert!(tokio::time::timeout(PATIENCE * 2, near.read_u8()).await.is_err());
        received.add(HEAD);
        drop(others);
        let _others = memory.charge(MUCH);
        assert_eq!(near.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_was_not_read_from_goes_on_when_there_is_room() {
        let (mut near, mut far, memory, _) = with_much_received(0).await;
        far.write_u8(7).await.unwrap();
        let others = memory.charge(MUCH);
        assert!(tokio::time::timeout(SHORT_READ_PATIENCE / 2, near.read_u8()).await.is_err());
        drop(others);
        assert_eq!(near.read_u8().await.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn while_memory_is_short_a_reader_has_to_be_fast_enough() {
        for (bytes_per_s, is_fast_enough) in [(SHORT_BYTES_PER_S * 2, true), (SHORT_BYTES_PER_S / 2, false)] {
            let memory = Memory::new(1);
            let _others = memory.charge(2);
            let (near, mut far) = duplex(8 << 10);
            let mut near = StallGuard::new(near, PATIENCE).sharing(Received::new(&memory));
            let reading = tokio::spawn(async move {
                let pause = Duration::from_millis((8 << 10) * 1_000 / bytes_per_s);
                let mut bytes = vec![0; 8 << 10];
                loop {
                    // How slowly it reads is what is tested; the clock is held.
                    tokio::time::sleep(pause).await;
                    if far.read_exact(&mut bytes).await.is_err() {
                        return;
                    }
                }
            });
            assert_eq!(near.write_all(&vec![7; MUCH]).await.is_ok(), is_fast_enough, "{bytes_per_s}");
            drop(near);
            reading.await.unwrap();
        }
    }
}
