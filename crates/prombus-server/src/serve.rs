//! The accept loop: one task per connection, and a shutdown that waits for requests in flight, but not forever.
//!
//! Connections are counted before anything is read of them, and those that are too many are told so. A client that sends or
//! reads nothing is dropped after a while, so that it holds nothing that others wait for, and none can keep the hub from ending.

use crate::error::ApiError;
use crate::gateway::GatewayOptions;
use crate::head_timer::HeadTimer;
use crate::memory::{MAX_READ_BYTES, Memory, Received};
use crate::rate::ConnectionRate;
use crate::stall_guard::StallGuard;
use crate::tls::Tls;
use crate::unread::{Reader, Unread};
use axum::Router;
use axum::extract::Request;
use axum::http::{Extensions, StatusCode};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::Service;

/// Maximum number of connections beyond the most that are told that there is no room; more wait until they can be told.
const MAX_TURNED_AWAY: usize = 64;
/// How long refusing one may take.
const TURN_AWAY_TIME: Duration = Duration::from_secs(1);
/// How much that was written may wait in the system until it is sent. That a client takes little by little shows only if
/// it is little: the system tells that there is room for more when a good part of what waits has left.
#[cfg(target_os = "linux")]
const MAX_UNSENT_BYTES: u32 = 128 << 10;
/// How long requests in flight may take once no new ones are wanted.
const MAX_GOODBYE: Duration = Duration::from_secs(5);
/// How long to wait after failing to accept a connection, for example because there are no file handles left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The answer to plain HTTP on a TLS port.
const USE_TLS: &str =
    "this hub speaks TLS here: use https:// instead of http://, and wss:// instead of ws://";

/// How to serve, and until when.
pub(crate) struct ServeOptions<'a, F> {
    pub shutdown: F,
    pub options: GatewayOptions,
    /// What connections share.
    pub memory: Memory,
    pub tls: Option<&'a Tls>,
}

/// Serves `listener` until `until.shutdown` is done and its connections have ended or been given up.
pub(crate) async fn serve<F: Future<Output = ()>>(
    listener: TcpListener,
    router: Router,
    until: ServeOptions<'_, F>,
) {
    let ServeOptions { shutdown, options, memory, tls } = until;
    let (stop, stopped) = watch::channel(false);
    let (mut connections, mut turned_away) = (JoinSet::new(), JoinSet::new());
    let room = Arc::new(Semaphore::new(options.max_connections.min(Semaphore::MAX_PERMITS)));
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            _ = connections.join_next(), if !connections.is_empty() => {}
            _ = turned_away.join_next(), if !turned_away.is_empty() => {}
            stream = accept(&listener), if turned_away.len() < MAX_TURNED_AWAY => {
                match room.clone().try_acquire_owned() {
                    Ok(place) => {
                        let context = ConnectionContext {
                            router: router.clone(),
                            header_timeout: options.header_timeout,
                            send_timeout: options.send_timeout,
                            received: Received::new(&memory),
                            rate: ConnectionRate::new(options.connection_events_per_s),
                            place: ConnectionPermit(Arc::new(place)),
                            stopped: stopped.clone(),
                        };
                        connections.spawn(connection(stream, tls.map(Tls::acceptor), context));
                    }
                    Err(_) => {
                        turned_away.spawn(turn_away(stream, no_room(options.max_connections)));
                    }
                }
            }
        }
    }
    drop(listener);
    stop.send_replace(true);
    end_connections(connections).await;
}

/// The next connection. What cannot be accepted is logged, and left.
pub async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => tracing::warn!(%error, "failed to accept a connection"),
        }
        // Most likely too many open files: retrying at once would only burn a core.
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// Waits for connections that were told to end, but not forever.
pub async fn end_connections(mut connections: JoinSet<()>) {
    let all_ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(MAX_GOODBYE, all_ended).await.is_err() {
        tracing::warn!(connections = connections.len(), "cut off connections that took too long to close");
        connections.shutdown().await;
    }
}

fn no_room(most: usize) -> ApiError {
    ApiError::unavailable(format!(
        "limits.connections is {most}, and that many are open: close some, or raise it"
    ))
}

/// Says why a connection is not served, in plain HTTP. Whoever speaks TLS does not understand it, and sees a connection
/// that ends.
async fn turn_away(mut stream: TcpStream, why: ApiError) {
    let (status, body) = (why.status(), why.to_json());
    let wait = if status == StatusCode::SERVICE_UNAVAILABLE { "retry-after: 1\r\n" } else { "" };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{wait}connection: close\r\ncontent-length: {}\r\n\r\n{body}\n",
        body.len() + 1
    );
    let tell = async {
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.shutdown().await;
        // Closing a socket with unread data would discard the answer.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    };
    let _ = tokio::time::timeout(TURN_AWAY_TIME, tell).await;
}

/// What a connection needs.
struct ConnectionContext {
    router: Router,
    header_timeout: Duration,
    send_timeout: Duration,
    received: Received,
    rate: ConnectionRate,
    place: ConnectionPermit,
    stopped: watch::Receiver<bool>,
}

/// The connection that a request came by, told to its handler as an extension. Only in tests are there requests without one.
#[derive(Clone)]
pub(crate) struct Via {
    /// How fast it may publish.
    pub rate: ConnectionRate,
    /// What it has received.
    pub received: Received,
    /// Its place among those that may be open.
    pub place: ConnectionPermit,
}

impl Via {
    /// How fast the connection of a request may publish.
    pub fn rate_of(request: &Extensions) -> ConnectionRate {
        request.get().map(|via: &Self| via.rate.clone()).unwrap_or_default()
    }
}

/// A connection's place among those that may be open. A WebSocket outlives the HTTP that it came by, and takes it along.
#[derive(Clone)]
pub(crate) struct ConnectionPermit(
    #[expect(dead_code, reason = "it is there to be dropped")] Arc<OwnedSemaphorePermit>,
);

/// Whether a request begins where a TLS handshake should: with the name of a method, which no record of TLS begins with.
async fn speaks_plain_http(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    Ok(stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase())
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, context: ConnectionContext) {
    // Answers are written whole; waiting to fill a packet would only delay them.
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(&stream).set_tcp_notsent_lowat(MAX_UNSENT_BYTES);
    let guarded = |stream| StallGuard::new(stream, context.send_timeout).sharing(context.received.clone());
    let Some(tls) = tls else {
        let stream = guarded(stream);
        return serve_http(stream, context).await;
    };
    let mut stopped = context.stopped.clone();
    let accept = async {
        if speaks_plain_http(&stream).await? {
            turn_away(stream, ApiError::bad_request(USE_TLS)).await;
            return Ok(None);
        }
        tls.accept(guarded(stream)).await.map(Some)
    };
    let accepted = tokio::select! {
        accepted = tokio::time::timeout(context.header_timeout, accept) => accepted,
        // Nothing was asked for yet.
        _ = stopped.wait_for(|stopped| *stopped) => return,
    };
    match accepted {
        Ok(Ok(Some(stream))) => serve_http(stream, context).await,
        Ok(Ok(None)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took longer than limits.header_timeout_ms"),
    }
}

/// What the requests of a connection share, so that each has little to count that other connections count, too.
struct Requests {
    router: Router,
    via: Via,
    unread: Unread,
    stopped: watch::Receiver<bool>,
}

impl Requests {
    fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response, Infallible>> + Send + use<> {
        let mut request = self.unread.lend(request);
        request.extensions_mut().insert(self.via.clone());
        self.via.received.is_in_request();
        let (requests, answering) = (self.clone(), self.router.clone().call(request));
        async move {
            let Ok(mut answer) = answering.await;
            let Self { via: Via { received, .. }, unread, stopped, .. } = &*requests;
            received.is_done_with_request();
            let reader = || Reader { received: received.clone(), stopped: stopped.clone() };
            unread.settle(&mut answer, reader);
            Ok(answer)
        }
    }
}

async fn serve_http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    context: ConnectionContext,
) {
    let ConnectionContext { router, header_timeout, rate, place, received, mut stopped, .. } = context;
    let via = Via { rate, received, place };
    let requests = Arc::new(Requests { router, via, unread: Unread::default(), stopped: stopped.clone() });
    let service = service_fn(move |request| requests.answer(request));
    let serving = http1::Builder::new()
        .timer(HeadTimer::default())
        .header_read_timeout(header_timeout)
        .max_buf_size(MAX_READ_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut serving = pin!(serving);
    let stop = async {
        // A dropped sender means the same.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = stop => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    match ended {
        Err(error) if error.is_timeout() => {
            tracing::debug!("a connection was closed: no request came within limits.header_timeout_ms");
        }
        // Clients go away and send nonsense; that is their affair.
        Err(error) => tracing::debug!(%error, "a connection ended"),
        Ok(()) => {}
    }
}
