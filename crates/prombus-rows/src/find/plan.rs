//! Which rows to scan, and what is left to do with them. A plan affects how fast an answer is found, never the answer.

use super::column::{Column, Form, Source};
use super::query::Query;
use super::spans::{Spans, after};
use crate::rows::{RowRange, prefixed};
use bytes::Bytes;
use prombus_core::CollectionState;
use prombus_core::collection::MAX_INDEX_VALUE_BYTES;
use std::cmp::Reverse;

/// Maximum number of ranges to scan; beyond that, they are widened.
pub const MAX_RANGES: usize = 1_000;

/// How to answer a query.
#[derive(Debug)]
pub struct Plan<'a> {
    pub source: Source<'a>,
    /// What to scan.
    pub ranges: Vec<WalkRange>,
    /// What is left to check in each row, or its document: first what the row contains.
    pub left: Vec<(&'a Column, &'a Spans)>,
    /// Whether the rows come in the requested order.
    pub order: Order,
}

/// How the order of the rows relates to the requested one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// They have to be sorted.
    None,
    /// It is the requested one.
    Forwards,
    /// It is the requested one, reversed.
    Backwards,
}

/// A range to scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkRange {
    pub rows: RowRange,
    /// The rows of several ranges are in order by what follows so many bytes.
    pub ordered_from: usize,
    /// Whether it is the one row at its start.
    pub is_row: bool,
}

/// A source, and how much of it the conditions of a query pick out.
struct Choice<'a> {
    source: Source<'a>,
    columns: Vec<(Column, Form)>,
    /// How many leading columns have known values.
    points: usize,
    /// The next one has known bounds.
    has_range: bool,
    /// The next one has bounds by so many bytes of its values, which are longer: it still has to be looked at.
    cut_at: Option<usize>,
    /// From which column on the order of the rows counts, and which order that is.
    ordered_from: usize,
    order: Order,
}

/// The best plan there is.
pub fn plan<'a>(state: &'a CollectionState, query: &'a Query) -> Plan<'a> {
    let choices = Source::all(state).map(|source| Choice::of(source, query));
    // The first of equals, because it has the shortest rows.
    let best = choices.min_by_key(|choice| Reverse(choice.worth(query)));
    let choice = best.unwrap_or_else(|| Choice::of(Source::Documents, query));
    let ranges = choice.ranges(state, query);
    let bound = choice.points + usize::from(choice.has_range);
    let is_left =
        |(column, _): &&'a (Column, Spans)| !choice.columns[..bound].iter().any(|(c, _)| c == column);
    let mut left: Vec<_> =
        query.wanted.iter().filter(is_left).map(|(column, spans)| (column, spans)).collect();
    left.sort_by_key(|(column, _)| !choice.source.shows(column));
    Plan { source: choice.source, ranges, left, order: choice.order }
}

impl<'a> Choice<'a> {
    fn of(source: Source<'a>, query: &Query) -> Self {
        let columns = source.columns();
        let (mut points, mut ranges, mut room) = (0, 1, MAX_INDEX_VALUE_BYTES);
        let (mut has_range, mut cut_at) = (false, None);
        for (column, _) in &columns {
            let Some(spans) = query.spans(column) else { break };
            // What is longer is in no row but those of earlier builds. It is in each range, so it would be multiplied.
            if spans.longest() > room {
                cut_at = Some(room);
                break;
            }
            room -= spans.longest();
            ranges *= spans.len();
            if ranges > MAX_RANGES {
                break;
            }
            if !spans.is_points() {
                has_range = true;
                break;
            }
            points += 1;
        }
        let orders = (0..=points).rev().map(|from| (from, order(&columns[from..], query)));
        let ordered = orders.into_iter().find(|(_, order)| *order != Order::None);
        let (ordered_from, order) = ordered.unwrap_or((points, Order::None));
        Self { source, columns, points, has_range, cut_at, ordered_from, order }
    }

    /// What it is worth. Known values count most, because they bound what is read; then an order that need not be made
    /// lets the walk end early. Where no value is known, bounds come before the order.
    fn worth(&self, query: &Query) -> (bool, usize, [bool; 2], bool) {
        let is_ordered = self.order != Order::None;
        let next = self.columns.get(self.points).and_then(|(column, _)| query.spans(column));
        let is_selective = self.is_bounded() && next.is_some_and(Spans::is_selective);
        let rest = if self.points > 0 { [is_ordered, is_selective] } else { [is_selective, is_ordered] };
        let wanted = query.wanted.iter().map(|(column, _)| column);
        let sorted_by = query.order.iter().filter(|_| !is_ordered).map(|(column, _)| column);
        let shows_all = wanted.chain(sorted_by).all(|column| self.source.shows(column));
        (self.source.is_unique(self.points), self.points, rest, shows_all)
    }

    /// Whether the column after those with known values has bounds of some kind.
    fn is_bounded(&self) -> bool {
        self.has_range || self.cut_at.is_some()
    }

    /// The ranges of rows that have the known values and lie in the known bounds.
    fn ranges(&self, state: &CollectionState, query: &Query) -> Vec<WalkRange> {
        let bytes = self.source.prefix(state);
        let mut starts = vec![Start { ordered_from: bytes.len(), bytes }];
        for (n, (column, form)) in
            self.columns.iter().enumerate().take(self.points + usize::from(self.is_bounded()))
        {
            let Some(spans) = query.spans(column) else { break };
            let bounds: Vec<Bounds> = match self.cut_at.filter(|_| n == self.points) {
                // In one range, because what is cut off may be all that tells values apart.
                Some(room) => spans
                    .whole()
                    .and_then(|span| form.bounds(&span))
                    .map(|all| cut(all, room))
                    .into_iter()
                    .collect(),
                None => spans.iter().filter_map(|span| form.bounds(span)).collect(),
            };
            // A key can be the start of another one, so even a known one has an end.
            if n == self.points || *form == Form::Key {
                let is_row = n < self.points && matches!(self.source, Source::Documents);
                return starts.iter().flat_map(|start| start.bounded(&bounds, is_row)).collect();
            }
            let is_before = n < self.ordered_from;
            starts = starts.iter().flat_map(|start| start.longer(&bounds, is_before)).collect();
        }
        starts.into_iter().map(Start::whole).collect()
    }
}

/// Whether rows that are sorted by these columns come in the order that a query asks for.
fn order(columns: &[(Column, Form)], query: &Query) -> Order {
    let columns = columns.iter().map(|(column, _)| (column.clone(), false));
    let walked = query.deciding(columns);
    if !walked.iter().map(|(column, _)| column).eq(query.order.iter().map(|(column, _)| column)) {
        return Order::None;
    }
    match query.order.iter().filter(|(_, descending)| *descending).count() {
        0 => Order::Forwards,
        all if all == query.order.len() => Order::Backwards,
        _ => Order::None,
    }
}

/// The values of a column from the first on, and before the second.
type Bounds = (Vec<u8>, Option<Vec<u8>>);

/// The same by so many bytes, so that they lie further apart.
fn cut((mut from, to): Bounds, room: usize) -> Bounds {
    from.truncate(room);
    let to = to.and_then(|mut to| {
        if to.len() <= room {
            return Some(to);
        }
        to.truncate(room);
        // Nothing comes after all that start with nothing.
        Some(after(&to)).filter(|after| !after.is_empty())
    });
    (from, to)
}

/// What rows start with.
struct Start {
    bytes: Vec<u8>,
    ordered_from: usize,
}

impl Start {
    /// With each of these values of the next column.
    fn longer(&self, values: &[Bounds], is_before_the_order: bool) -> Vec<Self> {
        let longer = |(value, _): &Bounds| {
            let bytes = [&self.bytes[..], value].concat();
            let ordered_from = if is_before_the_order { bytes.len() } else { self.ordered_from };
            Self { bytes, ordered_from }
        };
        values.iter().map(longer).collect()
    }

    /// With the next column in each of these bounds.
    fn bounded(&self, bounds: &[Bounds], is_row: bool) -> Vec<WalkRange> {
        let range = |(from, to): &Bounds| {
            let start = Bytes::from([&self.bytes[..], from].concat());
            let end = match to {
                Some(to) => Bytes::from([&self.bytes[..], to].concat()),
                None => prefixed(self.bytes.clone()).end,
            };
            WalkRange { rows: start..end, ordered_from: self.ordered_from, is_row }
        };
        bounds.iter().map(range).collect()
    }

    fn whole(self) -> WalkRange {
        WalkRange { rows: prefixed(self.bytes), ordered_from: self.ordered_from, is_row: false }
    }
}
