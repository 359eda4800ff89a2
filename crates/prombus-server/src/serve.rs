//! The accept loop: one task a connection, and an end that waits for requests under way, but not for ever.

use crate::gateway::GatewayOptions;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The most connections at once; more wait until one is closed.
const MAX_CONNECTIONS: usize = 10_000;
/// How long requests under way may take once no new ones are wanted.
const MAX_GOODBYE: Duration = Duration::from_secs(5);
/// How long to wait after a connection could not be accepted, for want of file handles say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Until when to serve, and how.
pub(crate) struct Until<F> {
    pub shutdown: F,
    pub options: GatewayOptions,
}

/// Serves `listener` until `until.shutdown` is done and its connections have ended or been given up.
pub(crate) async fn serve<F: Future<Output = ()>>(listener: TcpListener, router: Router, until: Until<F>) {
    let (stop, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(until.shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            _ = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    let service = TowerToHyperService::new(router.clone());
                    let header_timeout = until.options.header_timeout;
                    connections.spawn(connection(stream, Conversation { service, header_timeout, stopped: stopped.clone() }));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    // Too many open files, most likely: asking again at once would only burn a core.
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    stop.send_replace(true);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(MAX_GOODBYE, all_ended).await.is_err() {
        tracing::warn!(
            connections = connections.len(),
            "connections were cut off: they took too long to end"
        );
        connections.shutdown().await;
    }
}

/// What a connection needs.
struct Conversation {
    service: TowerToHyperService<Router>,
    header_timeout: Duration,
    stopped: watch::Receiver<bool>,
}

async fn connection(stream: TcpStream, conversation: Conversation) {
    let Conversation { service, header_timeout, mut stopped } = conversation;
    // Answers are written whole; waiting to fill a packet would only delay them.
    let _ = stream.set_nodelay(true);
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
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
