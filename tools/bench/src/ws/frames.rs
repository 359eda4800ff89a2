//! RFC 6455 frames as bytes: those that a client writes, and those that it receives.

use std::io::{self, Read, Write};
use std::net::TcpStream;

const FINAL: u8 = 0x80;
const TEXT: u8 = 0x1;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xA;
const MASKED: u8 = 0x80;
/// A mask of zeros leaves a text as it is. The hub has the same work with it as with any other, the client has none.
const MASK: [u8; 4] = [0; 4];
/// The answer to an upgrade is shorter.
const MAX_HEAD: usize = 4_096;
/// Any key will do for a client that does not look at the answer to it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// Makes a WebSocket of a connection to the hub at `address`.
pub fn upgrade(mut stream: &TcpStream, address: &str) -> io::Result<()> {
    write!(
        stream,
        "GET /ws HTTP/1.1\r\nhost: {address}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: {KEY}\r\n\r\n"
    )?;
    let mut head = Vec::new();
    // Byte by byte, so that nothing behind the head is taken.
    while !head.ends_with(b"\r\n\r\n") && head.len() < MAX_HEAD {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    if head.starts_with(b"HTTP/1.1 101") {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&head).into_owned()))
}

/// Appends a text frame.
pub fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    write_frame(out, TEXT, text);
}

fn write_frame(out: &mut Vec<u8>, kind: u8, payload: &[u8]) {
    out.push(FINAL | kind);
    if payload.len() < 126 {
        out.push(MASKED | payload.len() as u8);
    } else if let Ok(length) = u16::try_from(payload.len()) {
        out.push(MASKED | 126);
        out.extend_from_slice(&length.to_be_bytes());
    } else {
        out.push(MASKED | 127);
        out.extend_from_slice(&(payload.len() as u64).to_be_bytes());
    }
    out.extend_from_slice(&MASK);
    out.extend_from_slice(payload);
}

/// What was received and not looked at yet.
#[derive(Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    taken: usize,
}

impl Inbox {
    /// Adds what was received.
    pub fn push(&mut self, received: &[u8]) {
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        } else if self.taken > self.bytes.len() / 2 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(received);
    }

    /// The next text that is there as a whole. Pings are answered into `out`.
    pub fn next_text(&mut self, out: &mut Vec<u8>) -> Result<Option<&[u8]>, String> {
        loop {
            let Some((kind, start, end)) = self.peek() else { return Ok(None) };
            self.taken = end;
            match kind {
                TEXT => return Ok(Some(&self.bytes[start..end])),
                PING => write_frame(out, PONG, &self.bytes[start..end]),
                PONG => {}
                CLOSE => {
                    let reason = self.bytes.get(start + 2..end).unwrap_or_default();
                    return Err(format!("the hub closed: {}", String::from_utf8_lossy(reason)));
                }
                other => return Err(format!("a frame of kind {other} came")),
            }
        }
    }

    /// The kind of the next whole frame, and where its payload is.
    fn peek(&self) -> Option<(u8, usize, usize)> {
        let rest = &self.bytes[self.taken..];
        let (first, short) = (*rest.first()?, *rest.get(1)?);
        let (head, length) = match short {
            126 => (4, u64::from(u16::from_be_bytes(rest.get(2..4)?.try_into().ok()?))),
            127 => (10, u64::from_be_bytes(rest.get(2..10)?.try_into().ok()?)),
            short => (2, u64::from(short)),
        };
        let start = self.taken + head;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        (end <= self.bytes.len()).then_some((first & 0x0F, start, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_say_how_long_they_are() {
        for length in [0, 125, 126, 65_535, 65_536] {
            let mut out = Vec::new();
            write_text(&mut out, &vec![b'x'; length]);
            let head = match length {
                0..126 => 2,
                126..65_536 => 4,
                _ => 10,
            };
            assert_eq!(out.len(), head + MASK.len() + length);
        }
    }

    #[test]
    fn texts_are_taken_once_they_are_whole() {
        let mut inbox = Inbox::default();
        let mut out = Vec::new();
        inbox.push(&[0x81, 2, b'a']);
        assert_eq!(inbox.next_text(&mut out), Ok(None));
        inbox.push(&[b'b', 0x89, 1, b'?', 0x81, 126, 0, 1, b'c']);
        assert_eq!(inbox.next_text(&mut out), Ok(Some(&b"ab"[..])));
        assert_eq!(inbox.next_text(&mut out), Ok(Some(&b"c"[..])));
        assert_eq!(inbox.next_text(&mut out), Ok(None));
        assert_eq!(out, [0x8A, 0x81, 0, 0, 0, 0, b'?']);
        inbox.push(&[0x88, 5, 3, 232, b'b', b'y', b'e']);
        assert_eq!(inbox.next_text(&mut out), Err("the hub closed: bye".to_owned()));
    }
}
