//! The order of values, defined a second time without encodings, for tests to compare with.

use serde_json::{Number, Value};
use std::cmp::Ordering;

/// The order of all values, and of values that are not there.
pub fn compare(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    match (a, b) {
        (Some(Value::Bool(a)), Some(Value::Bool(b))) => a.cmp(b),
        (Some(Value::Number(a)), Some(Value::Number(b))) => numbers(a, b),
        (Some(Value::String(a)), Some(Value::String(b))) => a.chars().cmp(b.chars()),
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            let unequal = a.iter().zip(b).map(|(a, b)| compare(Some(a), Some(b))).find(|order| order.is_ne());
            unequal.unwrap_or(a.len().cmp(&b.len()))
        }
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let fields = a.iter().zip(b);
            let unequal = fields
                .map(|((a, x), (b, y))| a.chars().cmp(b.chars()).then_with(|| compare(Some(x), Some(y))))
                .find(|order| order.is_ne());
            unequal.unwrap_or(a.len().cmp(&b.len()))
        }
        (a, b) => rank(a).cmp(&rank(b)),
    }
}

fn rank(value: Option<&Value>) -> u8 {
    match value {
        None => 0,
        Some(Value::Null) => 1,
        Some(Value::Bool(_)) => 2,
        Some(Value::Number(_)) => 3,
        Some(Value::String(_)) => 4,
        Some(Value::Array(_)) => 5,
        Some(Value::Object(_)) => 6,
    }
}

fn numbers(a: &Number, b: &Number) -> Ordering {
    match (int(a), int(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(a), None) => int_and_double(a, double(b)),
        (None, Some(b)) => int_and_double(b, double(a)).reverse(),
        (None, None) => double(a).partial_cmp(&double(b)).unwrap(),
    }
}

fn int(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn double(number: &Number) -> f64 {
    number.as_f64().unwrap()
}

fn int_and_double(int: i128, double: f64) -> Ordering {
    // Beyond all integers of 64 bits.
    if double.abs() > 1e20 {
        return 0.0.partial_cmp(&double).unwrap();
    }
    int.cmp(&(double.trunc() as i128)).then(0.0.partial_cmp(&double.fract()).unwrap())
}
