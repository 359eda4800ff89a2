//! Another hub, and what is sent to it over connections that stay open.

use super::Cluster;
use super::told::{ANSWER, CALLER, FORWARD, NOT_BEGUN, STALE, Told, answered, carried, write_caller};
use super::trust::{Parties, Said, SessionKey, digest_of, hex, nonce};
use crate::auth::Caller;
use crate::error::ApiError;
use crate::tls::TlsFiles;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use prombus_core::LiveHub;
use prombus_engine::Hub;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{Connector, MaybeTlsStream, WebSocketStream};

/// How long it may take to connect to a hub, and to get a challenge from it.
const CONNECT_TIME: Duration = Duration::from_secs(2);
/// Connections that were not used for so long are closed; less than the other hub lets them be idle.
const IDLE_TIME: Duration = Duration::from_secs(20);
/// The answer to a greeting is smaller.
const MAX_HELLO_BYTES: usize = 4 << 10;

/// So many requests are under way to a hub at most, each on a connection of its own; more are refused.
const MAX_CALLS: usize = 2_048;
/// So many publishes are on their way to a hub at most; more wait.
const MAX_PUBLISHES: usize = 4_096;
/// So many connections to a hub are kept open for later.
const MAX_IDLE: usize = 64;
/// Names that only hubs use.
const PREFIX: &str = "x-prombus-";

/// A request that is forwarded.
#[derive(Clone)]
pub(crate) struct Forward<'a> {
    pub method: &'a Method,
    /// Path and query.
    pub target: &'a str,
    pub headers: &'a HeaderMap,
    pub body: Bytes,
    pub caller: &'a Caller,
}

/// What came of it.
pub(crate) enum Sent {
    /// It is under way until the answer was read.
    Answered(Response<Body>),
    /// It had no effect, and may be sent again.
    NotBegun(ApiError),
    /// Nobody knows.
    Unknown(ApiError),
}

/// The connections to all hubs.
pub(super) struct Connections {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    tls: Arc<ClientConfig>,
}

impl Connections {
    /// Trusts the certificates that the system trusts, and that of this hub, which others may share.
    pub fn new(own: Option<&TlsFiles>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(own) = own {
            let chain = CertificateDer::pem_file_iter(&own.cert).map_err(|error| error.to_string())?;
            roots.add_parsable_certificates(chain.flatten());
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let tls =
            builder.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIME));
        tcp.enforce_http(false);
        let https = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http();
        let http = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_TIME)
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(MAX_IDLE)
            .build(https.enable_http1().wrap_connector(tcp));
        Ok(Self { http, tls: Arc::new(tls) })
    }
}

/// Another hub.
pub(super) struct Peer {
    /// The key that both have, once they have met.
    session: tokio::sync::Mutex<Option<Arc<Session>>>,
    /// Room for requests that are under way.
    calls: Arc<Semaphore>,
    /// Room for publishes that wait, or are under way.
    pub publishes: Arc<Semaphore>,
}

impl Default for Peer {
    fn default() -> Self {
        Self {
            session: tokio::sync::Mutex::default(),
            calls: Arc::new(Semaphore::new(MAX_CALLS)),
            publishes: Arc::new(Semaphore::new(MAX_PUBLISHES)),
        }
    }
}

/// A key that both hubs have, and the numbers of requests.
struct Session {
    from: String,
    nonce: String,
    challenge: String,
    key: SessionKey,
    count: AtomicU64,
}

/// What a hub is greeted with.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    /// The hub that greets.
    pub from: String,
    /// Random, in hexadecimal.
    pub nonce: String,
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Welcome {
    /// Which hub it is.
    pub hub: String,
    pub challenge: String,
    /// That it has the secret.
    pub tag: String,
}

/// Where hubs greet each other.
pub(crate) const HELLO: &str = "/cluster/hello";

/// A request that was signed, and what its answer has to be signed with.
struct Signed {
    headers: HeaderMap,
    key: SessionKey,
    count: u64,
    session: Arc<Session>,
}

impl Signed {
    /// Whether an answer comes from whom it should.
    fn believes(&self, status: StatusCode, headers: &HeaderMap) -> bool {
        let tag = headers.get(ANSWER).and_then(|tag| tag.to_str().ok()).unwrap_or_default();
        self.key.believes(&answered(self.count, (status, headers)), tag)
    }
}

/// A WebSocket to another hub.
pub(crate) struct OpenedSocket {
    pub socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    pub voucher: Voucher,
}

/// Says whose a WebSocket to another hub is, as often as that is news.
pub(crate) struct Voucher {
    key: SessionKey,
    /// The number of the request that has opened it.
    socket: u64,
    next: u64,
}

impl Voucher {
    pub fn new(key: SessionKey, socket: u64) -> Self {
        Self { key, socket, next: 0 }
    }

    /// The frame that says so.
    pub fn frame(&mut self, caller: &Caller) -> Value {
        let (caller, renewal) = (write_caller(caller), self.next);
        self.next += 1;
        let tag = self.key.tag(&Said::Caller { socket: self.socket, renewal, caller: &caller });
        json!({"op": "CALLER", "caller": caller, "renewal": renewal, "tag": tag})
    }
}

/// Another hub may send frames of any size: its limits are its own.
fn whatever_comes() -> WebSocketConfig {
    WebSocketConfig::default().max_message_size(None).max_frame_size(None)
}

/// What a hub has answered instead of opening a WebSocket.
fn refusal(answer: Response<Option<Vec<u8>>>) -> ApiError {
    let status = answer.status();
    ApiError::from_answer(status, &answer.into_body().unwrap_or_default())
}

fn unreachable(hub: &LiveHub, why: &dyn std::fmt::Display) -> ApiError {
    tracing::debug!(hub = %hub.id, url = %hub.about.url, %why, "a hub cannot be reached");
    ApiError::unavailable(format!("hub {}, where this is at home, cannot be reached; try again", hub.id))
}

impl Cluster {
    /// Forwards a request to `to`.
    pub async fn send(&self, own: &Hub, to: &LiveHub, forward: Forward<'_>) -> Sent {
        let Ok(call) = self.peer(to).calls.clone().try_acquire_owned() else {
            let message = format!("too many requests are being forwarded to hub {}; try again later", to.id);
            return Sent::NotBegun(ApiError::unavailable(message));
        };
        let sent = match self.send_once(own, to, &forward).await {
            // The other hub was started anew, or has forgotten this one.
            Sent::NotBegun(error) if error.is_stale() => self.send_once(own, to, &forward).await,
            sent => sent,
        };
        let count = match &sent {
            Sent::Answered(_) => &self.counts.answered,
            Sent::NotBegun(_) => &self.counts.not_begun,
            Sent::Unknown(_) => &self.counts.unknown,
        };
        count.fetch_add(1, Ordering::Relaxed);
        match sent {
            Sent::Answered(answer) => Sent::Answered(answer.map(|body| {
                Body::new(body.map_frame(move |frame| {
                    let _until_it_was_read = &call;
                    frame
                }))
            })),
            sent => sent,
        }
    }

    async fn send_once(&self, own: &Hub, to: &LiveHub, forward: &Forward<'_>) -> Sent {
        let signed = match self.sign(own, to, forward).await {
            Ok(signed) => signed,
            Err(error) => return Sent::NotBegun(error),
        };
        let mut request = Request::new(Full::new(forward.body.clone()));
        *request.method_mut() = forward.method.clone();
        match format!("{}{}", to.about.url, forward.target).parse() {
            Ok(uri) => *request.uri_mut() = uri,
            Err(error) => return Sent::NotBegun(unreachable(to, &error)),
        }
        *request.headers_mut() = signed.headers.clone();
        match self.connections.http.request(request).await {
            Ok(answer) => self.judge(to, &signed, answer).await,
            Err(error) if error.is_connect() => Sent::NotBegun(unreachable(to, &error)),
            Err(error) => Sent::Unknown(unreachable(to, &error)),
        }
    }

    /// What an answer says, if it comes from the hub that was asked.
    async fn judge(&self, to: &LiveHub, signed: &Signed, answer: Response<Incoming>) -> Sent {
        let mut answer = answer.map(Body::new);
        let verdict = self.verdict(to, signed, (answer.status(), answer.headers())).await;
        if let Some(sent) = verdict {
            return sent;
        }
        let own: Vec<HeaderName> =
            answer.headers().keys().filter(|name| name.as_str().starts_with(PREFIX)).cloned().collect();
        own.iter().for_each(|name| drop(answer.headers_mut().remove(name)));
        for name in [header::CONNECTION, header::TRANSFER_ENCODING] {
            answer.headers_mut().remove(name);
        }
        Sent::Answered(answer)
    }

    /// What becomes of a request whose answer is none.
    async fn verdict(
        &self,
        to: &LiveHub,
        signed: &Signed,
        (status, headers): (StatusCode, &HeaderMap),
    ) -> Option<Sent> {
        if !signed.believes(status, headers) {
            let (hub, url) = (&to.id, &to.about.url);
            tracing::warn!(%hub, %url, status = status.as_u16(), "an answer is not from the hub that was asked");
            return Some(Sent::Unknown(unreachable(to, &"the answer is not signed by it")));
        }
        let not_begun = headers.get(NOT_BEGUN);
        if not_begun == Some(&STALE) {
            let peer = self.peer(to);
            let mut session = peer.session.lock().await;
            if session.as_ref().is_some_and(|known| Arc::ptr_eq(known, &signed.session)) {
                *session = None;
            }
            return Some(Sent::NotBegun(ApiError::stale()));
        }
        not_begun.map(|_| {
            Sent::NotBegun(ApiError::unavailable("this is moving from one hub to another; try again").moved())
        })
    }

    /// The headers of a request to `to`, with the proof that it is from this hub.
    async fn sign(&self, own: &Hub, to: &LiveHub, forward: &Forward<'_>) -> Result<Signed, ApiError> {
        let session = self.session(own, to).await?;
        let count = session.count.fetch_add(1, Ordering::Relaxed);
        let (caller, carried) = (write_caller(forward.caller), carried(forward.headers));
        let mut told = Told {
            from: session.from.clone(),
            nonce: session.nonce.clone(),
            challenge: session.challenge.clone(),
            count,
            digest: digest_of(&carried, &forward.body),
            tag: String::new(),
        };
        told.tag = session.key.tag(&told.said(forward.method.as_str(), forward.target, &caller));
        let mut headers = carried;
        let text =
            |value: Option<HeaderValue>| value.ok_or_else(|| ApiError::internal("a name is no header"));
        headers.insert(FORWARD, text(told.value())?);
        headers.insert(CALLER, text(HeaderValue::try_from(caller).ok())?);
        Ok(Signed { headers, key: session.key.clone(), count, session })
    }

    /// Opens a WebSocket to `to`.
    pub async fn open_socket(
        &self,
        own: &Hub,
        to: &LiveHub,
        forward: Forward<'_>,
    ) -> Result<OpenedSocket, ApiError> {
        let opened = tokio::time::timeout(CONNECT_TIME * 2, self.open_socket_once(own, to, &forward)).await;
        let opened = match opened {
            Ok(Err(error)) if error.is_stale() => self.open_socket_once(own, to, &forward).await,
            Ok(opened) => opened,
            Err(_) => Err(unreachable(to, &"it takes too long")),
        };
        let count = if opened.is_ok() { &self.counts.answered } else { &self.counts.not_begun };
        count.fetch_add(1, Ordering::Relaxed);
        opened
    }

    async fn open_socket_once(
        &self,
        own: &Hub,
        to: &LiveHub,
        forward: &Forward<'_>,
    ) -> Result<OpenedSocket, ApiError> {
        let signed = self.sign(own, to, forward).await?;
        // `http` becomes `ws`, and `https` becomes `wss`.
        let url = to.about.url.replacen("http", "ws", 1);
        let mut request = format!("{url}{}", forward.target)
            .into_client_request()
            .map_err(|error| unreachable(to, &error))?;
        request.headers_mut().extend(signed.headers.clone());
        let tls = Connector::Rustls(self.connections.tls.clone());
        let opened = tokio_tungstenite::connect_async_tls_with_config(
            request,
            Some(whatever_comes()),
            true,
            Some(tls),
        )
        .await;
        let (socket, answer) = match opened {
            Ok((socket, answer)) => (Ok(socket), answer),
            Err(tungstenite::Error::Http(answer)) => (Err(()), *answer),
            Err(error) => return Err(unreachable(to, &error)),
        };
        match self.verdict(to, &signed, (answer.status(), answer.headers())).await {
            Some(Sent::NotBegun(error) | Sent::Unknown(error)) => Err(error),
            Some(Sent::Answered(_)) | None => {
                let socket = socket.map_err(|()| refusal(answer))?;
                Ok(OpenedSocket { socket, voucher: Voucher::new(signed.key, signed.count) })
            }
        }
    }

    /// The key that this hub and `to` have, made where they have not met.
    async fn session(&self, own: &Hub, to: &LiveHub) -> Result<Arc<Session>, ApiError> {
        let peer = self.peer(to);
        // Those who need it at the same time wait for one greeting.
        let mut session = peer.session.lock().await;
        if let Some(session) = &*session {
            return Ok(session.clone());
        }
        self.keep_only(&own.hubs().borrow());
        let greeting = tokio::time::timeout(CONNECT_TIME, self.greet(own, to));
        let met =
            greeting.await.unwrap_or_else(|_| Err(unreachable(to, &"it does not answer a greeting")))?;
        Ok(session.insert(Arc::new(met)).clone())
    }

    async fn greet(&self, own: &Hub, to: &LiveHub) -> Result<Session, ApiError> {
        let (from, nonce) = (own.id().to_string(), hex(&nonce().map_err(ApiError::internal)?));
        let hello =
            serde_json::to_vec(&Hello { from: from.clone(), nonce: nonce.clone() }).unwrap_or_default();
        let request = Request::post(format!("{}{HELLO}", to.about.url)).body(Full::new(hello.into()));
        let request = request.map_err(|error| unreachable(to, &error))?;
        let asked = self.connections.http.request(request).await;
        let answer = asked.map_err(|error: Error| unreachable(to, &error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_HELLO_BYTES).collect().await;
        let body = body.map_err(|error| unreachable(to, &error))?.to_bytes();
        if status != StatusCode::OK {
            return Err(unreachable(to, &status));
        }
        let welcome: Welcome = serde_json::from_slice(&body).map_err(|error| unreachable(to, &error))?;
        let of = Parties { from: &from, to: &to.id.0, nonce: &nonce, challenge: &welcome.challenge };
        let key = self.trust.key(&of);
        if welcome.hub != *to.id.0 || !key.believes(&Said::Hello, &welcome.tag) {
            tracing::error!(hub = %to.id, url = %to.about.url, "what answers there is not that hub, or has another cluster.secret");
            return Err(unreachable(to, &"it is not the hub that it should be"));
        }
        let count = AtomicU64::new(0);
        Ok(Session { nonce, challenge: welcome.challenge, from, key, count })
    }
}
