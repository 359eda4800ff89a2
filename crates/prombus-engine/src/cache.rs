//! A cache that is bounded by what its values take. Whatever was not used for longest is evicted first.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Values by the text that they are made from.
#[derive(Debug)]
pub(crate) struct Cache<V> {
    all: HashMap<Arc<str>, Used<V>>,
    by_use: BTreeMap<u64, Arc<str>>,
    /// Counts their uses.
    uses: u64,
    bytes: usize,
    max_bytes: usize,
}

#[derive(Debug)]
struct Used<V> {
    value: V,
    bytes: usize,
    /// When it was used last, among all uses.
    last: u64,
}

impl<V: Clone> Cache<V> {
    /// An empty cache that holds at most `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        let (all, by_use) = Default::default();
        Self { all, by_use, uses: 0, bytes: 0, max_bytes }
    }

    /// The value of a text, if it is there.
    pub fn get(&mut self, source: &str) -> Option<V> {
        let used = self.all.get_mut(source)?;
        self.uses += 1;
        if let Some(source) = self.by_use.remove(&used.last) {
            self.by_use.insert(self.uses, source);
        }
        used.last = self.uses;
        Some(used.value.clone())
    }

    /// Adds a value that takes `bytes`, and gives those that had to go, so that they can be dropped outside of a lock.
    pub fn insert(&mut self, source: &Arc<str>, value: V, bytes: usize) -> Vec<V> {
        let mut gone: Vec<V> = self.remove(source).into_iter().collect();
        self.uses += 1;
        self.bytes += bytes;
        self.by_use.insert(self.uses, source.clone());
        self.all.insert(source.clone(), Used { value, bytes, last: self.uses });
        while self.bytes > self.max_bytes
            && let Some((_, oldest)) = self.by_use.first_key_value()
        {
            gone.extend(self.remove(&oldest.clone()));
        }
        gone
    }

    /// Removes the value of a text.
    pub fn remove(&mut self, source: &str) -> Option<V> {
        let gone = self.all.remove(source)?;
        self.by_use.remove(&gone.last);
        self.bytes -= gone.bytes;
        Some(gone.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_that_was_not_used_for_longest_is_evicted() {
        let mut cache = Cache::new(3);
        let add = |cache: &mut Cache<u32>, source: &str, bytes| cache.insert(&source.into(), 7, bytes).len();
        assert_eq!(["a", "b", "c", "c"].map(|source| add(&mut cache, source, 1)), [0, 0, 0, 1]);
        assert!(cache.get("a").is_some());
        assert_eq!(add(&mut cache, "d", 1), 1);
        assert!(cache.get("b").is_none());
        assert!(["a", "c", "d"].iter().all(|source| cache.get(source).is_some()));
        assert_eq!((cache.bytes, cache.by_use.len()), (3, 3));
        assert_eq!(add(&mut cache, "larger than the cache", 4), 4);
        assert_eq!((cache.bytes, cache.by_use.len(), cache.all.len()), (0, 0, 0));
    }
}
