//! Why a command failed, in a form that can be cloned for many callers.

use crate::{ClientError, HubError};
use std::fmt;
use std::sync::Arc;

/// A reason that can be told to many.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// The hub refused.
    Hub(Arc<HubError>),
    /// Its user has closed the connection.
    Closed,
    /// The connection, or the subscription, has ended otherwise.
    Ended(Arc<str>),
}

/// What is said where the user has closed the connection.
const CLOSED: &str = "it was closed";

impl Failure {
    pub fn ended(why: impl Into<Arc<str>>) -> Self {
        Self::Ended(why.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hub(error) => error.fmt(f),
            Self::Closed => f.write_str(CLOSED),
            Self::Ended(why) => f.write_str(why),
        }
    }
}

impl From<HubError> for Failure {
    fn from(error: HubError) -> Self {
        Self::Hub(Arc::new(error))
    }
}

impl From<Failure> for ClientError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Hub(error) => Self::Hub(Box::new(Arc::unwrap_or_clone(error))),
            Failure::Closed => Self::Ended(CLOSED.to_owned()),
            Failure::Ended(why) => Self::Ended((*why).to_owned()),
        }
    }
}
