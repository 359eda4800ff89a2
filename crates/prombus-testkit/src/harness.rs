//! A whole hub in the process of a test: in memory, with its gateway on a free port, and the process example on it.

use crate::missing::{DocumentError, missing};
use prombus_client::{Client, ClientError};
use prombus_core::{Clock, SystemClock, Watched};
use prombus_engine::{Hub, HubOptions, Limits, Store};
use prombus_process::{Projector, ProjectorOptions, set_up};
use prombus_server::{Gateway, GatewayOptions};
use prombus_store_memory::MemoryStore;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long a document is waited for.
const DOCUMENT_TIME: Duration = Duration::from_secs(5);

/// Why a harness cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    /// There is no free port, say.
    #[error("the gateway cannot listen: {0}")]
    Io(#[from] std::io::Error),
    /// The gateway's settings make no sense.
    #[error("{0}")]
    Gateway(String),
    /// The process example could not be set up.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// A hub for a test. It ends when it is dropped; [`Harness::stop`] also waits for that.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use prombus_client::NewEvent;
/// use prombus_testkit::Harness;
/// use serde_json::json;
///
/// let harness = Harness::start().await?;
/// let beat = json!({"host": "web1", "name": "stt", "pid": 4242, "cpu_pct": 3.5, "mem_mb": 64});
/// harness.client.publish("heartbeat.received", &NewEvent::of(&beat)?.with_key("web1:stt:4242")).await?;
/// let process = harness.document("processes", "web1:stt:4242").await?;
/// assert_eq!(process["status"], "alive");
/// harness.stop().await;
/// # Ok(())
/// # }
/// ```
pub struct Harness {
    /// A client of the hub.
    pub client: Client,
    /// The hub itself.
    pub hub: Hub,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Harness {
    /// A hub in memory, with the process example.
    pub async fn start() -> Result<Self, HarnessError> {
        Self::start_with(ProjectorOptions::default()).await
    }

    /// The same, with a projector that thinks otherwise of how long a process may be silent.
    pub async fn start_with(projector: ProjectorOptions) -> Result<Self, HarnessError> {
        let mut harness = Self::start_bare().await?;
        set_up(&harness.client).await?;
        let projector = Projector::new(harness.client.clone(), projector);
        let stopped = harness.stopped();
        harness.tasks.push(tokio::spawn(async move { projector.run(stopped).await }));
        Ok(harness)
    }

    /// A hub in memory, with nothing on it.
    pub async fn start_bare() -> Result<Self, HarnessError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let store = Store::new(Arc::new(MemoryStore::new(clock.clone(), fastrand::u64(..))));
        let options =
            HubOptions { limits: Limits::default(), auto_create: true, topics: HashMap::new(), clock };
        let hub = Hub::assemble(store, options);
        let gateway = Gateway::new(GatewayOptions::default()).map_err(HarnessError::Gateway)?;
        gateway.open(hub.clone());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let client = Client::new(&format!("http://{address}"), None)?;
        let mut harness = Self { client, hub, address, stop: watch::Sender::new(false), tasks: Vec::new() };
        let stopped = harness.stopped();
        harness.tasks.push(tokio::spawn(async move { drop(gateway.serve(listener, stopped).await) }));
        Ok(harness)
    }

    /// Where the hub is reached.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stop = self.stop.subscribe();
        // That the harness is gone means the same.
        async move { drop(stop.wait_for(|stop| *stop).await) }
    }

    /// Waits until a document is there, and gives it. After 5 s the error says what is there instead: the keys of the
    /// collection, or the collections, and how the projections are doing.
    pub async fn document(&self, collection: &str, key: &str) -> Result<serde_json::Value, DocumentError> {
        let waiting = async {
            let mut seen = prombus_core::Sequence(0);
            loop {
                if let Some(document) = self.client.get(collection, key).await? {
                    return document.parse();
                }
                seen = self.hub.changed(&Watched::Everything, seen).await;
            }
        };
        match tokio::time::timeout(DOCUMENT_TIME, waiting).await {
            Ok(document) => Ok(document?),
            Err(_) => Err(missing(&self.client, collection, key).await?),
        }
    }

    /// Ends the hub and waits until it has ended.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // Pulls that wait for events would hold the gateway up.
        self.hub.stop_waiting();
        for task in self.tasks {
            // One that panicked has said so itself.
            let _ = task.await;
        }
        self.hub.close().await;
    }
}
