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

    /// The fingerprint of the first `bytes` bytes of a file: as long as those are the same, so is the fingerprint, and
    /// where they differ it does too, for all that files of a store can be. A file that has fewer is
    /// [`CopyError::BeyondEnd`], and one that is not there [`CopyError::NotFound`].
    async fn fingerprint(&self, name: &str, bytes: u64) -> Result<FileFingerprint, CopyError>;

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
    /// The fingerprint of all of it.
    pub fingerprint: FileFingerprint,
}

/// What tells whether two files of a store are the same without reading all of them: a hash of their length and of samples.
/// Users see it as the `mark` of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileFingerprint(pub u128);

impl fmt::Display for FileFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for FileFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is not a fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a mark is 32 hexadecimal digits, in lower case")]
pub struct BadFingerprint;

impl FromStr for FileFingerprint {
    type Err = BadFingerprint;

    fn from_str(text: &str) -> Result<Self, BadFingerprint> {
        let fingerprint = Self(u128::from_str_radix(text, 16).map_err(|_| BadFingerprint)?);
        (fingerprint.to_string() == text).then_some(fingerprint).ok_or(BadFingerprint)
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
    fn a_fingerprint_is_read_as_it_is_written() {
        for fingerprint in [FileFingerprint(0), FileFingerprint(7), FileFingerprint(u128::MAX)] {
            assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
        }
        for bad in ["", "7", "+0000000000000000000000000000007", &"F".repeat(32), &"0".repeat(33)] {
            assert_eq!(bad.parse::<FileFingerprint>(), Err(BadFingerprint), "{bad}");
        }
    }
}
