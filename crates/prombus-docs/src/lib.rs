//! What the documents show in code is run by tests. This crate finds the blocks, and its tests are those in Rust: the build
//! script makes one module of each. Blocks in other languages run in the tests of the hub, which has what they talk to.

pub mod blocks;
