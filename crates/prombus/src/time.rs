//! Times as users write them, the same in every command: `earliest`, `latest`, epoch milliseconds, RFC 3339, a date, or
//! relative to now.

use std::time::{SystemTime, UNIX_EPOCH};

/// What a moment may be, for messages and help texts.
pub const WORDS: &str = "epoch milliseconds, RFC 3339 (2026-01-31T08:00:00Z), a date (2026-01-31: midnight UTC), or relative to now (-15m, -2d)";

/// Where to start in a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// At the first kept event.
    Earliest,
    /// After the last event.
    Latest,
    /// At the first event whose time is at or after this, in epoch milliseconds.
    At(u64),
}

/// A moment, as clap reads one. What is back from now starts with a hyphen, so its option needs `allow_hyphen_values`.
pub fn parse_moment(text: &str) -> Result<Moment, String> {
    match text {
        "earliest" => Ok(Moment::Earliest),
        "latest" => Ok(Moment::Latest),
        time => time_at(time, now())
            .map(Moment::At)
            .ok_or_else(|| format!("{text:?} is not a valid time: use earliest, latest, {WORDS}")),
    }
}

/// A point in time in epoch milliseconds, as clap reads one.
pub fn parse_time(text: &str) -> Result<u64, String> {
    time_at(text, now()).ok_or_else(|| format!("{text:?} is not a valid time: use {WORDS}"))
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn time_at(text: &str, now: u64) -> Option<u64> {
    if let Some(back) = text.strip_prefix('-') {
        return Some(now.saturating_sub(duration(back)?));
    }
    prombus_core::time::parse(text)
}

/// Milliseconds of a text such as `15m` or `1h30m`.
fn duration(text: &str) -> Option<u64> {
    let (mut total, mut rest) = (None, text);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, tail) = tail.split_at(letters);
        let unit: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            _ => return None,
        };
        let part = number.parse::<u64>().ok()?.checked_mul(unit)?;
        total = Some(total.unwrap_or(0u64).checked_add(part)?);
        rest = tail;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_754_683_200_123;

    #[test]
    fn times_are_written_in_four_ways() {
        for (text, at) in [
            // The other three ways are those of the core.
            ("2025-08-08T22:00:00.123+02:00", NOW),
            ("-0s", NOW),
            ("-250ms", NOW - 250),
            ("-15m", NOW - 900_000),
            ("-2d", NOW - 172_800_000),
            ("-1h30m", NOW - 5_400_000),
            // Before time began is when it began.
            ("-9999999w", 0),
        ] {
            assert_eq!(time_at(text, NOW), Some(at), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_told_what_is_one() {
        for bad in ["", "-", "-5", "-m", "-5x", "-5m3", "15m", "+5", "yesterday", "1e3", "-5 m", "-٣m"] {
            assert_eq!(time_at(bad, NOW), None, "{bad}");
        }
        assert_eq!(time_at("99999999999999999999", NOW), None);
        assert_eq!(time_at("-99999999999999999999w", NOW), None);
        assert_eq!(time_at("1969-12-31T00:00:00Z", NOW), None);
        assert!(parse_time("yesterday").unwrap_err().contains("RFC 3339"));
        assert!(parse_moment("early").unwrap_err().contains("earliest"));
    }

    #[test]
    fn moments_have_two_names_more() {
        assert_eq!(parse_moment("earliest"), Ok(Moment::Earliest));
        assert_eq!(parse_moment("latest"), Ok(Moment::Latest));
        assert_eq!(parse_moment("5"), Ok(Moment::At(5)));
    }
}
