//! The names in a request's path, decoded.

use crate::error::ApiError;
use crate::params::is_well_escaped;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use prombus_core::TopicName;
use prombus_core::collection;

/// The parameters of the path, decoded.
pub(crate) struct PathNames(RawPathParams);

impl<S: Send + Sync> FromRequestParts<S> for PathNames {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        if !is_well_escaped(parts.uri.path()) {
            return Err(ApiError::bad_request(
                "the path has a % without two hexadecimal digits; write %25 for a %",
            ));
        }
        match RawPathParams::from_request_parts(parts, state).await {
            Ok(params) => Ok(Self(params)),
            Err(_) => Err(ApiError::bad_request("the path is not valid UTF-8 after percent-decoding")),
        }
    }
}

impl PathNames {
    /// The topic of the path.
    pub fn topic(&self) -> Result<TopicName, ApiError> {
        Ok(TopicName::parse(self.get("topic"))?)
    }

    /// The collection of the path.
    pub fn collection(&self) -> Result<&str, ApiError> {
        let name = self.get("collection");
        collection::check_name(name)?;
        Ok(name)
    }

    /// The parameter `name`; empty if the route has none.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(given, _)| *given == name).map_or("", |(_, value)| value)
    }
}
