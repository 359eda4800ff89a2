//! Query parameters: decoded, each taken by its name in either spelling, and none ignored.

use crate::error::ApiError;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use percent_encoding::percent_decode;
use prombus_core::{Partition, time};
use prombus_wire::spelling::{given_twice, is_other_spelling};
use uuid::Uuid;

/// The parameters of a request that were not taken yet.
#[derive(Debug)]
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    /// Parses a query string.
    pub fn parse(query: Option<&str>) -> Result<Self, ApiError> {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        });
        Ok(Self(pairs.collect::<Result<_, ApiError>>()?))
    }

    /// The value of a parameter that may be given once.
    pub fn one(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        let mut values = self.all(name)?;
        match values.len() {
            0 | 1 => Ok(values.pop()),
            _ => Err(ApiError::bad_request(format!("the parameter {name} may be given only once"))),
        }
    }

    /// The values of a parameter that may be repeated.
    pub fn all(&mut self, name: &str) -> Result<Vec<String>, ApiError> {
        let other = |(given, _): &(String, String)| is_other_spelling(given, name);
        let declared = |(given, _): &(String, String)| given == name;
        if self.0.iter().any(other) && self.0.iter().any(declared) {
            return Err(ApiError::bad_request(given_twice(name)));
        }
        let taken = self.0.extract_if(.., |pair| declared(pair) || other(pair));
        Ok(taken.map(|(_, value)| value).collect())
    }

    /// A number that may be given once.
    pub fn number(&mut self, name: &str) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        match text.parse() {
            Ok(number) if digits => Ok(Some(number)),
            _ => Err(ApiError::bad_request(format!("{name} must be a whole number, not {text:?}"))),
        }
    }

    /// Whether something is so, which may be said once.
    pub fn flag(&mut self, name: &str) -> Result<bool, ApiError> {
        match self.one(name)?.as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(ApiError::bad_request(format!("{name} must be true or false, not {other:?}"))),
        }
    }

    /// A point in time that may be given once, in epoch milliseconds.
    pub fn time(&mut self, name: &str) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        // A plus sign in a query stands for a space, unless it is escaped. In a time it stands for itself.
        match time::parse(&text).or_else(|| time::parse(&text.replace(' ', "+"))) {
            Some(time) => Ok(Some(time)),
            None => Err(ApiError::bad_request(format!(
                "{name} must be epoch milliseconds or RFC 3339, such as 2026-01-31T08:00:00Z, not {text:?}"
            ))),
        }
    }

    /// A partition that may be given once.
    pub fn partition(&mut self) -> Result<Option<Partition>, ApiError> {
        let Some(number) = self.number("partition")? else { return Ok(None) };
        match u32::try_from(number) {
            Ok(partition) => Ok(Some(Partition(partition))),
            Err(_) => Err(ApiError::bad_request(format!("there is no partition {number}"))),
        }
    }

    /// An id that may be given once.
    pub fn id(&mut self, name: &str) -> Result<Option<Uuid>, ApiError> {
        self.one(name)?.map(|text| parse_id(name, &text)).transpose()
    }

    /// The parameters that were not taken, as names and values in order.
    pub fn rest(self) -> Vec<(String, String)> {
        self.0
    }

    /// Refuses parameters that were not taken.
    pub fn done(self, known: &str) -> Result<(), ApiError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let mut names: Vec<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        Err(ApiError::bad_request(format!(
            "unknown query parameter: {}; known here: {known}",
            names.join(", ")
        )))
    }
}

/// Refuses a request with query parameters.
pub(crate) struct NoParams;

impl<S: Send + Sync> FromRequestParts<S> for NoParams {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Params::parse(parts.uri.query())?.done("none")?;
        Ok(Self)
    }
}

/// Whether each percent sign is followed by two hexadecimal digits.
pub(crate) fn is_well_escaped(text: &str) -> bool {
    let bytes = text.as_bytes();
    let two_digits =
        |at: usize| bytes.get(at + 1..at + 3).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    memchr::memchr_iter(b'%', bytes).all(two_digits)
}

fn decode(text: &str) -> Result<String, ApiError> {
    if !is_well_escaped(text) {
        return Err(ApiError::bad_request(
            "the query has a % without two hexadecimal digits; write %25 for a %",
        ));
    }
    let spaced: Vec<u8> = text.bytes().map(|b| if b == b'+' { b' ' } else { b }).collect();
    match percent_decode(&spaced).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err(ApiError::bad_request("the query is not valid UTF-8 after percent-decoding")),
    }
}

/// An id in the form with hyphens, which is the only one that users see.
pub(crate) fn parse_id(name: &str, text: &str) -> Result<Uuid, ApiError> {
    /// What `Uuid::try_parse` takes at this length is the form with hyphens.
    const HYPHENATED_BYTES: usize = 36;
    match Uuid::try_parse(text) {
        Ok(id) if text.len() == HYPHENATED_BYTES => Ok(id),
        _ => Err(ApiError::bad_request(format!(
            "{name} must be a UUID such as 0198c0de-0000-7000-8000-000000000001, not {text:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn params(query: &str) -> Params {
        Params::parse(Some(query)).unwrap()
    }

    #[test]
    fn values_are_decoded() {
        let mut p = params("key=a%20b+c%2B%2f%C3%B6&&flag&x=1=2");
        assert_eq!(p.one("key").unwrap().unwrap(), "a b c+/ö");
        assert_eq!(p.one("flag").unwrap().unwrap(), "");
        assert_eq!(p.one("x").unwrap().unwrap(), "1=2");
        assert_eq!(p.one("y").unwrap(), None);
        assert!(p.done("").is_ok());
        for bad in ["key=%ff", "key=%", "key=%4", "key=%zz", "%=1", "a=100%&b=1"] {
            assert!(Params::parse(Some(bad)).is_err(), "{bad}");
        }
        assert!(Params::parse(None).unwrap().done("").is_ok());
    }

    #[test]
    fn what_comes_twice_or_is_unknown_is_refused() {
        assert!(params("a=1&a=1").one("a").is_err());
        assert_eq!(params("a=1&b=2&a=3").all("a").unwrap(), ["1", "3"]);
        let error = params("b=1&a=2&b=3").done("c").unwrap_err();
        assert!(error.message().contains("a, b; known here: c"), "{error:?}");
    }

    #[test]
    fn a_name_has_two_spellings() {
        for name in ["toTs", "to_ts"] {
            assert_eq!(params("toTs=5").number(name).unwrap(), Some(5));
            assert_eq!(params("to_ts=5").number(name).unwrap(), Some(5));
            let error = params("toTs=5&to_ts=5").number(name).unwrap_err();
            assert!(error.message().contains("toTs") && error.message().contains("to_ts"), "{error:?}");
        }
        assert_eq!(params("caused_by=a&caused_by=b").all("causedBy").unwrap(), ["a", "b"]);
        let mut other = params("to_Ts=1&TS=1&t_s=1");
        assert_eq!((other.number("toTs").unwrap(), other.number("ts").unwrap()), (None, None));
        assert!(other.done("toTs").is_err());
    }

    #[test]
    fn numbers_are_digits() {
        assert_eq!(params("n=18446744073709551615").number("n").unwrap(), Some(u64::MAX));
        for bad in ["", "-1", "%2B1", "1.0", "18446744073709551616", "x", "1 "] {
            assert!(params(&format!("n={bad}")).number("n").is_err(), "{bad}");
        }
        assert!(params("partition=4294967296").partition().is_err());
    }

    #[test]
    fn ids_have_hyphens() {
        assert!(parse_id("id", "0198c0de-0000-7000-8000-00000000000A").is_ok());
        for bad in [
            "",
            "x",
            "0198c0de000070008000000000000001",
            "{0198c0de-0000-7000-8000-000000000001}",
            "urn:uuid:0198c0de-0000-7000-8000-000000000001",
        ] {
            assert!(parse_id("id", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_are_numbers_or_rfc_3339() {
        for (text, at) in [
            ("at=5", 5),
            ("at=2025-08-08T20:00:00.123Z", 1_754_683_200_123),
            ("at=2025-08-08T22:00:00.123%2B02:00", 1_754_683_200_123),
            ("at=2025-08-08T22:00:00.123+02:00", 1_754_683_200_123),
            ("at=2025-08-08", 1_754_611_200_000),
        ] {
            assert_eq!(params(text).time("at").unwrap(), Some(at), "{text}");
        }
        assert_eq!(params("").time("at").unwrap(), None);
        for bad in ["at=", "at=x", "at=-5", "at=-15m", "at=1.5", "at=5&at=5", "at=99999999999999999999"] {
            assert!(params(bad).time("at").is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(query in "\\PC{0,80}", name in "[a-z]{1,3}") {
            if let Ok(mut params) = Params::parse(Some(&query)) {
                let _ = params.number(&name);
                let _ = params.time(&name);
                let _ = params.id(&name);
                let _ = params.done("");
            }
            let _ = parse_id("id", &query);
        }
    }
}
