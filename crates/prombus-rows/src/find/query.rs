//! A query as the planner needs it: the wanted values of each column, and the complete sort order.

use super::column::Column;
use super::spans::Spans;
use prombus_core::Find;

/// What is wanted, and in which order.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// The wanted values of columns; each column once, and none without values.
    pub wanted: Vec<(Column, Spans)>,
    /// What the documents are sorted by, and whether the greatest comes first. Without columns that decide nothing.
    pub order: Vec<(Column, bool)>,
}

impl Query {
    /// `None` where no document can be wanted.
    pub fn of(find: &Find) -> Option<Self> {
        let mut wanted: Vec<(Column, Spans)> = Vec::with_capacity(find.conditions.len());
        for condition in &find.conditions {
            let (column, spans) = (Column::of(&condition.field), Spans::of(&condition.test));
            match wanted.iter_mut().find(|(known, _)| *known == column) {
                Some((_, known)) => *known = known.common(&spans),
                None => wanted.push((column, spans)),
            }
        }
        if wanted.iter().any(|(_, spans)| spans.is_empty()) {
            return None;
        }
        let mut query = Self { wanted, order: Vec::new() };
        // Newest first, unless something else is asked for.
        let last = find.sort.last().is_none_or(|key| key.descending);
        let asked = find.sort.iter().map(|key| (Column::of(&key.field), key.descending));
        query.order = query.deciding(asked.chain([(Column::Ts, last), (Column::Key, last)]));
        Some(query)
    }

    /// The wanted values of a column, where not all are.
    pub fn spans(&self, column: &Column) -> Option<&Spans> {
        self.wanted.iter().find(|(wanted, _)| wanted == column).map(|(_, spans)| spans)
    }

    /// Those columns of an order that decide something: not one that has the same value in all wanted documents, that
    /// was there before, or that comes after the key, which no two documents share.
    pub fn deciding(&self, order: impl Iterator<Item = (Column, bool)>) -> Vec<(Column, bool)> {
        let mut deciding: Vec<(Column, bool)> = Vec::new();
        for (column, descending) in order {
            let is_fixed = self.spans(&column).is_some_and(Spans::is_single);
            if !is_fixed && !deciding.iter().any(|(known, _)| *known == column || *known == Column::Key) {
                deciding.push((column, descending));
            }
        }
        deciding
    }
}
