//! Dead letters: listing the events that groups and projections failed on, and replaying them.

use crate::{Client, ClientError};
use prombus_wire::{DeadLettersPage, ReplayAnswer, ReplayRequest};
use reqwest::Method;
use std::time::Duration;

/// How long a replay may take: it is one call, however many dead letters there are.
const REPLAY_TIMEOUT: Duration = Duration::from_secs(600);

/// Which dead letters of a topic to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetterQuery {
    /// Only events on which this group failed.
    pub group: Option<String>,
    /// Only events on which this projection failed.
    pub projection: Option<String>,
    /// Only dead letters that match this CEL expression.
    pub filter: Option<String>,
}

impl Client {
    /// The first page of the dead letters of a topic. The payload of each has the original event, the group or
    /// projection that failed on it, and the reason; the page says which of them were replayed.
    pub async fn dead_letters(
        &self,
        topic: &str,
        query: &DeadLetterQuery,
        limit: usize,
    ) -> Result<DeadLettersPage, ClientError> {
        let chosen = [("group", &query.group), ("projection", &query.projection), ("filter", &query.filter)];
        let chosen: Vec<_> =
            chosen.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))).collect();
        let call =
            self.request(Method::GET, &["v1", "dlq", topic])?.query(&chosen).query(&[("limit", limit)]);
        let response = self.call(call).await?;
        self.answer(response).await
    }

    /// The page at the `next` of the previous one.
    pub async fn dead_letters_next(
        &self,
        topic: &str,
        next: &str,
        limit: usize,
    ) -> Result<DeadLettersPage, ClientError> {
        let call = self.request(Method::GET, &["v1", "dlq", topic])?;
        let response = self.call(call.query(&[("cursor", next)]).query(&[("limit", limit)])).await?;
        self.answer(response).await
    }

    /// Redelivers dead letters to their groups and projections, or republishes their events for everyone.
    pub async fn replay(&self, topic: &str, request: &ReplayRequest) -> Result<ReplayAnswer, ClientError> {
        let call = self.request(Method::POST, &["v1", "dlq", topic, "replay"])?;
        let response = self.stream(Self::with_json(call, request)?.timeout(REPLAY_TIMEOUT)).await?;
        self.answer(response).await
    }
}
