//! What is known of the latest events of keys, of a bounded number of them.

use hashbrown::HashMap;

/// About how many bytes a key takes; where keys take more, fewer are remembered.
const KEY_BYTES: usize = 64;

/// What is known of the latest events of keys.
#[derive(Debug)]
pub(super) struct LatestByKey<L> {
    map: HashMap<Box<str>, L>,
    bytes: usize,
}

impl<L> Default for LatestByKey<L> {
    fn default() -> Self {
        Self { map: HashMap::new(), bytes: 0 }
    }
}

impl<L> LatestByKey<L> {
    /// Remembers the latest event of a key, and says which one was the latest before, if that is remembered.
    pub fn put(&mut self, key: &str, latest: L) -> Option<L> {
        if let Some(known) = self.map.get_mut(key) {
            return Some(std::mem::replace(known, latest));
        }
        self.bytes += key.len();
        self.map.insert(key.into(), latest);
        None
    }

    /// The latest event of a key, if it is remembered.
    pub fn get(&self, key: &str) -> Option<&L> {
        self.map.get(key)
    }

    /// Whether there are as many as may be.
    pub fn is_full(&self, most: usize) -> bool {
        self.map.len() >= most || self.bytes >= most.saturating_mul(KEY_BYTES)
    }
}

impl<L> IntoIterator for LatestByKey<L> {
    type Item = (Box<str>, L);
    type IntoIter = hashbrown::hash_map::IntoIter<Box<str>, L>;

    fn into_iter(self) -> Self::IntoIter {
        self.map.into_iter()
    }
}
