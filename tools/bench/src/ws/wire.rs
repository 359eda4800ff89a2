//! A WebSocket client with little overhead: outgoing frames leave in one write, input is read in large pieces, and frames
//! are parsed only as far as needed.

use super::frames::{self, Inbox};
use std::io::ErrorKind;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// How much is read at once.
const READ_BYTES: usize = 64 << 10;

/// A connection.
pub struct Wire {
    stream: TcpStream,
    out: Vec<u8>,
    sent: usize,
    inbox: Inbox,
    piece: Vec<u8>,
}

impl Wire {
    /// Connects to a hub.
    pub fn open(address: &str) -> Result<Self, String> {
        let open = || -> std::io::Result<TcpStream> {
            let stream = std::net::TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            frames::upgrade(&stream, address)?;
            stream.set_nonblocking(true)?;
            TcpStream::from_std(stream)
        };
        let stream = open().map_err(|error| format!("a WebSocket to {address}: {error}"))?;
        Ok(Self { stream, out: Vec::new(), sent: 0, inbox: Inbox::default(), piece: Vec::new() })
    }

    /// Sends a text with the next write.
    pub fn text(&mut self, text: &[u8]) {
        frames::write_text(&mut self.out, text);
    }

    /// Sends frames that are made already with the next write.
    pub fn frames(&mut self, frames: &[u8]) {
        self.out.extend_from_slice(frames);
    }

    /// Sends what is to be sent, until something comes. Never waits for one while the other could go on.
    pub async fn receive(&mut self) -> Result<(), String> {
        self.exchange().await.map_err(|error| format!("a WebSocket broke: {error}"))
    }

    async fn exchange(&mut self) -> std::io::Result<()> {
        // One buffer for all that is read, made when the first of it comes: a connection that is idle has none.
        self.piece.resize(READ_BYTES, 0);
        loop {
            while self.sent < self.out.len() {
                match self.stream.try_write(&self.out[self.sent..]) {
                    Ok(count) => self.sent += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            if self.sent == self.out.len() {
                self.out.clear();
                self.sent = 0;
            }
            match self.stream.try_read(&mut self.piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.inbox.push(&self.piece[..count]);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            let interest = if self.out.is_empty() {
                Interest::READABLE
            } else {
                Interest::READABLE | Interest::WRITABLE
            };
            self.stream.ready(interest).await?;
        }
    }

    /// The next text that has come as a whole.
    pub fn next_text(&mut self) -> Result<Option<&[u8]>, String> {
        self.inbox.next_text(&mut self.out)
    }

    /// Sends a request, and waits for its `OK`. Nothing else may be in flight.
    pub async fn ask(&mut self, request: &str) -> Result<(), String> {
        self.text(request.as_bytes());
        loop {
            if let Some(text) = self.next_text()? {
                return check_ok(text);
            }
            self.receive().await?;
        }
    }
}

/// Fails unless a text is an `OK`.
pub fn check_ok(text: &[u8]) -> Result<(), String> {
    if text.starts_with(b"{\"op\":\"OK\"") {
        return Ok(());
    }
    Err(format!("the hub answered {}", String::from_utf8_lossy(text)))
}
