//! The log: one line per entry, to stderr.

use crate::visible;
use std::io::{self, IsTerminal};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Libraries that say too much.
const QUIET: &[&str] = &["tungstenite=info", "tokio_tungstenite=info"];

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

impl LogFormat {
    /// The format of that name.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!("unknown log format {other:?}: use json or text")),
        }
    }
}

/// How much is said: a level, or levels of parts of the hub as `tracing` writes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLevel(String);

impl Default for LogLevel {
    fn default() -> Self {
        Self("info".to_owned())
    }
}

impl LogLevel {
    /// The level that `text` says.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = |directive: &str| {
            let level = directive.rsplit('=').next().unwrap_or_default().trim();
            // A number would do for the library, and nothing at all as well.
            level.starts_with(|c: char| c.is_ascii_alphabetic()) && level.parse::<LevelFilter>().is_ok()
        };
        if text.split(',').all(known) && EnvFilter::try_new(text).is_ok() {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("unknown log level {text:?}: use error, warn, info, debug or trace, or off for silence"))
    }
}

/// Starts logging in this process.
pub fn start(format: LogFormat, level: &LogLevel) {
    let filter = EnvFilter::new(&level.0);
    // It would log every frame at its finest, tokens included.
    let filter = QUIET.iter().filter_map(|quiet| quiet.parse().ok()).fold(filter, EnvFilter::add_directive);
    let coloured = format == LogFormat::Text && io::stderr().is_terminal();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || visible::log_to_stderr(coloured))
        .with_target(false)
        // Whoever reads the log may go away; that is no reason to stop, and saying so would panic.
        .log_internal_errors(false);
    // Setting it up twice does nothing the second time.
    let _ = match format {
        LogFormat::Text => log.with_ansi(coloured).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
}
