//! Lines of stdin, each within a limit, so that input without line breaks cannot exhaust memory.

use std::io::{self, BufRead, BufReader, Read};

/// The longest line that is read.
pub const MAX_LINE_BYTES: usize = 16 << 20;
/// How much is read at once.
const READ_BYTES: usize = 1 << 18;

/// Reads lines one after the other.
pub struct Lines<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    number: u64,
}

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Which one it is, from 1.
    pub number: u64,
    /// What it says.
    pub text: &'a [u8],
}

/// Why there is no next line.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The line is too long.
    #[error("the line is longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    /// The input cannot be read.
    #[error("cannot read: {0}")]
    Read(#[from] io::Error),
}

/// What is wrong with the JSON of a line, without the line that the parser counts: it only ever sees one.
pub fn without_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((what, _)) => format!("{what} at column {}", error.column()),
        None => text,
    }
}

impl<R: Read> Lines<R> {
    /// The lines of `input`.
    pub fn new(input: R) -> Self {
        Self { input: BufReader::with_capacity(READ_BYTES, input), line: Vec::new(), number: 0 }
    }

    /// The next line without its end and the whitespace around it, so a blank one is empty; `None` at the end of the
    /// input.
    pub fn next(&mut self) -> Result<Option<Line<'_>>, LineError> {
        self.line.clear();
        self.number += 1;
        let mut limited = (&mut self.input).take(MAX_LINE_BYTES as u64 + 1);
        if limited.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        if self.line.len() > MAX_LINE_BYTES {
            return Err(LineError::TooLong);
        }
        Ok(Some(Line { number: self.number, text: self.line.trim_ascii() }))
    }

    /// The number of the line that was looked for last, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether the next line has to be waited for; then what was gathered so far should go out first.
    pub fn must_wait(&self) -> bool {
        memchr::memchr(b'\n', self.input.buffer()).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_counted_once() {
        let error = serde_json::from_str::<serde_json::Value>("[1 2]").unwrap_err();
        assert_eq!(without_line(&error), "expected `,` or `]` at column 4");
    }

    #[test]
    fn lines_are_numbered_and_trimmed() {
        let mut lines = Lines::new(&b"a\n\n  \r\n b \r\nc"[..]);
        let mut seen = Vec::new();
        while let Some(Line { number, text }) = lines.next().unwrap() {
            seen.push((number, String::from_utf8(text.to_vec()).unwrap()));
        }
        let expected = [(1, "a"), (2, ""), (3, ""), (4, "b"), (5, "c")];
        assert_eq!(seen, expected.map(|(number, text)| (number, text.to_owned())));
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut lines = Lines::new(io::repeat(b'x'));
        assert!(matches!(lines.next(), Err(LineError::TooLong)));
    }
}
