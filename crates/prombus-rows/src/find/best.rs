//! The first n of what is seen in any order.

use prombus_core::collection::{BadFind, MAX_SORTED};
use std::collections::BinaryHeap;

/// What an entry takes besides its bytes: itself, and what the allocator adds to its two pieces.
const ENTRY_BYTES: usize = size_of::<(Vec<u8>, String)>() + 32;

/// Keeps the smallest of the entries offered.
#[derive(Debug)]
pub struct Best {
    keep: usize,
    limits: Limits,
    bytes: usize,
    /// What each is sorted by, and its key.
    kept: BinaryHeap<(Vec<u8>, String)>,
}

/// Limits on what is kept.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub documents: usize,
    pub bytes: usize,
}

impl Limits {
    /// As many documents as can be sorted at all, in so many bytes.
    pub fn of_bytes(bytes: usize) -> Self {
        Self { documents: MAX_SORTED, bytes }
    }
}

impl Best {
    pub fn new(keep: usize, limits: Limits) -> Self {
        Self { keep, limits, bytes: 0, kept: BinaryHeap::new() }
    }

    /// Offers a document.
    pub fn offer(&mut self, sorted_by: &[u8], key: &str) -> Result<(), BadFind> {
        if self.kept.len() >= self.keep {
            if self.kept.peek().is_none_or(|(greatest, _)| *sorted_by >= **greatest) {
                return Ok(());
            }
            if let Some((sorted_by, key)) = self.kept.pop() {
                self.bytes -= sorted_by.len() + key.len() + ENTRY_BYTES;
            }
        }
        self.bytes = self.bytes.saturating_add(sorted_by.len() + key.len() + ENTRY_BYTES);
        // One more than the limit tells that there are more after a page.
        if self.kept.len() > self.limits.documents || self.bytes > self.limits.bytes {
            return Err(BadFind::TooMany);
        }
        self.kept.push((sorted_by.to_vec(), key.to_owned()));
        Ok(())
    }

    /// The keys of what was kept, in order.
    pub fn into_keys(self) -> impl ExactSizeIterator<Item = String> {
        self.kept.into_sorted_vec().into_iter().map(|(_, key)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(keep: usize, limits: Limits, values: &[&str]) -> Result<Vec<String>, BadFind> {
        let mut best = Best::new(keep, limits);
        values.iter().try_for_each(|value| best.offer(value.as_bytes(), value))?;
        Ok(best.into_keys().collect())
    }

    #[test]
    fn the_least_are_kept_in_order() {
        let (values, any) = (["d", "a", "e", "c", "b"], Limits::of_bytes(usize::MAX));
        assert_eq!(offered(3, any, &values).unwrap(), ["a", "b", "c"]);
        assert_eq!(offered(9, any, &values).unwrap(), ["a", "b", "c", "d", "e"]);
        assert_eq!(offered(0, any, &values).unwrap(), [""; 0]);
    }

    #[test]
    fn what_is_kept_has_limits() {
        let values = ["dd", "aa", "ee", "cc", "bb"];
        let few = Limits { documents: 3, bytes: usize::MAX };
        assert_eq!(offered(4, few, &values).unwrap(), ["aa", "bb", "cc", "dd"]);
        assert_eq!(offered(5, few, &values), Err(BadFind::TooMany));
        assert_eq!(offered(5, few, &values[..3]).unwrap(), ["aa", "dd", "ee"]);
        let small = Limits::of_bytes(3 * (4 + ENTRY_BYTES));
        assert_eq!(offered(3, small, &values).unwrap(), ["aa", "bb", "cc"]);
        assert_eq!(offered(4, small, &values), Err(BadFind::TooMany));
    }
}
