//! Newtypes for the numbers that must not be mixed up. "Next" always means first unwritten or unread.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// The place of an event in its partition, from 0 and without gaps.
    Offset(u64)
}
number! {
    /// A partition of a topic, from 0.
    Partition(u32)
}
number! {
    /// One incarnation of a topic. A topic that is deleted and made again has another number; none is used twice.
    TopicNumber(u32)
}
number! {
    /// How many commits a store has made visible. It only grows while the store is open.
    Sequence(u64)
}
number! {
    /// A generation of ownership; whoever holds an older one is fenced off.
    Epoch(u64)
}

impl Offset {
    /// The offset `n` after this one, or the last that there can be: a client may name any.
    #[must_use]
    pub fn plus(self, n: u64) -> Self {
        Self(self.0.saturating_add(n))
    }
}
