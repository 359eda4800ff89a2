//! The gateway: what it is made of, and which path leads where.

use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::routes::{dlq, events, groups, keys, ops, publish, topics};
use crate::serve;
use crate::watch as watching;
use crate::ws;
use axum::Router;
use axum::routing::{get, post};
use prombus_engine::Hub;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// How long WebSockets may take to end.
const SOCKETS_GOODBYE: Duration = Duration::from_secs(3);

/// What can be chosen about a gateway.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// What `build_info` says.
    pub version: &'static str,
    /// How long a client may take to send the head of a request, and how long a connection may stay idle.
    pub header_timeout: Duration,
    /// How long a body may stand still.
    pub body_timeout: Duration,
    /// The largest body, and the longest line of an NDJSON body, which as a whole has no limit.
    pub max_body_bytes: usize,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            max_body_bytes: 16 << 20,
        }
    }
}

/// The HTTP interface of a hub. Cheap to clone; clones are the same gateway.
#[derive(Clone)]
pub struct Gateway(Arc<Shared>);

/// What all requests share.
pub(crate) struct Shared {
    pub options: GatewayOptions,
    pub metrics: Metrics,
    hub: OnceLock<Hub>,
    closing: watch::Sender<bool>,
    /// How many WebSockets are open.
    pub sockets: watch::Sender<u64>,
}

impl Shared {
    /// The hub, once there is one.
    pub fn hub(&self) -> Result<&Hub, ApiError> {
        self.hub.get().ok_or_else(|| ApiError::unavailable("the hub is opening its store; try again shortly"))
    }

    /// Waits until the gateway ends.
    pub async fn closing(&self) {
        // That the sender is gone means the same.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }
}

/// The state that handlers get.
pub(crate) type App = Arc<Shared>;

impl Gateway {
    /// A gateway without a hub: it answers that it is alive, and nothing else yet.
    pub fn new(options: GatewayOptions) -> Self {
        let routes = ROUTES.iter().map(|(path, _)| *path);
        Self(Arc::new(Shared {
            options,
            metrics: Metrics::new(routes),
            hub: OnceLock::new(),
            closing: watch::Sender::new(false),
            sockets: watch::Sender::new(0),
        }))
    }

    /// Serves requests from `hub` from now on. A gateway has one hub; a second one is not taken.
    pub fn open(&self, hub: Hub) {
        if self.0.hub.set(hub).is_err() {
            tracing::warn!("the gateway has a hub already; the second one is not taken");
        }
    }

    /// The routes, ready to be called.
    pub fn router(&self) -> Router {
        let mut router = Router::new();
        for (path, methods) in ROUTES {
            router = router.route(path, methods());
        }
        router
            .fallback(ops::no_such_path)
            .method_not_allowed_fallback(ops::method_not_allowed)
            .layer(axum::middleware::from_fn_with_state(self.0.clone(), watching::watch))
            .with_state(self.0.clone())
    }

    /// Serves `listener` until `shutdown` is done; then takes no more connections, lets requests under way
    /// finish, and returns after at most five seconds.
    pub async fn serve(
        &self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        let shared = self.0.clone();
        let shutdown = async move {
            shutdown.await;
            shared.closing.send_replace(true);
        };
        serve::serve(listener, self.router(), serve::Until { shutdown, options: self.0.options.clone() })
            .await;
        // They have left the connections that were waited for, and still have to say goodbye.
        let all_closed = async { drop(self.0.sockets.subscribe().wait_for(|open| *open == 0).await) };
        if tokio::time::timeout(SOCKETS_GOODBYE, all_closed).await.is_err() {
            tracing::warn!("WebSockets were cut off: they took too long to end");
        }
        Ok(())
    }
}

type Methods = fn() -> axum::routing::MethodRouter<App>;

/// Every path, and what its methods do.
const ROUTES: &[(&str, Methods)] = &[
    ("/publish/{topic}", || post(publish::raw)),
    ("/v1/topics", || get(topics::list)),
    ("/v1/topics/{topic}", || get(topics::show).put(topics::put).delete(topics::delete)),
    ("/v1/topics/{topic}/events", || get(events::read).post(publish::events)),
    ("/v1/topics/{topic}/events/{id}", || get(events::by_id)),
    ("/v1/topics/{topic}/keys", || post(keys::latest_of_many)),
    // The empty string is a key too, and a path segment cannot be empty.
    ("/v1/topics/{topic}/keys/", || get(keys::latest)),
    ("/v1/topics/{topic}/keys/{key}", || get(keys::latest)),
    ("/v1/topics/{topic}/groups", || get(groups::list)),
    ("/v1/topics/{topic}/groups/{group}", || get(groups::show).put(groups::put).delete(groups::delete)),
    ("/v1/topics/{topic}/groups/{group}/pull", || post(groups::pull)),
    ("/v1/topics/{topic}/groups/{group}/ack", || post(groups::ack)),
    ("/v1/topics/{topic}/groups/{group}/cursor", || get(groups::cursor).put(groups::set_cursor)),
    ("/v1/topics/{topic}/groups/{group}/skip", || post(groups::skip)),
    ("/v1/dlq/{topic}", || get(dlq::list)),
    ("/v1/dlq/{topic}/replay", || post(dlq::replay)),
    ("/ws", || get(ws::upgrade)),
    ("/ops", || get(ops::ops)),
    ("/healthz", || get(ops::healthz)),
    ("/readyz", || get(ops::readyz)),
    ("/metrics", || get(ops::metrics)),
];
