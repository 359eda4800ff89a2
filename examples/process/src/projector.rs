//! The projector: a consumer whose every step is one commit.

use crate::beat::{Heartbeat, ProcessState, Status};
use crate::{BEATS, HEARTBEATS, STATES};
use prombus_client::{
    AckRequest, Client, ClientError, Commit, CommitError, DeliveryRecord, NackRequest, NewEvent, PullRequest,
    Text,
};
use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The group that it consumes as.
const GROUP: &str = "process-projector";
/// How many beats are one commit.
const BATCH: usize = 100;
/// How long a pull waits for beats.
const PULL_WAIT_MS: u64 = 500;
/// How long it waits after the hub could not be reached.
const PAUSE: Duration = Duration::from_millis(250);
/// How many processes become stale in one commit.
const STALE_AT_ONCE: u64 = 100;

/// What can be chosen about a projector.
#[derive(Debug, Clone)]
pub struct ProjectorOptions {
    /// A process is stale after so long without a beat.
    pub stale_after: Duration,
    /// How often it is looked for stale processes.
    pub look_every: Duration,
}

impl Default for ProjectorOptions {
    fn default() -> Self {
        Self { stale_after: Duration::from_secs(15), look_every: Duration::from_secs(1) }
    }
}

/// Makes states of heartbeats. Several may run at once, here or elsewhere: they share the work.
#[derive(Debug, Clone)]
pub struct Projector {
    client: Client,
    options: ProjectorOptions,
}

/// A process as it is stored, and in which version.
type KnownState = (ProcessState, u64);

impl Projector {
    /// A projector on a hub.
    pub fn new(client: Client, options: ProjectorOptions) -> Self {
        Self { client, options }
    }

    /// Works until `shutdown` is done. What was begun is finished, or comes back to whoever works next.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) {
        tokio::select! {
            () = shutdown => {}
            () = forever(|| self.consume()) => {}
            () = forever(|| self.find_stale()) => {}
        }
    }

    /// Takes the beats that there are.
    async fn consume(&self) -> Result<(), ClientError> {
        let request = PullRequest {
            max: Some(BATCH),
            wait_ms: Some(PULL_WAIT_MS),
            from: Some("earliest".into()),
            ..PullRequest::default()
        };
        let pulled = self.client.pull(HEARTBEATS, GROUP, &request).await?;
        if pulled.deliveries.is_empty() {
            return Ok(());
        }
        loop {
            match self.client.commit(&self.take(&pulled.deliveries).await?).await {
                Ok(_) => return Ok(()),
                // A process became stale meanwhile: its beat revives it.
                Err(CommitError::VersionConflict(_)) => {}
                Err(CommitError::LeaseExpired(_)) => return self.give_back(&pulled.deliveries).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// One commit for all beats: acked, known, and told.
    async fn take(&self, deliveries: &[DeliveryRecord]) -> Result<Commit, ClientError> {
        let mut commit = Commit::new();
        let mut states: BTreeMap<String, (Option<KnownState>, ProcessState)> = BTreeMap::new();
        for delivery in deliveries {
            commit = commit.ack(delivery);
            let Ok(beat) = serde_json::from_str::<Heartbeat>(delivery.event.payload.get()) else {
                tracing::warn!(id = %delivery.event.id, "this is not a heartbeat");
                continue;
            };
            let (id, ts) = (beat.process_id(), delivery.event.ts);
            let (known, state) = match states.remove(&id) {
                Some((known, state)) => (known, state.after(beat, ts)),
                None => match self.known(&id).await? {
                    Some(known) => {
                        let state = known.0.clone().after(beat, ts);
                        (Some(known), state)
                    }
                    None => (None, ProcessState::alive(beat, ts)),
                },
            };
            states.insert(id, (known, state));
        }
        for (id, (known, state)) in states {
            if known.as_ref().is_some_and(|(known, _)| *known == state) {
                continue;
            }
            commit = told(commit, &id, &state, known.map_or(0, |(_, version)| version))?;
        }
        Ok(commit)
    }

    /// Some of the beats are someone else's now; the others come again.
    async fn give_back(&self, deliveries: &[DeliveryRecord]) -> Result<(), ClientError> {
        let nacks = deliveries.iter().map(|delivery| NackRequest {
            lease: Text(delivery.ctx.lease.as_str().into()),
            reason: None,
            delay_ms: None,
        });
        let request = AckRequest { nack: nacks.collect(), ..AckRequest::default() };
        self.client.settle(HEARTBEATS, GROUP, &request).await.map(drop)
    }

    async fn known(&self, id: &str) -> Result<Option<KnownState>, ClientError> {
        match self.client.get(BEATS, id).await? {
            None => Ok(None),
            Some(document) => document.parse::<Stored>().map(|stored| Some((stored.state, stored.version))),
        }
    }

    /// Tells of processes that were not heard of for a while.
    async fn find_stale(&self) -> Result<(), ClientError> {
        // Nobody tells when time has passed.
        tokio::time::sleep(self.options.look_every).await;
        let before = now_ms().saturating_sub(self.options.stale_after.as_millis() as u64);
        let silent = self.client.list(BEATS).eq("status", "alive").lt("last_seen_ts", before);
        for Stored { state, version } in
            silent.sort("last_seen_ts").limit(STALE_AT_ONCE).page().await?.parse()?
        {
            let id = state.process_id.clone();
            let state = ProcessState { status: Status::Stale, ..state };
            match self.client.commit(&told(Commit::new(), &id, &state, version)?).await {
                // It was heard of just now.
                Ok(_) | Err(CommitError::VersionConflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// A document of what is known.
#[derive(serde::Deserialize)]
struct Stored {
    #[serde(flatten)]
    state: ProcessState,
    #[serde(rename = "_v")]
    version: u64,
}

/// The commit with the state of a process, stored and told.
fn told(commit: Commit, id: &str, state: &ProcessState, version: u64) -> Result<Commit, ClientError> {
    let event = NewEvent::of(state)?.with_key(id);
    Ok(commit.set(BEATS, id, state).if_version(version).publish(STATES, event))
}

/// Does something again and again. The hub may be gone for a while.
async fn forever<F: Future<Output = Result<(), ClientError>>>(step: impl Fn() -> F) {
    loop {
        if let Err(error) = step().await {
            tracing::warn!(%error, "the projector tries again");
            // Nobody tells when the hub is there again.
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
