//! The gateway: its state, and its route table with the rights that each method requires.
//!
//! Authorization has no side doors: a method that names no rights is not in the table, and frames and streams go through
//! the same check as requests. The gateway asks the hub and nothing behind it.

use crate::auth::{Action, Auth, AuthOptions, Hosts, Need, Origins};
use crate::cluster::{self, About, Cluster, ClusterOptions, ListensAt};
use crate::error::ApiError;
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::rate::TopicRates;
use crate::request_guard;
use crate::routes::{
    backups, collections, commit, dlq, document, documents, events, groups, keys, ops, projections, publish,
    replays, schemas, states, topics,
};
use crate::scrapes::Scrapes;
use crate::serve;
use crate::tls::{Tls, TlsFiles};
use crate::ws;
use axum::Router;
use axum::http::{HeaderValue, Method};
use axum::routing::{delete, get, post};
use prombus_engine::Hub;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// How long WebSockets may take to close.
const SOCKETS_GOODBYE: Duration = Duration::from_secs(7);

/// Options of a gateway.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// The version in `build_info`.
    pub version: &'static str,
    /// How long a client may take to send the headers of a request, and how long a connection may stay idle.
    pub header_timeout: Duration,
    /// How long a body may stall.
    pub body_timeout: Duration,
    /// How long a client may read nothing before it is disconnected.
    pub send_timeout: Duration,
    /// The largest body, the largest frame, and the longest line of an NDJSON body, which as a whole has no limit.
    pub max_body_bytes: usize,
    /// Maximum number of connections.
    pub max_connections: usize,
    /// Maximum memory for requests and answers of all connections.
    pub max_buffer_bytes: usize,
    /// Maximum number of events per second over one connection; 0 means no limit.
    pub connection_events_per_s: u64,
    /// Maximum number of events per second to one topic; 0 means no limit.
    pub topic_events_per_s: u64,
    /// How long caches may keep a document, in whole seconds.
    pub snapshot_max_age: Duration,
    /// How callers are authenticated.
    pub auth: AuthOptions,
    /// Accepted host names. Without authentication, requests for other names are refused, except for IP addresses and
    /// `localhost`.
    pub hosts: Vec<String>,
    /// Origins whose pages may call, besides the hub's own; `*` for any.
    pub allow_origins: Vec<String>,
    /// The certificate and its key, to serve TLS.
    pub tls: Option<TlsFiles>,
    /// What makes the hub one of several that share a store; `None` for one that is alone.
    pub cluster: Option<ClusterOptions>,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            send_timeout: Duration::from_secs(60),
            max_body_bytes: 16 << 20,
            max_connections: 10_000,
            max_buffer_bytes: 512 << 20,
            connection_events_per_s: 0,
            topic_events_per_s: 0,
            snapshot_max_age: Duration::from_secs(5),
            auth: AuthOptions::None,
            hosts: Vec::new(),
            allow_origins: Vec::new(),
            tls: None,
            cluster: None,
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
    /// Those who ask for them.
    pub scrapes: Scrapes,
    /// The memory that connections hold.
    pub memory: Memory,
    pub auth: Arc<Auth>,
    pub origins: Origins,
    /// The accepted hosts, without authentication.
    pub hosts: Option<Hosts>,
    pub rates: TopicRates,
    /// The `Cache-Control` of documents.
    pub cache_control: HeaderValue,
    /// The other hubs, if it is one of several.
    pub cluster: Option<Arc<Cluster>>,
    tls: Option<Tls>,
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

    /// Waits until the gateway shuts down.
    pub async fn closing(&self) {
        // A dropped sender means the same.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }
}

/// The state that handlers get.
pub(crate) type App = Arc<Shared>;

impl Gateway {
    /// A gateway without a hub, which only answers that it is alive. Invalid keys and certificates are an error.
    pub fn new(options: GatewayOptions) -> Result<Self, String> {
        let routes = ROUTES.iter().map(|route| route.path);
        let auth = Arc::new(Auth::open(options.auth.clone())?);
        let hosts = (!auth.is_on()).then(|| Hosts::new(&options.hosts, "server.hosts"));
        Ok(Self(Arc::new(Shared {
            metrics: Metrics::new(routes),
            scrapes: Scrapes::default(),
            memory: Memory::new(options.max_buffer_bytes),
            origins: Origins::new(options.allow_origins.clone(), hosts.clone()),
            hosts,
            rates: TopicRates::new(options.topic_events_per_s),
            cache_control: document::cache_control(options.snapshot_max_age, auth.is_on()),
            auth,
            cluster: match options.cluster.clone() {
                Some(cluster) => {
                    let about = (options.version, &options.auth);
                    Some(Arc::new(Cluster::new(cluster, about, options.tls.as_ref())?))
                }
                None => None,
            },
            tls: options.tls.clone().map(Tls::open).transpose()?,
            options,
            hub: OnceLock::new(),
            closing: watch::Sender::new(false),
            sockets: watch::Sender::new(0),
        })))
    }

    /// Has `hub` take part with the others that use its store, before it is [served](Self::open) and does anything on behalf of
    /// topics. Fails where another one is alive that has another secret. A hub that is alone joins nobody.
    /// Where nothing else is said, others reach it at `address`.
    pub async fn join(&self, hub: &Hub, address: SocketAddr) -> Result<(), String> {
        let listens = ListensAt { address, is_encrypted: self.0.tls.is_some() };
        match &self.0.cluster {
            Some(cluster) => cluster.join(hub, &listens).await,
            None => Ok(()),
        }
    }

    /// Has a hub that takes part with others hand its topics over to them at once. What is asked of it goes on.
    pub async fn leave(&self, hub: &Hub) {
        if self.0.cluster.is_some() {
            hub.leave().await;
        }
    }

    /// Serves `hub` from now on. A gateway has one hub; a second one is ignored.
    pub fn open(&self, hub: Hub) {
        if self.0.hub.set(hub).is_err() {
            tracing::warn!("the gateway already has a hub; ignoring the second one");
        }
    }

    /// What its requests share.
    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }

    /// The router.
    pub fn router(&self) -> Router {
        let mut router = Router::new();
        for route in ROUTES {
            router = router.route(route.path, (route.methods)());
        }
        router
            .fallback(ops::no_such_path)
            .method_not_allowed_fallback(ops::method_not_allowed)
            .layer(axum::middleware::from_fn_with_state(self.0.clone(), request_guard::around))
            .with_state(self.0.clone())
    }

    /// Serves `listener` until `shutdown` is done; then takes no more connections, lets requests in flight finish and
    /// WebSockets say goodbye, and returns when they have, or have taken too long.
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
        let (options, tls) = (self.0.options.clone(), self.0.tls.as_ref());
        let memory = self.0.memory.clone();
        serve::serve(listener, self.router(), serve::ServeOptions { shutdown, options, memory, tls }).await;
        // They are no longer among the HTTP connections, and still have to close.
        let all_closed = async { drop(self.0.sockets.subscribe().wait_for(|open| *open == 0).await) };
        if tokio::time::timeout(SOCKETS_GOODBYE, all_closed).await.is_err() {
            tracing::warn!("cut off WebSockets that took too long to close");
        }
        Ok(())
    }
}

type Methods = fn() -> axum::routing::MethodRouter<App>;

/// A path, the handlers of its methods, the rights that each requires, and what they are about.
struct Route {
    path: &'static str,
    methods: Methods,
    needs: &'static [(Method, Need)],
    about: About,
    /// The methods that are about nothing all the same.
    anywhere: &'static [Method],
}

const fn route(path: &'static str, methods: Methods, needs: &'static [(Method, Need)]) -> Route {
    Route { path, methods, needs, about: About::Nothing, anywhere: &[] }
}

impl Route {
    /// What requests on this route are about: the home of that serves them.
    const fn about(self, about: About) -> Self {
        Self { about, ..self }
    }

    /// But for these methods, which any hub can serve.
    const fn but_for(self, anywhere: &'static [Method]) -> Self {
        Self { anywhere, ..self }
    }
}

const READ: Need = Need::OnTopic(Action::Read);
const PUBLISH: Need = Need::OnTopic(Action::Publish);
const ADMIN: Need = Need::OnTopic(Action::Admin);
const READ_COLLECTION: Need = Need::OnCollection(Action::Read);
const ADMIN_COLLECTION: Need = Need::OnCollection(Action::Admin);
/// The handler itself checks the rights on the projection's topic and collections.
const ADMIN_SOMEWHERE: Need = Need::Somewhere(Action::Admin);

/// A copy of the store has everything in it.
const ADMIN_OF_ALL: Need = Need::Everywhere(Action::Admin);

/// All routes. A test makes sure that each method has its `Need`.
const ROUTES: &[Route] = &[
    route("/publish/{topic}", || post(publish::raw), &[(Method::POST, PUBLISH)]),
    route("/v1/topics", || get(topics::list), &[(Method::GET, Need::Token)]),
    route(
        "/v1/topics/{topic}",
        || get(topics::show).put(topics::put).delete(topics::delete),
        &[(Method::GET, Need::SeeTopic), (Method::PUT, ADMIN), (Method::DELETE, ADMIN)],
    )
    .about(About::Topic)
    .but_for(&[Method::GET]),
    route("/v1/topics/{topic}/clean", || post(topics::clean), &[(Method::POST, ADMIN)]).about(About::Topic),
    route("/v1/topics/{topic}/trim", || post(topics::trim), &[(Method::POST, ADMIN)]).about(About::Topic),
    route(
        "/v1/topics/{topic}/events",
        || get(events::read).post(publish::events),
        &[(Method::GET, Need::ReadOrFollow), (Method::POST, PUBLISH)],
    ),
    // The handler itself checks the rights on each topic.
    route("/v1/events", || get(events::follow_many), &[(Method::GET, Need::Token)]),
    route("/v1/topics/{topic}/events/{id}", || get(events::by_id), &[(Method::GET, READ)]),
    route("/v1/topics/{topic}/keys", || post(keys::latest_of_many), &[(Method::POST, READ)]),
    // The empty string is a key too, and a path segment cannot be empty.
    route(
        "/v1/topics/{topic}/keys/",
        || get(keys::latest).delete(keys::forget),
        &[(Method::GET, READ), (Method::DELETE, ADMIN)],
    )
    .about(About::Topic)
    .but_for(&[Method::GET]),
    route(
        "/v1/topics/{topic}/keys/{key}",
        || get(keys::latest).delete(keys::forget),
        &[(Method::GET, READ), (Method::DELETE, ADMIN)],
    )
    .about(About::Topic)
    .but_for(&[Method::GET]),
    route("/v1/topics/{topic}/state", || get(states::of_all), &[(Method::GET, READ)]),
    // Here too.
    route("/v1/topics/{topic}/state/", || get(states::of_key), &[(Method::GET, READ)]),
    route("/v1/topics/{topic}/state/{key}", || get(states::of_key), &[(Method::GET, READ)]),
    route("/v1/topics/{topic}/groups", || get(groups::list), &[(Method::GET, Need::OnSomeGroup)])
        .about(About::Topic),
    route(
        "/v1/topics/{topic}/groups/{group}",
        || get(groups::show).put(groups::put).patch(groups::alter).delete(groups::delete),
        &[
            (Method::GET, Need::OnGroup),
            (Method::PUT, Need::OnGroup),
            (Method::PATCH, Need::OnGroup),
            (Method::DELETE, Need::OnGroup),
        ],
    )
    .about(About::Topic),
    route("/v1/topics/{topic}/groups/{group}/pull", || post(groups::pull), &[(Method::POST, Need::OnGroup)])
        .about(About::Topic),
    route("/v1/topics/{topic}/groups/{group}/ack", || post(groups::ack), &[(Method::POST, Need::OnGroup)])
        .about(About::Topic),
    route(
        "/v1/topics/{topic}/groups/{group}/cursor",
        || get(groups::cursor).put(groups::set_cursor).post(groups::set_cursor),
        &[(Method::GET, Need::OnGroup), (Method::PUT, Need::OnGroup), (Method::POST, Need::OnGroup)],
    )
    .about(About::Topic),
    route("/v1/topics/{topic}/groups/{group}/skip", || post(groups::skip), &[(Method::POST, Need::OnGroup)])
        .about(About::Topic),
    route("/v1/dlq/{topic}", || get(dlq::list), &[(Method::GET, Need::OnDeadLetters(Action::Read))]),
    route(
        "/v1/dlq/{topic}/replay",
        || post(dlq::replay),
        &[(Method::POST, Need::OnDeadLetters(Action::Admin))],
    )
    .about(About::Topic),
    route("/v1/collections", || get(collections::list), &[(Method::GET, Need::Token)]),
    route(
        "/v1/collections/{collection}",
        || get(collections::show).put(collections::put).delete(collections::delete),
        &[
            (Method::GET, READ_COLLECTION),
            (Method::PUT, ADMIN_COLLECTION),
            (Method::DELETE, ADMIN_COLLECTION),
        ],
    ),
    route("/v1/collections/{collection}/list", || get(documents::list), &[(Method::GET, READ_COLLECTION)]),
    // The empty string is a key here too.
    route("/v1/collections/{collection}/snap/", || get(document::snap), &[(Method::GET, READ_COLLECTION)])
        .about(About::Seen),
    route(
        "/v1/collections/{collection}/snap/{key}",
        || get(document::snap),
        &[(Method::GET, READ_COLLECTION)],
    )
    .about(About::Seen),
    route("/v1/projections", || get(projections::list), &[(Method::GET, ADMIN_SOMEWHERE)]),
    route(
        "/v1/projections/{name}",
        || get(projections::show).put(projections::put).delete(projections::delete),
        &[(Method::GET, ADMIN_SOMEWHERE), (Method::PUT, ADMIN_SOMEWHERE), (Method::DELETE, ADMIN_SOMEWHERE)],
    )
    .about(About::Projection),
    route(
        "/v1/projections/{name}/rebuild",
        || post(projections::rebuild),
        &[(Method::POST, ADMIN_SOMEWHERE)],
    )
    .about(About::Projection),
    // The rights on both topics are checked by the handlers.
    route(
        "/v1/replays",
        || get(replays::list).post(replays::begin),
        &[(Method::GET, ADMIN_SOMEWHERE), (Method::POST, ADMIN_SOMEWHERE)],
    )
    .about(About::Replay)
    .but_for(&[Method::GET]),
    route(
        "/v1/replays/{name}",
        || get(replays::show).delete(replays::delete),
        &[(Method::GET, ADMIN_SOMEWHERE), (Method::DELETE, ADMIN_SOMEWHERE)],
    )
    .about(About::Replay),
    route("/v1/replays/{name}/pause", || post(replays::pause), &[(Method::POST, ADMIN_SOMEWHERE)])
        .about(About::Replay),
    route("/v1/replays/{name}/resume", || post(replays::resume), &[(Method::POST, ADMIN_SOMEWHERE)])
        .about(About::Replay),
    route("/v1/replays/{name}/cancel", || post(replays::cancel), &[(Method::POST, ADMIN_SOMEWHERE)])
        .about(About::Replay),
    route("/v1/schemas", || get(schemas::list), &[(Method::GET, Need::Token)]),
    route(
        "/v1/schemas/{topic}",
        || get(schemas::show).post(schemas::register),
        &[(Method::GET, Need::SeeTopic), (Method::POST, ADMIN)],
    ),
    route("/v1/schemas/{topic}/check", || post(schemas::check), &[(Method::POST, Need::SeeTopic)]),
    route(
        "/v1/schemas/{topic}/versions/{version}",
        || get(schemas::show_version),
        &[(Method::GET, Need::SeeTopic)],
    ),
    route(
        "/v1/schemas/{topic}/versions/{version}/example",
        || get(schemas::example),
        &[(Method::GET, Need::SeeTopic)],
    ),
    route(
        "/v1/schemas/{topic}/upcasters/{from}",
        || get(schemas::show_upcaster).put(schemas::put_upcaster).delete(schemas::delete_upcaster),
        &[(Method::GET, Need::SeeTopic), (Method::PUT, ADMIN), (Method::DELETE, ADMIN)],
    ),
    route("/v1/backups", || post(backups::begin), &[(Method::POST, ADMIN_OF_ALL)]),
    route("/v1/backups/{id}", || delete(backups::end), &[(Method::DELETE, ADMIN_OF_ALL)]),
    route("/v1/backups/{id}/files/{*name}", || get(backups::piece), &[(Method::GET, ADMIN_OF_ALL)]),
    // The required rights depend on its contents.
    route("/v1/commit", || post(commit::commit), &[(Method::POST, Need::Token)]),
    // Hubs greet each other before they ask anything.
    route(cluster::HELLO, || post(cluster::hello), &[(Method::POST, Need::Nothing)]),
    route(cluster::PUBLISHES, || post(cluster::publishes), &[(Method::POST, Need::Nothing)]),
    route(cluster::FORGET, || post(cluster::forget), &[(Method::POST, Need::Nothing)]),
    route(cluster::PLEDGE, || post(cluster::pledge), &[(Method::POST, Need::Nothing)]),
    route(cluster::TELL, || post(cluster::tell), &[(Method::POST, Need::Nothing)]),
    route("/ws", || get(ws::upgrade), &[(Method::GET, Need::TokenOrLater)]),
    route("/ops", || get(ops::ops), &[(Method::GET, Need::Somewhere(Action::Admin))]),
    route("/healthz", || get(ops::healthz), &[(Method::GET, Need::Nothing)]),
    route("/readyz", || get(ops::readyz), &[(Method::GET, Need::Nothing)]),
    // It names topics and groups, but contains no events.
    route("/metrics", || get(ops::metrics), &[(Method::GET, Need::Token)]),
];

/// The rights that a request requires. An unsupported method is reported only to callers with a token.
pub(crate) fn need_of(path: &str, method: &Method) -> Need {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let route = ROUTES.iter().find(|route| route.path == path);
    let need = route.and_then(|route| route.needs.iter().find(|(of, _)| of == method));
    need.map_or(Need::Token, |(_, need)| *need)
}

/// What a request is about. `HEAD` is what `GET` is.
pub(crate) fn about(path: &str, method: &Method) -> About {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let route = ROUTES.iter().find(|route| route.path == path);
    route.filter(|route| !route.anywhere.contains(method)).map_or(About::Nothing, |route| route.about)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::http::{Request, header};
    use std::collections::BTreeSet;
    use tower::ServiceExt;

    #[tokio::test]
    async fn every_method_of_every_path_has_its_need() {
        let router = Gateway::new(GatewayOptions::default()).unwrap().router();
        for route in ROUTES {
            let path = route.path.replace(['{', '}', '*'], "");
            let request = Request::builder().method("BREW").uri(path).header(header::HOST, "localhost");
            let request = request.body(Body::empty()).unwrap();
            let answer = router.clone().oneshot(request).await.unwrap();
            let allowed = answer.headers()[header::ALLOW].to_str().unwrap().to_owned();
            let known: BTreeSet<&str> = allowed.split(',').filter(|method| *method != "HEAD").collect();
            let needs: BTreeSet<&str> = route.needs.iter().map(|(method, _)| method.as_str()).collect();
            assert_eq!(known, needs, "{}", route.path);
        }
    }
}
