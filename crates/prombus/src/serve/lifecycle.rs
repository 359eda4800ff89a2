//! The life cycle of a hub: listen, open the store, serve, drain, close. This is where store, hub and gateway are put
//! together.

use super::address::{self, Exposure, NO_AUTH};
use super::files::share_files;
use super::schemas;
use super::settings::Settings;
use super::signals::{Signals, survive_file_limits};
use crate::config::{self, Projection, Topics};
use crate::failure::Failure;
use crate::store;
use prombus_core::{Clock, CommitError, Owner, SystemClock, TopicName, TopicPatch};
use prombus_engine::collections::{CollectionError, CollectionSettings};
use prombus_engine::projections::check_together;
use prombus_engine::{BusError, Hub, HubOptions};
use prombus_server::{AuthOptions, Gateway};
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long requests may go on after the hub was told to end.
const DRAIN: Duration = Duration::from_millis(7_500);
/// How long the store may take to close; together with [`DRAIN`] less than the ten seconds that are promised.
const CLOSE: Duration = Duration::from_secs(2);

/// Runs a hub from its first moment to its last, and what is to run beside it, once it is ready.
pub async fn serve<F: Future<Output = ()> + Send + 'static>(
    mut settings: Settings,
    beside: impl FnOnce(SocketAddr) -> F,
) -> Result<(), Failure> {
    check(&settings)?;
    let mut signals = Signals::take()?;
    survive_file_limits();
    share_files(&mut settings);
    take_memory_in_small_pages();
    let mut front = Listener::open(&settings).await?;
    let hub = tokio::select! {
        hub = open_hub(&settings, (&front.gateway, front.address)) => hub?,
        signal = signals.next() => {
            tracing::info!("{signal} while the store was opening: exiting");
            return Ok(());
        }
    };
    front.gateway.open(hub.clone());
    let store = store::describe(&settings.store);
    let scheme = if settings.gateway.tls.is_some() { "https" } else { "http" };
    tracing::info!(url = %format_args!("{scheme}://{}", front.address), %store, "ready");
    let beside = tokio::spawn(beside(front.address));
    let signal = tokio::select! {
        signal = signals.next() => signal,
        ended = &mut front.serving => return Err(stopped_serving(ended)),
    };
    beside.abort();
    tracing::info!("{signal}: shutting down");
    tokio::select! {
        () = end(front, &hub) => tracing::info!("stopped"),
        signal = signals.next() => tracing::warn!("{signal} again: exiting immediately"),
    }
    Ok(())
}

/// The buffer of a frame is set aside when its head announces it, before any of it has come, and takes memory as it fills.
/// With huge pages its first byte would take two megabytes, for each of ten thousand clients that send no more than that.
fn take_memory_in_small_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::warn!(%error, "failed to disable huge pages; idle clients may take much memory");
    }
}

/// Lets requests finish, then closes the store.
async fn end(front: Listener, hub: &Hub) {
    // First of all, so that the others do not wait for what is still in flight here.
    front.gateway.leave(hub).await;
    drop(front.stop);
    hub.stop_waiting();
    hub.cleaning().stop();
    if tokio::time::timeout(DRAIN, front.serving).await.is_err() {
        tracing::warn!("some requests did not finish in time and are cut off");
    }
    if tokio::time::timeout(CLOSE, hub.close()).await.is_err() {
        tracing::warn!("the store did not close in time; it will recover when it is opened again");
    }
}

fn stopped_serving(ended: Result<std::io::Result<()>, tokio::task::JoinError>) -> Failure {
    let why = match ended {
        Ok(Ok(())) => "it ended by itself".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    Failure::Failed(format!("the hub cannot serve any more: {why}"))
}

/// The part that listens. It is there before the store is, and says so to those who ask.
struct Listener {
    gateway: Gateway,
    address: SocketAddr,
    serving: JoinHandle<std::io::Result<()>>,
    /// Dropping it ends the serving.
    stop: oneshot::Sender<()>,
}

impl Listener {
    async fn open(settings: &Settings) -> Result<Self, Failure> {
        let gateway = Gateway::new(settings.gateway.clone()).map_err(Failure::Failed)?;
        let anyone = matches!(settings.gateway.auth, AuthOptions::None);
        let listener =
            address::bind(&settings.listen, Exposure::of(!anyone || settings.insecure, NO_AUTH)).await?;
        let address = listener.local_addr().map_err(|error| Failure::Failed(error.to_string()))?;
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn({
            let gateway = gateway.clone();
            async move { gateway.serve(listener, async { drop(stopped.await) }).await }
        });
        Ok(Self { gateway, address, serving, stop })
    }
}

/// Refuses a configuration whose collections and projections can never be made, before any of it is.
fn check(settings: &Settings) -> Result<(), Failure> {
    for (name, collection) in &settings.collections {
        collection.settings().check().map_err(|why| unsettled("collection", name, why))?;
    }
    let all = || settings.projections.iter().map(|one| (one.name.as_str(), &one.definition));
    let topics = settings.topics.configs();
    check_together(all(), &topics).map_err(|bad| unsettled("projection", &bad.name, &bad))?;
    for (name, definition) in all() {
        if let Some(collection) = definition.collections().find(|one| settings.collections.contains_key(*one))
        {
            let why = format!(
                "collection {collection} is also in [collections], which is for those that commits write: remove it there"
            );
            return Err(unsettled("projection", name, why));
        }
    }
    Ok(())
}

fn unsettled(kind: &str, name: &str, why: impl Display) -> Failure {
    Failure::Failed(format!("cannot apply {kind} {name:?} from the configuration: {why}"))
}

async fn open_hub(settings: &Settings, (gateway, address): (&Gateway, SocketAddr)) -> Result<Hub, Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = store::open(settings, clock.clone()).await?;
    let Topics { auto_create, named } = &settings.topics;
    let options = HubOptions {
        limits: settings.limits.clone(),
        auto_create: auto_create.unwrap_or(true),
        topics: settings.topics.configs(),
        clock,
    };
    let hub = Hub::assemble(store, options);
    // Before it does anything that others do as well.
    gateway.join(&hub, address).await.map_err(Failure::Failed)?;
    for (name, patch) in named {
        settle_topic(&hub, name, patch.clone()).await?;
    }
    if let Some(folder) = &settings.schemas {
        let changefeeds = config::changefeeds(&settings.collections, &settings.projections);
        schemas::register(&hub, folder, &changefeeds.collect()).await?;
    }
    for (name, collection) in &settings.collections {
        settle_collection(&hub, name, collection.settings()).await?;
    }
    let failed = |error| Failure::Failed(format!("the projections cannot be started: {error}"));
    hub.projections().start().await.map_err(failed)?;
    for projection in &settings.projections {
        settle_projection(&hub, projection).await?;
    }
    hub.cleaning().start(settings.clean_every);
    hub.replays().start();
    Ok(hub)
}

/// Makes the collection as the configuration has it.
async fn settle_collection(hub: &Hub, name: &str, settings: CollectionSettings) -> Result<(), Failure> {
    let failed = |why: CollectionError| unsettled("collection", name, why);
    let now = hub.collections().get(name).await.map_err(|error| failed(error.into()))?;
    let config = now.map(|now| now.config).filter(|config| config.owner == Owner::COMMITS);
    if config.is_some_and(|now| (&now.indexes, &now.changefeed) == (&settings.indexes, &settings.changefeed))
    {
        // To put it again would begin an index again that failed.
        return Ok(());
    }
    let (_, made) = hub.collections().put(name, settings).await.map_err(failed)?;
    if made {
        tracing::info!("collection {name} created");
    }
    Ok(())
}

/// Makes the projection as the configuration has it, also where it was defined otherwise before.
async fn settle_projection(hub: &Hub, projection: &Projection) -> Result<(), Failure> {
    let Projection { name, definition } = projection;
    let put = hub.projections().put(name, definition.clone()).await;
    let (status, made) = put.map_err(|why| unsettled("projection", name, why))?;
    if made {
        tracing::info!("projection {name} created");
    } else if status.stale {
        tracing::warn!(
            "the documents of projection {name} are from an earlier definition: rebuild it to update them"
        );
    }
    Ok(())
}

/// Makes the topic as the configuration has it. Partitions cannot shrink: one that has more keeps them.
async fn settle_topic(hub: &Hub, name: &TopicName, mut patch: TopicPatch) -> Result<(), Failure> {
    let failed = |why: String| unsettled("topic", name.as_str(), why);
    let now = hub.topic(name).await.map_err(|error| failed(error.to_string()))?;
    if let (Some(now), Some(wanted)) = (&now, patch.partitions)
        && wanted < now.config.partitions
    {
        let partitions = now.config.partitions;
        tracing::warn!("topic {name} keeps its {partitions} partitions: they cannot be reduced to {wanted}");
        patch.partitions = None;
    }
    let (state, made) = match hub.put_topic(name, patch.clone()).await {
        // Groups can be deleted only once the hub runs.
        Err(BusError::Commit(error @ CommitError::TooManyReaderPartitions { .. })) => {
            tracing::warn!("topic {name} keeps its partitions: {error}");
            hub.put_topic(name, TopicPatch { partitions: None, ..patch }).await
        }
        put => put,
    }
    .map_err(|error| failed(error.to_string()))?;
    if made {
        tracing::info!("topic {name} created");
    } else if now.is_some_and(|now| now.revision != state.revision) {
        tracing::info!("topic {name} altered to match the configuration");
    }
    Ok(())
}
