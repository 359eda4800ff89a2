//! A socket that is not waited for without end: a client that takes no byte of what it is sent for too long is given up.
//!
//! It lies around the bare socket, below encryption, HTTP and WebSockets, so that whatever is answered is covered: what
//! an answer holds is let go once its client is given up. For the same reason what comes in is counted here, and while
//! memory is short, clients are waited for much less, and those that have much under way are not read from.

use crate::memory::{Memory, Received, Room};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// While memory is short, a client may take no byte for so long.
const SHORT_PATIENCE: Duration = Duration::from_secs(1);
/// And one that has much under way may send none for so long. A request that waits for room is answered before that.
const SHORT_READ_PATIENCE: Duration = Duration::from_secs(8);
/// How often one who waits looks whether memory is short.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// What a client may have sent that nobody has dealt with yet before it counts.
pub(crate) const FREE_BYTES: usize = 256 << 10;

/// A stream whose writes wait only so long.
pub struct Patient<S> {
    stream: S,
    patience: Duration,
    writing: Wait,
    reading: Wait,
    buffers: Option<Buffers>,
}

/// What a connection holds of the memory that all share.
struct Buffers {
    memory: Memory,
    received: Received,
    room: Room,
}

/// How long something has waited.
#[derive(Default)]
struct Wait {
    since: Option<Instant>,
    /// When it is looked at again. Most connections never need one.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Wait {
    fn is_over(&mut self) {
        self.since = None;
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
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(LOOK_EVERY)));
            timer.as_mut().reset(now + left.min(LOOK_EVERY));
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl<S> Patient<S> {
    /// Gives up a write of which no byte goes out for as long as `patience`.
    pub fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, writing: Wait::default(), reading: Wait::default(), buffers: None }
    }

    /// The same for a connection that shares memory with others: what comes is counted in `received`.
    pub(crate) fn sharing(self, memory: Memory, received: Received) -> Self {
        let room = memory.charge(0);
        Self { buffers: Some(Buffers { memory, received, room }), ..self }
    }

    /// What comes of a write: one that waits counts from its first moment, and any byte that goes out ends the wait.
    fn judge(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.writing.is_over();
            return written;
        }
        let Self { patience, writing, buffers, .. } = self;
        let is_short = || buffers.as_ref().is_some_and(|buffers| buffers.memory.is_short());
        let patience = || Some(if is_short() { SHORT_PATIENCE.min(*patience) } else { *patience });
        writing.poll(cx, patience).map(|()| {
            tracing::debug!(
                "a client has taken no byte for limits.send_timeout_ms, or for a second while memory is short, and is given up"
            );
            Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing"))
        })
    }
}

impl Buffers {
    /// Counts what was received and not dealt with; says whether that is much while memory is short.
    fn weigh(&mut self) -> bool {
        self.room.resize(self.received.bytes().saturating_sub(FREE_BYTES));
        self.room.bytes() > 0 && self.memory.is_short()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, reading, buffers, .. } = &mut *self;
        let Some(buffers) = buffers else { return Pin::new(stream).poll_read(cx, buffer) };
        let before = buffer.filled().len();
        if !buffers.weigh() {
            let read = Pin::new(stream).poll_read(cx, buffer);
            if read.is_ready() || buffers.room.bytes() == 0 {
                reading.is_over();
                buffers.received.add(buffer.filled().len() - before);
                return read;
            }
        }
        // Whether the client sends nothing or nothing is taken from it: it holds what others wait for.
        let patience = || buffers.memory.is_short().then_some(SHORT_READ_PATIENCE);
        reading.poll(cx, patience).map(|()| {
            tracing::debug!("memory is short, and a client that has much under way was given up");
            Err(io::Error::new(io::ErrorKind::TimedOut, "there is no memory for what the client sends"))
        })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_a_byte_now_and_then_is_waited_for() {
        let (near, mut far) = duplex(8);
        let mut near = Patient::new(near, PATIENCE);
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
        let mut near = Patient::new(near, PATIENCE);
        near.write_all(&[7; 8]).await.unwrap();
        // Time in which nothing waits to be written; the clock is held.
        tokio::time::sleep(PATIENCE * 2).await;
        far.read_exact(&mut [0; 4]).await.unwrap();
        let begun = Instant::now();
        let error = near.write_all(&[7; 8]).await.unwrap_err();
        assert_eq!((error.kind(), begun.elapsed().as_secs()), (io::ErrorKind::TimedOut, PATIENCE.as_secs()));
    }

    #[tokio::test(start_paused = true)]
    async fn while_memory_is_short_nobody_is_waited_for_who_holds_it() {
        let (memory, received) = (Memory::new(10), Received::default());
        let (near, mut far) = duplex(FREE_BYTES + 1);
        let mut near = Patient::new(near, PATIENCE).sharing(memory.clone(), received.clone());
        far.write_all(&vec![7; FREE_BYTES + 1]).await.unwrap();
        near.read_exact(&mut vec![0; FREE_BYTES + 1]).await.unwrap();
        // It holds something, and there is room for it: a client may think for as long as it likes.
        let wait = PATIENCE * 2;
        assert!(tokio::time::timeout(wait, near.read_u8()).await.is_err());
        assert_eq!(memory.used(), 1);
        let others = memory.charge(11);
        let begun = Instant::now();
        assert_eq!(near.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), Duration::ZERO);
        // What was dealt with counts no more, and so a client that holds nothing is waited for.
        received.is_dealt_with();
        assert!(tokio::time::timeout(wait, near.read_u8()).await.is_err());
        assert_eq!(memory.used(), others.bytes());
        near.write_all(&vec![7; FREE_BYTES + 1]).await.unwrap();
        let begun = Instant::now();
        assert_eq!(near.write_u8(7).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), SHORT_PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_was_not_read_from_goes_on_when_there_is_room() {
        let (memory, received) = (Memory::new(10), Received::default());
        let (near, mut far) = duplex(2 * FREE_BYTES);
        let mut near = Patient::new(near, PATIENCE).sharing(memory.clone(), received.clone());
        far.write_all(&vec![7; FREE_BYTES + 2]).await.unwrap();
        near.read_exact(&mut vec![0; FREE_BYTES + 1]).await.unwrap();
        let others = memory.charge(10);
        assert!(tokio::time::timeout(SHORT_READ_PATIENCE / 2, near.read_u8()).await.is_err());
        drop(others);
        assert_eq!(near.read_u8().await.unwrap(), 7);
    }
}
