//! Sets of offsets of one partition.

use crate::position::Offset;
use roaring::RoaringTreemap;
use std::io;

/// A set of offsets, small where they lie close together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Offsets(RoaringTreemap);

impl Offsets {
    /// Whether the offset is in the set.
    pub fn contains(&self, offset: Offset) -> bool {
        self.0.contains(offset.0)
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an offset; whether it is new.
    pub fn insert(&mut self, offset: Offset) -> bool {
        self.0.insert(offset.0)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Offset> + '_ {
        self.0.iter().map(Offset)
    }

    /// Adds those of `others` that are in `first..next`.
    pub fn add_within(&mut self, others: &Self, first: Offset, next: Offset) {
        let mut others = others.0.clone();
        others.remove_range(..first.0);
        others.remove_range(next.0..);
        self.0 |= others;
    }

    /// Removes everything below `first`.
    pub fn remove_below(&mut self, first: Offset) {
        self.0.remove_range(..first.0);
    }

    /// How many there are in `first..next`.
    pub fn count_within(&self, first: Offset, next: Offset) -> u64 {
        if first < next { self.0.range_cardinality(first.0..next.0) } else { 0 }
    }

    /// The first offset at or after `from` that is not in the set.
    pub fn next_absent(&self, from: Offset) -> Offset {
        if !self.contains(from) {
            return from;
        }
        // How many offsets up to this one are not in the set: it grows where one is missing. The search doubles its
        // steps first, so that a short run costs little.
        let absent = |offset: u64| u128::from(offset) + 1 - u128::from(self.0.rank(offset));
        let before = absent(from.0);
        let (mut low, mut step) = (from.0, 1u64);
        let mut high = low.saturating_add(step);
        while absent(high) == before && high < u64::MAX {
            low = high;
            step = step.saturating_mul(2);
            high = low.saturating_add(step);
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if absent(middle) == before { low = middle } else { high = middle }
        }
        Offset(high)
    }

    /// The same set as sets of which none reaches beyond `span` offsets, from a multiple of it.
    pub fn pieces(&self, span: u64) -> Vec<Self> {
        let mut pieces = Vec::new();
        let mut left = vec![self.0.clone()];
        // Halved again and again, so that each offset is copied as often only as that takes.
        while let Some(mut set) = left.pop() {
            let (Some(first), Some(last)) = (set.min(), set.max()) else { continue };
            let (first, last) = (first / span, last / span);
            if first == last {
                pieces.push(Self(set));
                continue;
            }
            let middle = (first + (last - first).div_ceil(2)) * span;
            let mut upper = set.clone();
            upper.remove_range(..middle);
            set.remove_range(middle..);
            left.extend([upper, set]);
        }
        pieces
    }

    /// The set as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.serialized_size());
        // A vector takes whatever it is given.
        let _ = self.0.serialize_into(&mut bytes);
        bytes
    }

    /// The set that [`Offsets::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        RoaringTreemap::deserialize_from(bytes).map(Self)
    }
}

impl FromIterator<Offset> for Offsets {
    fn from_iter<T: IntoIterator<Item = Offset>>(offsets: T) -> Self {
        Self(offsets.into_iter().map(|offset| offset.0).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(offsets: impl IntoIterator<Item = u64>) -> Offsets {
        offsets.into_iter().map(Offset).collect()
    }

    #[test]
    fn a_long_run_is_passed_over() {
        let holes = set((5..100_000).chain([100_001]));
        for (from, absent) in [(0, 0), (4, 4), (5, 100_000), (99_999, 100_000), (100_001, 100_002)] {
            assert_eq!(holes.next_absent(Offset(from)), Offset(absent), "from {from}");
        }
        assert_eq!(set([u64::MAX - 1]).next_absent(Offset(u64::MAX - 1)), Offset(u64::MAX));
    }

    #[test]
    fn what_is_added_lies_within_the_bounds() {
        let mut holes = set([1]);
        holes.add_within(&set([0, 1, 2, 3, 9]), Offset(2), Offset(9));
        assert_eq!(holes, set([1, 2, 3]));
        assert_eq!(holes.count_within(Offset(2), Offset(9)), 2);
        holes.remove_below(Offset(3));
        assert_eq!((holes.len(), holes.is_empty()), (1, false));
    }

    proptest! {
        #[test]
        fn pieces_are_the_whole(offsets in prop::collection::vec(0u64..200, 0..60), span in 1u64..50) {
            let whole = set(offsets);
            let pieces = whole.pieces(span);
            for piece in &pieces {
                let mut within: Vec<u64> = piece.iter().map(|offset| offset.0 / span).collect();
                within.dedup();
                prop_assert_eq!(within.len(), 1);
            }
            let again: Vec<Offset> = pieces.iter().flat_map(Offsets::iter).collect();
            prop_assert_eq!(again, whole.iter().collect::<Vec<_>>());
        }

        #[test]
        fn the_next_absent_is_the_first_that_is_not_there(offsets in prop::collection::vec(0u64..60, 0..60)) {
            let holes = set(offsets.iter().copied());
            for from in 0..60 {
                let expected = (from..).find(|offset| !offsets.contains(offset)).unwrap();
                prop_assert_eq!(holes.next_absent(Offset(from)), Offset(expected));
            }
            prop_assert_eq!(Offsets::from_bytes(&holes.to_bytes()).unwrap(), holes);
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Offsets::from_bytes(&bytes);
        }
    }
}
