//! How a client gets to its hub: the token that it shows, and the certificates that it trusts.

use std::fmt;
use std::sync::Arc;

/// What a client shows to its hub. A token is never printed.
#[derive(Clone, Default)]
pub enum Token {
    /// Nothing.
    #[default]
    None,
    /// Always the same.
    Fixed(Arc<str>),
    /// What the function gives, which is asked at every call and every connect.
    Source(Arc<dyn Fn() -> String + Send + Sync>),
}

impl Token {
    /// Always this one.
    pub fn fixed(token: impl Into<String>) -> Self {
        Self::Fixed(token.into().into())
    }

    /// The one that `source` gives. It is asked at every call and every connect, so it should answer at once: let a
    /// task of yours renew the token, and give the one that it has.
    pub fn source(source: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self::Source(Arc::new(source))
    }

    /// The token as it is now.
    pub(crate) fn now(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Fixed(token) => Some((**token).to_owned()),
            Self::Source(source) => Some(source()),
        }
    }

    /// Whether the next one may be another.
    pub(crate) fn may_change(&self) -> bool {
        matches!(self, Self::Source(_))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Fixed(_) => "Fixed(<hidden>)",
            Self::Source(_) => "Source(<hidden>)",
        })
    }
}

/// How a client gets to its hub.
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// What it shows.
    pub token: Token,
    /// Certificates (PEM) that are trusted beside those of the system.
    pub extra_ca: Option<Vec<u8>>,
}

impl ClientOptions {
    /// The options with this token.
    #[must_use]
    pub fn with_token(mut self, token: Token) -> Self {
        self.token = token;
        self
    }

    /// The options with certificates (PEM) that are trusted beside those of the system.
    #[must_use]
    pub fn with_extra_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.extra_ca = Some(pem.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_never_printed() {
        let secret = "very-secret";
        for token in [Token::fixed(secret), Token::source(|| secret.to_owned())] {
            assert_eq!(token.now().as_deref(), Some(secret));
            let options = ClientOptions::default().with_token(token);
            let client = crate::Client::with_options("http://hub", options.clone()).unwrap();
            assert!(!format!("{options:?} {client:?}").contains(secret));
        }
    }
}
