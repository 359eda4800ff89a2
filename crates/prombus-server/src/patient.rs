//! Writing to clients that do not read: a socket that takes no byte for too long is an error.
//!
//! It lies around the bare socket, below encryption, HTTP and WebSockets, so that whatever is answered is covered: what
//! an answer holds is let go once its client is given up.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream whose writes wait only so long.
pub struct Patient<S> {
    stream: S,
    patience: Duration,
    /// When the write that waits is given up.
    until: Pin<Box<Sleep>>,
    waits: bool,
}

impl<S> Patient<S> {
    /// Gives up a write of which no byte goes out for as long as `patience`.
    pub fn new(stream: S, patience: Duration) -> Self {
        // Nobody sleeps: it is a deadline, and set anew when a write begins to wait.
        Self { stream, patience, until: Box::pin(tokio::time::sleep(patience)), waits: false }
    }

    /// What comes of a write: one that waits counts from its first moment, and any byte that goes out ends the wait.
    fn judge(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        if !self.waits {
            self.waits = true;
            self.until.as_mut().reset(Instant::now() + self.patience);
        }
        self.until.as_mut().poll(cx).map(|()| {
            tracing::debug!("a client has taken no byte for limits.send_timeout_ms and is given up");
            Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing"))
        })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
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
}
