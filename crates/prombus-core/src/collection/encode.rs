//! Values as bytes that have the order of the values: missing, null, false, true, numbers, strings by code point,
//! arrays item by item, objects by their sorted fields.

use serde_json::{Number, Value};

const MISSING: u8 = 1;
const NULL: u8 = 2;
const FALSE: u8 = 3;
const TRUE: u8 = 4;
const NUMBER: u8 = 5;
const STRING: u8 = 6;
const ARRAY: u8 = 7;
const OBJECT: u8 = 8;
/// Ends arrays and objects; below every tag, so that a prefix comes first.
const END: u8 = 0;

/// Appends a value, or that there is none.
pub fn value(out: &mut Vec<u8>, value: Option<&Value>) {
    match value {
        None => out.push(MISSING),
        Some(Value::Null) => out.push(NULL),
        Some(Value::Bool(false)) => out.push(FALSE),
        Some(Value::Bool(true)) => out.push(TRUE),
        Some(Value::Number(n)) => number(out, n),
        Some(Value::String(s)) => {
            out.push(STRING);
            text(out, s);
        }
        Some(Value::Array(items)) => {
            out.push(ARRAY);
            items.iter().for_each(|item| self::value(out, Some(item)));
            out.push(END);
        }
        Some(Value::Object(fields)) => {
            out.push(OBJECT);
            for (name, field) in fields {
                out.push(STRING);
                text(out, name);
                self::value(out, Some(field));
            }
            out.push(END);
        }
    }
}

/// The range of tags that the values of one type have, for comparisons that stay within it.
pub fn type_tags(value: &Value) -> (u8, u8) {
    match value {
        Value::Null => (NULL, NULL),
        Value::Bool(_) => (FALSE, TRUE),
        Value::Number(_) => (NUMBER, NUMBER),
        Value::String(_) => (STRING, STRING),
        Value::Array(_) => (ARRAY, ARRAY),
        Value::Object(_) => (OBJECT, OBJECT),
    }
}

/// The nearest double, in an order of bytes, and then how far an integer lies from it: so integers and doubles have
/// one order, and none is rounded.
fn number(out: &mut Vec<u8>, number: &Number) {
    out.push(NUMBER);
    let (double, rest) = match number.as_i64() {
        Some(int) => {
            let double = int as f64;
            // The sum cannot overflow i128, and the difference is at most half of the gap between two doubles.
            (double, (i128::from(int) - double as i128) as i16)
        }
        // Minus zero is zero.
        None => (number.as_f64().unwrap_or_default() + 0.0, 0),
    };
    let bits = double.to_bits();
    let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    out.extend_from_slice(&ordered.to_be_bytes());
    out.extend_from_slice(&(rest as u16 ^ 1 << 15).to_be_bytes());
}

/// Zero bytes are marked, so that the end can be told and a shorter text comes first.
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
