//! The values of `enum` and `const`.

use super::{Kind, Kinds};
use crate::json::Json;
use std::{
    collections::HashSet,
    hash::{Hash, Hasher},
};

/// Values, each once and in one order, however they were written.
#[derive(Debug)]
pub struct Listed {
    values: Box<[Json]>,
    set: HashSet<Json>,
    kinds: Kinds,
}

impl Listed {
    pub fn new(values: impl IntoIterator<Item = Json>) -> Self {
        let set: HashSet<Json> = values.into_iter().collect();
        let mut values: Box<[Json]> = set.iter().cloned().collect();
        values.sort_by_cached_key(|value| format!("{value:?}"));
        let kinds = values.iter().fold(0, |kinds, value| kinds | Kind::of(value).bit());
        Self { values, set, kinds }
    }

    pub fn values(&self) -> &[Json] {
        &self.values
    }

    pub fn contains(&self, value: &Json) -> bool {
        self.set.contains(value)
    }

    /// The kinds of its values.
    pub fn kinds(&self) -> Kinds {
        self.kinds
    }
}

impl PartialEq for Listed {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl Eq for Listed {}

impl Hash for Listed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.values.hash(state);
    }
}
