//! Bulk replays: copying a range of a topic into another one.

use crate::{Client, ClientError};
use prombus_wire::{BulkReplayAnswer, BulkReplayRequest, BulkReplays};
use reqwest::Method;
use std::time::Duration;

/// How long a dry run may take: it is one call, however many events there are.
const DRY_RUN_TIMEOUT: Duration = Duration::from_secs(600);

impl Client {
    /// Starts a bulk replay, which goes on in the hub; [`Client::bulk_replay`] reports the progress. A dry run only counts.
    ///
    /// ```no_run
    /// use prombus_client::{BulkReplayMap, BulkReplayRequest, BulkReplaySource};
    /// # async fn example(client: prombus_client::Client) -> Result<(), prombus_client::ClientError> {
    /// let request = BulkReplayRequest {
    ///     name: "orders-eu".to_owned(),
    ///     source: BulkReplaySource { topic: "orders".to_owned(), ..Default::default() },
    ///     filter: Some("event.payload.region == 'eu'".to_owned()),
    ///     map: Some(BulkReplayMap { key: Some("event.payload.customer".to_owned()), ..Default::default() }),
    ///     target: "orders.eu".to_owned(),
    ///     ..Default::default()
    /// };
    /// let begun = client.begin_bulk_replay(&request).await?;
    /// println!("{} events to look at", begun.left);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn begin_bulk_replay(
        &self,
        request: &BulkReplayRequest,
    ) -> Result<BulkReplayAnswer, ClientError> {
        let call = Self::with_json(self.request(Method::POST, &["v1", "replays"])?, request)?;
        let response = match request.dry_run {
            Some(true) => self.stream(call.timeout(DRY_RUN_TIMEOUT)).await?,
            _ => self.call(call).await?,
        };
        self.answer(response).await
    }

    /// All bulk replays, by name.
    pub async fn bulk_replays(&self) -> Result<Vec<BulkReplayAnswer>, ClientError> {
        let response = self.call(self.request(Method::GET, &["v1", "replays"])?).await?;
        Ok(self.answer::<BulkReplays>(response).await?.replays)
    }

    /// One bulk replay, if it exists.
    pub async fn bulk_replay(&self, name: &str) -> Result<Option<BulkReplayAnswer>, ClientError> {
        self.optional(self.request(Method::GET, &["v1", "replays", name])?).await
    }

    /// Pauses a bulk replay: it copies nothing more until it is resumed.
    pub async fn pause_bulk_replay(&self, name: &str) -> Result<BulkReplayAnswer, ClientError> {
        self.tell_replay(name, "pause").await
    }

    /// Has a bulk replay go on that was paused or has failed.
    pub async fn resume_bulk_replay(&self, name: &str) -> Result<BulkReplayAnswer, ClientError> {
        self.tell_replay(name, "resume").await
    }

    /// Gives a bulk replay up. What was copied stays.
    pub async fn cancel_bulk_replay(&self, name: &str) -> Result<BulkReplayAnswer, ClientError> {
        self.tell_replay(name, "cancel").await
    }

    async fn tell_replay(&self, name: &str, command: &str) -> Result<BulkReplayAnswer, ClientError> {
        let response = self.call(self.request(Method::POST, &["v1", "replays", name, command])?).await?;
        self.answer(response).await
    }

    /// Deletes the record of a bulk replay that is over.
    pub async fn delete_bulk_replay(&self, name: &str) -> Result<(), ClientError> {
        self.call(self.request(Method::DELETE, &["v1", "replays", name])?).await.map(drop)
    }
}
