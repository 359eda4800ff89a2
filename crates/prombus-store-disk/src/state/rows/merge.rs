//! Merging adjacent tables into one, so that there are never many.

use super::merged::{Merged, Source};
use super::table::Table;
use super::write::{Target, write};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many neighbours of a tier are merged. A row is written again about once a tier.
const FANOUT: usize = 4;
/// The largest table of the lowest tier.
const LOWEST_TIER: u64 = 64 << 10;

fn tier(size: u64) -> u32 {
    (size.max(LOWEST_TIER) / LOWEST_TIER).ilog(FANOUT as u64)
}

/// Which neighbours are to be merged, given the sizes of all tables from the oldest to the newest. Where there are
/// none, every tier has fewer than [`FANOUT`] tables.
pub fn pick(sizes: &[u64]) -> Option<Range<usize>> {
    let mut end = sizes.len();
    let mut run = (end..end, 0);
    for at in (0..sizes.len()).rev() {
        // A small table before a larger one counts as one of the larger one's tier: it can only be merged with it.
        let tier = tier(sizes[at]);
        if tier > run.1 {
            if run.0.len() >= FANOUT {
                return Some(run.0);
            }
            end = at + 1;
            run.1 = tier;
        }
        run.0 = at..end;
    }
    (run.0.len() >= FANOUT).then_some(run.0)
}

/// Tables to merge, and what of them is kept.
pub struct Merge<'a> {
    /// Neighbours, the oldest first.
    pub tables: &'a [Arc<Table>],
    /// Whether the oldest of all tables is among them, so that there is nothing left that a removal would hide.
    pub from_oldest: bool,
    /// Whether a row with this key is still of use to anyone.
    pub keep: &'a dyn Fn(&[u8]) -> bool,
    /// Set where nobody waits for it any more.
    pub stop: &'a AtomicBool,
}

impl Merge<'_> {
    /// Writes one table with the rows of all, a row at a time; `None` where nothing is left.
    pub fn write(&self, target: Target<'_>) -> io::Result<Option<Arc<Table>>> {
        let filtered: u64 = self.tables.iter().map(|table| table.filtered()).sum();
        let sources = self.tables.iter().rev().map(|table| Box::new(table.iter()) as Source<'_>);
        let rows = Merged::new(sources.collect(), false).filter(|row| match row {
            Ok((key, value)) => (value.is_some() || !self.from_oldest) && (self.keep)(key),
            Err(_) => true,
        });
        let stopped = || io::Error::new(io::ErrorKind::Interrupted, "the store closes");
        let rows = rows.map(|row| if self.stop.load(Ordering::Relaxed) { Err(stopped()) } else { row });
        write(target, filtered as usize, rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_of_similar_size_are_merged() {
        const MIB: u64 = 1 << 20;
        assert_eq!(pick(&[]), None);
        assert_eq!(pick(&[32 * MIB; 3]), None);
        assert_eq!(pick(&[32 * MIB; 4]), Some(0..4));
        assert_eq!(pick(&[512 * MIB, 32 * MIB, 32 * MIB, 32 * MIB]), None);
        assert_eq!(pick(&[512 * MIB, 32 * MIB, 30 * MIB, 34 * MIB, 32 * MIB]), Some(1..5));
        assert_eq!(
            pick(&[MIB, 32 * MIB, 2 * MIB, 32 * MIB, 32 * MIB, MIB]),
            Some(0..5),
            "small ones between"
        );
    }

    proptest! {
        #[test]
        fn there_are_never_many_tables(sizes in prop::collection::vec(1u64..40 << 20, 1..400)) {
            let mut tables: Vec<u64> = Vec::new();
            let (mut written, mut merged) = (0, 0);
            for size in sizes {
                tables.push(size);
                written += size;
                while let Some(run) = pick(&tables) {
                    prop_assert!(run.len() >= FANOUT);
                    let size = tables[run.clone()].iter().sum();
                    merged += size;
                    tables.splice(run, [size]);
                }
            }
            let tiers = tier(written) as usize + 1;
            prop_assert!(tables.len() < FANOUT * tiers, "{} tables in {tiers} tiers", tables.len());
            prop_assert!(merged <= 2 * written * (tiers as u64 + 1), "{merged} merged of {written}");
        }
    }
}
