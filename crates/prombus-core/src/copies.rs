//! The port for copying a store file by file while it goes on, as a backup does.

use async_trait::async_trait;
use bytes::Bytes;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A store that may be copied file by file.
#[async_trait]
pub trait Copies: Send + Sync {
    /// Holds on to the files that make up the store as of one commit.
    ///
    /// - Whatever was answered before this was called is in them, flushed, and nothing of a commit without the rest of it.
    /// - Whoever has all of them, under their names in a folder, can open that folder as a store.
    /// - They stay as they are until the copy is dropped, whatever is committed, rewritten or deleted meanwhile. Commits do
    ///   not wait for it.
    ///
    /// A store that has no such files answers [`CopyError::NoFiles`], which says what to do instead.
    async fn hold(&self) -> Result<Arc<dyn HeldCopy>, CopyError>;
}

/// The files of a store as of one commit, held until this is dropped.
#[async_trait]
pub trait HeldCopy: Send + Sync {
    /// The files, each once, in the order of their names.
    fn files(&self) -> &[CopyFile];

    /// The bytes of a file from `from`: at most `most` of them, and fewer only at its end. A `from` beyond that is
    /// [`CopyError::BeyondEnd`], and a name that is not one of [`HeldCopy::files`] is [`CopyError::NotFound`].
    async fn read(&self, name: &str, from: u64, most: usize) -> Result<Bytes, CopyError>;

    /// The mark of the first `bytes` bytes of a file: as long as those are the same, so is the mark, and where they differ
    /// it does too, for all that files of a store can be. A file that has fewer is [`CopyError::BeyondEnd`], and one that is
    /// not there [`CopyError::NotFound`].
    async fn mark(&self, name: &str, bytes: u64) -> Result<Mark, CopyError>;

    /// How many bytes the store could give back to the disk if this were dropped, about.
    fn held_back(&self) -> u64;
}

/// A file of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyFile {
    /// Its name in the folder, with a `/` after each folder in it.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// The mark of all of it.
    pub mark: Mark,
}

/// What tells whether two files of a store are the same without reading all of them: a hash of their length and of samples.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mark(pub u128);

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is not a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a mark is 32 hexadecimal digits, in lower case")]
pub struct BadMark;

impl FromStr for Mark {
    type Err = BadMark;

    fn from_str(text: &str) -> Result<Self, BadMark> {
        let mark = Self(u128::from_str_radix(text, 16).map_err(|_| BadMark)?);
        (mark.to_string() == text).then_some(mark).ok_or(BadMark)
    }
}

/// Why a store is not copied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// It has no files of its own; the text says what to do instead.
    #[error("this store cannot be copied file by file: {0}")]
    NoFiles(&'static str),
    /// The copy has no such file.
    #[error("the copy has no file {0:?}")]
    NotFound(String),
    /// The file is shorter than that.
    #[error("{name} has {bytes} bytes, and {asked} were asked about")]
    BeyondEnd {
        /// The file.
        name: String,
        /// Its length.
        bytes: u64,
        /// What was asked for.
        asked: u64,
    },
    /// The store cannot do it now.
    #[error("the store cannot be copied now: {0}")]
    Unavailable(String),
    /// A file cannot be read.
    #[error("{name} cannot be read: {why}")]
    Unreadable {
        /// The file.
        name: String,
        /// What the system said.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_is_written() {
        for mark in [Mark(0), Mark(7), Mark(u128::MAX)] {
            assert_eq!(mark.to_string().parse(), Ok(mark));
        }
        for bad in ["", "7", "+0000000000000000000000000000007", &"F".repeat(32), &"0".repeat(33)] {
            assert_eq!(bad.parse::<Mark>(), Err(BadMark), "{bad}");
        }
    }
}
