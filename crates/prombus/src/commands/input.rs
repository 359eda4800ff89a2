//! Input that is read as a whole: a file, or stdin if its name is `-`.

use crate::failure::Failure;
use std::fs::File;
use std::io::{self, Read};

/// The most that is read.
const MAX_BYTES: u64 = 64 << 20;

/// What is said of the input.
pub fn name(file: &str) -> &str {
    if file == "-" { "stdin" } else { file }
}

/// Reads all of it as text.
pub fn read(file: &str) -> Result<String, Failure> {
    let cannot = |error: io::Error| Failure::Usage(format!("cannot read {}: {error}", name(file)));
    let mut text = String::new();
    let mut read = |input: &mut dyn Read| input.take(MAX_BYTES + 1).read_to_string(&mut text);
    match file {
        "-" => read(&mut io::stdin().lock()),
        path => File::open(path).and_then(|mut file| read(&mut file)),
    }
    .map_err(cannot)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(Failure::Usage(format!("{} is larger than {MAX_BYTES} bytes", name(file))));
    }
    Ok(text)
}
