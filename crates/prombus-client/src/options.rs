//! How a client connects to its hub: its token, and the certificates that it trusts.

use crate::ClientError;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// How long an async source may take.
const SOURCE_TIME: Duration = Duration::from_secs(10);

/// The token that a client sends to its hub. It is never printed.
#[derive(Clone, Default)]
pub enum Token {
    /// Nothing.
    #[default]
    None,
    /// Always the same token.
    Fixed(Arc<str>),
    /// The result of a function, which is called for every call and every connect.
    Source(Arc<dyn Fn() -> String + Send + Sync>),
    /// The result of an async function, if it has one.
    AsyncSource(Arc<dyn Fn() -> BoxFuture<'static, Option<String>> + Send + Sync>),
}

impl Token {
    /// Always this token.
    pub fn fixed(token: impl Into<String>) -> Self {
        Self::Fixed(token.into().into())
    }

    /// The token that `source` returns. It is called for every call and every connect, so it should return at once:
    /// renew the token in a separate task, and return the current one.
    pub fn source(source: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self::Source(Arc::new(source))
    }

    /// The token that `source` returns, which may wait for one, and may have none yet: then a call fails with
    /// [`ClientError::NoToken`], and a connection asks again with each reconnect. It is called for every call and every
    /// connect, and has 10 s each time.
    ///
    /// ```
    /// use prombus_client::Token;
    ///
    /// let (renewed, current) = tokio::sync::watch::channel(None::<String>);
    /// let token = Token::async_source(move || {
    ///     let mut current = current.clone();
    ///     async move { current.wait_for(Option::is_some).await.ok()?.clone() }
    /// });
    /// # drop((renewed, token));
    /// ```
    pub fn async_source<F>(source: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<String>> + Send + 'static,
    {
        Self::AsyncSource(Arc::new(move || source().boxed()))
    }

    /// The current token; `None` if none is sent.
    pub(crate) async fn now(&self) -> Result<Option<String>, ClientError> {
        let none = |why: &str| ClientError::NoToken(why.to_owned());
        match self {
            Self::None => Ok(None),
            Self::Fixed(token) => Ok(Some((**token).to_owned())),
            Self::Source(source) => Ok(Some(source())),
            Self::AsyncSource(source) => match tokio::time::timeout(SOURCE_TIME, source()).await {
                Ok(Some(token)) => Ok(Some(token)),
                Ok(None) => Err(none("the source has none; the call may succeed once it does")),
                Err(_) => Err(none("the source gave no answer within 10 s")),
            },
        }
    }

    /// Whether the next token may be different.
    pub(crate) fn may_change(&self) -> bool {
        matches!(self, Self::Source(_) | Self::AsyncSource(_))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Fixed(_) => "Fixed(<hidden>)",
            Self::Source(_) => "Source(<hidden>)",
            Self::AsyncSource(_) => "AsyncSource(<hidden>)",
        })
    }
}

/// Options of a client.
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// Its token.
    pub token: Token,
    /// Certificates (PEM) that are trusted in addition to those of the system.
    pub extra_ca: Option<Vec<u8>>,
}

impl ClientOptions {
    /// Sets the token.
    #[must_use]
    pub fn with_token(mut self, token: Token) -> Self {
        self.token = token;
        self
    }

    /// Adds certificates (PEM) that are trusted in addition to those of the system.
    #[must_use]
    pub fn with_extra_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.extra_ca = Some(pem.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tokens_are_never_printed() {
        let secret = "very-secret";
        let patient = Token::async_source(move || async move { Some(secret.to_owned()) });
        for token in [Token::fixed(secret), Token::source(|| secret.to_owned()), patient] {
            assert_eq!(token.now().await.unwrap().as_deref(), Some(secret));
            let options = ClientOptions::default().with_token(token);
            let client = crate::Client::with_options("http://hub", options.clone()).unwrap();
            assert!(!format!("{options:?} {client:?}").contains(secret));
        }
    }

    #[tokio::test]
    async fn a_source_may_have_none_yet() {
        let none = Token::async_source(|| async { None }).now().await.unwrap_err();
        assert!(none.is_temporary() && !none.is_outcome_unknown(), "{none}");
    }
}
