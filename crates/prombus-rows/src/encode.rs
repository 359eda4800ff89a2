//! An order-preserving encoding of values: missing, null, false, true, numbers, strings by code point, arrays item by item,
//! objects by their sorted fields. No encoding is a prefix of another.

use serde_json::{Number, Value};

/// The tag of a missing value; the least of all.
pub const MISSING: u8 = 1;
const NULL: u8 = 2;
const FALSE: u8 = 3;
const TRUE: u8 = 4;
/// The tag of numbers.
pub const NUMBER: u8 = 5;
/// The tag of strings.
pub const STRING: u8 = 6;
const ARRAY: u8 = 7;
const OBJECT: u8 = 8;
/// Greater than any tag.
pub const AFTER_ALL: u8 = 9;
/// The size of a number after its tag.
const NUMBER_BYTES: usize = 10;
/// Ends arrays and objects; below every tag, so that a prefix comes first.
const END: u8 = 0;

/// Appends a value, or a missing one.
pub fn value(out: &mut Vec<u8>, value: Option<&Value>) {
    match value {
        None => out.push(MISSING),
        Some(Value::Null) => out.push(NULL),
        Some(Value::Bool(false)) => out.push(FALSE),
        Some(Value::Bool(true)) => out.push(TRUE),
        Some(Value::Number(n)) => number(out, n),
        Some(Value::String(s)) => string(out, s),
        Some(Value::Array(items)) => {
            out.push(ARRAY);
            items.iter().for_each(|item| self::value(out, Some(item)));
            out.push(END);
        }
        Some(Value::Object(fields)) => {
            out.push(OBJECT);
            for (name, field) in fields {
                string(out, name);
                self::value(out, Some(field));
            }
            out.push(END);
        }
    }
}

/// Appends a string.
pub fn string(out: &mut Vec<u8>, string: &str) {
    out.push(STRING);
    text(out, string);
}

/// Appends an integer, as `value` does a number.
pub fn unsigned(out: &mut Vec<u8>, int: u64) {
    integer(out, int.into());
}

/// Where the first of the values in `bytes` ends; `None` if it is truncated.
pub fn first_end(bytes: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0usize);
    loop {
        let tag = *bytes.get(at)?;
        at += 1;
        match tag {
            MISSING | NULL | FALSE | TRUE => {}
            NUMBER => at += NUMBER_BYTES,
            STRING => at += text_end(bytes.get(at..)?)?,
            ARRAY | OBJECT => depth += 1,
            END => depth = depth.checked_sub(1)?,
            _ => return None,
        }
        if depth == 0 {
            return (at <= bytes.len()).then_some(at);
        }
    }
}

/// The nearest double in an order-preserving form, then the distance of an integer from it: so integers and doubles
/// share one order, and none is rounded.
fn number(out: &mut Vec<u8>, number: &Number) {
    match number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from)) {
        Some(int) => integer(out, int),
        // Minus zero is zero.
        None => near(out, number.as_f64().unwrap_or_default() + 0.0, 0),
    }
}

/// An integer of 64 bits, with or without a sign.
fn integer(out: &mut Vec<u8>, int: i128) {
    let double = int as f64;
    // At most half of the gap between two doubles of this size, which is 1024.
    near(out, double, (int - double as i128) as i16);
}

fn near(out: &mut Vec<u8>, double: f64, rest: i16) {
    out.push(NUMBER);
    let bits = double.to_bits();
    let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    out.extend_from_slice(&ordered.to_be_bytes());
    out.extend_from_slice(&(rest as u16 ^ 1 << 15).to_be_bytes());
}

/// Zero bytes are escaped, so that the end is unambiguous and a shorter text comes first.
fn text(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    while let Some(at) = memchr::memchr(0, rest) {
        out.extend_from_slice(&rest[..=at]);
        out.push(0xff);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&[0, 0]);
}

/// Where a text ends, after its mark.
fn text_end(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr(0, bytes.get(at..)?)? + 2;
        if *bytes.get(at - 1)? == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::indexer::{Indexer, Keys};
    use crate::plain;
    use crate::rows::{INDEX_PREFIX, key_of_index_row};
    use prombus_core::collection::Index;
    use prombus_core::{CollectionConfig, CollectionState, Document, FieldPath, Json};
    use proptest::prelude::*;
    use serde_json::json;

    fn bytes(value: Option<&Value>) -> Vec<u8> {
        let mut out = Vec::new();
        self::value(&mut out, value);
        out
    }

    fn numbers() -> impl Strategy<Value = Number> {
        let near = |middle: i128, by: i128| (middle - by..=middle + by).prop_map(from_int);
        let double = |double: f64| Number::from_f64(double).unwrap_or_else(|| 0.into());
        prop_oneof![
            near(0, 3),
            near(1 << 53, 3),
            near(-(1 << 53), 3),
            near((1 << 53) + 1_000_000, 2_000),
            near(i64::MAX.into(), 2_000),
            near(u64::MAX.into(), 2_000),
            near(i64::MIN.into(), 2_000),
            any::<i64>().prop_map(Number::from),
            any::<f64>().prop_map(double),
            (any::<i64>(), -2..=2i64).prop_map(move |(int, by)| double((int.saturating_add(by)) as f64)),
            prop::sample::select(vec![
                0.0,
                -0.0,
                f64::from_bits(1),
                -f64::from_bits(1),
                f64::MIN_POSITIVE / 2.0,
                f64::MIN_POSITIVE,
                f64::MAX,
                f64::MIN,
                9_007_199_254_740_992.0,
                9_223_372_036_854_775_808.0,
                -9_223_372_036_854_775_808.0,
                18_446_744_073_709_551_616.0,
                1.0,
                1.5,
            ])
            .prop_map(double),
        ]
    }

    fn from_int(int: i128) -> Number {
        i64::try_from(int).map(Number::from).or_else(|_| u64::try_from(int).map(Number::from)).unwrap_or_else(
            // One beyond the integers is a double.
            |_| Number::from_f64(int as f64).unwrap_or_else(|| 0.into()),
        )
    }

    fn texts() -> impl Strategy<Value = String> {
        prop_oneof!["[ab\0\u{1}\u{ff}\u{ffff}\u{10000}😀]{0,4}", ".{0,3}"]
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            numbers().prop_map(Value::Number),
            texts().prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map(texts(), inner, 0..3)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    fn maybe() -> impl Strategy<Value = Option<Value>> {
        prop::option::weighted(0.95, values())
    }

    #[test]
    fn types_have_an_order() {
        let sorted = [
            json!(null),
            json!(false),
            json!(true),
            json!(-1e300),
            json!(i64::MIN),
            json!(-0.5),
            json!(0),
            json!(f64::from_bits(1)),
            json!(1),
            json!(9007199254740992u64),
            json!(9007199254740993u64),
            json!(1e300),
            json!(""),
            json!("\u{0}"),
            json!("a"),
            json!("a\u{0}"),
            json!("a\u{0}a"),
            json!("aa"),
            json!("\u{ffff}"),
            json!("\u{10000}"),
            json!([]),
            json!([null]),
            json!([1]),
            json!([1, 1]),
            json!([[]]),
            json!({}),
            json!({"a": 1}),
            json!({"a": 1, "b": 0}),
            json!({"a": 2}),
            json!({"b": 0}),
        ];
        let all: Vec<Vec<u8>> = std::iter::once(None).chain(sorted.iter().map(Some)).map(bytes).collect();
        assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
        assert_eq!(bytes(Some(&json!(1))), bytes(Some(&json!(1.0))));
        assert_eq!(bytes(Some(&json!(0))), bytes(Some(&json!(-0.0))));
    }

    #[test]
    fn what_is_no_encoding_has_no_end() {
        let mut whole = bytes(Some(&json!([1, "a\u{0}b", {"x": [null, true]}])));
        assert_eq!(first_end(&whole), Some(whole.len()));
        for cut in 0..whole.len() {
            assert_eq!(first_end(&whole[..cut]), None, "{cut}");
        }
        whole[0] = AFTER_ALL;
        assert_eq!(first_end(&whole), None);
        assert_eq!(first_end(&[END]), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn bytes_have_the_order_of_the_values(a in maybe(), b in maybe()) {
            prop_assert_eq!(bytes(a.as_ref()).cmp(&bytes(b.as_ref())), plain::compare(a.as_ref(), b.as_ref()));
        }

        #[test]
        fn bytes_of_numbers_have_their_order(a in numbers(), b in numbers()) {
            let (a, b) = (Value::Number(a), Value::Number(b));
            prop_assert_eq!(bytes(Some(&a)).cmp(&bytes(Some(&b))), plain::compare(Some(&a), Some(&b)));
        }

        #[test]
        fn the_end_of_a_value_is_found(value in maybe(), rest in prop::collection::vec(any::<u8>(), 0..20)) {
            let (encoded, mut more) = (bytes(value.as_ref()), bytes(value.as_ref()));
            more.extend(rest);
            prop_assert_eq!(first_end(&more), Some(encoded.len()));
        }

        #[test]
        fn garbage_has_an_end_or_none(bytes in prop::collection::vec(0..12u8, 0..60)) {
            prop_assert!(first_end(&bytes).is_none_or(|end| end <= bytes.len()));
        }

        #[test]
        fn rows_of_indexes_end_with_time_and_key(
            a in maybe(), b in maybe(), ts: u64, key in texts()
        ) {
            let fields = [("a", a), ("b", b)].into_iter().filter_map(|(name, value)| Some((name.into(), value?)));
            let body = Json::from_value(&Value::Object(fields.collect()));
            let document = Document::new(key.clone(), 1, None, ts, body);
            let index = |fields: &[&str]| Index {
                fields: fields.iter().map(|field| FieldPath::parse(field).unwrap()).collect(),
                unique: false,
            };
            let indexes = vec![index(&["a"]), index(&["b", "a", "c"])];
            let config = CollectionConfig { indexes, ..CollectionConfig::default() };
            let state = CollectionState::new("c".into(), 7, config);
            let mut rows = Keys::default();
            Indexer::new(7, &state.indexes).keys(&document, &mut rows);
            prop_assert_eq!(rows.iter().count(), 3);
            for (row, fields) in rows.iter().zip([0, 1, 3]) {
                let mut at = INDEX_PREFIX;
                for _ in 0..fields {
                    at += first_end(&row[at..]).unwrap();
                }
                prop_assert_eq!(&row[at..at + 8], ts.to_be_bytes());
                prop_assert_eq!(key_of_index_row(row, at), Some(key.as_str()));
            }
        }
    }
}
