//! The state of a connection.

use std::fmt;

/// The state of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveState {
    /// Connected to the hub.
    Connected,
    /// Disconnected, and trying to reconnect.
    Reconnecting {
        /// Why it is disconnected.
        reason: String,
        /// The number of failed attempts since then.
        tries: u32,
    },
    /// The connection has ended: it was closed, or the client gave up.
    Ended {
        /// Why.
        reason: String,
    },
}

impl LiveState {
    /// Whether it is connected.
    pub fn is_connected(&self) -> bool {
        *self == Self::Connected
    }

    /// Whether it has ended.
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
