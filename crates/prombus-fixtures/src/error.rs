//! What can go wrong with the process of a hub.

use std::fmt;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

/// Why a hub does not do what it should, and everything that it has logged.
#[derive(Debug)]
pub enum HubError {
    /// The program cannot be run.
    Missing(String, io::Error),
    /// It ended before it was ready.
    NeverReady(String),
    /// It was not ready in time.
    NotReady(Duration, String),
    /// It was to be ended, and had ended by itself.
    Gone(ExitStatus, String),
    /// It did not end in time.
    Running(Duration, String),
    /// It was asked to end, and did not end well.
    EndedBadly(ExitStatus, String),
    /// The system does not let us look at it, or end it.
    System(io::Error),
}

impl fmt::Display for HubError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(program, error) => write!(f, "{program} cannot be run: {error}"),
            Self::NeverReady(log) => write!(f, "the hub ended before it was ready:\n{log}"),
            Self::NotReady(within, log) => write!(f, "the hub was not ready within {within:?}:\n{log}"),
            Self::Gone(status, log) => write!(f, "the hub had ended by itself with {status}:\n{log}"),
            Self::Running(within, log) => write!(f, "the hub had not ended within {within:?}:\n{log}"),
            Self::EndedBadly(status, log) => write!(f, "the hub ended with {status}:\n{log}"),
            Self::System(error) => write!(f, "the hub cannot be ended or waited for: {error}"),
        }
    }
}

impl std::error::Error for HubError {}

impl From<io::Error> for HubError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}
