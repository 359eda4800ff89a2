//! Each condition on its own, and their precedence.

use super::*;
use proptest::prelude::*;

const TAG: &str = "\"0000000000000000000000000000002a\"";
const OTHER: &str = "\"0000000000000000000000000000002b\"";
/// 1994-11-06T08:49:37Z.
const MODIFIED: u64 = 784_111_777;
const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// 2026-07-01T00:00:00Z.
fn now() -> SystemTime {
    at(1_782_864_000)
}

fn headers(given: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let name: HeaderName = name.parse().unwrap();
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

fn current() -> Current {
    Current { tag: EntityTag::new(42), modified: Modified::new(MODIFIED * 1000 + 999, now()) }
}

fn verdict(given: &[(&str, &str)]) -> Verdict {
    evaluate(&headers(given), Some(&current()), now())
}

#[test]
fn a_tag_is_all_digits_in_quotes() {
    assert_eq!(EntityTag::new(42).value().unwrap(), TAG);
    let all = "\"fedcba98765432100123456789abcdef\"";
    assert_eq!(EntityTag::new(0xfedc_ba98_7654_3210_0123_4567_89ab_cdef).value().unwrap(), all);
}

#[test]
fn a_date_is_whole_seconds_and_never_ahead() {
    let shown = |ts_ms| Modified::new(ts_ms, now()).and_then(Modified::value);
    assert_eq!(shown(MODIFIED * 1000 + 999).unwrap(), SAME);
    assert_eq!(shown(0).unwrap(), "Thu, 01 Jan 1970 00:00:00 GMT");
    assert_eq!(shown(1_782_864_000_999).unwrap(), "Wed, 01 Jul 2026 00:00:00 GMT");
    assert_eq!(shown(1_782_864_060_000).unwrap(), "Wed, 01 Jul 2026 00:00:00 GMT", "a minute ahead");
    let late = at(END_OF_DATES + 5);
    let last = Modified::new(END_OF_DATES * 1000 - 1, late).and_then(Modified::value).unwrap();
    assert_eq!(last, "Fri, 31 Dec 9999 23:59:59 GMT");
    assert_eq!(shown(END_OF_DATES * 1000), None);
    assert_eq!(shown(u64::MAX), None);
}

#[test]
fn without_conditions_all_goes_on() {
    assert_eq!(verdict(&[]), Verdict::Proceed);
    assert_eq!(verdict(&[("range", "bytes=0-1"), ("if-range", TAG)]), Verdict::Proceed);
}

#[test]
fn a_client_that_has_it_is_told_so() {
    let weak = format!("W/{TAG}");
    let list = format!("{OTHER}, \"a,b\" ,{weak}");
    let tight = format!("{OTHER},{TAG}");
    let sparse = format!(" , ,\t{TAG} ,");
    let after_nonsense = format!("nonsense, 42, \"a\"b, w/{OTHER}, {TAG}");
    for yes in [TAG, &weak, &list, &tight, &sparse, "*", " * ", &after_nonsense] {
        assert_eq!(verdict(&[("if-none-match", yes)]), Verdict::NotModified, "{yes}");
    }
    let lower = format!("w/{TAG}");
    let glued = format!("{TAG}x");
    let two_glued = format!("{OTHER} {TAG}");
    let open = &TAG[..33];
    let inside = format!("\"x,{}\"", TAG.trim_matches('"'));
    let bare = TAG.trim_matches('"');
    let spaced = format!("W/ {TAG}");
    let star = "*, \"x\"";
    for no in
        ["", ",", OTHER, "W/\"x\"", &lower, &glued, &two_glued, open, &inside, bare, &spaced, star, "\"*\""]
    {
        assert_eq!(verdict(&[("if-none-match", no)]), Verdict::Proceed, "{no}");
    }
}

#[test]
fn several_lines_are_one_list() {
    let field = "if-none-match";
    assert_eq!(verdict(&[(field, OTHER), (field, TAG)]), Verdict::NotModified);
    assert_eq!(verdict(&[(field, OTHER), (field, "\"x\"")]), Verdict::Proceed);
    assert_eq!(verdict(&[(field, "*"), (field, OTHER)]), Verdict::Proceed, "a star stands alone");
    assert_eq!(verdict(&[("if-match", OTHER), ("if-match", TAG)]), Verdict::Proceed);
}

#[test]
fn bytes_beyond_ascii_are_no_trouble() {
    let mut odd = HeaderMap::new();
    let line = [&b"\"\xff\xfe\", "[..], TAG.as_bytes()].concat();
    odd.insert(header::IF_NONE_MATCH, HeaderValue::from_bytes(&line).unwrap());
    assert_eq!(evaluate(&odd, Some(&current()), now()), Verdict::NotModified);
    let mut odd = HeaderMap::new();
    odd.insert(header::IF_MODIFIED_SINCE, HeaderValue::from_bytes(b"\xff").unwrap());
    assert_eq!(evaluate(&odd, Some(&current()), now()), Verdict::Proceed);
}

#[test]
fn dates_of_all_three_forms() {
    for (since, expected) in [
        (SAME, Verdict::Proceed),
        (AFTER, Verdict::Proceed),
        (BEFORE, Verdict::Failed),
        ("Sunday, 06-Nov-94 08:49:37 GMT", Verdict::Proceed),
        ("Sunday, 06-Nov-94 08:49:36 GMT", Verdict::Failed),
        ("Sun Nov  6 08:49:37 1994", Verdict::Proceed),
        ("Sun Nov  6 08:49:36 1994", Verdict::Failed),
        ("Fri, 31 Dec 9999 23:59:59 GMT", Verdict::Proceed),
    ] {
        assert_eq!(verdict(&[("if-unmodified-since", since)]), expected, "{since}");
    }
}

#[test]
fn no_date_says_which_version_a_client_has() {
    for since in [SAME, BEFORE, AFTER] {
        assert_eq!(verdict(&[("if-modified-since", since)]), Verdict::Proceed, "{since}");
    }
}

#[test]
fn two_digits_mean_the_latest_year_that_is_not_far_ahead() {
    let date_of = |text: &str| with_whole_year(text, now());
    let whole = |year| Some(format!("Sun, 06 Nov {year} 08:49:37 GMT"));
    for (year, meant) in [("94", 1994), ("76", 2076), ("77", 1977), ("26", 2026), ("00", 2000)] {
        assert_eq!(date_of(&format!("Sunday, 06-Nov-{year} 08:49:37 GMT")), whole(meant), "{year}");
    }
    for other in [SAME, "Sunday, 06-Nov-1994 08:49:37 GMT", "Sun, 06-Nov-94 08:49:37 GMT", "Sunday, 06-Nov"] {
        assert_eq!(date_of(other), None, "{other}");
    }
}

#[test]
fn what_is_no_date_is_ignored() {
    let twice = format!("{AFTER}, {AFTER}");
    for bad in [
        "",
        "yesterday",
        "784111777",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 31 Feb 2094 08:49:37 GMT",
        "Sun, 06 nov 1994 08:49:37 GMT",
        "1994-11-06T08:49:37Z",
        &twice,
    ] {
        assert_eq!(verdict(&[("if-modified-since", bad)]), Verdict::Proceed, "{bad}");
        assert_eq!(verdict(&[("if-unmodified-since", bad)]), Verdict::Proceed, "{bad}");
    }
    let two_lines = [("if-modified-since", AFTER), ("if-modified-since", AFTER)];
    assert_eq!(verdict(&two_lines), Verdict::Proceed);
}

#[test]
fn a_tag_counts_more_than_a_date() {
    let since = |tag, date| verdict(&[("if-none-match", tag), ("if-modified-since", date)]);
    assert_eq!(since(OTHER, AFTER), Verdict::Proceed);
    assert_eq!(since(TAG, BEFORE), Verdict::NotModified);
    assert_eq!(since("nonsense", AFTER), Verdict::Proceed, "it is there, whatever it says");
    let unmodified = |tag, date| verdict(&[("if-match", tag), ("if-unmodified-since", date)]);
    assert_eq!(unmodified(TAG, BEFORE), Verdict::Proceed);
    assert_eq!(unmodified(OTHER, AFTER), Verdict::Failed);
}

#[test]
fn only_as_it_was() {
    for yes in [TAG, "*", &format!("{OTHER}, {TAG}")] {
        assert_eq!(verdict(&[("if-match", yes)]), Verdict::Proceed, "{yes}");
    }
    for no in [OTHER, "", "nonsense", &format!("W/{TAG}")] {
        assert_eq!(verdict(&[("if-match", no)]), Verdict::Failed, "{no}");
    }
    assert_eq!(verdict(&[("if-unmodified-since", SAME)]), Verdict::Proceed);
    assert_eq!(verdict(&[("if-unmodified-since", AFTER)]), Verdict::Proceed);
    assert_eq!(verdict(&[("if-unmodified-since", BEFORE)]), Verdict::Failed);
}

#[test]
fn what_must_hold_comes_before_what_may_be_spared() {
    assert_eq!(verdict(&[("if-match", OTHER), ("if-none-match", TAG)]), Verdict::Failed);
    assert_eq!(verdict(&[("if-match", TAG), ("if-none-match", TAG)]), Verdict::NotModified);
    assert_eq!(verdict(&[("if-unmodified-since", BEFORE), ("if-none-match", TAG)]), Verdict::Failed);
    assert_eq!(verdict(&[("if-unmodified-since", SAME), ("if-none-match", TAG)]), Verdict::NotModified);
}

#[test]
fn where_there_is_nothing() {
    let nothing = |name, value| evaluate(&headers(&[(name, value)]), None, now());
    assert_eq!(nothing("if-match", "*"), Verdict::Failed);
    assert_eq!(nothing("if-match", TAG), Verdict::Failed);
    for (name, value) in [
        ("if-none-match", "*"),
        ("if-none-match", TAG),
        ("if-modified-since", AFTER),
        ("if-unmodified-since", BEFORE),
    ] {
        assert_eq!(nothing(name, value), Verdict::Proceed, "{name}: {value}");
    }
}

#[test]
fn without_a_date_of_its_own_dates_are_ignored() {
    let undated = Current { modified: None, ..current() };
    for name in ["if-modified-since", "if-unmodified-since"] {
        let given = headers(&[(name, BEFORE)]);
        assert_eq!(evaluate(&given, Some(&undated), now()), Verdict::Proceed, "{name}");
    }
}

proptest! {
    #[test]
    fn no_header_makes_it_panic(text in "[ -~\t]{0,60}", name in "if-(none-)?match|if-(un)?modified-since") {
        let Ok(value) = HeaderValue::from_str(&text) else { return Ok(()) };
        let mut given = HeaderMap::new();
        given.insert(name.parse::<HeaderName>().unwrap(), value);
        evaluate(&given, Some(&current()), now());
    }

    #[test]
    fn dates_go_round(seconds in 0..END_OF_DATES) {
        let later = at(END_OF_DATES);
        let modified = Modified::new(seconds * 1000, later).unwrap();
        let mut given = HeaderMap::new();
        given.insert(header::IF_UNMODIFIED_SINCE, modified.value().unwrap());
        prop_assert_eq!(date(&given, &header::IF_UNMODIFIED_SINCE, later), Some(modified));
    }
}
