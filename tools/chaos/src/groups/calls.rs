//! Calls, each with its answer, or a note that there was none.

use super::history::{Clock, Span};
use crate::api::Api;
use crate::plan::End;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// What all tasks of a round share.
#[derive(Debug, Clone)]
pub struct RoundContext {
    /// The address of the hub.
    pub base: Arc<str>,
    /// The clock.
    pub clock: Clock,
    /// Counts the lives of the hub.
    pub life: u32,
    /// How the hub is going to end; `None` where it is not.
    pub end: Option<End>,
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
    /// The hub is gone.
    Gone,
}

/// Someone who calls, with connections of its own.
pub struct Caller {
    /// What all share.
    pub stage: RoundContext,
    api: Api,
}

impl Caller {
    /// A new one.
    pub fn new(stage: RoundContext) -> Result<Self, String> {
        Ok(Self { api: Api::new(&stage.base)?, stage })
    }

    /// Posts something. An answer that nobody should get is an error.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
        drop_after: Option<Duration>,
    ) -> Result<Reply<T>, String> {
        let call = self.api.client.post(format!("{}{path}", self.stage.base));
        let call = call.header("content-type", "application/json").body(body.to_string());
        let answered = async {
            let response = call.send().await.ok()?;
            let status = response.status().as_u16();
            Some((status, response.text().await.ok()?))
        };
        let answered = match drop_after {
            None => answered.await,
            Some(after) => match tokio::time::timeout(after, answered).await {
                Ok(answered) => answered,
                Err(_) => return Ok(Reply::Dropped),
            },
        };
        match answered {
            Some((200 | 201, text)) => serde_json::from_str(&text)
                .map(Reply::Answered)
                .map_err(|error| format!("POST {path} {body}: {error}: {text}")),
            // A hub that was asked to end may say so.
            Some((503, _)) if self.stage.end == Some(End::Terminate) => Ok(Reply::Gone),
            Some((status, text)) => Err(format!("POST {path} {body}: {status} {text}")),
            None if self.stage.end.is_some() => Ok(Reply::Gone),
            None => Err(format!("POST {path} {body}: a hub that nobody ended did not answer")),
        }
    }
}
