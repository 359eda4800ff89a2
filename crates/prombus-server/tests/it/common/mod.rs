//! A gateway on a memory store, on a port of its own, and what tests ask of it.

use prombus_core::{Clock, Commit, DocumentWrite, EventLogExt, Json, SystemClock, WriteOp};
use prombus_engine::{Hub, HubOptions, Limits, Store};
use prombus_server::{AuthOptions, Gateway, GatewayOptions, Rules, Secret, StaticToken};
use prombus_store_memory::MemoryStore;
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::Value;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// What a test may want different.
pub struct Setup {
    pub auto_create: bool,
    pub limits: Limits,
    pub gateway: GatewayOptions,
}

impl Default for Setup {
    fn default() -> Self {
        let gateway = GatewayOptions {
            version: "test",
            body_timeout: Duration::from_secs(10),
            ..GatewayOptions::default()
        };
        Self { auto_create: true, limits: Limits::default(), gateway }
    }
}

/// A gateway that is being served.
pub struct Served {
    pub gateway: Gateway,
    pub address: SocketAddr,
    pub client: Client,
    pub store: Arc<MemoryStore>,
    /// Where one is open.
    pub hub: Option<Hub>,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<std::io::Result<()>>>,
}

/// A gateway with an open hub.
pub async fn start() -> Served {
    start_with(Setup::default()).await
}

pub async fn start_with(setup: Setup) -> Served {
    let Setup { auto_create, limits, gateway } = setup;
    let mut served = start_closed(gateway).await;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let options = HubOptions { limits, auto_create, topics: HashMap::new(), clock };
    let hub = Hub::assemble(Store::new(served.store.clone()), options);
    served.gateway.open(hub.clone());
    served.hub = Some(hub);
    served
}

/// A gateway without a hub.
pub async fn start_closed(options: GatewayOptions) -> Served {
    start_on(TcpListener::bind("127.0.0.1:0").await.unwrap(), options)
}

/// The same on a listener that is there already.
pub fn start_on(listener: TcpListener, options: GatewayOptions) -> Served {
    let gateway = Gateway::new(options).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = gateway.clone();
    let task = tokio::spawn(async move {
        serving
            .serve(listener, async {
                let _ = stopped.await;
            })
            .await
    });
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock), 7));
    Served { gateway, address, client: Client::new(), store, hub: None, stop: Some(stop), task: Some(task) }
}

/// An answer that was read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Checks status and code, and that the error is of the agreed shape.
    #[track_caller]
    pub fn is_error(&self, status: u16, code: &str) -> Value {
        let body = self.json();
        assert_eq!((self.status.as_u16(), body["error"].as_str()), (status, Some(code)), "{self:?}");
        assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()), "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        body
    }

    #[track_caller]
    pub fn is(&self, status: u16) -> &Self {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        self
    }
}

impl Served {
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.url(path))
    }

    pub async fn get(&self, path: &str) -> Answer {
        send(self.request(Method::GET, path)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        send(self.request(Method::DELETE, path)).await
    }

    /// Posts JSON.
    pub async fn post(&self, path: &str, body: &str) -> Answer {
        send(
            self.request(Method::POST, path).header("content-type", "application/json").body(body.to_owned()),
        )
        .await
    }

    pub async fn put(&self, path: &str, body: &str) -> Answer {
        send(self.request(Method::PUT, path).header("content-type", "application/json").body(body.to_owned()))
            .await
    }

    /// Posts lines.
    pub async fn lines(&self, path: &str, body: impl Into<reqwest::Body>) -> Answer {
        send(self.request(Method::POST, path).header("content-type", "application/x-ndjson").body(body)).await
    }

    /// Reads lines.
    pub async fn export(&self, path: &str) -> Answer {
        send(self.request(Method::GET, path).header("accept", "application/x-ndjson")).await
    }

    /// Publishes payloads 0, 1, ... `count - 1` with keys `k0` to `k9` in turn.
    pub async fn fill(&self, topic: &str, count: usize) {
        for first in (0..count).step_by(1000) {
            let events: Vec<String> = (first..count.min(first + 1000))
                .map(|n| format!(r#"{{"payload":{n},"key":"k{}"}}"#, n % 10))
                .collect();
            let path = format!("/v1/topics/{topic}/events");
            self.post(&path, &format!("[{}]", events.join(","))).await.is(201);
        }
    }

    /// Writes documents behind the gateway's back.
    pub async fn write(&self, documents: Vec<DocumentWrite>) {
        self.store.commit(Arc::new(Commit { documents, ..Commit::default() })).await.unwrap();
    }

    /// Gets with headers.
    pub async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let request = self.request(Method::GET, path);
        send(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await
    }

    /// The gateway is gone, with all of its connections.
    pub fn kill(mut self) {
        self.task.take().unwrap().abort();
    }

    /// Tells the gateway to stop, and waits until it has.
    pub async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        self.task.take().unwrap().await.unwrap().unwrap();
    }

    /// Tells the gateway to stop, and gives what ends when it has.
    pub fn begin_stop(&mut self) -> JoinHandle<std::io::Result<()>> {
        self.stop.take().unwrap().send(()).unwrap();
        self.task.take().unwrap()
    }
}

pub async fn send(request: RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    Answer { status, headers, text: response.text().await.unwrap() }
}

/// The payloads of a page.
pub fn payloads(page: &Value) -> Vec<i64> {
    page["events"].as_array().unwrap().iter().map(|event| event["payload"].as_i64().unwrap()).collect()
}

/// A document as commits write it.
pub fn document(collection: &str, key: &str, ts: u64, body: &Value) -> DocumentWrite {
    DocumentWrite { ts, ..DocumentWrite::new(collection, key, WriteOp::Set(Json::from_value(body))) }
}

/// A gateway whose callers are known by tokens; each is called what it may do, and `all` may do everything.
pub fn guarded(scopes: &[&str]) -> Setup {
    let token = |name: &str, scope: &str| {
        let mut rules = Rules::default();
        scope.split(' ').for_each(|scope| rules.add_scope(scope).unwrap());
        StaticToken { token: Secret::new(name), rules }
    };
    let known = scopes.iter().map(|scope| token(scope, scope)).chain([token("all", "*:**")]);
    let mut setup = Setup::default();
    setup.gateway.auth = AuthOptions::Tokens(known.collect());
    setup
}

/// The request with that token.
pub fn as_one_who(may: &str, request: RequestBuilder) -> RequestBuilder {
    request.header("authorization", format!("Bearer {may}"))
}
