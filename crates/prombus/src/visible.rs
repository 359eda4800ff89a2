//! Text that is shown to a person: characters that could control a terminal or deceive the eye are escaped.
//!
//! Keys, payloads, field names and reasons are untrusted input. Each hidden character becomes its JSON escape, so that a
//! line of JSON stays the same JSON.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, StderrLock, StdoutLock, Write};

/// Whether a character acts on the terminal or on its neighbours instead of being seen: controls (C0, DEL, C1), marks
/// of direction, separators of lines, and what has no width.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Text that may have several lines.
pub fn text(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_hidden(c) && c != '\n' && c != '\t')
}

/// Text that is part of a line.
pub fn in_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_hidden)
}

/// A line of colour-coded log: the escapes that are left in it are the log's own.
fn log(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_hidden(c) && !matches!(c, '\n' | '\t' | '\u{1b}'))
}

/// Writes text through one of the functions above. What is cut within a character waits for its rest.
pub struct Shown<W> {
    to: W,
    show: Option<fn(&str) -> Cow<'_, str>>,
    rest: Vec<u8>,
}

/// stdout: made visible for a person, byte for byte for a program.
pub fn stdout() -> Shown<StdoutLock<'static>> {
    let show: fn(&str) -> Cow<'_, str> = text;
    Shown { to: io::stdout().lock(), show: io::stdout().is_terminal().then_some(show), rest: Vec::new() }
}

/// stderr for a log that has escapes of its own where `coloured`.
pub fn log_to_stderr(coloured: bool) -> Shown<StderrLock<'static>> {
    let show: fn(&str) -> Cow<'_, str> = if coloured { log } else { text };
    Shown { to: io::stderr().lock(), show: Some(show), rest: Vec::new() }
}

/// Says something on stderr, made visible.
#[macro_export]
macro_rules! say {
    ($($what:tt)*) => {
        eprintln!("{}", $crate::visible::text(&format!($($what)*)))
    };
}

impl<W: Write> Write for Shown<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(show) = self.show else { return self.to.write(bytes) };
        self.rest.extend_from_slice(bytes);
        let end = whole(&self.rest);
        self.to.write_all(show(&String::from_utf8_lossy(&self.rest[..end])).as_bytes())?;
        self.rest.drain(..end);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// How many bytes there are before a character at the end that is not whole.
fn whole(bytes: &[u8]) -> usize {
    let mut from = 0;
    while let Err(error) = std::str::from_utf8(&bytes[from..]) {
        from += error.valid_up_to();
        match error.error_len() {
            Some(bad) => from += bad,
            None => return from,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_instead_of_being_seen_is_made_visible() {
        let bad =
            "\u{1b}[2J\u{7}\r\u{7f}\u{9b}31m\u{202e}\u{2066}\u{200f}\u{61c}\u{2028}\u{200b}\u{feff}\u{e0041}";
        let seen = text(bad);
        assert_eq!(
            seen,
            r"\u001b[2J\u0007\u000d\u007f\u009b31m\u202e\u2066\u200f\u061c\u2028\u200b\ufeff\udb40\udc41"
        );
        let json: String = serde_json::from_str(&format!("\"{seen}\"")).unwrap();
        assert_eq!(json, bad, "JSON stays the same JSON");
        assert_eq!(text("a\tö\n日本 👍🏽"), "a\tö\n日本 👍🏽");
        assert_eq!(in_line("a\tb\nc"), r"a\u0009b\u000ac");
    }

    #[test]
    fn pieces_that_cut_characters_are_as_good_as_the_whole() {
        let bytes = ["ö\u{9b}x\u{202e}👍\n".as_bytes(), b"\xff\x9b\xe2", "\u{e0041}y".as_bytes()].concat();
        let shown = |size: usize| {
            let show: fn(&str) -> Cow<'_, str> = text;
            let mut shown = Shown { to: Vec::new(), show: Some(show), rest: Vec::new() };
            bytes.chunks(size).for_each(|piece| shown.write_all(piece).unwrap());
            String::from_utf8(shown.to).unwrap()
        };
        assert_eq!(shown(bytes.len()), "ö\\u009bx\\u202e👍\n\u{fffd}\u{fffd}\u{fffd}\\udb40\\udc41y");
        for size in 1..bytes.len() {
            assert_eq!(shown(size), shown(bytes.len()), "{size}");
        }
    }
}
