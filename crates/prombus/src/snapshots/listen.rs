//! The accept loop: one task per connection, and a shutdown that waits for requests in flight, but not forever.

use super::forwarding::Forwarder;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prombus_server::{GatewayOptions, MAX_READ_BYTES, StallGuard, accept, end_connections};
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Serves until `ended` is done and connections have ended or been given up, within the limits that a hub has by default.
pub async fn serve(listener: TcpListener, passing: Arc<Forwarder>, ended: impl Future<Output = ()>) {
    let limits = Arc::new(GatewayOptions::default());
    let (stop, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut ended = pin!(ended);
    loop {
        tokio::select! {
            () = &mut ended => break,
            _ = connections.join_next(), if !connections.is_empty() => {}
            stream = accept(&listener), if connections.len() < limits.max_connections => {
                let of = (passing.clone(), limits.clone());
                connections.spawn(converse(stream, of, stopped.clone()));
            }
        }
    }
    drop(listener);
    stop.send_replace(true);
    end_connections(connections).await;
}

async fn converse(
    stream: TcpStream,
    (passing, limits): (Arc<Forwarder>, Arc<GatewayOptions>),
    mut stopped: watch::Receiver<bool>,
) {
    // Answers are written whole; waiting to fill a packet would only delay them.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let passing = passing.clone();
        async move { Ok::<_, Infallible>(passing.answer(&request).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(MAX_READ_BYTES)
        .serve_connection(TokioIo::new(StallGuard::new(stream, limits.send_timeout)), service);
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
