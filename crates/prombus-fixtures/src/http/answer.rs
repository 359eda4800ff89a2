//! What a hub answers, and what tests ask of it.

use serde_json::Value;
use std::io::{self, BufRead, Read};

/// Every code that an error may carry.
pub const CODES: &[&str] = &[
    "bad_json",
    "bad_request",
    "bad_filter",
    "unauthorized",
    "forbidden",
    "not_found",
    "method_not_allowed",
    "too_large",
    "rate_limited",
    "schema_violation",
    "incompatible",
    "id_conflict",
    "expectation_failed",
    "version_conflict",
    "group_options",
    "already_subscribed",
    "not_subscribed",
    "unknown_id",
    "lease_expired",
    "not_owner",
    "gone",
    "disk_full",
    "unavailable",
    "internal",
];

/// What the hub answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers, with their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, without its framing.
    pub body: Vec<u8>,
}

impl Answer {
    /// Reads one answer, as far as its head says that it goes. One that is cut off is an error.
    pub fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let mut answer = Self::read_head(from)?;
        if answer.is_bare() {
            return Ok(answer);
        }
        answer.body = match (answer.header("transfer-encoding"), answer.header("content-length")) {
            (Some(_), _) => read_chunks(from)?,
            (None, Some(length)) => read_exactly(from, length.parse().map_err(io::Error::other)?)?,
            (None, None) => read_all(from)?,
        };
        Ok(answer)
    }

    /// Takes an answer apart; nothing where it is not one. After a head that has no body, everything is the body.
    pub fn parse(bytes: &[u8], head_only: bool) -> Option<Self> {
        let mut rest = bytes;
        let head = Self::read_head(&mut rest).ok()?;
        if head_only || head.is_bare() {
            return Some(Self { body: rest.to_vec(), ..head });
        }
        Self::read(&mut &*bytes).ok()
    }

    /// The head of an answer, behind those that only say that one should go on.
    fn read_head(from: &mut impl BufRead) -> io::Result<Self> {
        let line = read_line(from)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or(io::ErrorKind::InvalidData)?;
        let mut headers = Vec::new();
        loop {
            let line = read_line(from)?;
            match line.split_once(':') {
                Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
                None if line.is_empty() => break,
                None => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        if status == 100 { Self::read_head(from) } else { Ok(Self { status, headers, body: Vec::new() }) }
    }

    /// Whether its head is all of it.
    fn is_bare(&self) -> bool {
        matches!(self.status, 204 | 304)
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body, which must be text.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The body, which must be JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        let body = String::from_utf8_lossy(&self.body);
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error} in {} {body}", self.status))
    }

    /// The body, if the status is this one.
    #[track_caller]
    pub fn is(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// The body of an error with this status and code.
    #[track_caller]
    pub fn fails(&self, status: u16, code: &str) -> Value {
        let body = self.is(status);
        assert_eq!(body["error"], code, "{body}");
        self.is_error();
        body
    }

    /// The body of an error of which only the statuses are known.
    #[track_caller]
    pub fn fails_as(&self, statuses: &[u16]) -> Value {
        assert!(statuses.contains(&self.status), "{} {}", self.status, String::from_utf8_lossy(&self.body));
        self.is_error();
        self.json()
    }

    /// An error as every error has to look.
    #[track_caller]
    pub fn is_error(&self) {
        let body = self.json();
        assert!(self.header("content-type").unwrap_or("").starts_with("application/json"), "{self:?}");
        assert!(CODES.contains(&body["error"].as_str().unwrap_or("")), "{body}");
        assert!(!body["message"].as_str().unwrap_or("").is_empty(), "{body}");
    }

    /// The lines of an NDJSON body.
    #[track_caller]
    pub fn lines(&self) -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
        self.text().lines().map(parse).collect()
    }

    /// The value of a metric's sample, by its beginning.
    #[track_caller]
    pub fn metric(&self, sample: &str) -> Option<f64> {
        let is_it = |line: &&str| line.strip_prefix(sample).is_some_and(|rest| rest.starts_with([' ', '{']));
        let line = self.text().lines().find(is_it)?;
        line.rsplit(' ').next()?.parse().ok()
    }
}

/// A line of a head, which ends as the protocol has it.
fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    let line = line.strip_suffix(b"\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    String::from_utf8(line.to_vec()).map_err(io::Error::other)
}

fn read_exactly(from: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_all(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_chunks(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let length = usize::from_str_radix(&read_line(from)?, 16).map_err(io::Error::other)?;
        whole.extend(read_exactly(from, length)?);
        read_line(from)?;
        if length == 0 {
            return Ok(whole);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n";
    const COUNTED: &[u8] =
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n17";

    #[test]
    fn an_answer_goes_as_far_as_its_head_says() {
        let mut both = &[CHUNKED, COUNTED, b"more"].concat()[..];
        assert_eq!(Answer::read(&mut both).unwrap().text(), "abc0123456789");
        assert_eq!(Answer::read(&mut both).unwrap().is(201), 17);
        assert_eq!(both, b"more");
    }

    #[test]
    fn one_that_is_cut_off_is_none() {
        for whole in [CHUNKED, COUNTED] {
            assert!(Answer::parse(whole, false).is_some());
            for length in 0..whole.len() {
                assert_eq!(Answer::parse(&whole[..length], false), None, "{length}");
            }
        }
    }

    #[test]
    fn what_follows_a_bare_head_is_seen() {
        let head = b"HTTP/1.1 304 Not Modified\r\ncontent-length: 2\r\n\r\n";
        assert!(Answer::parse(head, false).is_some_and(|answer| answer.body.is_empty()));
        let more = [&head[..], b"17"].concat();
        assert!(Answer::parse(&more, false).is_some_and(|answer| answer.body == b"17"));
        assert!(Answer::parse(COUNTED, true).is_some_and(|answer| answer.body == b"17"));
    }
}
