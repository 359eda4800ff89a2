//! Conditional requests (RFC 9110, section 13): does a client that says what it has get the document again?
//!
//! Pure functions over request headers and the validators of the current document. Malformed entity tags and dates are
//! ignored, as the RFC requires. Ranges are not supported, so `If-Range` has no effect.
//!
//! `If-Modified-Since` never spares an answer: a document has the time of the event that it was made of, which may come at any
//! time later, so several versions may have one date, and nothing stored tells whether they do.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use httpdate::HttpDate;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A tag in its quotes: 128 bits as hexadecimal digits.
const TAG_BYTES: usize = 34;
/// A date as it is written today: `Sun, 06 Nov 1994 08:49:37 GMT`.
const DATE_BYTES: usize = 29;
/// The first second that no date can say: that of the year 10000.
const END_OF_DATES: u64 = 253_402_300_800;
/// A year of two digits means the latest one that is no further ahead than this.
const MAX_YEARS_AHEAD: u64 = 50;
const SECONDS_PER_YEAR: u64 = 31_556_952;

/// A strong entity tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntityTag([u8; TAG_BYTES]);

impl EntityTag {
    pub fn new(hash: u128) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'"'; TAG_BYTES];
        for (digit, place) in text[1..TAG_BYTES - 1].iter_mut().rev().enumerate() {
            *place = DIGITS[(hash >> (4 * digit) & 15) as usize];
        }
        Self(text)
    }

    fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The tag as a header has it.
    pub fn value(&self) -> Option<HeaderValue> {
        HeaderValue::from_bytes(&self.0).ok()
    }
}

/// When something was last modified, in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Modified(u64);

impl Modified {
    /// What is told of a time in epoch milliseconds. None is told that lies beyond what dates can say. A time ahead of
    /// `now` is told as `now`: no answer may say that it will be modified after it was sent.
    pub fn new(ts_ms: u64, now: SystemTime) -> Option<Self> {
        let seconds = ts_ms / 1000;
        (seconds < END_OF_DATES).then(|| Self(seconds.min(epoch_seconds(now))))
    }

    /// The date as a header has it.
    pub fn value(self) -> Option<HeaderValue> {
        let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(self.0.min(END_OF_DATES - 1)));
        let mut text = [0; DATE_BYTES];
        write!(&mut text[..], "{date}").ok()?;
        HeaderValue::from_bytes(&text).ok()
    }
}

fn epoch_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The current document, as conditions see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Current {
    pub tag: EntityTag,
    pub modified: Option<Modified>,
}

/// The outcome of the conditions of a GET or HEAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Answer as if there were none.
    Proceed,
    /// The client has the current version: 304.
    NotModified,
    /// The client requires another version: 412.
    Failed,
}

/// Evaluates the conditions in order (section 13.2.2). `current` is `None` if there is no document.
pub(crate) fn evaluate(headers: &HeaderMap, current: Option<&Current>, now: SystemTime) -> Verdict {
    let tag = current.map(|current| current.tag);
    let modified = current.and_then(|current| current.modified);
    if headers.contains_key(header::IF_MATCH) {
        if !names(headers, &header::IF_MATCH, tag, Comparison::Strong) {
            return Verdict::Failed;
        }
    } else if let (Some(since), Some(modified)) = (date(headers, &header::IF_UNMODIFIED_SINCE, now), modified)
        && modified > since
    {
        return Verdict::Failed;
    }
    if names(headers, &header::IF_NONE_MATCH, tag, Comparison::Weak) {
        return Verdict::NotModified;
    }
    Verdict::Proceed
}

/// How tags are compared: strongly, a weak tag equals nothing; weakly, its weakness is ignored.
#[derive(Clone, Copy, PartialEq)]
enum Comparison {
    Strong,
    Weak,
}

/// Whether a field names the tag of what is there, or anything with `*`.
fn names(headers: &HeaderMap, field: &HeaderName, tag: Option<EntityTag>, by: Comparison) -> bool {
    let Some(tag) = tag else { return false };
    let mut lines = headers.get_all(field).iter();
    // A star stands alone; in a list it is no member.
    if let (Some(only), None) = (lines.next(), lines.next())
        && trimmed(only.as_bytes()) == b"*"
    {
        return true;
    }
    headers.get_all(field).iter().any(|line| {
        let mut rest = line.as_bytes();
        while let Some((member, after)) = next_member(rest) {
            rest = after;
            let opaque = match (member.strip_prefix(b"W/"), by) {
                (None, _) => member,
                (Some(weak), Comparison::Weak) => weak,
                (Some(_), Comparison::Strong) => continue,
            };
            if opaque == tag.as_bytes() {
                return true;
            }
        }
        false
    })
}

fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn trimmed(mut text: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = text
        && is_space(first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && is_space(last)
    {
        text = rest;
    }
    text
}

/// The next member of a list, whatever it is, and what comes after it; a comma within quotes is part of a tag.
fn next_member(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = text.iter().position(|byte| !is_space(byte) && *byte != b',')?;
    let text = &text[start..];
    let mut quoted = false;
    let end = text.iter().position(|byte| {
        quoted ^= *byte == b'"';
        *byte == b',' && !quoted
    });
    let (member, after) = text.split_at(end.unwrap_or(text.len()));
    Some((trimmed(member), after))
}

/// The date of a field that has exactly one.
fn date(headers: &HeaderMap, field: &HeaderName, now: SystemTime) -> Option<Modified> {
    let mut lines = headers.get_all(field).iter();
    let (line, None) = (lines.next()?, lines.next()) else { return None };
    let text = line.to_str().ok()?;
    let date: HttpDate = match with_whole_year(text.trim(), now) {
        Some(text) => text.parse().ok()?,
        None => text.parse().ok()?,
    };
    Some(Modified(epoch_seconds(date.into())))
}

/// A date of the form `Sunday, 06-Nov-94 08:49:37 GMT` in today's form; `None` where it has another form.
fn with_whole_year(text: &str, now: SystemTime) -> Option<String> {
    const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    let (weekday, rest) = text.split_once(", ")?;
    let weekday = DAYS.iter().find(|day| **day == weekday)?;
    let (date, time) = rest.split_once(' ')?;
    let mut parts = date.split('-');
    let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
    let two_digits = year.len() == 2 && year.bytes().all(|byte| byte.is_ascii_digit());
    let year: u64 = year.parse().ok().filter(|_| two_digits && parts.next().is_none())?;
    let latest = 1970 + epoch_seconds(now) / SECONDS_PER_YEAR + MAX_YEARS_AHEAD;
    let year = latest - (latest - year) % 100;
    Some(format!("{}, {day} {month} {year} {time}", &weekday[..3]))
}

#[cfg(test)]
mod tests;
