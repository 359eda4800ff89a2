//! The error codes that users may rely on, and the body that carries them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// What went wrong, for programs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ErrorCode { $($(#[$doc])* $name,)* }

        impl ErrorCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code as it goes over the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

codes! {
    /// The body is not JSON.
    BadJson = "bad_json",
    /// The request makes no sense.
    BadRequest = "bad_request",
    /// The filter does not compile.
    BadFilter = "bad_filter",
    /// There is no token, or a bad one.
    Unauthorized = "unauthorized",
    /// It is not allowed.
    Forbidden = "forbidden",
    /// There is no such thing.
    NotFound = "not_found",
    /// The path does not know the method.
    MethodNotAllowed = "method_not_allowed",
    /// Larger than a limit.
    TooLarge = "too_large",
    /// Too much in too short a time.
    RateLimited = "rate_limited",
    /// The payload violates the topic's schema.
    SchemaViolation = "schema_violation",
    /// The schema is not compatible with earlier ones.
    Incompatible = "incompatible",
    /// The id was used for something else.
    IdConflict = "id_conflict",
    /// The latest event of the key is another one.
    ExpectationFailed = "expectation_failed",
    /// The document has another version.
    VersionConflict = "version_conflict",
    /// The group has other options.
    GroupOptions = "group_options",
    /// The connection has subscribed already.
    AlreadySubscribed = "already_subscribed",
    /// The connection has not subscribed.
    NotSubscribed = "not_subscribed",
    /// The connection holds no lease on that event.
    UnknownId = "unknown_id",
    /// The lease has expired or passed on.
    LeaseExpired = "lease_expired",
    /// Someone else owns the collection.
    NotOwner = "not_owner",
    /// It was there and is no longer kept.
    Gone = "gone",
    /// There is no room for more events.
    DiskFull = "disk_full",
    /// Not now; try again.
    Unavailable = "unavailable",
    /// The hub's own fault.
    Internal = "internal",
}

impl ErrorCode {
    /// The HTTP status that goes with the code.
    pub fn status(self) -> u16 {
        match self {
            Self::BadJson | Self::BadRequest | Self::BadFilter => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound | Self::NotSubscribed | Self::UnknownId => 404,
            Self::MethodNotAllowed => 405,
            Self::Incompatible
            | Self::IdConflict
            | Self::VersionConflict
            | Self::GroupOptions
            | Self::AlreadySubscribed
            | Self::LeaseExpired
            | Self::NotOwner => 409,
            Self::Gone => 410,
            Self::ExpectationFailed => 412,
            Self::TooLarge => 413,
            Self::SchemaViolation => 422,
            Self::RateLimited => 429,
            Self::Internal => 500,
            Self::Unavailable => 503,
            Self::DiskFull => 507,
        }
    }

    /// Whether the same request is likely to work a moment later, without anybody's help: the hub has too much to do, or
    /// cannot just now. A full disk or a bug is for a person to hear of.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::RateLimited | Self::Unavailable)
    }

    /// The code that goes over the wire as `text`.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The body of every error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What went wrong, for programs.
    pub error: ErrorCode,
    /// What is wrong and what to do, for people.
    pub message: String,
    /// What else there is to know.
    #[serde(flatten)]
    pub details: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_what_serde_makes_of_them() {
        for code in ErrorCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
            assert_eq!(ErrorCode::parse(code.as_str()), Some(*code));
            assert!((400..600).contains(&code.status()), "{code}");
        }
    }

    #[test]
    fn details_stand_beside_code_and_message() {
        let text = r#"{"error":"gone","message":"m","first":7}"#;
        let body: ErrorBody = serde_json::from_str(text).unwrap();
        assert_eq!(body.error, ErrorCode::Gone);
        assert_eq!(body.details["first"], 7);
        assert_eq!(serde_json::to_string(&body).unwrap(), text);
    }
}
