//! Fingerprints: whether two files are the same, without reading all of them.
//!
//! Parts of the journal are only ever appended to, and hold random ids, times and checksums everywhere; those of two hubs, or
//! of one that was restored and has gone another way since, differ wherever one looks, or in their lengths. Other files may
//! differ in a single row, so they have a random id at their start.

use crate::disk::{DiskFile, read_exact};
use prombus_core::FileFingerprint;
use std::io;
use xxhash_rust::xxh3::Xxh3;

/// How much is read at each place.
const SAMPLE: u64 = 4096;
/// At how many places; a file that is no longer than all of them is read as a whole.
const SAMPLES: u64 = 16;

/// The fingerprint of the first `bytes` bytes of a file.
pub fn fingerprint_of(file: &dyn DiskFile, bytes: u64) -> io::Result<FileFingerprint> {
    let mut hash = Xxh3::new();
    hash.update(&bytes.to_le_bytes());
    let mut read = |at: u64, len: u64| {
        let mut sample = vec![0; len as usize];
        read_exact(file, &mut sample, at)?;
        hash.update(&sample);
        io::Result::Ok(())
    };
    if bytes <= SAMPLE * SAMPLES {
        read(0, bytes)?;
    } else {
        for sample in 0..SAMPLES {
            read((bytes - SAMPLE) / (SAMPLES - 1) * sample, SAMPLE)?;
        }
        // Where the places do not come out even, the end is what differs most.
        read(bytes - SAMPLE, SAMPLE)?;
    }
    Ok(FileFingerprint(hash.digest128()))
}
