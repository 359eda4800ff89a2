//! The state of every key, then live: a snapshot topic, and the events that have come since.

use crate::live::{Backoff, LiveOptions};
use crate::{Client, ClientError, HubError, ReadQuery, Tail};
use prombus_wire::{ErrorCode, EventRecord, SnapshotAnswer, SnapshotRecord};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::{HashMap, VecDeque};

/// How many snapshots are read at once.
const PAGE: usize = 1_000;

/// What a key is now.
#[derive(Debug, Clone)]
pub enum Change {
    /// By its snapshot.
    Snapshot(SnapshotRecord),
    /// By an event.
    Event(Box<EventRecord>),
}

impl Change {
    /// The key; an event may have none.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Snapshot(record) => Some(&record.key),
            Self::Event(event) => event.key.as_deref(),
        }
    }

    /// The time of the event.
    pub fn ts(&self) -> u64 {
        match self {
            Self::Snapshot(record) => record.ts,
            Self::Event(event) => event.ts,
        }
    }

    /// The partition and the offset of the event.
    pub fn place(&self) -> (u32, u64) {
        match self {
            Self::Snapshot(record) => (record.partition, record.offset),
            Self::Event(event) => (event.partition, event.offset),
        }
    }

    /// The payload of the event, as JSON.
    pub fn json(&self) -> &RawValue {
        match self {
            Self::Snapshot(record) => &record.payload,
            Self::Event(event) => &event.payload,
        }
    }

    /// The payload of the event; `None` if it ends the key.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<Option<T>, ClientError> {
        match self.json().get() {
            "null" => Ok(None),
            text => serde_json::from_str(text).map(Some).map_err(ClientError::BadPayload),
        }
    }
}

/// Snapshots of all keys, then the events that have come since: see [`Client::warm_up`].
pub struct WarmUp {
    client: Client,
    topic: String,
    snapshot: SnapshotAnswer,
    stage: Stage,
    /// What snapshots already say of events that are still to come, by key.
    covered: HashMap<String, (u32, u64)>,
    ready: VecDeque<Change>,
    backoff: Backoff,
}

/// How far it has come.
enum Stage {
    /// The snapshot topic is read, from this page on.
    Snapshots(Option<String>),
    /// It was read to its end.
    Read,
    /// Events are followed.
    Live(Option<Tail>),
}

impl Client {
    /// Reads what every key of a topic is, by its snapshot topic, and goes on live with the events that have come since.
    /// Nothing is missed, and nothing comes twice: no key goes back to an earlier event.
    ///
    /// When the connection breaks, or the hub is restarted, it continues where it was. The error is `gone` if it cannot:
    /// the topic or its snapshot topic was deleted, its snapshots were begun anew, or retention was faster. Then
    /// start over, with an empty state.
    ///
    /// This requires `read` on the snapshot topic, and `subscribe` on the topic.
    ///
    /// ```no_run
    /// # async fn example(client: prombus_client::Client) -> Result<(), prombus_client::ClientError> {
    /// use std::collections::HashMap;
    ///
    /// let mut celsius: HashMap<String, f64> = HashMap::new();
    /// let mut changes = client.warm_up("sensors").await?;
    /// loop {
    ///     let change = changes.next().await?;
    ///     let Some(key) = change.key() else { continue };
    ///     match change.payload()? {
    ///         Some(now) => celsius.insert(key.to_owned(), now),
    ///         None => celsius.remove(key),
    ///     };
    /// }
    /// # }
    /// ```
    pub async fn warm_up(&self, topic: &str) -> Result<WarmUp, ClientError> {
        let snapshot = self.snapshots_of(topic).await?;
        // Until the first pass has begun, what the snapshot topic may hold is not of this topic, and all events come live.
        let stage = if snapshot.since == 0 { Stage::Live(None) } else { Stage::Snapshots(None) };
        Ok(WarmUp {
            client: self.clone(),
            topic: topic.to_owned(),
            snapshot,
            stage,
            covered: HashMap::new(),
            ready: VecDeque::new(),
            backoff: Backoff::new(&LiveOptions::default()),
        })
    }

    /// How far the snapshots of a topic have come.
    async fn snapshots_of(&self, topic: &str) -> Result<SnapshotAnswer, ClientError> {
        let missing = |what| refusal(ErrorCode::NotFound, what);
        let answer = self.topic(topic).await?;
        let answer = answer.ok_or_else(|| missing(format!("topic {topic} does not exist")))?;
        let snapshot = answer.snapshot().map_err(|error| ClientError::BadAnswer(error.to_string()))?;
        snapshot.ok_or_else(|| missing(format!("topic {topic} has no snapshot topic: set `snapshot` on it")))
    }
}

fn refusal(code: ErrorCode, message: String) -> ClientError {
    ClientError::Hub(Box::new(HubError::of_code(code, message)))
}

impl WarmUp {
    /// What has changed next; waits for it. Nothing is lost if the wait is cancelled.
    pub async fn next(&mut self) -> Result<Change, ClientError> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Ok(change);
            }
            match self.step().await {
                Ok(()) => {}
                Err(error) if error.is_temporary() => {
                    tracing::debug!(topic = self.topic, %error, "a warm-up tries again");
                    // A hub that is away or busy is left alone for a while, as by a subscription.
                    self.backoff.pause().await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether all snapshots were returned, so that what follows are events as they come.
    pub fn is_live(&self) -> bool {
        matches!(self.stage, Stage::Live(_)) && self.ready.is_empty()
    }

    async fn step(&mut self) -> Result<(), ClientError> {
        match &mut self.stage {
            Stage::Snapshots(next) => {
                let (topic, query) = (&self.snapshot.topic, ReadQuery::default());
                let page = match next {
                    None => self.client.read(topic, &query, PAGE).await?,
                    Some(next) => self.client.read_next(topic, next, PAGE).await?,
                };
                self.stage = page.next.map_or(Stage::Read, |next| Stage::Snapshots(Some(next)));
                page.events.iter().for_each(|event| self.take_snapshot(event));
            }
            Stage::Read => {
                let now = self.client.snapshots_of(&self.topic).await?;
                if (&now.topic, now.since) != (&self.snapshot.topic, self.snapshot.since) {
                    let message =
                        format!("the snapshots of topic {} were begun anew: start over", self.topic);
                    return Err(refusal(ErrorCode::Gone, message));
                }
                self.stage = Stage::Live(None);
            }
            Stage::Live(None) => {
                let query = ReadQuery::default();
                let tail = self.client.follow(&self.topic, &query, Some(&self.snapshot.resume)).await?;
                self.stage = Stage::Live(Some(tail));
            }
            Stage::Live(Some(tail)) => match tail.next().await {
                Ok(Some(events)) => {
                    for event in events {
                        self.take_event(&event.json)?;
                        self.snapshot.resume = event.resume;
                        self.backoff = Backoff::new(&LiveOptions::default());
                    }
                }
                ended => {
                    self.stage = Stage::Live(None);
                    ended?;
                    return Err(ClientError::ConnectionLost("the stream has ended".into()));
                }
            },
        }
        Ok(())
    }

    fn take_snapshot(&mut self, event: &EventRecord) {
        // Whoever may publish there may publish anything.
        let Ok(record) = serde_json::from_str::<SnapshotRecord>(event.payload.get()) else { return };
        let place = (record.partition, record.offset);
        let through = self.snapshot.through.get(record.partition as usize).copied().unwrap_or_default();
        if record.offset >= through {
            self.covered.insert(record.key.clone(), place);
        }
        self.ready.push_back(Change::Snapshot(record));
    }

    fn take_event(&mut self, json: &str) -> Result<(), ClientError> {
        let event: EventRecord =
            serde_json::from_str(json).map_err(|error| ClientError::BadAnswer(error.to_string()))?;
        if let Some(key) = &event.key
            && let Some(covered) = self.covered.get(key)
        {
            let place = (event.partition, event.offset);
            let is_covered = place <= *covered;
            // Later events of the key are not covered.
            if place >= *covered {
                self.covered.remove(key);
            }
            if is_covered {
                return Ok(());
            }
        }
        self.ready.push_back(Change::Event(Box::new(event)));
        Ok(())
    }
}
