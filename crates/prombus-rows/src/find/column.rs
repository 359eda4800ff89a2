//! What rows are sorted by: the columns of documents and indexes, and how values are stored in them.

use super::spans::Span;
use crate::encode;
use crate::rows::{document_prefix, index_prefix};
use prombus_core::collection::IndexState;
use prombus_core::{CollectionState, FieldPath};

/// Something that a document has a value of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    Key,
    Ts,
    Field(FieldPath),
}

impl Column {
    pub fn of(field: &FieldPath) -> Self {
        match field.as_str() {
            "_key" => Self::Key,
            "_ts" => Self::Ts,
            _ => Self::Field(field.clone()),
        }
    }
}

/// How the values of a column are stored in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// In the encoding of all values.
    Encoded,
    /// As 8 bytes.
    Ts,
    /// As its text; nothing comes after it.
    Key,
}

impl Form {
    /// Where the values of a span lie: from the first bytes on, and before the second, or to the end if there are none.
    /// `None` where the column cannot have such a value.
    pub fn bounds(self, span: &Span) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        match self {
            Self::Encoded => Some((span.start.clone(), Some(span.end.clone()))),
            Self::Ts => {
                let (start, end) = (first_ts(&span.start)?, first_ts(&span.end));
                let bytes = |ts: u64| ts.to_be_bytes().to_vec();
                end.is_none_or(|end| start < end).then(|| (bytes(start), end.map(bytes)))
            }
            Self::Key => {
                let strings = Span::strings().common(span)?;
                Some((key_bound(&strings.start).unwrap_or_default(), key_bound(&strings.end)))
            }
        }
    }
}

/// The first time whose encoding is not less than `bound`.
fn first_ts(bound: &[u8]) -> Option<u64> {
    let is_less = |ts: u64| {
        let mut encoded = Vec::with_capacity(16);
        encode::unsigned(&mut encoded, ts);
        *encoded < *bound
    };
    if is_less(u64::MAX) {
        return None;
    }
    let (mut low, mut high) = (0, u64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_less(middle) { low = middle + 1 } else { high = middle }
    }
    Some(low)
}

/// The first key whose encoding is not less than `bound`, which starts or ends a span of strings. `None` where it is
/// after all strings.
fn key_bound(bound: &[u8]) -> Option<Vec<u8>> {
    let encoded = bound.strip_prefix(&[encode::STRING])?;
    let mut key = Vec::with_capacity(encoded.len());
    let mut rest = encoded.iter();
    while let Some(byte) = rest.next() {
        if *byte > 0 {
            key.push(*byte);
            continue;
        }
        match rest.next() {
            Some(&u8::MAX) => key.push(0),
            // The end of the string itself.
            Some(0) | None => break,
            // What comes after the end of the string: the next key is one byte longer.
            Some(_) => {
                key.push(0);
                break;
            }
        }
    }
    Some(key)
}

/// Rows that have all documents of a collection in some order.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// The documents themselves.
    Documents,
    /// An index; `None` is the one by time.
    Index(Option<&'a IndexState>),
}

impl<'a> Source<'a> {
    /// All that have every document.
    pub fn all(state: &'a CollectionState) -> impl Iterator<Item = Self> {
        let ready = state.indexes.iter().filter(|index| index.is_ready());
        let indexes = ready.map(|index| Self::Index(Some(index)));
        [Self::Documents, Self::Index(None)].into_iter().chain(indexes)
    }

    pub fn prefix(self, state: &CollectionState) -> Vec<u8> {
        match self {
            Self::Documents => document_prefix(state.number),
            Self::Index(index) => index_prefix(state.number, index),
        }
    }

    /// The fields whose values its rows start with.
    pub fn fields(self) -> &'a [FieldPath] {
        match self {
            Self::Documents | Self::Index(None) => &[],
            Self::Index(Some(state)) => &state.index.fields,
        }
    }

    /// What its rows are sorted by.
    pub fn columns(self) -> Vec<(Column, Form)> {
        let fields = self.fields().iter().map(|field| (Column::of(field), Form::Encoded));
        let ts = matches!(self, Self::Index(_)).then_some((Column::Ts, Form::Ts));
        fields.chain(ts).chain([(Column::Key, Form::Key)]).collect()
    }

    /// Whether a row says what a column has, without a look at the document.
    pub fn shows(self, column: &Column) -> bool {
        match (self, column) {
            (Self::Documents, _) | (_, Column::Key | Column::Ts) => true,
            (Self::Index(_), Column::Field(field)) => self.fields().contains(field),
        }
    }

    /// Whether these leading columns have values that only one document can have.
    pub fn is_unique(self, columns: usize) -> bool {
        match self {
            Self::Documents => columns > 0,
            Self::Index(state) => {
                state.is_some_and(|state| state.index.unique && columns >= state.index.fields.len())
            }
        }
    }
}
