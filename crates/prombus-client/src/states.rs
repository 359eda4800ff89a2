//! States at a time: of one key, and of all keys of a topic.

use crate::{Client, ClientError};
use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use prombus_wire::StateAnswer;
use reqwest::Method;

/// How a state follows from payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reduce {
    /// It is the last one.
    #[default]
    Replace,
    /// They are merged in order (RFC 7396).
    Merge,
}

/// Which state of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StateQuery {
    /// At which time, in epoch milliseconds; now if absent.
    pub at: Option<u64>,
    /// How it follows from the payloads up to then.
    pub reduce: Reduce,
}

impl StateQuery {
    /// The last payload up to this time.
    pub fn at(ts: u64) -> Self {
        Self { at: Some(ts), ..Self::default() }
    }

    /// All payloads, merged.
    #[must_use]
    pub fn merged(mut self) -> Self {
        self.reduce = Reduce::Merge;
        self
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        let mut parameters: Vec<_> = self.at.map(|at| ("at", at.to_string())).into_iter().collect();
        if self.reduce == Reduce::Merge {
            parameters.push(("reduce", "merge".into()));
        }
        parameters
    }
}

impl Client {
    /// The state of a key as its events up to a time leave it, if it existed then. The error is `gone` if retention or
    /// compaction has taken events that this needs.
    ///
    /// ```no_run
    /// # async fn example(client: prombus_client::Client) -> Result<(), prombus_client::ClientError> {
    /// use prombus_client::StateQuery;
    ///
    /// let then = StateQuery::at(1_754_683_200_000);
    /// if let Some(state) = client.state_at("process.state", "web1:stt:4242", &then).await? {
    ///     println!("{} after {} events", state.state, state.applied);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn state_at(
        &self,
        topic: &str,
        key: &str,
        query: &StateQuery,
    ) -> Result<Option<StateAnswer>, ClientError> {
        let request = self.request(Method::GET, &["v1", "topics", topic, "state", key])?;
        self.optional(request.query(&query.parameters())).await
    }

    /// The states of all keys of a topic at a time (now if absent), as a stream of NDJSON in arbitrary pieces: one
    /// `{"key","state","ts","offset"}` a line.
    pub async fn states_at(
        &self,
        topic: &str,
        at: Option<u64>,
    ) -> Result<impl Stream<Item = Result<Bytes, ClientError>> + use<>, ClientError> {
        let request = self.request(Method::GET, &["v1", "topics", topic, "state"])?;
        let parameters = StateQuery { at, ..StateQuery::default() }.parameters();
        let response = self.stream(request.query(&parameters)).await?;
        Ok(response.bytes_stream().map_err(ClientError::Transport))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_say_what_differs_from_the_default() {
        assert!(StateQuery::default().parameters().is_empty());
        let merged = StateQuery::at(5).merged().parameters();
        assert_eq!(merged, [("at", "5".to_owned()), ("reduce", "merge".to_owned())]);
    }
}
