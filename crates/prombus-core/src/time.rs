//! Points in time as users write them: epoch milliseconds, RFC 3339, or a date.

use chrono::{DateTime, NaiveDate, NaiveTime};

/// Epoch milliseconds of a text such as `1754683200123`, `2025-08-08T20:00:00.123Z` or `2025-08-08` (midnight UTC). Times
/// before 1970 are none.
pub fn parse(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let time = match date(text) {
        Some(date) => date.and_time(NaiveTime::MIN).and_utc(),
        None => DateTime::parse_from_rfc3339(text).ok()?.to_utc(),
    };
    u64::try_from(time.timestamp_millis()).ok()
}

/// A date in the form of RFC 3339, and in no shorter one.
fn date(text: &str) -> Option<NaiveDate> {
    (text.len() == "2026-01-31".len()).then(|| NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_754_683_200_123;

    #[test]
    fn times_are_written_in_three_ways() {
        for (text, at) in [
            ("0", 0),
            ("1754683200123", NOW),
            ("2025-08-08T20:00:00.123Z", NOW),
            ("2025-08-08T22:00:00.123+02:00", NOW),
            ("2025-08-08", NOW - 72_000_123),
            ("1970-01-01", 0),
        ] {
            assert_eq!(parse(text), Some(at), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for bad in ["", "-", "-5", "15m", "+5", "yesterday", "1e3", "2025-8-8", "2025-02-30", "2025-08-080"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        for bad in ["25-08-08", "+25-08-08-", "1969-12-31", "2025-08-8 ", "1969-12-31T00:00:00Z"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(parse("99999999999999999999"), None);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "\\PC{0,40}") {
            let _ = parse(&text);
        }
    }
}
