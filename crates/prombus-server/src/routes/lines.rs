//! Cuts a stream of bytes into lines, keeping no more than one line that is not whole yet.

use crate::error::ApiError;
use bytes::{Bytes, BytesMut};

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Which line it is, from 1; blank ones count too.
    pub number: u64,
    pub text: Bytes,
    /// What it holds, the white space around it included.
    pub held: usize,
}

/// What has come and was not handed out yet.
pub(crate) struct Lines {
    buffer: BytesMut,
    /// How much of the buffer is known to have no line end.
    searched: usize,
    number: u64,
    max_bytes: usize,
}

impl Lines {
    /// Lines of at most `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        Self { buffer: BytesMut::new(), searched: 0, number: 0, max_bytes }
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// How many lines were handed out or passed over.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next line that is whole and not blank.
    pub fn next(&mut self) -> Result<Option<Line>, ApiError> {
        while let Some(at) = memchr::memchr(b'\n', &self.buffer[self.searched..]) {
            let text = self.buffer.split_to(self.searched + at + 1).freeze();
            self.searched = 0;
            if let Some(line) = self.line(text)? {
                return Ok(Some(line));
            }
        }
        self.searched = self.buffer.len();
        if self.searched > self.max_bytes {
            self.number += 1;
            return Err(self.too_long());
        }
        Ok(None)
    }

    /// The last line, which has no end, if there is one that is not blank.
    pub fn last(&mut self) -> Result<Option<Line>, ApiError> {
        let rest = self.buffer.split().freeze();
        self.searched = 0;
        if rest.is_empty() { Ok(None) } else { self.line(rest) }
    }

    fn line(&mut self, text: Bytes) -> Result<Option<Line>, ApiError> {
        self.number += 1;
        let trimmed = text.trim_ascii();
        if trimmed.len() > self.max_bytes {
            return Err(self.too_long());
        }
        let (held, text) = (text.len(), text.slice_ref(trimmed));
        Ok((!text.is_empty()).then_some(Line { number: self.number, text, held }))
    }

    fn too_long(&self) -> ApiError {
        let limit = self.max_bytes;
        ApiError::too_large(format!("the line is longer than {limit} bytes")).with("limit", limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(parts: &[&[u8]], max_bytes: usize) -> Result<Vec<(u64, String)>, u64> {
        let mut lines = Lines::new(max_bytes);
        let mut all = Vec::new();
        let text = |line: Line| (line.number, String::from_utf8_lossy(&line.text).into_owned());
        for part in parts {
            lines.feed(part);
            while let Some(line) = lines.next().map_err(|_| lines.number())? {
                all.push(text(line));
            }
        }
        all.extend(lines.last().map_err(|_| lines.number())?.map(text));
        Ok(all)
    }

    fn numbered(lines: &[(u64, &str)]) -> Result<Vec<(u64, String)>, u64> {
        Ok(lines.iter().map(|(number, text)| (*number, (*text).to_owned())).collect())
    }

    #[test]
    fn lines_are_cut_wherever_the_parts_end() {
        let expected = numbered(&[(1, "a"), (2, "bc"), (5, "d")]);
        assert_eq!(cut(&[b"a\nbc\r\n\n  \n d"], 10), expected);
        assert_eq!(cut(&[b"a", b"\nb", b"c\r", b"\n\n  \n d\n"], 10), expected);
        assert_eq!(cut(&[], 10), numbered(&[]));
        assert_eq!(cut(&[b"\n\n"], 10), numbered(&[]));
    }

    #[test]
    fn a_line_that_is_too_long_is_named() {
        assert_eq!(cut(&[b"12345\n"], 5), numbered(&[(1, "12345")]));
        assert_eq!(cut(&[b"1\n123456\n"], 5), Err(2));
        assert_eq!(cut(&[b"1\n123", b"4567"], 5), Err(2));
        assert_eq!(cut(&[b"1\n\n123456"], 5), Err(3));
    }

    proptest! {
        #[test]
        fn any_parts_make_the_same_lines(bytes in prop::collection::vec(prop::sample::select(&b"ab \n\r\xff"[..]), 0..60), at in 0usize..60) {
            let at = at.min(bytes.len());
            prop_assert_eq!(cut(&[&bytes[..at], &bytes[at..]], 100), cut(&[&bytes], 100));
        }
    }
}
