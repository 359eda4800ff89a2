//! Calls, each with its answer, or a note that there was none because the hub is gone.

use crate::api::Api;
use crate::plan::End;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

/// What all tasks of a round share.
#[derive(Debug, Clone)]
pub struct RoundContext {
    /// The address of the hub.
    pub base: Arc<str>,
    /// How the hub is going to end; `None` where it is not.
    pub end: Option<End>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub text: String,
}

impl Answer {
    /// The body, where the status says that it went well.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, String> {
        if !(200..300).contains(&self.status) {
            return Err(format!("answered with {} {}", self.status, self.text));
        }
        serde_json::from_str(&self.text).map_err(|error| format!("{error}: {}", self.text))
    }

    /// Whether it is a refusal of this kind.
    pub fn is_error(&self, status: u16, code: &str) -> bool {
        let said: Value = serde_json::from_str(&self.text).unwrap_or_default();
        self.status == status && said["error"] == code
    }
}

/// Someone who calls, with connections of its own.
pub struct Caller {
    stage: RoundContext,
    /// For calls whose answer must come.
    pub api: Api,
}

impl Caller {
    /// A new one.
    pub fn new(stage: RoundContext) -> Result<Self, String> {
        Ok(Self { api: Api::new(&stage.base)?, stage })
    }

    /// Posts something. `None`: the hub is gone, and nobody knows the outcome.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Option<Answer>, String> {
        let call = self.api.client.post(format!("{}{path}", self.stage.base));
        self.send(path, call.header("content-type", "application/json").body(body.to_string())).await
    }

    /// Gets something. `None`: the hub is gone.
    pub async fn get(&self, path: &str) -> Result<Option<Answer>, String> {
        self.send(path, self.api.client.get(format!("{}{path}", self.stage.base))).await
    }

    async fn send(&self, path: &str, call: reqwest::RequestBuilder) -> Result<Option<Answer>, String> {
        let answered = async {
            let response = call.send().await.ok()?;
            let status = response.status().as_u16();
            Some(Answer { status, text: response.text().await.ok()? })
        };
        match (answered.await, self.stage.end) {
            // A hub that was asked to end may say so.
            (Some(Answer { status: 503, .. }), Some(End::Terminate)) => Ok(None),
            (Some(answer), _) => Ok(Some(answer)),
            (None, Some(_)) => Ok(None),
            (None, None) => Err(format!("{path}: a hub that nobody ended did not answer")),
        }
    }
}
