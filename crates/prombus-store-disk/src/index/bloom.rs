//! A blocked Bloom filter: one cache line per query, so that checking every sealed part stays cheap.

/// Bits per entry. With seven probes in a block, about two in a thousand lookups are false positives.
const BITS_PER_ENTRY: usize = 16;
const WORDS_PER_BLOCK: usize = 8;
const PROBES: u32 = 7;

/// A set of hashes that answers "no" or "maybe".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bloom {
    words: Vec<u64>,
}

impl Bloom {
    /// An empty filter for `entries` hashes.
    pub fn for_entries(entries: usize) -> Self {
        let blocks = (entries * BITS_PER_ENTRY).div_ceil(WORDS_PER_BLOCK * 64).max(1);
        Self { words: vec![0; blocks * WORDS_PER_BLOCK] }
    }

    /// A filter as it was stored.
    pub fn from_words(words: Vec<u64>) -> Self {
        Self { words }
    }

    /// The bits, to be stored.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Adds a hash.
    pub fn insert(&mut self, hash: u64) {
        let block = self.block(hash);
        for (word, bit) in probes(hash) {
            self.words[block + word] |= 1 << bit;
        }
    }

    /// Whether the hash may be in the set; `false` is certain.
    pub fn may_contain(&self, hash: u64) -> bool {
        let block = self.block(hash);
        probes(hash).all(|(word, bit)| self.words[block + word] & 1 << bit != 0)
    }

    fn block(&self, hash: u64) -> usize {
        let blocks = (self.words.len() / WORDS_PER_BLOCK) as u128;
        ((u128::from(hash) * blocks) >> 64) as usize * WORDS_PER_BLOCK
    }
}

/// Nine bits of the mixed hash a probe: which word of the block, which bit of the word.
fn probes(hash: u64) -> impl Iterator<Item = (usize, u32)> {
    let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..PROBES).map(move |i| {
        let bits = (mixed >> (9 * i)) & 511;
        ((bits >> 6) as usize, (bits & 63) as u32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use xxhash_rust::xxh3::xxh3_64;

    #[test]
    fn never_a_false_no_and_seldom_a_vain_perhaps() {
        let hash = |i: u64| xxh3_64(&i.to_le_bytes());
        let mut bloom = Bloom::for_entries(100_000);
        (0..100_000).for_each(|i| bloom.insert(hash(i)));
        assert!((0..100_000).all(|i| bloom.may_contain(hash(i))));
        let vain = (100_000..200_000).filter(|i| bloom.may_contain(hash(*i))).count();
        assert!(vain < 500, "{vain} of 100,000");
        assert_eq!(Bloom::from_words(bloom.words().to_vec()), bloom);
    }
}
