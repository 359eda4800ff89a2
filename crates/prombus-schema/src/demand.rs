//! What is asked of a new version, in the words that users write.

use crate::check::{Compat, Policy};
use std::{fmt, str::FromStr};

/// In which direction documents have to be taken, and of which versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Demand {
    /// In which direction.
    pub compat: Compat,
    /// Whether of all versions before, and not only of the last one.
    pub transitive: bool,
}

/// A word that is none of those that are known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is not known; use {known}")]
pub struct UnknownWord {
    word: String,
    known: &'static str,
}

/// What the name of a demand ends with that is about all versions.
const TRANSITIVE: &str = "_transitive";

/// The words for each direction.
const DIRECTIONS: [(&str, Compat); 4] = [
    ("none", Compat::None),
    ("backward", Compat::Backward),
    ("forward", Compat::Forward),
    ("full", Compat::Full),
];

impl FromStr for Demand {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        let direction = word.strip_suffix(TRANSITIVE);
        let transitive = direction.is_some();
        let named = DIRECTIONS.iter().find(|(name, _)| *name == direction.unwrap_or(word));
        let known = "none, backward, forward or full, the last three also with _transitive";
        match named {
            // Of none of all versions is the same as of none.
            Some((_, compat)) => {
                Ok(Self { compat: *compat, transitive: transitive && *compat != Compat::None })
            }
            None => Err(UnknownWord { word: word.to_owned(), known }),
        }
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = DIRECTIONS.iter().find(|(_, compat)| *compat == self.compat);
        let suffix = if self.transitive { TRANSITIVE } else { "" };
        write!(f, "{}{suffix}", named.map_or("", |(name, _)| name))
    }
}

impl FromStr for Policy {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        match word {
            "lenient" => Ok(Self::Lenient),
            "strict" => Ok(Self::Strict),
            _ => Err(UnknownWord { word: word.to_owned(), known: "lenient or strict" }),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lenient => "lenient",
            Self::Strict => "strict",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for word in [
            "none",
            "backward",
            "forward",
            "full",
            "backward_transitive",
            "forward_transitive",
            "full_transitive",
        ] {
            assert_eq!(word.parse::<Demand>().unwrap().to_string(), word);
        }
        assert_eq!("none_transitive".parse::<Demand>().unwrap().to_string(), "none");
        for word in ["lenient", "strict"] {
            assert_eq!(word.parse::<Policy>().unwrap().to_string(), word);
        }
        assert_eq!(Demand::default().to_string(), "backward");
        for word in ["", "BACKWARD", "_transitive", "backward_transitive_transitive"] {
            let told = word.parse::<Demand>().unwrap_err().to_string();
            assert!(told.contains(&format!("{word:?}")) && told.contains("backward"), "{told}");
        }
        assert!("loose".parse::<Policy>().unwrap_err().to_string().contains("lenient or strict"));
    }
}
