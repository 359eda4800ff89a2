//! A minimal HTTP/1.1 connection for generating load: one request at a time, kept alive.

use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// How much is read at once.
const BUFFER_BYTES: usize = 1 << 18;
/// The longest line of a chunked body's framing.
const MAX_FRAMING_BYTES: usize = 256;
/// How much of a refusal is shown.
const MAX_SHOWN_BYTES: usize = 500;
/// The status of an answer that says that there is nothing new.
const NOT_MODIFIED: u16 = 304;

/// What can go wrong with a request.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    #[error("the hub closed the connection")]
    Closed,
    #[error("the answer is not HTTP: {0}")]
    Malformed(&'static str),
    #[error("the hub answered {status}: {body}")]
    Refused { status: u16, body: String },
    #[error("topic {0} has no events; publish some first: prombus bench --mode publish")]
    Empty(String),
    #[error("collection {0} has no documents; publish events for its projection, or commit some first")]
    NoDocuments(String),
    #[error("the hub answered {status} instead of {expected}")]
    Unexpected { status: u16, expected: u16 },
}

/// A connection and what was read from it but not looked at.
pub struct Connection<S = TcpStream> {
    stream: S,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Connection {
    pub async fn open(address: &str) -> Result<Self, HttpError> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self::over(stream))
    }
}

/// How a body is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
}

/// Whether the rest of a body is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum More {
    Yes,
    No,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    fn over(stream: S) -> Self {
        Self { stream, buffer: vec![0; BUFFER_BYTES].into(), start: 0, end: 0 }
    }

    /// Sends `request`, and hands the body of its answer to `take` in pieces. Anything but success is an error, and so
    /// is a redirection, but for the answer that there is nothing new. If `take` wants no more, the rest is left unread
    /// and the connection cannot be used any more.
    pub async fn call(&mut self, request: &[u8], take: impl FnMut(&[u8]) -> More) -> Result<u16, HttpError> {
        self.call_with_head(request, |_| (), take).await
    }

    /// The same; the lines of the head are handed to `line` first.
    pub async fn call_with_head(
        &mut self,
        request: &[u8],
        line: impl FnMut(&[u8]),
        mut take: impl FnMut(&[u8]) -> More,
    ) -> Result<u16, HttpError> {
        self.stream.write_all(request).await?;
        let (status, framing) = self.read_head(line).await?;
        if status == NOT_MODIFIED {
            // It has no body, whatever its headers say about the length.
            return Ok(status);
        }
        if (200..300).contains(&status) {
            self.read_body(framing, &mut take).await?;
            return Ok(status);
        }
        let mut body = Vec::new();
        self.read_body(framing, &mut |piece| {
            body.extend_from_slice(
                &piece[..piece.len().min(MAX_SHOWN_BYTES - body.len().min(MAX_SHOWN_BYTES))],
            );
            More::Yes
        })
        .await?;
        Err(HttpError::Refused { status, body: String::from_utf8_lossy(&body).into_owned() })
    }

    async fn read_head(&mut self, line: impl FnMut(&[u8])) -> Result<(u16, Framing), HttpError> {
        loop {
            let unread = &self.buffer[self.start..self.end];
            if let Some(end) = memchr::memmem::find(unread, b"\r\n\r\n") {
                let head = parse_head(&unread[..end + 2])?;
                unread[..end].split(|byte| *byte == b'\n').for_each(line);
                self.start += end + 4;
                return Ok(head);
            }
            self.fill().await?;
        }
    }

    async fn read_body(
        &mut self,
        framing: Framing,
        take: &mut impl FnMut(&[u8]) -> More,
    ) -> Result<(), HttpError> {
        match framing {
            Framing::Length(length) => self.read_exactly(length, take).await.map(drop),
            Framing::Chunked => loop {
                let size = self.read_chunk_size().await?;
                if size > 0 && self.read_exactly(size, take).await? == More::No {
                    return Ok(());
                }
                // Each chunk ends with an empty line, and so does the body (the hub sends no trailers).
                self.read_line().await?;
                if size == 0 {
                    return Ok(());
                }
            },
        }
    }

    async fn read_exactly(
        &mut self,
        mut left: usize,
        take: &mut impl FnMut(&[u8]) -> More,
    ) -> Result<More, HttpError> {
        while left > 0 {
            if self.start == self.end {
                self.fill().await?;
            }
            let end = self.end.min(self.start.saturating_add(left));
            let piece = &self.buffer[self.start..end];
            left -= piece.len();
            self.start = end;
            if take(piece) == More::No {
                return Ok(More::No);
            }
        }
        Ok(More::Yes)
    }

    async fn read_chunk_size(&mut self) -> Result<usize, HttpError> {
        let line = self.read_line().await?;
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
        std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| usize::from_str_radix(digits.trim(), 16).ok())
            .ok_or(HttpError::Malformed("a chunk has no size"))
    }

    /// The next line of framing, without its end.
    async fn read_line(&mut self) -> Result<&[u8], HttpError> {
        let length = loop {
            let unread = &self.buffer[self.start..self.end];
            match memchr::memchr(b'\n', unread) {
                Some(length) => break length,
                None if unread.len() > MAX_FRAMING_BYTES => {
                    return Err(HttpError::Malformed("a line has no end"));
                }
                None => self.fill().await?,
            }
        };
        let start = self.start;
        self.start += length + 1;
        Ok(self.buffer[start..start + length].trim_ascii_end())
    }

    /// Reads more, after what has not been parsed yet.
    async fn fill(&mut self) -> Result<(), HttpError> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            if self.start == 0 {
                return Err(HttpError::Malformed("the head has no end"));
            }
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        match self.stream.read(&mut self.buffer[self.end..]).await? {
            0 => Err(HttpError::Closed),
            read => {
                self.end += read;
                Ok(())
            }
        }
    }
}

/// The status of a head, and how its body is framed.
fn parse_head(head: &[u8]) -> Result<(u16, Framing), HttpError> {
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    let status = lines
        .next()
        .and_then(|line| line.strip_prefix(b"HTTP/1.1 "))
        .and_then(|rest| std::str::from_utf8(rest.get(..3)?).ok()?.parse().ok())
        .ok_or(HttpError::Malformed("it has no status line"))?;
    let mut framing = Framing::Length(0);
    for line in lines {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = std::str::from_utf8(value).ok().and_then(|length| length.parse().ok());
            framing = Framing::Length(length.ok_or(HttpError::Malformed("its length is not a number"))?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            framing = Framing::Chunked;
        }
    }
    Ok((status, framing))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers two requests with `answer`, written in pieces of `piece` bytes, and collects the bodies.
    async fn bodies(answer: &'static [u8], piece: usize) -> Vec<Result<(u16, String), String>> {
        let (near, far) = tokio::io::duplex(1 << 16);
        let hub = async move {
            let (mut input, mut output) = tokio::io::split(far);
            for _ in 0..2 {
                let mut request = [0; 4];
                input.read_exact(&mut request).await.unwrap();
                for part in answer.chunks(piece) {
                    output.write_all(part).await.unwrap();
                    tokio::task::yield_now().await;
                }
            }
        };
        let calls = async {
            let (mut connection, mut all) = (Connection::over(near), Vec::new());
            for _ in 0..2 {
                let mut body = Vec::new();
                let outcome = connection.call(b"ping", |part| {
                    body.extend_from_slice(part);
                    More::Yes
                });
                let outcome = outcome.await.map_err(|error| error.to_string());
                all.push(outcome.map(|status| (status, String::from_utf8(body.clone()).unwrap())));
            }
            all
        };
        futures::future::join(hub, calls).await.1
    }

    #[tokio::test]
    async fn bodies_come_whole_however_they_are_framed_and_cut() {
        let length = b"HTTP/1.1 201 Created\r\nX: y\r\nContent-Length: 5\r\n\r\nhello";
        let chunked =
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n";
        for piece in [1, 2, 7, 1000] {
            assert_eq!(bodies(length, piece).await, vec![Ok((201, "hello".to_owned())); 2]);
            assert_eq!(bodies(chunked, piece).await, vec![Ok((200, "hello".to_owned())); 2]);
        }
    }

    #[tokio::test]
    async fn refusals_are_errors_and_the_connection_goes_on() {
        let answer = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 4\r\n\r\nslow";
        assert_eq!(bodies(answer, 5).await, vec![Err("the hub answered 429: slow".to_owned()); 2]);
    }

    #[tokio::test]
    async fn an_answer_that_nothing_is_new_has_no_body() {
        let answer = b"HTTP/1.1 304 Not Modified\r\netag: \"7\"\r\ncontent-length: 5\r\n\r\n";
        assert_eq!(bodies(answer, 3).await, vec![Ok((304, String::new())); 2]);
    }

    #[test]
    fn heads_that_are_not_http_are_refused() {
        for bad in [&b"HTTP/2 200\r\n"[..], b"HTTP/1.1 2", b"", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n"] {
            assert!(parse_head(bad).is_err());
        }
    }
}
