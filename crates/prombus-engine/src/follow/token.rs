//! Numbers as an opaque text that a client can hold.

use crate::query::QueryError;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What a token is for. One of another kind is none.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Topic = 0,
    Rounds = 1,
}

/// The text of some numbers.
pub(super) fn encode(kind: Kind, numbers: impl Iterator<Item = u64>) -> String {
    let mut bytes = Vec::with_capacity(48);
    numbers.for_each(|number| write_number(&mut bytes, number));
    bytes.extend_from_slice(&checksum(kind, &bytes));
    BASE64.encode(bytes)
}

/// How many bytes a number takes.
pub(super) fn bytes_of(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

/// About how long the text of a topic's token is whose numbers take so many bytes.
pub(super) fn text_bytes(numbers: usize) -> usize {
    (numbers + bytes_of(u32::MAX.into()) + size_of::<u32>()).div_ceil(3) * 4
}

/// The numbers of a text.
pub(super) fn decode(kind: Kind, text: &str) -> Result<Vec<u64>, QueryError> {
    let bytes = BASE64.decode(text).map_err(|_| QueryError::BadToken)?;
    // Almost any text is base64, and almost any bytes are numbers.
    let (mut rest, sum) = bytes.split_last_chunk().ok_or(QueryError::BadToken)?;
    if checksum(kind, rest) != *sum {
        return Err(QueryError::BadToken);
    }
    let mut numbers = Vec::new();
    while !rest.is_empty() {
        numbers.push(read_number(&mut rest).ok_or(QueryError::BadToken)?);
    }
    Ok(numbers)
}

/// What tells a token from other texts.
fn checksum(kind: Kind, bytes: &[u8]) -> [u8; 4] {
    (xxh3_64_with_seed(bytes, kind as u64) as u32).to_le_bytes()
}

/// Seven bits a byte, the lowest first.
fn write_number(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn read_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, tail) = rest.split_first()?;
        *rest = tail;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
