//! What users write: operations that raise payloads from one version to the next.

use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::HashSet;
use std::fmt;

/// The most paths of all operations of an upcaster.
pub(super) const MAX_PATHS: usize = 1_000;

/// Raises payloads of one version to the next, by operations that happen one after another.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upcaster {
    /// The operations. Where there are none, payloads of the version are payloads of the next one as they are.
    pub ops: Vec<Op>,
}

impl Upcaster {
    /// What it takes in memory, about.
    pub(crate) fn size(&self) -> usize {
        let texts = |op: &Op| match op {
            Op::Rename([from, to]) => from.len() + to.len(),
            Op::Set(Assignments(values)) => {
                values.iter().map(|(path, source)| path.len() + source.len() + 64).sum()
            }
            Op::Remove(paths) => paths.iter().map(|path| path.len() + 32).sum(),
        };
        64 + self.ops.iter().map(|op| 64 + texts(op)).sum::<usize>()
    }
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Gives a field another name or place, with its value as it is. Nothing happens where it is not there; where both are,
    /// the event cannot be raised.
    Rename([String; 2]),
    /// Gives fields values.
    Set(Assignments),
    /// Removes fields, where they are there.
    Remove(Vec<String>),
}

/// Paths and CEL over `payload`, in the order in which they were written. All values are made before the first is put in its
/// place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Assignments(pub Vec<(String, String)>);

impl Serialize for Assignments {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|(path, source)| map.serialize_entry(path, source))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Assignments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Assignments;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of paths and expressions, which are strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Assignments, A::Error> {
                let mut all: Vec<(String, String)> = Vec::new();
                let mut known = HashSet::new();
                while let Some((path, source)) = map.next_entry::<String, String>()? {
                    // Refused here, so that no more are held than can be of use.
                    if all.len() == MAX_PATHS {
                        return Err(Error::custom(format!("an upcaster has at most {MAX_PATHS} paths")));
                    }
                    if !known.insert(path.clone()) {
                        return Err(Error::custom(format!("{path:?} is set twice")));
                    }
                    all.push((path, source));
                }
                Ok(Assignments(all))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}
