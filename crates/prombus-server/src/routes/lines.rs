//! Splits a stream of bytes into lines, buffering no more than one incomplete line.

use crate::error::ApiError;
use crate::gathered::Gathered;
use bytes::Bytes;

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Which line it is, from 1; blank ones count too.
    pub number: u64,
    pub text: Bytes,
    /// What it holds, the whitespace around it and blank lines before it included.
    pub held: usize,
}

/// What has come and was not handed out yet.
pub(crate) struct Lines {
    /// The beginning of the incomplete line.
    begun: Gathered,
    /// What arrived last.
    part: Bytes,
    /// How much has come since a line was handed out, which the next one holds.
    passed: usize,
    number: u64,
    max_bytes: usize,
}

impl Lines {
    /// Lines of at most `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        Self { begun: Gathered::default(), part: Bytes::new(), passed: 0, number: 0, max_bytes }
    }

    /// Takes what has come next, once all lines of what came before were handed out. It is copied: a line must not keep the
    /// buffer that it was received in, which may be much larger.
    pub fn feed(&mut self, part: &[u8]) {
        self.begun.push(&self.part);
        self.part = Bytes::copy_from_slice(part);
    }

    /// How many lines were returned or skipped.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next complete line that is not blank.
    pub fn next(&mut self) -> Result<Option<Line>, ApiError> {
        while let Some(at) = memchr::memchr(b'\n', &self.part) {
            let mut text = self.part.split_to(at + 1);
            if self.begun.len() > 0 {
                self.begun.push(&text);
                text = self.begun.take();
            }
            if let Some(line) = self.line(text)? {
                return Ok(Some(line));
            }
        }
        self.begun.push(&std::mem::take(&mut self.part));
        if self.begun.len() > self.max_bytes {
            self.number += 1;
            return Err(self.too_long());
        }
        Ok(None)
    }

    /// The last line, which has no end, if there is one that is not blank.
    pub fn last(&mut self) -> Result<Option<Line>, ApiError> {
        let rest = self.begun.take();
        if rest.is_empty() { Ok(None) } else { self.line(rest) }
    }

    fn line(&mut self, text: Bytes) -> Result<Option<Line>, ApiError> {
        self.number += 1;
        let trimmed = text.trim_ascii();
        if trimmed.len() > self.max_bytes {
            return Err(self.too_long());
        }
        self.passed += text.len();
        if trimmed.is_empty() {
            return Ok(None);
        }
        let (held, text) = (std::mem::take(&mut self.passed), text.slice_ref(trimmed));
        Ok(Some(Line { number: self.number, text, held }))
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
    fn a_line_holds_the_blank_lines_that_came_with_it() {
        let mut lines = Lines::new(10);
        let mut held = |part: &[u8]| {
            lines.feed(part);
            lines.next().unwrap().map(|line| line.held)
        };
        assert_eq!(held(b"\n  \n\n  "), None);
        assert_eq!(held(b"a\n"), Some(9));
        assert_eq!(held(b"b\n"), Some(2));
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
