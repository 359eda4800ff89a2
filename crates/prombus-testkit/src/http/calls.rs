//! Requests and their answers.

use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Method, Url};
use serde_json::Value;

/// The addresses of a hub, or of several that share a store, and a client for them.
pub struct Calls {
    bases: Vec<Url>,
    client: Client,
}

/// An answer, read to its end.
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: Bytes,
}

/// A request.
struct Call<'a> {
    method: Method,
    path: &'a [&'a str],
    query: &'a [(&'a str, String)],
    body: Vec<u8>,
}

impl Calls {
    /// Panics if `bases` are not the addresses of hubs.
    pub fn new(bases: &[String]) -> Self {
        let parsed = |base: &String| Url::parse(base).ok().filter(|url| !url.cannot_be_a_base());
        let client = Client::builder().no_proxy().build();
        match (bases.iter().map(parsed).collect::<Option<Vec<_>>>(), client) {
            (Some(bases), Ok(client)) if !bases.is_empty() => Self { bases, client },
            (_, Ok(_)) => panic!("{bases:?} are not the addresses of hubs"),
            (_, Err(error)) => panic!("there is no HTTP client: {error}"),
        }
    }

    /// GET.
    pub async fn get(&self, path: &[&str], query: &[(&str, String)]) -> Result<Answer, String> {
        self.call(Call { method: Method::GET, path, query, body: Vec::new() }).await
    }

    /// PUT of JSON.
    pub async fn put(&self, path: &[&str], body: Vec<u8>) -> Result<Answer, String> {
        self.call(Call { method: Method::PUT, path, query: &[], body }).await
    }

    /// POST of JSON.
    pub async fn post(&self, path: &[&str], body: Vec<u8>) -> Result<Answer, String> {
        self.call(Call { method: Method::POST, path, query: &[], body }).await
    }

    /// DELETE.
    pub async fn delete(&self, path: &[&str]) -> Result<Answer, String> {
        self.call(Call { method: Method::DELETE, path, query: &[], body: Vec::new() }).await
    }

    async fn call(&self, call: Call<'_>) -> Result<Answer, String> {
        let mut url = self.bases[fastrand::usize(..self.bases.len())].clone();
        // By hand, because the setters of `Url` drop line breaks and tabs, which a key may have.
        let encoded = |segment: &&str| format!("/{}", utf8_percent_encode(segment, NON_ALPHANUMERIC));
        url.set_path(&call.path.iter().map(encoded).collect::<String>());
        let mut request = self.client.request(call.method, url).query(call.query);
        if !call.body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json").body(call.body);
        }
        let response = request.send().await.map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let body = response.bytes().await.map_err(|error| error.to_string())?;
        Ok(Answer { status, body })
    }
}

impl Answer {
    /// What to say of an answer that nobody expected.
    pub fn unexpected(&self) -> String {
        format!("the hub answers {}: {}", self.status, String::from_utf8_lossy(&self.body))
    }

    /// A number of the body; 0 where there is none.
    pub fn number(&self, name: &str) -> u64 {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        body[name].as_u64().unwrap_or_default()
    }
}
