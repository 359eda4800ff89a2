//! Why something that was asked for over a connection did not happen, in a form that many can be told.

use crate::{ClientError, HubError};
use std::sync::Arc;

/// A reason that can be told to many.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// The hub refused.
    Hub(Arc<HubError>),
    /// The connection is closed, or given up.
    Ended(Arc<str>),
}

impl Failure {
    pub fn ended(why: impl Into<Arc<str>>) -> Self {
        Self::Ended(why.into())
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
            Failure::Ended(why) => Self::Ended((*why).to_owned()),
        }
    }
}
