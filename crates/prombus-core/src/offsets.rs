//! Sets of offsets of one partition.
//!
//! A set is made of chunks that are shared with its copies until they change. So a copy of a large set costs little, and so does
//! changing one: only chunks that change are copied.

use crate::position::Offset;
use roaring::{RoaringBitmap, RoaringTreemap};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// A chunk covers two to the power of this many offsets: 128 KiB at most.
const CHUNK_BITS: u32 = 20;
/// So many offsets.
const CHUNK: u64 = 1 << CHUNK_BITS;

/// A set of offsets, small where they lie close together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Offsets(
    /// By number, chunks that are not empty: the lower 32 bits of their offsets.
    BTreeMap<u64, Arc<RoaringBitmap>>,
);

fn chunk_of(offset: u64) -> u64 {
    offset >> CHUNK_BITS
}

/// The lower bits of an offset.
fn low(offset: u64) -> u32 {
    offset as u32
}

/// The first offset of a chunk.
fn start_of(chunk: u64) -> u64 {
    chunk << CHUNK_BITS
}

impl Offsets {
    /// Whether the offset is in the set.
    pub fn contains(&self, Offset(offset): Offset) -> bool {
        self.0.get(&chunk_of(offset)).is_some_and(|chunk| chunk.contains(low(offset)))
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.0.values().map(|chunk| chunk.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an offset; whether it is new.
    pub fn insert(&mut self, Offset(offset): Offset) -> bool {
        Arc::make_mut(self.0.entry(chunk_of(offset)).or_default()).insert(low(offset))
    }

    /// Adds all offsets in `first..next`.
    pub fn insert_all(&mut self, Offset(first): Offset, Offset(next): Offset) {
        let mut from = first;
        while from < next {
            let last = (from | (CHUNK - 1)).min(next - 1);
            let chunk = Arc::make_mut(self.0.entry(chunk_of(from)).or_default());
            chunk.insert_range(low(from)..=low(last));
            from = last + 1;
        }
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Offset> + '_ {
        self.0.iter().flat_map(|(number, chunk)| {
            // The upper bits of all offsets of a chunk are the same.
            let upper = start_of(*number) >> 32 << 32;
            chunk.iter().map(move |lower| Offset(upper | u64::from(lower)))
        })
    }

    /// The chunks with offsets in `first..next`, each with the first and the last of those that it covers.
    fn within(&self, first: u64, next: u64) -> impl Iterator<Item = (u64, &Arc<RoaringBitmap>, [u32; 2])> {
        let last = next.saturating_sub(1).max(first);
        let all = (first < next).then(|| self.0.range(chunk_of(first)..=chunk_of(last)));
        all.into_iter().flatten().map(move |(number, chunk)| {
            let (start, end) = (start_of(*number), start_of(*number) + (CHUNK - 1));
            (*number, chunk, [low(first.max(start)), low(last.min(end))])
        })
    }

    /// Adds those of `others` that are in `first..next`.
    pub fn add_within(&mut self, others: &Self, first: Offset, next: Offset) {
        for (number, chunk, [from, to]) in others.within(first.0, next.0) {
            let mut added = chunk.clone();
            if added.min().is_some_and(|min| min < from) || added.max().is_some_and(|max| max > to) {
                let added = Arc::make_mut(&mut added);
                added.remove_range(..from);
                // There is none behind the last one that there can be.
                if let Some(behind) = to.checked_add(1) {
                    added.remove_range(behind..);
                }
            }
            match self.0.get_mut(&number) {
                Some(chunk) => *Arc::make_mut(chunk) |= &*added,
                None if added.is_empty() => {}
                None => drop(self.0.insert(number, added)),
            }
        }
    }

    /// Removes everything below `first`.
    pub fn remove_below(&mut self, Offset(first): Offset) {
        self.0 = self.0.split_off(&chunk_of(first));
        let Some(chunk) = self.0.get_mut(&chunk_of(first)) else { return };
        if chunk.min().is_some_and(|min| min < low(first)) {
            Arc::make_mut(chunk).remove_range(..low(first));
        }
        if chunk.is_empty() {
            self.0.remove(&chunk_of(first));
        }
    }

    /// How many there are in `first..next`.
    pub fn count_within(&self, first: Offset, next: Offset) -> u64 {
        self.within(first.0, next.0).map(|(_, chunk, [from, to])| chunk.range_cardinality(from..=to)).sum()
    }

    /// The first offset at or after `from` that is not in the set.
    pub fn next_absent(&self, Offset(from): Offset) -> Offset {
        let mut at = from;
        while let Some(chunk) = self.0.get(&chunk_of(at)) {
            let end = start_of(chunk_of(at)) + (CHUNK - 1);
            let is_full_up_to = |last: u64| chunk.range_cardinality(low(at)..=low(last)) == last - at + 1;
            if !is_full_up_to(end) {
                return Offset(first_that_is_not(at, end, is_full_up_to));
            }
            match end.checked_add(1) {
                Some(next) => at = next,
                None => break,
            }
        }
        Offset(at)
    }

    /// The same set as sets of which none reaches beyond `span` offsets, from a multiple of it.
    pub fn pieces(&self, span: u64) -> Vec<Self> {
        split(self.to_treemap(), span).into_iter().map(Self::from_treemap).collect()
    }

    /// The set as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let treemap = self.to_treemap();
        let mut bytes = Vec::with_capacity(treemap.serialized_size());
        // A vector takes whatever it is given.
        let _ = treemap.serialize_into(&mut bytes);
        bytes
    }

    /// The set that [`Offsets::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        RoaringTreemap::deserialize_from(bytes).map(Self::from_treemap)
    }

    fn to_treemap(&self) -> RoaringTreemap {
        let mut bitmaps: BTreeMap<u32, RoaringBitmap> = BTreeMap::new();
        for (number, chunk) in &self.0 {
            *bitmaps.entry((start_of(*number) >> 32) as u32).or_default() |= &**chunk;
        }
        RoaringTreemap::from_bitmaps(bitmaps)
    }

    fn from_treemap(treemap: RoaringTreemap) -> Self {
        let chunk = |piece: RoaringTreemap| {
            let number = chunk_of(piece.min()?);
            let (_, bitmap) = piece.bitmaps().next()?;
            Some((number, Arc::new(bitmap.clone())))
        };
        Self(split(treemap, CHUNK).into_iter().filter_map(chunk).collect())
    }
}

/// The first of `from..=end` for which this is not so, which is so up to some of them and not beyond. The search doubles its
/// steps first, so that a short way costs little.
fn first_that_is_not(from: u64, end: u64, is_so_up_to: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high, mut step) = (from, from, 1);
    while high < end && is_so_up_to(high) {
        low = high + 1;
        high = high.saturating_add(step).min(end);
        step *= 2;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if is_so_up_to(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// Sets of which none reaches beyond `span` offsets, from a multiple of it.
fn split(whole: RoaringTreemap, span: u64) -> Vec<RoaringTreemap> {
    let (mut pieces, mut left) = (Vec::new(), vec![whole]);
    // Halved again and again, so that each offset is copied as often only as that takes.
    while let Some(mut set) = left.pop() {
        let (Some(first), Some(last)) = (set.min(), set.max()) else { continue };
        let (first, last) = (first / span, last / span);
        if first == last {
            pieces.push(set);
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

impl FromIterator<Offset> for Offsets {
    fn from_iter<T: IntoIterator<Item = Offset>>(offsets: T) -> Self {
        let mut set = Self::default();
        for offset in offsets {
            set.insert(offset);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

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
    fn a_range_is_added_across_chunks() {
        for (first, next) in [(5, 5), (5, 6), (CHUNK - 2, CHUNK), (CHUNK - 2, CHUNK + 3), (7, 2 * CHUNK + 1)]
        {
            let mut all = set([3]);
            all.insert_all(Offset(first), Offset(next));
            assert_eq!(all, set((first..next).chain([3])), "{first}..{next}");
        }
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

    /// Offsets at both sides of where chunks end.
    fn near_ends() -> impl Strategy<Value = u64> {
        let ends = [1, CHUNK, 2 * CHUNK, 1 << 32, u64::MAX - 9].map(|end| end.saturating_sub(5)..end + 5);
        prop::sample::select(ends.into_iter().flatten().collect::<Vec<_>>())
    }

    proptest! {
        #[test]
        fn chunks_are_one_set(
            some in prop::collection::btree_set(near_ends(), 0..40),
            others in prop::collection::btree_set(near_ends(), 0..40),
            bounds in [near_ends(), near_ends()],
        ) {
            let [first, next] = bounds;
            let within = |set: &BTreeSet<u64>| set.iter().filter(|at| (first..next).contains(at)).count() as u64;
            let mut holes = set(some.iter().copied());
            prop_assert_eq!(holes.len(), some.len() as u64);
            prop_assert_eq!(holes.count_within(Offset(first), Offset(next)), within(&some));
            let copy = holes.clone();
            holes.add_within(&set(others.iter().copied()), Offset(first), Offset(next));
            let all = some.iter().chain(others.iter().filter(|at| (first..next).contains(at)));
            let mut all: BTreeSet<u64> = all.copied().collect();
            prop_assert_eq!(&holes, &set(all.iter().copied()));
            prop_assert_eq!(&copy, &set(some.iter().copied()));
            for from in some.iter().chain(&others) {
                let expected = (*from..u64::MAX).find(|at| !all.contains(at)).unwrap_or(u64::MAX);
                prop_assert_eq!(holes.next_absent(Offset(*from)), Offset(expected));
            }
            prop_assert_eq!(&Offsets::from_bytes(&holes.to_bytes()).unwrap(), &holes);
            holes.remove_below(Offset(first));
            all.retain(|at| *at >= first);
            prop_assert_eq!(holes.iter().map(|at| at.0).collect::<BTreeSet<_>>(), all.clone());
            prop_assert_eq!(holes.is_empty(), all.is_empty());
        }

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
