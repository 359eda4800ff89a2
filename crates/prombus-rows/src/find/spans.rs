//! Which values of a field a query wants, as ranges of encodings.
//!
//! Every condition is reduced to such ranges, so several conditions on a field become one, and scanning an index and
//! checking a document use the same.

use crate::encode;
use crate::rows::prefixed;
use prombus_core::collection::{Operand, Test};
use serde_json::Value;

/// Encodings from `start` on, and before `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub start: Vec<u8>,
    pub end: Vec<u8>,
    /// Whether there is just one value in it.
    pub is_point: bool,
}

impl Span {
    /// All strings.
    pub fn strings() -> Self {
        Self::range(vec![encode::STRING], vec![encode::STRING + 1])
    }

    fn point(encoded: Vec<u8>) -> Self {
        Self { end: after(&encoded), start: encoded, is_point: true }
    }

    fn range(start: Vec<u8>, end: Vec<u8>) -> Self {
        Self { start, end, is_point: false }
    }

    /// What is in both. No value's encoding is the start of another's, so no bound lies within a point.
    pub fn common(&self, other: &Self) -> Option<Self> {
        let (start, end) = ((&self.start).max(&other.start), (&self.end).min(&other.end));
        let is_point = self.is_point || other.is_point;
        (start < end).then(|| Self { start: start.clone(), end: end.clone(), is_point })
    }
}

/// A set of values: spans in order that have nothing in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spans(Vec<Span>);

impl Spans {
    /// The values for which a test holds.
    pub fn of(test: &Test) -> Self {
        match test {
            Test::Eq(operand) => Self::points(std::slice::from_ref(operand)),
            Test::In(operands) => Self::points(operands),
            Test::Ne(operand) => Self::points(std::slice::from_ref(operand)).others(),
            Test::Gt(operand) => Self::ordering(operand, |tag, value| (after(&value), vec![tag + 1])),
            Test::Gte(operand) => Self::ordering(operand, |tag, value| (value, vec![tag + 1])),
            Test::Lt(operand) => Self::ordering(operand, |tag, value| (vec![tag], value)),
            Test::Lte(operand) => Self::ordering(operand, |tag, value| (vec![tag], after(&value))),
        }
    }

    fn points(operands: &[Operand]) -> Self {
        let values = operands.iter().flat_map(Operand::values);
        let mut encoded: Vec<Vec<u8>> = values.map(encoded).collect();
        encoded.sort_unstable();
        encoded.dedup();
        Self(encoded.into_iter().map(Span::point).collect())
    }

    /// The values that compare so with an operand: numbers with a number, strings with a string.
    fn ordering(operand: &Operand, bounds: impl Fn(u8, Vec<u8>) -> (Vec<u8>, Vec<u8>)) -> Self {
        let span = |value: &Value| {
            let tag = match value {
                Value::Number(_) => encode::NUMBER,
                Value::String(_) => encode::STRING,
                _ => return None,
            };
            let (start, end) = bounds(tag, encoded(value));
            (start < end).then(|| Span::range(start, end))
        };
        // What an operand may stand for are values of different types, so the spans lie apart.
        let mut spans: Vec<Span> = operand.values().iter().filter_map(span).collect();
        spans.sort_unstable_by(|a, b| a.start.cmp(&b.start));
        Self(spans)
    }

    /// All values that are not in this one, and that there is none.
    fn others(self) -> Self {
        let mut others = Vec::with_capacity(self.0.len() + 1);
        let mut start = vec![encode::MISSING];
        for span in self.0 {
            if start < span.start {
                others.push(Span::range(start, span.start));
            }
            start = span.end;
        }
        others.push(Span::range(start, vec![encode::AFTER_ALL]));
        Self(others)
    }

    /// The values that are in both.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        let mut common = Vec::new();
        let (mut mine, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(a), Some(b)) = (mine.peek(), theirs.peek()) {
            common.extend(a.common(b));
            if a.end <= b.end {
                mine.next()
            } else {
                theirs.next()
            };
        }
        Self(common)
    }

    /// Whether the encoding of a value lies in it.
    pub fn contains(&self, encoded: &[u8]) -> bool {
        let after = self.0.partition_point(|span| *span.start <= *encoded);
        after > 0 && *encoded < *self.0[after - 1].end
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Span> {
        self.0.iter()
    }

    /// From the first of its values to the last, and all between.
    pub fn whole(&self) -> Option<Span> {
        let (first, last) = (self.0.first()?, self.0.last()?);
        Some(Span::range(first.start.clone(), last.end.clone()))
    }

    /// How many bytes the longest of its bounds has.
    pub fn longest(&self) -> usize {
        self.0.iter().map(|span| span.start.len().max(span.end.len())).max().unwrap_or_default()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it is made of single values.
    pub fn is_points(&self) -> bool {
        self.0.iter().all(|span| span.is_point)
    }

    /// Whether there is but one value in it.
    pub fn is_single(&self) -> bool {
        self.0.len() == 1 && self.is_points()
    }

    /// Whether it leaves out so much that to go by it pays: what a field is not says little.
    pub fn is_selective(&self) -> bool {
        self.0.first().is_none_or(|span| *span.start != [encode::MISSING])
    }
}

fn encoded(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    encode::value(&mut out, Some(value));
    out
}

/// The least bytes after all that start with `bytes`.
pub fn after(bytes: &[u8]) -> Vec<u8> {
    prefixed(bytes.to_vec()).end.to_vec()
}
