//! How a connection is doing.

use std::fmt;

/// How a connection is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveState {
    /// There is a line to the hub.
    Connected,
    /// There is none, and one is being made.
    Reconnecting {
        /// Why there is none.
        reason: String,
        /// How often it was tried in vain since there was one.
        tries: u32,
    },
    /// There will be none any more: it was closed, or cannot heal.
    Ended {
        /// Why.
        reason: String,
    },
}

impl LiveState {
    /// Whether there is a line to the hub.
    pub fn is_connected(&self) -> bool {
        *self == Self::Connected
    }

    /// Whether there will be no line any more.
    pub fn is_ended(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }
}

impl fmt::Display for LiveState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected => f.write_str("connected"),
            Self::Reconnecting { reason, tries } => write!(f, "reconnecting after {tries} tries: {reason}"),
            Self::Ended { reason } => write!(f, "ended: {reason}"),
        }
    }
}
