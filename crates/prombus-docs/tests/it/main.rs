//! The Rust in the documents compiles, and its programs do what the documents say.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod programs;

use programs::{address, hub};

/// A program of a document.
struct Program {
    place: &'static str,
    /// Its module.
    name: &'static str,
    /// Whether it runs until it is stopped.
    serves: bool,
    /// The lines that its document says it prints.
    prints: &'static [&'static str],
}

include!(concat!(env!("OUT_DIR"), "/blocks.rs"));
