//! The calls that look at a hub.

use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// No call takes longer, unless something is wrong.
const CALL_WITHIN: Duration = Duration::from_secs(60);
/// No partition is longer on its way as a whole.
const STREAM_WITHIN: Duration = Duration::from_secs(600);

/// The addresses of a hub, or of several of which any will do. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Doors(Arc<[String]>);

impl Doors {
    /// At least one.
    pub fn new(addresses: impl IntoIterator<Item = String>) -> Self {
        Self(addresses.into_iter().collect())
    }

    /// Any of them.
    pub fn any(&self) -> &str {
        &self.0[fastrand::usize(..self.0.len())]
    }

    /// Each by itself.
    pub fn each(&self) -> impl Iterator<Item = Self> {
        self.0.iter().map(|address| Self::new([address.clone()]))
    }

    /// All but one.
    pub fn without(&self, one: usize) -> Self {
        let others = self.0.iter().enumerate().filter(|(at, _)| *at != one);
        Self::new(others.map(|(_, address)| address.clone()))
    }
}

/// A client of a hub, or of several. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Api {
    /// The client, with a pool of connections of its own.
    pub client: reqwest::Client,
    doors: Doors,
}

/// A topic as the hub lists it.
#[derive(Debug, Deserialize)]
pub struct Listed {
    pub topic: String,
    pub bounds: Vec<Bounds>,
    pub durability: String,
}

/// What a partition holds.
#[derive(Debug, Deserialize)]
pub struct Bounds {
    pub partition: u32,
    pub first: u64,
    pub next: u64,
}

impl Api {
    /// A client with connections that nobody else uses.
    pub fn new(doors: &Doors) -> Result<Self, String> {
        let client = reqwest::Client::builder()
            .timeout(CALL_WITHIN)
            // A publish that is sent twice behind our back would make the record wrong.
            .retry(reqwest::retry::never())
            .no_proxy()
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { client, doors: doors.clone() })
    }

    /// Where the next call goes.
    pub fn base(&self) -> &str {
        self.doors.any()
    }

    /// All topics.
    pub async fn topics(&self) -> Result<Vec<Listed>, String> {
        #[derive(Deserialize)]
        struct Topics {
            topics: Vec<Listed>,
        }
        let text = self.get("/v1/topics", "application/json").await?;
        let topics: Topics =
            serde_json::from_slice(&text).map_err(|error| format!("GET /v1/topics: {error}"))?;
        Ok(topics.topics)
    }

    /// The events of a partition from an offset on, a line each.
    pub async fn export(&self, topic: &str, partition: u32, from: u64) -> Result<Vec<u8>, String> {
        self.get(&export_path(topic, partition, from), "application/x-ndjson").await
    }

    /// The events of a partition from its first on, handed to `take` in pieces.
    pub async fn stream(
        &self,
        topic: &str,
        partition: u32,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), String> {
        let path = export_path(topic, partition, 0);
        let failed = |error: reqwest::Error| format!("GET {path}: {}", chain(&error));
        let request = self.client.get(format!("{}{path}", self.base())).timeout(STREAM_WITHIN);
        let request = request.header("accept", "application/x-ndjson");
        let mut response = request.send().await.map_err(failed)?;
        if response.status() != 200 {
            return Err(format!("GET {path}: {}", response.status()));
        }
        while let Some(piece) = response.chunk().await.map_err(failed)? {
            take(&piece);
        }
        Ok(())
    }

    /// A body that must be there.
    pub async fn get(&self, path: &str, accept: &str) -> Result<Vec<u8>, String> {
        let failed = |error: reqwest::Error| format!("GET {path}: {}", chain(&error));
        let request = self.client.get(format!("{}{path}", self.base())).header("accept", accept);
        let response = request.send().await.map_err(failed)?;
        let status = response.status();
        let body = response.bytes().await.map_err(failed)?;
        if status != 200 {
            return Err(format!("GET {path}: {status} {}", String::from_utf8_lossy(&body)));
        }
        Ok(body.into())
    }

    /// Puts something, which must go well.
    pub async fn put(&self, path: &str, body: &Value) -> Result<Value, String> {
        self.send("PUT", path, self.client.put(format!("{}{path}", self.base())), body).await
    }

    /// Posts something, which must go well.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        self.send("POST", path, self.client.post(format!("{}{path}", self.base())), body).await
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        call: reqwest::RequestBuilder,
        body: &Value,
    ) -> Result<Value, String> {
        let failed = |error: reqwest::Error| format!("{method} {path}: {}", chain(&error));
        let call = call.header("content-type", "application/json").body(body.to_string());
        let answer = call.send().await.map_err(failed)?;
        let status = answer.status();
        let text = answer.text().await.map_err(failed)?;
        if !status.is_success() {
            return Err(format!("{method} {path} {body}: {status} {text}"));
        }
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }

    /// Deletes a topic.
    pub async fn delete_topic(&self, topic: &str) -> Result<(), String> {
        let deleted = self.client.delete(format!("{}/v1/topics/{topic}", self.base())).send().await;
        match deleted.map_err(|error| format!("DELETE {topic}: {}", chain(&error)))?.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("DELETE {topic}: {status}")),
        }
    }
}

fn export_path(topic: &str, partition: u32, from: u64) -> String {
    format!("/v1/topics/{topic}/events?from=offset&offset={from}&partition={partition}")
}

/// An error with what caused it.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
