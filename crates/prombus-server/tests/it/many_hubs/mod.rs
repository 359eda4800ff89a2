//! Several hubs on one store, each behind a gateway of its own: whatever is asked of one gets to the home of its topic.

mod across;
mod between;
mod doors;
mod forgetting;
mod moving;
mod publishes;
mod sockets;
mod trust;

use crate::common::{Answer, Served, start_on};
use prombus_core::homes::SharedHomes;
use prombus_core::{AboutHub, Clock, Homes, SystemClock, TopicName};
use prombus_engine::homes::Place;
use prombus_engine::{Hub, HubOptions, Limits, Store};
use prombus_server::{AuthOptions, ClusterOptions, GatewayOptions, Secret};
use prombus_store_memory::MemoryStore;
use prombus_testkit::stalling::{Stall, StallingHomes};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SECRET: &str = "a secret that only the hubs have";
/// A hub that is silent for so long is missed.
const TTL: Duration = Duration::from_millis(1_500);
/// Long enough for what must happen, on any machine.
const LONG: Duration = Duration::from_secs(30);

/// Hubs that share a store.
pub struct Cluster {
    shared: SharedHomes,
    store: Arc<MemoryStore>,
    clock: Arc<dyn Clock>,
    auth: AuthOptions,
    auto_create: bool,
    topic_events_per_s: u64,
    pub hubs: Vec<Served>,
    /// What stalls each of them.
    pub stalls: Vec<Arc<Stall>>,
}

impl Cluster {
    /// So many hubs that know each other.
    pub async fn of(count: usize) -> Self {
        Self::with(count, AuthOptions::None).await
    }

    pub async fn with(count: usize, auth: AuthOptions) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let store = Arc::new(MemoryStore::new(clock.clone(), 7));
        let shared = SharedHomes::new(clock.clone(), Some(TTL.as_millis() as u64));
        let cluster = Self {
            shared,
            store,
            clock,
            auth,
            auto_create: true,
            topic_events_per_s: 0,
            hubs: Vec::new(),
            stalls: Vec::new(),
        };
        cluster.and(count).await
    }

    /// The same with so many more hubs.
    async fn and(mut self, count: usize) -> Self {
        for _ in 0..count {
            self.add().await;
        }
        self
    }

    pub async fn without_auto_create(count: usize) -> Self {
        Self { auto_create: false, ..Self::of(0).await }.and(count).await
    }

    /// Hubs that limit what a topic takes.
    pub async fn limited(count: usize, topic_events_per_s: u64) -> Self {
        Self { topic_events_per_s, ..Self::of(0).await }.and(count).await
    }

    /// One more hub.
    pub async fn add(&mut self) {
        let (added, stall) = self.start(SECRET).await.unwrap();
        self.hubs.push(added);
        self.stalls.push(stall);
        let count = self.hubs.len();
        let know_all = || self.hubs.iter().all(|hub| hub.hub().hubs().borrow().len() == count);
        until("all hubs know each other", know_all).await;
    }

    /// A hub with that secret, which need not be that of the others.
    pub async fn start(&self, secret: &str) -> Result<(Served, Arc<Stall>), String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cluster = ClusterOptions { secret: Secret::new(secret), advertise: None, hub_ttl: TTL };
        let gateway = GatewayOptions {
            version: "test",
            auth: self.auth.clone(),
            topic_events_per_s: self.topic_events_per_s,
            cluster: Some(cluster),
            ..GatewayOptions::default()
        };
        let mut served = start_on(listener, gateway);
        let name = format!("hub-{}", served.address.port());
        let stall = Stall::new();
        let homes = StallingHomes { inner: self.shared.hub(&name), stall: stall.clone() };
        let store = Store::new(self.store.clone()).shared(Arc::new(homes));
        let options = HubOptions {
            limits: Limits::default(),
            auto_create: self.auto_create,
            topics: HashMap::new(),
            clock: self.clock.clone(),
        };
        let hub = Hub::assemble(store, options);
        served.gateway.join(&hub, served.address).await?;
        hub.projections().start().await.unwrap();
        served.gateway.open(hub.clone());
        served.hub = Some(hub);
        Ok((served, stall))
    }

    /// From here on the others reach a hub at `address`.
    pub async fn advertise(&self, hub: usize, address: std::net::SocketAddr) {
        let id = self.hubs[hub].hub().id().clone();
        let known = self.hubs[hub].hub().hubs().borrow().iter().find(|one| one.id == id).cloned().unwrap();
        let url: Arc<str> = format!("http://{address}").into();
        self.shared.hub(&id.0).join(AboutHub { url: url.clone(), ..known.about }).await.unwrap();
        let knows = |one: &Served| one.hub().hubs().borrow().iter().any(|hub| hub.about.url == url);
        until("all hubs know where it is", || self.hubs.iter().all(knows)).await;
    }

    /// What they share.
    pub fn store(&self) -> &MemoryStore {
        &self.store
    }

    /// Which of the hubs is the home of a topic.
    pub fn home_of(&self, topic: &str) -> usize {
        let topic = TopicName::parse(topic).unwrap();
        match self.hubs[0].hub().place(&topic) {
            Place::Here => 0,
            Place::At(hub) => self.hubs.iter().position(|one| *one.hub().id() == hub.id).unwrap(),
        }
    }

    /// A hub that is not the home of a topic.
    pub fn other_than_home(&self, topic: &str) -> &Served {
        &self.hubs[(self.home_of(topic) + 1) % self.hubs.len()]
    }

    /// A topic that is at home on the hub with that number.
    pub fn topic_at(&self, hub: usize) -> String {
        let mut names = (0..).map(|n| format!("t{n}"));
        names.find(|name| self.home_of(name) == hub).unwrap()
    }
}

impl Served {
    pub fn hub(&self) -> &Hub {
        self.hub.as_ref().unwrap()
    }
}

/// Waits until something is so.
pub async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "{what}");
        // Nobody tells: it is looked at.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The leases of a pull.
pub fn leases(pulled: &Answer) -> Vec<String> {
    let deliveries = pulled.is(200).json()["deliveries"].as_array().unwrap().clone();
    deliveries.iter().map(|one| one["ctx"]["lease"].as_str().unwrap().to_owned()).collect()
}
