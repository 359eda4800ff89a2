//! Numbers as they are written: a whole number times a power of ten, without rounding.

use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{One, Signed, ToPrimitive, Zero};
use std::{cmp::Ordering, fmt};

/// How many digits a number may have, and how large its exponent may be.
pub const DIGITS_LIMIT: usize = 1_000;

/// `mantissa · 10^exponent`; the mantissa does not end in zero, so that equal numbers are equal values.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Decimal {
    mantissa: BigInt,
    exponent: i32,
}

impl Decimal {
    /// Reads a number of JSON, or answers `None` if it is not one or is beyond [`DIGITS_LIMIT`].
    pub fn parse(text: &str) -> Option<Self> {
        let (body, power) = match text.find(['e', 'E']) {
            Some(at) => (&text[..at], text[at + 1..].parse::<i64>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = body.split_once('.').unwrap_or((body, ""));
        let digits = format!("{whole}{fraction}");
        let sign_free = digits.trim_start_matches('-');
        let zero = sign_free.bytes().all(|byte| byte == b'0');
        if sign_free.len() > DIGITS_LIMIT
            || sign_free.is_empty()
            || !sign_free.bytes().all(|b| b.is_ascii_digit())
        {
            return None;
        }
        if zero {
            return Some(Self::from(0));
        }
        let exponent = power.checked_sub(fraction.len() as i64)?;
        if exponent.unsigned_abs() > DIGITS_LIMIT as u64 {
            return None;
        }
        Some(Self::new(digits.parse().ok()?, exponent as i32))
    }

    fn new(mut mantissa: BigInt, mut exponent: i32) -> Self {
        if mantissa.is_zero() {
            return Self { mantissa, exponent: 0 };
        }
        let ten = BigInt::from(10);
        loop {
            let (quotient, rest) = mantissa.div_rem(&ten);
            if !rest.is_zero() {
                return Self { mantissa, exponent };
            }
            mantissa = quotient;
            exponent += 1;
        }
    }

    /// How much slower it is to reckon with than a number of a few digits.
    pub fn weight(&self) -> u64 {
        1 + (self.mantissa.bits() + u64::from(self.exponent.unsigned_abs()) * 4) / 256
    }

    /// Whether it has no fraction: `1.0` has none.
    pub fn is_integer(&self) -> bool {
        self.exponent >= 0
    }

    pub fn is_positive(&self) -> bool {
        self.mantissa.is_positive()
    }

    /// The whole number that it is, if it is one that counts something.
    pub fn to_u64(&self) -> Option<u64> {
        if !self.is_integer() || self.mantissa.is_negative() {
            return None;
        }
        Some(self.scaled(0).to_u64().unwrap_or(u64::MAX))
    }

    /// The mantissa for a smaller exponent.
    fn scaled(&self, exponent: i32) -> BigInt {
        let by = u32::try_from(self.exponent - exponent).unwrap_or(0);
        &self.mantissa * BigInt::from(10).pow(by)
    }

    /// Both as whole numbers of one unit, and the unit's exponent.
    fn aligned(&self, other: &Self) -> (BigInt, BigInt, i32) {
        let exponent = self.exponent.min(other.exponent);
        (self.scaled(exponent), other.scaled(exponent), exponent)
    }

    pub fn minus(&self, other: &Self) -> Self {
        let (a, b, exponent) = self.aligned(other);
        Self::new(a - b, exponent)
    }

    /// This number, so many times.
    pub fn times(&self, count: &BigInt) -> Self {
        Self::new(&self.mantissa * count, self.exponent)
    }

    /// This number with its point moved to the right.
    pub fn shifted(&self, places: i32) -> Self {
        Self::new(self.mantissa.clone(), self.exponent + places)
    }

    /// How often `step` fits into it, rounded down, and whether nothing is left.
    pub fn divided(&self, step: &Self) -> (BigInt, bool) {
        let (a, b, _) = self.aligned(step);
        let (quotient, rest) = a.div_mod_floor(&b);
        (quotient, rest.is_zero())
    }

    pub fn is_multiple_of(&self, step: &Self) -> bool {
        self.divided(step).1
    }

    /// The smallest positive number that is a multiple of both, if it is within bounds.
    pub fn common_multiple(&self, other: &Self) -> Option<Self> {
        let (a, b, exponent) = self.aligned(other);
        let common = Self::new(a.lcm(&b), exponent);
        (common.mantissa.bits() < 4 * DIGITS_LIMIT as u64).then_some(common)
    }

    /// The position of its first digit, counted from the point.
    pub fn magnitude(&self) -> i32 {
        self.mantissa.abs().to_string().len() as i32 + self.exponent
    }

    /// As a number of `serde_json`, if that holds it without rounding.
    pub fn to_number(&self) -> Option<serde_json::Number> {
        if self.is_integer() && self.magnitude() <= 20 {
            let whole = self.scaled(0);
            if let Some(number) = whole.to_i64() {
                return Some(number.into());
            }
            if let Some(number) = whole.to_u64() {
                return Some(number.into());
            }
        }
        let number = serde_json::Number::from_f64(self.to_string().parse().ok()?)?;
        (Self::parse(&number.to_string()).as_ref() == Some(self)).then_some(number)
    }

    /// As the nearest number that `serde_json` can hold.
    pub fn to_nearest(&self) -> serde_json::Number {
        let nearest = || {
            let float: f64 = self.to_string().parse().unwrap_or(0.0);
            serde_json::Number::from_f64(float.clamp(f64::MIN, f64::MAX))
        };
        self.to_number().or_else(nearest).unwrap_or_else(|| 0.into())
    }
}

impl From<i64> for Decimal {
    fn from(number: i64) -> Self {
        Self::new(number.into(), 0)
    }
}

impl From<BigInt> for Decimal {
    fn from(number: BigInt) -> Self {
        Self::new(number, 0)
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.exponent == other.exponent || self.mantissa.sign() != other.mantissa.sign() {
            return self.mantissa.cmp(&other.mantissa);
        }
        let (a, b, _) = self.aligned(other);
        a.cmp(&b)
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.exponent == 0 {
            write!(f, "{}", self.mantissa)
        } else {
            write!(f, "{}e{}", self.mantissa, self.exponent)
        }
    }
}

impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One, as a whole number.
pub fn one() -> BigInt {
    BigInt::one()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn equal_numbers_are_equal_however_they_are_written() {
        for (one, other) in [("1", "1.0"), ("1e2", "100"), ("0.10", "1e-1"), ("-0", "0"), ("-0.0e5", "0")] {
            assert_eq!(number(one), number(other), "{one} {other}");
        }
        assert!(number("1e400") < number("1.0000000000000000000001e400"));
        assert!(number("-1e400") < number("0.1"));
    }

    #[test]
    fn multiples_are_exact() {
        assert!(number("0.3").is_multiple_of(&number("0.1")));
        assert!(!number("1e400").is_multiple_of(&number("0.7e-3")));
        assert_eq!(number("0.4").common_multiple(&number("0.6")), Some(number("1.2")));
        assert_eq!(number("-7").divided(&number("2")), (BigInt::from(-4), false));
    }

    #[test]
    fn numbers_that_are_too_long_are_refused() {
        assert_eq!(Decimal::parse("1e1001"), None);
        assert_eq!(Decimal::parse(&"9".repeat(1_001)), None);
        assert_eq!(Decimal::parse("1e99999999999999999999"), None);
    }

    #[test]
    fn only_what_a_double_holds_becomes_one() {
        assert_eq!(number("0.1").to_number().map(|n| n.to_string()).as_deref(), Some("0.1"));
        assert_eq!(number("18446744073709551615").to_number().and_then(|n| n.as_u64()), Some(u64::MAX));
        assert_eq!(number("1e400").to_number(), None);
        assert_eq!(number("0.12345678901234567890123").to_number(), None);
        assert_eq!(number("1e400").to_nearest().as_f64(), Some(f64::MAX));
    }
}
