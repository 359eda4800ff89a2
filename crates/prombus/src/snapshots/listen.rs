//! The accept loop: one task per connection, and a shutdown that waits for requests in flight, but not forever.

use super::forwarding::Forwarder;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prombus_server::{StallGuard, accept, end_connections};
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The most connections at once; more wait until one ends.
const MAX_CONNECTIONS: usize = 10_000;
/// How long a client may take to send the headers of a request, and how long a connection may be idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// A client that takes no byte of an answer for so long is abandoned.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves until `ended` is done and connections have ended or been given up.
pub async fn serve(listener: TcpListener, passing: Arc<Forwarder>, ended: impl Future<Output = ()>) {
    let (stop, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut ended = pin!(ended);
    loop {
        tokio::select! {
            () = &mut ended => break,
            _ = connections.join_next(), if !connections.is_empty() => {}
            stream = accept(&listener), if connections.len() < MAX_CONNECTIONS => {
                connections.spawn(converse(stream, passing.clone(), stopped.clone()));
            }
        }
    }
    drop(listener);
    stop.send_replace(true);
    end_connections(connections).await;
}

async fn converse(stream: TcpStream, passing: Arc<Forwarder>, mut stopped: watch::Receiver<bool>) {
    // Answers are written whole; waiting to fill a packet would only delay them.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let passing = passing.clone();
        async move { Ok::<_, Infallible>(passing.answer(&request).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(StallGuard::new(stream, SEND_TIMEOUT)), service);
    let mut serving = pin!(serving);
    let stop = async {
        // That the sender is gone means the same.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = stop => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        // Clients go away and send nonsense; that is their affair.
        tracing::debug!(%error, "a connection ended");
    }
}
