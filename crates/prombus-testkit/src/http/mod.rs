//! A log on the other side of an HTTP gateway, so that the suite of [`log`](crate::log) also tests routes and bodies.
//!
//! What is not on the wire is made up here, consistently, as long as nobody else changes topics: numbers and
//! revisions of topics, and sequences, which count the commits of this adapter. What HTTP has no words for (trims,
//! cursors, commits of several topics) is [`CommitError::Unavailable`] or [`ReadError::Unavailable`].

mod calls;
mod publish;
mod wire;

use async_trait::async_trait;
use calls::{Answer, Calls};
use parking_lot::Mutex;
use prombus_core::{
    Commit, CommitError, ConfigChange, Cursor, CursorKey, Durability, Event, EventLog, Histogram,
    HistoryRequest, Kept, Offset, Page, Partition, PreviousRequest, ReadError, ReadRequest, Receipt,
    Sequence, StoreStatus, Ticket, TopicConfig, TopicName, TopicNumber, TopicRef, TopicState, TsRequest,
    Watched,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;
use uuid::Uuid;
use wire::{Shown, WirePage};

pub use publish::{appended, refusal};

/// The most events that one page is asked for.
const MAX_PAGE: usize = 1_000;

/// Keys that cannot stand in a path, because there they mean something else, however they are written.
const UNSAYABLE_IN_A_PATH: [&str; 3] = ["", ".", ".."];

/// The log of a hub, over HTTP.
pub struct HttpLog {
    calls: Calls,
    numbers: Mutex<Numbers>,
    commits: watch::Sender<u64>,
    closed: AtomicBool,
    flushes: Arc<Histogram>,
}

/// Which number each topic has here.
#[derive(Default)]
struct Numbers {
    next: u32,
    of: HashMap<TopicName, TopicNumber>,
}

impl HttpLog {
    /// The log of the hub at `base`, such as `http://127.0.0.1:7070`. Panics if that is no address.
    pub fn new(base: &str) -> Self {
        Self::of_any(&[base.to_owned()])
    }

    /// The log of hubs that share a store: each call goes to any of them.
    pub fn of_any(bases: &[String]) -> Self {
        Self {
            calls: Calls::new(bases),
            numbers: Mutex::default(),
            commits: watch::Sender::new(0),
            closed: AtomicBool::new(false),
            flushes: Arc::default(),
        }
    }

    async fn shown(&self, name: &TopicName) -> Result<Option<Shown>, String> {
        let answer = self.calls.get(&["v1", "topics", name.as_str()], &[]).await?;
        match answer.status {
            200 => Shown::parse(&answer.body).map(Some),
            404 => Ok(None),
            _ => Err(answer.unexpected()),
        }
    }

    /// What a partition holds.
    async fn partition(&self, topic: &TopicName, partition: Partition) -> Result<Kept, ReadError> {
        let shown = self.shown(topic).await.map_err(ReadError::Unavailable)?;
        let shown = shown.ok_or_else(|| ReadError::TopicNotFound(topic.clone()))?;
        shown.kept(partition).ok_or_else(|| ReadError::NoSuchPartition {
            topic: topic.clone(),
            partitions: shown.config.partitions,
        })
    }

    /// The name of a topic, if it is the incarnation asked for.
    fn named(&self, asked: TopicRef) -> Result<TopicName, ReadError> {
        if asked.incarnation.is_some() {
            let now = self.numbers.lock().of.get(&asked.name).copied();
            asked.pick(now, |number| *number)?;
        }
        Ok(asked.name)
    }

    fn state(&self, shown: Shown) -> TopicState {
        let mut numbers = self.numbers.lock();
        let known = numbers.of.get(&shown.name).copied();
        let number = known.unwrap_or_else(|| {
            let number = TopicNumber(numbers.next);
            numbers.next += 1;
            numbers.of.insert(shown.name.clone(), number);
            number
        });
        let revision = wire::revision(&shown.config);
        TopicState { number, revision, name: shown.name, config: shown.config, growths: Vec::new() }
    }

    /// A page of a query.
    async fn page(&self, topic: &TopicName, query: &[(&str, String)]) -> Result<WirePage, ReadError> {
        let path = ["v1", "topics", topic.as_str(), "events"];
        let answer = self.calls.get(&path, query).await.map_err(ReadError::Unavailable)?;
        match answer.status {
            200 => WirePage::parse(&answer.body).map_err(ReadError::Corrupt),
            404 => Err(ReadError::TopicNotFound(topic.clone())),
            410 => Err(ReadError::Gone { first: Offset(answer.number("first")) }),
            _ => Err(ReadError::Unavailable(answer.unexpected())),
        }
    }

    /// One event, or `None` where the topic has no such one.
    async fn one(
        &self,
        topic: &TopicName,
        answer: Result<Answer, String>,
    ) -> Result<Option<Event>, ReadError> {
        let answer = answer.map_err(ReadError::Unavailable)?;
        match answer.status {
            200 => wire::event(&answer.body).map(Some).map_err(ReadError::Corrupt),
            404 => {
                let shown = self.shown(topic).await.map_err(ReadError::Unavailable)?;
                shown.map(|_| None).ok_or_else(|| ReadError::TopicNotFound(topic.clone()))
            }
            _ => Err(ReadError::Unavailable(answer.unexpected())),
        }
    }

    async fn configure(&self, change: &ConfigChange) -> Result<(), CommitError> {
        match change {
            ConfigChange::CreateTopic { name, config } => match self.found(name).await? {
                Some(_) => Err(CommitError::TopicExists(name.clone())),
                None => self.put(name, config).await,
            },
            ConfigChange::AlterTopic { name, expect_revision, config } => {
                let found = self.found(name).await?;
                let now = found.ok_or_else(|| CommitError::TopicNotFound(name.clone()))?.config;
                if wire::revision(&now) != *expect_revision {
                    return Err(CommitError::TopicChanged(name.clone()));
                }
                let (now, asked) = (now.partitions, config.partitions);
                match self.put(name, config).await {
                    Err(_) if asked < now => {
                        Err(CommitError::PartitionsShrink { topic: name.clone(), now, asked })
                    }
                    answer => answer,
                }
            }
            ConfigChange::DeleteTopic { name } => {
                let answer = self.calls.delete(&["v1", "topics", name.as_str()]).await;
                match answer.map_err(CommitError::Unavailable)? {
                    Answer { status: 200 | 204, .. } => {
                        self.numbers.lock().of.remove(name);
                        Ok(())
                    }
                    Answer { status: 404, .. } => Err(CommitError::TopicNotFound(name.clone())),
                    other => Err(CommitError::Unavailable(other.unexpected())),
                }
            }
            ConfigChange::Trim { .. }
            | ConfigChange::Discard { .. }
            | ConfigChange::Forget { .. }
            | ConfigChange::PutCollection { .. }
            | ConfigChange::DropCollection { .. }
            | ConfigChange::SwapCollection { .. } => Err(unsayable()),
        }
    }

    async fn found(&self, name: &TopicName) -> Result<Option<Shown>, CommitError> {
        self.shown(name).await.map_err(CommitError::Unavailable)
    }

    async fn put(&self, name: &TopicName, config: &TopicConfig) -> Result<(), CommitError> {
        let body = serde_json::to_vec(config).unwrap_or_default();
        let answer = self.calls.put(&["v1", "topics", name.as_str()], body).await;
        match answer.map_err(CommitError::Unavailable)? {
            Answer { status: 200 | 201, .. } => Ok(()),
            other => Err(CommitError::Unavailable(other.unexpected())),
        }
    }
}

fn unsayable() -> CommitError {
    CommitError::Unavailable("HTTP has no words for this commit".into())
}

impl HttpLog {
    /// Has the hub do a commit, as far as HTTP has words for it.
    async fn carry_out(&self, commit: &Commit) -> Result<Receipt, CommitError> {
        let Commit {
            config,
            events,
            event_copies,
            documents,
            cursors,
            origin: _,
            limits: _,
            auto_create: _,
            expected_topics: _,
            only_duplicates,
            headers_before: _,
        } = commit;
        if !event_copies.is_empty() || !only_duplicates.is_empty() {
            return Err(unsayable());
        }
        if !documents.is_empty() || !cursors.is_empty() {
            return Err(unsayable());
        }
        let (events, durability) = match (&config[..], &events[..]) {
            ([change], []) => {
                self.configure(change).await?;
                (Vec::new(), Durability::Sync)
            }
            ([], [first, rest @ ..]) if rest.iter().all(|other| other.topic == first.topic) => {
                publish::publish(&self.calls, &first.topic, events).await?
            }
            _ => return Err(unsayable()),
        };
        let mut sequence = 0;
        self.commits.send_modify(|commits| {
            *commits += 1;
            sequence = *commits;
        });
        Ok(Receipt { events, versions: Vec::new(), durability, sequence: Sequence(sequence) })
    }
}

#[async_trait]
impl EventLog for HttpLog {
    async fn enqueue(&self, commit: Arc<Commit>) -> Result<Ticket, CommitError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(CommitError::Unavailable("the adapter is closed".into()));
        }
        // Over HTTP, nobody knows of its place before it is answered.
        Ok(Ticket::decided(self.carry_out(&commit).await))
    }

    async fn read(&self, request: ReadRequest) -> Result<Page, ReadError> {
        let ReadRequest { topic, partition, from, limit, max_bytes } = request;
        let topic = self.named(topic)?;
        // Before the page, so that everything below this end was looked at when the page says it is the last.
        let end = self.partition(&topic, partition).await?.bounds.next;
        let query = [
            ("from", "offset".to_owned()),
            ("offset", from.to_string()),
            ("partition", partition.to_string()),
            ("limit", limit.min(MAX_PAGE).to_string()),
        ];
        let mut events = self.page(&topic, &query).await?.events;
        wire::cut(&mut events, max_bytes);
        let next = events.last().map_or(end, |last| last.offset.plus(1));
        Ok(Page { events, next, end: end.max(next) })
    }

    async fn kept(&self, topic: &TopicRef, partition: Partition) -> Result<Kept, ReadError> {
        self.partition(&self.named(topic.clone())?, partition).await
    }

    async fn offset_at(&self, request: TsRequest) -> Result<Offset, ReadError> {
        let TsRequest { topic, partition, ts } = request;
        let topic = self.named(topic)?;
        let end = self.partition(&topic, partition).await?.bounds.next;
        let mut query = vec![
            ("from", "ts".to_owned()),
            ("ts", ts.to_string()),
            ("partition", partition.to_string()),
            ("limit", "1".to_owned()),
        ];
        loop {
            let page = self.page(&topic, &query).await?;
            match (page.events.first(), page.next) {
                (Some(event), _) => return Ok(event.offset),
                (None, None) => return Ok(end),
                (None, Some(cursor)) => query = vec![("cursor", cursor)],
            }
        }
    }

    async fn by_id(&self, topic: &TopicRef, id: Uuid) -> Result<Option<Event>, ReadError> {
        let topic = &self.named(topic.clone())?;
        let path = ["v1", "topics", topic.as_str(), "events", &id.to_string()];
        self.one(topic, self.calls.get(&path, &[]).await).await
    }

    async fn latest_by_key(&self, topic: &TopicRef, key: &str) -> Result<Option<Event>, ReadError> {
        let topic = &self.named(topic.clone())?;
        let path = ["v1", "topics", topic.as_str(), "keys", key];
        if !UNSAYABLE_IN_A_PATH.contains(&key) {
            return self.one(topic, self.calls.get(&path, &[]).await).await;
        }
        let body = serde_json::json!({ "keys": [key] }).to_string().into_bytes();
        let answer = self.calls.post(&path[..4], body).await.map_err(ReadError::Unavailable)?;
        match answer.status {
            200 => wire::event_of_key(&answer.body, key).map_err(ReadError::Corrupt),
            404 => Err(ReadError::TopicNotFound(topic.clone())),
            _ => Err(ReadError::Unavailable(answer.unexpected())),
        }
    }

    async fn previous_by_key(&self, request: PreviousRequest) -> Result<Vec<Option<Event>>, ReadError> {
        let PreviousRequest { topic, events, .. } = request;
        let mut found = Vec::new();
        for (key, place) in events {
            // There is no way to go back, so everything is read up to there.
            let topic = topic.clone();
            let all = HistoryRequest { topic, key, after: None, limit: usize::MAX, max_bytes: usize::MAX };
            let earlier = |event: &Event| (event.partition, event.offset) < place;
            found.push(self.history(all).await?.into_iter().rfind(earlier));
        }
        Ok(found)
    }

    async fn history(&self, request: HistoryRequest) -> Result<Vec<Event>, ReadError> {
        let HistoryRequest { topic, key, after, limit, max_bytes } = request;
        let topic = self.named(topic)?;
        let mut query = vec![("key", key), ("limit", MAX_PAGE.to_string())];
        let mut events: Vec<Event> = Vec::new();
        // There is no way to start in the middle, so what comes before is read and passed over.
        let is_wanted = |event: &Event| after.is_none_or(|after| (event.partition, event.offset) > after);
        loop {
            let page = self.page(&topic, &query).await?;
            events.extend(page.events.into_iter().filter(is_wanted));
            match page.next {
                Some(cursor) if events.len() < limit => query = vec![("cursor", cursor)],
                _ => break,
            }
        }
        events.truncate(limit);
        wire::cut(&mut events, max_bytes);
        Ok(events)
    }

    async fn erase(&self) -> Result<(), CommitError> {
        Err(CommitError::Unavailable("HTTP has no words for what a store erases".into()))
    }

    async fn advance_horizon(&self, _topic: &TopicName, _past: u64) -> Result<u64, ReadError> {
        Err(ReadError::Unavailable("HTTP has no words for recorded time".into()))
    }

    async fn changed(&self, _of: &Watched, after: Sequence) -> Sequence {
        let mut commits = self.commits.subscribe();
        match commits.wait_for(|now| *now > after.0).await {
            Ok(now) => Sequence(*now),
            Err(_) => after,
        }
    }

    async fn topic(&self, name: &TopicName) -> Result<Option<TopicState>, ReadError> {
        let shown = self.shown(name).await.map_err(ReadError::Unavailable)?;
        Ok(shown.map(|shown| self.state(shown)))
    }

    async fn topics(&self) -> Result<Vec<TopicState>, ReadError> {
        let answer = self.calls.get(&["v1", "topics"], &[]).await.map_err(ReadError::Unavailable)?;
        if answer.status != 200 {
            return Err(ReadError::Unavailable(answer.unexpected()));
        }
        let shown = Shown::parse_list(&answer.body).map_err(ReadError::Corrupt)?;
        Ok(shown.into_iter().map(|shown| self.state(shown)).collect())
    }

    async fn cursor(&self, _key: &CursorKey) -> Result<Option<Cursor>, ReadError> {
        Err(ReadError::Unavailable("HTTP has no words for cursors".into()))
    }

    async fn readers(&self, _topic: &TopicName, _prefix: &str) -> Result<Vec<String>, ReadError> {
        Err(ReadError::Unavailable("HTTP has no words for cursors".into()))
    }

    fn status(&self) -> StoreStatus {
        let failed = self.closed.load(Ordering::SeqCst).then(|| "the adapter is closed".to_owned());
        let (extra, flushes) = (Vec::new(), self.flushes.clone());
        StoreStatus { kind: "http", failed, is_full: false, extra, flushes }
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }
}
