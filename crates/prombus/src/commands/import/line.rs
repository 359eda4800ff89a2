//! One line of an import: an event as export writes it, or as a producer would.

use prombus_wire::parse_object;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// The fields of a line. Texts are passed on unchanged.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    ts: Option<&'a RawValue>,
    #[serde(borrow, default)]
    key: Option<&'a RawValue>,
    #[serde(borrow, default)]
    sid: Option<&'a RawValue>,
    #[serde(borrow, default)]
    headers: Option<&'a RawValue>,
    #[serde(borrow, default)]
    caused_by: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tags: Option<&'a RawValue>,
    #[serde(borrow, default)]
    partition: Option<&'a RawValue>,
    #[serde(borrow, default)]
    expect: Option<&'a RawValue>,
    // Set by the hub that it was exported from.
    #[serde(default)]
    offset: Option<IgnoredAny>,
    #[serde(default, rename = "topic")]
    _topic: Option<IgnoredAny>,
    #[serde(default, rename = "recorded_ts")]
    _recorded_ts: Option<IgnoredAny>,
}

/// Appends to `out` what is to be sent for a line, with its line end.
pub fn rewrite(line: &[u8], out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    let line: Line<'_> = parse_object(line)?;
    // The topic that an event is imported into decides about its partition.
    let partition = line.partition.filter(|_| line.offset.is_none());
    out.extend_from_slice(b"{\"payload\":");
    out.extend_from_slice(line.payload.get().as_bytes());
    let fields = [
        (&b",\"id\":"[..], line.id),
        (b",\"ts\":", line.ts),
        (b",\"key\":", line.key),
        (b",\"sid\":", line.sid),
        (b",\"headers\":", line.headers),
        (b",\"caused_by\":", line.caused_by),
        (b",\"tags\":", line.tags),
        (b",\"partition\":", partition),
        (b",\"expect\":", line.expect),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            out.extend_from_slice(name);
            out.extend_from_slice(value.get().as_bytes());
        }
    }
    out.extend_from_slice(b"}\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(line: &str) -> Result<String, String> {
        let mut out = Vec::new();
        rewrite(line.as_bytes(), &mut out).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn what_the_hub_had_set_is_dropped_and_the_rest_kept_digit_for_digit() {
        let exported = r##"{"id":"0198c0de-0000-7000-8000-000000000001","ts":5,"recorded_ts":6,"topic":"a.b","key":"k\"ö","partition":3,"offset":7,"sid":"s","headers":{"x-a":"b"},"payload":{"n":1.10,"b":12345678901234567890123},"caused_by":["c"],"tags":["#t"]}"##;
        let sent = r##"{"payload":{"n":1.10,"b":12345678901234567890123},"id":"0198c0de-0000-7000-8000-000000000001","ts":5,"key":"k\"ö","sid":"s","headers":{"x-a":"b"},"caused_by":["c"],"tags":["#t"]}"##;
        assert_eq!(rewritten(exported).unwrap(), format!("{sent}\n"));
    }

    #[test]
    fn what_a_producer_would_send_goes_through() {
        for plain in [
            r#"{"payload":null}"#,
            r#"{"payload":1,"partition":2}"#,
            r#"{"payload":1,"key":"a","expect":{"last_id":null}}"#,
        ] {
            assert_eq!(rewritten(plain).unwrap(), format!("{plain}\n"));
        }
    }

    #[test]
    fn other_lines_are_refused() {
        for bad in ["1", "[1]", "{}", r#"{"payload":1,"x":2}"#, r#"{"payload":1"#, "\u{1}"] {
            assert!(rewritten(bad).is_err(), "{bad}");
        }
    }
}
