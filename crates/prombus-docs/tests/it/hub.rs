//! Where the hub of a program is, which the documents have at `127.0.0.1:7070`.

use std::sync::OnceLock;

/// The variable that tells a program where its hub is, or is to be.
pub const ADDRESS: &str = "PROMBUS_DOCS_ADDRESS";

pub fn address() -> &'static str {
    static FOUND: OnceLock<String> = OnceLock::new();
    FOUND.get_or_init(|| std::env::var(ADDRESS).unwrap_or_else(|_| "127.0.0.1:0".to_owned()))
}

pub fn url() -> &'static str {
    static FOUND: OnceLock<String> = OnceLock::new();
    FOUND.get_or_init(|| format!("http://{}", address()))
}
