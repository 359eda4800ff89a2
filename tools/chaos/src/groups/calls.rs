//! Calls of group members and producers: some hang up before they are answered, and all go by one clock.

use super::history::{Clock, Span};
use crate::api::Doors;
use crate::calls::{self, Trouble};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// What all tasks of a round share.
#[derive(Debug, Clone)]
pub struct RoundContext {
    /// Where calls go.
    pub doors: Doors,
    /// The clock.
    pub clock: Clock,
    /// Counts the lives of the hub.
    pub life: u32,
    /// What is to be expected.
    pub trouble: Trouble,
}

impl RoundContext {
    /// The time from `start` until now.
    pub fn span(&self, start: u64) -> Span {
        Span { life: self.life, start, end: self.clock.now() }
    }
}

/// The outcome of a call.
pub enum Reply<T> {
    /// It was answered.
    Answered(T),
    /// The caller hung up.
    Dropped,
    /// The hub is gone, or cannot.
    Gone,
}

/// Someone who calls, with connections of its own.
pub struct Caller {
    /// What all share.
    pub stage: RoundContext,
    inner: calls::Caller,
}

impl Caller {
    /// A new one.
    pub fn new(stage: RoundContext) -> Result<Self, String> {
        let (doors, trouble) = (stage.doors.clone(), stage.trouble.clone());
        Ok(Self { inner: calls::Caller::new(calls::RoundContext { doors, trouble })?, stage })
    }

    /// Posts something. An answer that nobody should get is an error.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
        drop_after: Option<Duration>,
    ) -> Result<Reply<T>, String> {
        let call = self.inner.post(path, body);
        let answered = match drop_after {
            None => call.await?,
            Some(after) => match tokio::time::timeout(after, call).await {
                Ok(answered) => answered?,
                Err(_) => return Ok(Reply::Dropped),
            },
        };
        let Some(answer) = answered else { return Ok(Reply::Gone) };
        answer.parse().map(Reply::Answered).map_err(|why| format!("POST {path} {body}: {why}"))
    }
}
