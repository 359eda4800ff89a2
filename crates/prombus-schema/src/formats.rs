//! Formats: the names that are known, the validator's word on whether a text has one, and texts that have it.

use jsonschema::{Draft, Validator};
use serde_json::{Value, json};
use std::{collections::HashMap, sync::LazyLock};

/// The formats that are checked, in every draft alike, and texts that have them.
const SAMPLES: &[(&str, &[&str])] = &[
    ("date", &["2024-02-29", "1999-12-31", "0001-01-01", "2030-06-15"]),
    ("date-time", &["2024-02-29T12:00:00Z", "1999-12-31T23:59:59.123456+01:00", "2030-06-15T00:00:00Z"]),
    ("duration", &["P1D", "PT36H", "P1Y2M3DT4H5M6S", "P2W"]),
    ("email", &["ann@example.com", "b@example.org", "first.last+tag@sub.example.net"]),
    ("hostname", &["example.com", "a", "localhost", "sub-1.example.org"]),
    ("ipv4", &["192.0.2.1", "0.0.0.0", "255.255.255.255"]),
    ("ipv6", &["2001:db8::1", "::", "::1", "2001:0db8:0000:0000:0000:0000:0000:0001"]),
    ("iri", &["https://example.com/", "urn:a:b", "http://example.org/\u{e4}"]),
    ("iri-reference", &["/a", "a", "https://example.com/", "#x", "\u{e4}"]),
    ("json-pointer", &["/a", "", "/a/0", "/a~1b"]),
    ("regex", &["^a+$", "a", "[0-9]{3}", "x|y"]),
    ("relative-json-pointer", &["0", "1/a", "2#"]),
    ("time", &["12:00:00Z", "23:59:59.5+01:00", "00:00:00Z"]),
    ("uri", &["https://example.com/", "urn:a:b", "mailto:ann@example.com", "http://example.org/a?b#c"]),
    ("uri-reference", &["/a", "a", "https://example.com/", "#x", "../b?c"]),
    ("uri-template", &["/a/{b}", "a", "https://example.com/{x}", "{+y}"]),
    ("uuid", &["6ba7b810-9dad-11d1-80b4-00c04fd430c8", "00000000-0000-0000-0000-000000000000"]),
];

static VALIDATORS: LazyLock<HashMap<&'static str, Validator>> = LazyLock::new(|| {
    let validator = |name: &'static str| {
        let options =
            jsonschema::options().with_draft(Draft::Draft202012).should_validate_formats(true).offline();
        options.build(&json!({ "format": name })).ok().map(|validator| (name, validator))
    };
    names().filter_map(validator).collect()
});

/// The names of the formats that are checked.
pub fn names() -> impl Iterator<Item = &'static str> {
    SAMPLES.iter().map(|(name, _)| *name)
}

/// Whether a format is checked; any other is a remark to the reader.
pub fn is_known(name: &str) -> bool {
    VALIDATORS.contains_key(name)
}

/// Whether a text has a format.
pub fn accepts(name: &str, text: &str) -> bool {
    VALIDATORS.get(name).is_none_or(|validator| validator.is_valid(&Value::String(text.to_owned())))
}

/// Texts that have a format.
pub fn samples(name: &str) -> &'static [&'static str] {
    SAMPLES.iter().find(|(known, _)| *known == name).map_or(&[], |(_, samples)| samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_checked_and_its_samples_have_it() {
        for name in names() {
            assert!(is_known(name), "{name}");
            for text in samples(name) {
                assert!(accepts(name, text), "{name}: {text}");
            }
        }
        assert!(!accepts("date", "2023-02-29"));
        assert!(!is_known("colour"));
    }
}
