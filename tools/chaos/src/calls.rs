//! Calls, each with its answer, or a note that there was none because of what goes wrong with the hub.

use crate::api::{Api, Doors};
use crate::plan::End;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// After a call that was not answered, the next one comes so much later where there is one.
const PAUSE: Duration = Duration::from_millis(20);
/// Between two calls of those who are in no hurry, where faults take longer than what they have to do.
const PACE_MS: u64 = 300;

/// What all tasks of a round share.
#[derive(Debug, Clone)]
pub struct RoundContext {
    /// Where calls go.
    pub doors: Doors,
    /// What is to be expected.
    pub trouble: Trouble,
}

/// What those who call have to expect.
#[derive(Debug, Clone)]
pub enum Trouble {
    /// Nothing: every call is answered.
    None,
    /// The hub ends like this. The first call without an answer is the last one.
    End(End),
    /// Hubs and members of their database fail and come back. Calls may come to nothing, until this says that it is over.
    Faults(Arc<AtomicBool>),
}

impl Trouble {
    /// Whether callers are to stop.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Faults(over) if over.load(Ordering::Relaxed))
    }

    /// Whether to go on after a call that was not answered.
    pub fn goes_on(&self) -> bool {
        matches!(self, Self::Faults(_)) && !self.is_over()
    }

    /// Waits a little between two calls, where it takes longer than callers have work.
    pub async fn pace(&self) {
        if matches!(self, Self::Faults(_)) {
            // Their pace is the plan's; there is nothing to wait for.
            tokio::time::sleep(Duration::from_millis(fastrand::u64(..PACE_MS))).await;
        }
    }
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
    /// What all share.
    pub stage: RoundContext,
    /// For calls whose answer must come.
    pub api: Api,
}

impl Caller {
    /// A new one.
    pub fn new(stage: RoundContext) -> Result<Self, String> {
        Ok(Self { api: Api::new(&stage.doors)?, stage })
    }

    /// Posts something. `None`: the hub is gone or cannot, and nobody knows the outcome.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Option<Answer>, String> {
        let call = self.api.client.post(format!("{}{path}", self.api.base()));
        self.send(path, call.header("content-type", "application/json").body(body.to_string())).await
    }

    /// Gets something. `None`: the hub is gone.
    pub async fn get(&self, path: &str) -> Result<Option<Answer>, String> {
        self.send(path, self.api.client.get(format!("{}{path}", self.api.base()))).await
    }

    async fn send(&self, path: &str, call: reqwest::RequestBuilder) -> Result<Option<Answer>, String> {
        let answered = async {
            let response = call.send().await.ok()?;
            let status = response.status().as_u16();
            Some(Answer { status, text: response.text().await.ok()? })
        };
        let answer = match (answered.await, &self.stage.trouble) {
            // A hub that was asked to end, or whose database is gone, may say so.
            (Some(Answer { status: 503, .. }), Trouble::End(End::Terminate) | Trouble::Faults(_)) => None,
            (None, Trouble::None) => return Err(format!("{path}: a hub that nobody ended did not answer")),
            (answer, _) => answer,
        };
        if answer.is_none() && self.stage.trouble.goes_on() {
            // What is broken tells nobody when it works again.
            tokio::time::sleep(PAUSE).await;
        }
        Ok(answer)
    }
}
