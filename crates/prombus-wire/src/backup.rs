//! Backups: what `POST /v1/backups` takes and answers, and the files that are fetched after that.

use serde::{Deserialize, Serialize};

/// The header with the digest of a piece of a file: XXH3 with 128 bits, in hexadecimal digits.
pub const PIECE_DIGEST: &str = "x-piece-digest";

/// The body of `POST /v1/backups`: there is nothing to choose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupRequest {}

/// A backup that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupAnswer {
    /// What it is called.
    pub id: String,
    /// How long it lasts after each time that something of it is fetched.
    pub lease_ms: u64,
    /// The length of all files.
    pub bytes: u64,
    /// The files, by name.
    pub files: Vec<BackupFile>,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupFile {
    /// Its name in the data folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// A hash of its length and of samples, which tells whether somebody has the same file.
    pub mark: String,
}
