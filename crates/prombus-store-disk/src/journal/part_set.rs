//! Which parts the journal has, and in which form: rewriting puts one in place of others, or of none.
//!
//! This is part of the state, so a commit decides which files count. A part is rewritten only when no checkpoint needs
//! what it changed; the parts behind are always as the writer wrote them.

use crate::journal::part::PartName;
use imbl::OrdMap;

/// The parts that are not as the writer wrote them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartSet {
    /// All parts below this one are gone.
    first: u32,
    /// How often a part was rewritten; `None` for one that is gone.
    changed: OrdMap<u32, Option<u32>>,
}

impl Default for PartSet {
    fn default() -> Self {
        Self { first: 1, changed: OrdMap::new() }
    }
}

impl PartSet {
    /// As it was stored.
    pub fn new(first: u32, changed: impl IntoIterator<Item = (u32, Option<u32>)>) -> Self {
        Self { first, changed: changed.into_iter().collect() }
    }

    /// The number below which all are gone.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// What happened to the others that changed.
    pub fn changed(&self) -> impl Iterator<Item = (u32, Option<u32>)> + '_ {
        self.changed.iter().map(|(number, rewrite)| (*number, *rewrite))
    }

    /// Whether all are as they were written.
    pub fn is_untouched(&self) -> bool {
        *self == Self::default()
    }

    /// What the files of a part are called by, unless it is gone.
    pub fn name(&self, number: u32) -> Option<PartName> {
        if number < self.first {
            return None;
        }
        let rewrite = self.changed.get(&number).copied().unwrap_or(Some(0))?;
        Some(PartName { number, rewrite })
    }

    /// Takes over what changed.
    pub fn apply(&mut self, changes: &Self) {
        self.first = self.first.max(changes.first);
        for (number, rewrite) in changes.changed() {
            self.changed.insert(number, rewrite);
        }
        while self.changed.get(&self.first) == Some(&None) {
            self.first += 1;
        }
        let (_, here, mut behind) = self.changed.split_lookup(&self.first);
        if let Some(here) = here {
            behind.insert(self.first, here);
        }
        self.changed = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gone_parts_at_the_front_are_one_number() {
        let mut set = PartSet::default();
        assert!(set.is_untouched());
        set.apply(&PartSet::new(1, [(2, None), (3, Some(1))]));
        let name = |number, rewrite| Some(PartName { number, rewrite });
        assert_eq!([1, 2, 3, 4].map(|part| set.name(part)), [name(1, 0), None, name(3, 1), name(4, 0)]);
        set.apply(&PartSet::new(1, [(1, None), (3, Some(2))]));
        assert_eq!(set, PartSet::new(3, [(3, Some(2))]));
        set.apply(&PartSet::new(1, [(3, None), (4, None)]));
        assert_eq!(set, PartSet::new(5, []));
        assert_eq!([4, 5].map(|part| set.name(part)), [None, name(5, 0)]);
    }
}
