//! The configuration file.
//!
//! An unknown key is an error that suggests the closest known one; a key for something that this build does not support yet
//! is an error too, because a setting that is silently ignored is worse than none.

mod auth;
mod cluster;
mod keys;
mod sections;
mod state;

pub use cluster::HUB_TTL;
pub use keys::topic_lines;
pub use sections::{ConfigFile, Topics};
pub use state::{Collection, Projection, changefeeds};

use std::path::{Path, PathBuf};

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Its contents are invalid.
    #[error("{}: {problem}", path.display())]
    Bad {
        /// The file.
        path: PathBuf,
        /// Where and what.
        problem: Problem,
    },
}

/// A problem in the file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
pub struct Problem {
    /// The line, from 1, if the problem is in one line.
    pub line: Option<usize>,
    /// What is wrong and what to do.
    pub what: String,
}

impl Problem {
    fn at(text: &str, place: usize, what: String) -> Self {
        Self { line: Some(Self::line_of(text, place)), what }
    }

    /// The line of a byte, from 1.
    fn line_of(text: &str, place: usize) -> usize {
        let before = text.as_bytes().get(..place).unwrap_or_default();
        memchr::memchr_iter(b'\n', before).count() + 1
    }
}

impl ConfigFile {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        Self::parse(&text).map_err(|problem| ConfigError::Bad { path: path.to_owned(), problem })
    }

    /// Reads the text of a file.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let place = |error: &toml::de::Error| error.span().map_or(0, |span| span.start);
        let table = toml::de::DeTable::parse(text)
            .map_err(|error| Problem::at(text, place(&error), error.message().to_owned()))?;
        keys::check(text, table.get_ref())?;
        let file: Self = toml::from_str(text).map_err(|error| {
            let (at, what) = (place(&error), in_words(&without_value(error.message())));
            let named = keys::path_at(table.get_ref(), at).map(|path| format!("{path}: {what}"));
            Problem::at(text, at, named.unwrap_or(what))
        })?;
        file.validate().map_err(|what| Problem { line: None, what })?;
        Ok(file)
    }
}

/// The message without the invalid value, which may be a secret.
fn without_value(message: &str) -> String {
    const FOUND: &str = "invalid type: ";
    match (message.find(FOUND), message.rfind(", expected ")) {
        (Some(start), Some(end)) if start < end => {
            let found = &message[start + FOUND.len()..end];
            let kind = found.split([' ', '`', '"']).next().unwrap_or_default();
            format!("{}{FOUND}{kind}{}", &message[..start], &message[end..])
        }
        _ => message.to_owned(),
    }
}

/// The message with expected types in terms of the file, not of Rust.
fn in_words(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else { return message.to_owned() };
    let words = match expected {
        "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a table",
        expected if expected.starts_with("struct ") => "a table",
        expected => expected,
    };
    format!("{found}, expected {words}")
}

#[cfg(test)]
mod tests;
