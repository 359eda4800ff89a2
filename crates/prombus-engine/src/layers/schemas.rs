//! Holds events against the schemas of their topics, and stamps them with the version that they are of. Events of topics
//! with `dual_write` are copied to the topic of their version in the same commit.
//!
//! What is checked is what is appended: the commit carries what was seen of its topics, and the store refuses it if one
//! of them is another by then. On one hub that does not happen, because changes of a topic and events on their way to it
//! pass a gate.

use crate::bus::{Bus, BusError, Layer};
use crate::schemas::gate::{Gate, GatePass};
use crate::schemas::judge::{self, Judged, TopicSchemas};
use crate::schemas::known::SchemaCache;
use crate::schemas::violation::{SchemaViolation, Violations};
use crate::schemas::{Shared, apart, stored};
use async_trait::async_trait;
use prombus_core::{
    Append, Commit, CommitError, ConfigChange, Documents, EventCopy, EventLog, Json, MadeFor, NewTopics,
    ReadError, Receipt, SchemaMode, SnapshotConfig, Ticket, TopicConfig, TopicFence, TopicName,
};
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The layer. Clones are the same one.
#[derive(Clone)]
pub struct SchemaChecks {
    log: Arc<dyn EventLog>,
    documents: Arc<dyn Documents>,
    known: Arc<SchemaCache>,
    gate: Arc<Gate>,
    violations: Arc<Violations>,
    /// The settings of topics that the configuration names.
    new_topics: Arc<NewTopics>,
}

impl SchemaChecks {
    /// With what it shares with the registry.
    pub fn new(shared: &Shared, new_topics: Arc<NewTopics>) -> Self {
        let Shared { log, documents, known, raisers: _, gate, violations } = shared.clone();
        Self { log, documents, known, gate, violations, new_topics }
    }
}

impl Layer for SchemaChecks {
    fn wrap(self, inner: Arc<dyn Bus>) -> Arc<dyn Bus> {
        Arc::new(SchemaChecksBus { layer: self, inner })
    }
}

struct SchemaChecksBus {
    layer: SchemaChecks,
    inner: Arc<dyn Bus>,
}

#[async_trait]
impl Bus for SchemaChecksBus {
    async fn enqueue(&self, commit: &mut Arc<Commit>) -> Result<Ticket, BusError> {
        if !commit.expected_topics.is_empty() {
            // It was here before. Another version may be the latest now.
            Arc::make_mut(commit).unchecked();
        }
        let topics = Topics::of(commit);
        if topics.is_empty() {
            return self.inner.enqueue(commit).await;
        }
        let Self { layer, inner } = self;
        // What was checked, and against what, without keeping anybody from changing it meanwhile.
        let mut checked: Option<(Vec<TopicFence>, Judged)> = None;
        loop {
            let pass = layer.gate.pass(topics.looked_at.clone(), topics.changed.clone()).await;
            let TopicsSeen { seen, governed } = layer.look(&topics).await?;
            match checked.take() {
                _ if governed.is_empty() => {
                    Arc::make_mut(commit).expected_topics = seen;
                    return Ok(held(inner.enqueue(commit).await?, pass));
                }
                Some((before, mut judged)) if before == seen => {
                    layer.violations.let_pass(&judged.let_pass);
                    let event_copies = layer.copies(commit, &judged, &governed)?;
                    let (refused, first) = (std::mem::take(&mut judged.refused), judged.first_refused.take());
                    let stamped = Arc::make_mut(commit);
                    stamp(stamped, judged);
                    (stamped.event_copies, stamped.expected_topics) = (event_copies, seen);
                    stamped.only_duplicates = refused;
                    let ticket = held(inner.enqueue(commit).await?, pass);
                    return match first {
                        None => Ok(ticket),
                        Some(first) => layer.unless_new(ticket.await, first, (commit, &governed)).await,
                    };
                }
                _ => {
                    drop(pass);
                    checked = Some((seen, layer.judge(commit, &governed).await?));
                }
            }
        }
    }
}

/// What was seen of the topics of a commit.
struct TopicsSeen {
    seen: Vec<TopicFence>,
    /// Those whose schemas count.
    governed: HashMap<TopicName, TopicSchemas>,
}

fn unavailable(error: ReadError) -> BusError {
    CommitError::Unavailable(error.to_string()).into()
}

impl SchemaChecks {
    async fn look(&self, topics: &Topics) -> Result<TopicsSeen, BusError> {
        let (mut seen, mut governed) = (Vec::with_capacity(topics.written.len()), HashMap::new());
        for name in &topics.written {
            let topic = self.log.topic(name).await.map_err(unavailable)?;
            seen.push(TopicFence::of(name, topic.as_ref()));
            let Some(topic) = topic.filter(|topic| topic.config.schema != SchemaMode::Off) else { continue };
            if let Some(head) = self.known.head(&topic).await.map_err(unavailable)? {
                let (mode, has_tombstones) = (topic.config.schema, topic.config.compaction);
                let copied = topic.config.dual_write.then_some(topic.config);
                governed.insert(topic.name, TopicSchemas { head, mode, has_tombstones, copied });
            }
        }
        for (name, what) in &topics.fed {
            let Some(topic) = self.log.topic(name).await.map_err(unavailable)? else { continue };
            if self.known.head(&topic).await.map_err(unavailable)?.is_some() {
                return Err(BusError::BadConfig(format!(
                    "topic {name} has schemas, so the hub cannot publish {what} there; name another one"
                )));
            }
        }
        for name in &topics.registered {
            let why = apart::why_no_schemas(&*self.log, &*self.documents, name).await.map_err(unavailable)?;
            why.map_or(Ok(()), |why| Err(BusError::BadConfig(why)))?;
        }
        for name in &topics.copied {
            let topic = self.log.topic(name).await.map_err(unavailable)?;
            // What is so already is no reason to refuse other changes.
            if topic.is_some_and(|topic| topic.config.dual_write) && !topics.registered.contains(name) {
                continue;
            }
            let why = apart::why_no_copies(&*self.log, &self.known, name).await.map_err(unavailable)?;
            why.map_or(Ok(()), |why| Err(BusError::BadConfig(why)))?;
        }
        Ok(TopicsSeen { seen, governed })
    }

    /// The copies that topics with `dual_write` get of events whose version is known: one for each version.
    fn copies(
        &self,
        commit: &Commit,
        judged: &Judged,
        governed: &HashMap<TopicName, TopicSchemas>,
    ) -> Result<Vec<EventCopy>, BusError> {
        let mut topics: HashMap<(&TopicName, u32), (TopicName, Arc<TopicConfig>)> = HashMap::new();
        let mut copies = Vec::new();
        for (of, (append, version)) in commit.events.iter().zip(&judged.versions).enumerate() {
            let source = governed.get(&append.topic).and_then(|governed| governed.copied.as_ref());
            let (Some(source), Some(version)) = (source, *version) else { continue };
            let (topic, settings) = match topics.entry((&append.topic, version)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let topic = append.topic.of_version(version).ok_or_else(|| {
                        BusError::BadConfig(format!(
                            "the name of topic {} is too long for dual_write: copies go to a topic with .v{version} added to it",
                            append.topic
                        ))
                    })?;
                    let settings = Arc::new(self.new_topics.config_of(&topic, MadeFor::CopiesOf(source)));
                    new.insert((topic, settings))
                }
            };
            copies.push(EventCopy { of, topic: topic.clone(), settings: settings.clone() });
        }
        Ok(copies)
    }

    /// What will be said of the events of a commit, as their topics are now. Nothing is counted.
    pub(crate) async fn foresee(&self, commit: &Commit) -> Result<(), BusError> {
        let TopicsSeen { governed, .. } = self.look(&Topics::of(commit)).await?;
        let judged = judge::judge(&self.known, &commit.events, &governed).await.map_err(unavailable)?;
        match judged.first_refused {
            Some(violation) => Err(BusError::SchemaViolation(Box::new(violation))),
            None => Ok(()),
        }
    }

    async fn judge(
        &self,
        commit: &Commit,
        governed: &HashMap<TopicName, TopicSchemas>,
    ) -> Result<Judged, BusError> {
        let mut judged = judge::judge(&self.known, &commit.events, governed).await.map_err(unavailable)?;
        let is_new = |violation: &mut SchemaViolation| commit.events[violation.index].event.id.is_none();
        match judged.first_refused.take_if(is_new) {
            Some(violation) => Err(self.refused(violation)),
            None => Ok(judged),
        }
    }

    fn refused(&self, violation: SchemaViolation) -> BusError {
        self.violations.count(&violation.topic, 1);
        BusError::SchemaViolation(Box::new(violation))
    }

    /// What is answered to a commit with events that violate their schemas, the first of them as `first` says. What was
    /// published before stays what it was, whatever was registered since, and only the store knows of each id whether it was:
    /// any other such event is refused for its schema.
    async fn unless_new(
        &self,
        answer: Result<Receipt, CommitError>,
        first: SchemaViolation,
        (commit, governed): (&Commit, &HashMap<TopicName, TopicSchemas>),
    ) -> Result<Ticket, BusError> {
        // What an event expects is looked at once it is known to be no duplicate.
        let index = match answer {
            Err(CommitError::NotDuplicate { index } | CommitError::ExpectationFailed { index, .. })
                if commit.only_duplicates.contains(&index) =>
            {
                index
            }
            answer => return Ok(Ticket::decided(answer)),
        };
        if index == first.index {
            return Err(self.refused(first));
        }
        // What is wrong with all of them was not kept.
        let alone = std::slice::from_ref(&commit.events[index]);
        let judged = judge::judge(&self.known, alone, governed).await.map_err(unavailable)?;
        let violation = judged.first_refused.unwrap_or(first);
        Err(self.refused(SchemaViolation { index, ..violation }))
    }
}

/// Stamps the events of a commit where they stand, and keeps the headers that they came with.
fn stamp(commit: &mut Commit, judged: Judged) {
    // Most events have no other headers, and are of one version.
    let mut plain: Option<(u32, Json)> = None;
    for (index, (append, version)) in commit.events.iter_mut().zip(judged.versions).enumerate() {
        let Some(version) = version else { continue };
        let headers = append.event.headers.as_deref();
        let stamped = match (headers, &plain) {
            (Some(headers), _) if judge::named_version(headers).is_some() => continue,
            (Some(headers), _) => judge::stamped(Some(headers), version),
            (None, Some((known, stamped))) if *known == version => stamped.clone(),
            (None, _) => plain.insert((version, judge::stamped(None, version))).1.clone(),
        };
        commit.headers_before.push((index, append.event.headers.replace(Box::new(stamped))));
    }
}

/// The ticket of a commit that changes topics: they are passed until that can be seen. All others have their place.
fn held(ticket: Ticket, pass: GatePass) -> Ticket {
    if !pass.is_change() {
        return ticket;
    }
    // On its own, because it must come to its end even if nobody waits for the ticket.
    let decided = tokio::spawn(async move {
        let answer = ticket.await;
        drop(pass);
        answer
    });
    let ended = |_| Err(CommitError::Unknown("the hub is closing".into()));
    Ticket::new(async move { decided.await.unwrap_or_else(ended) })
}

/// The topics that a commit is about, each once.
#[derive(Default)]
struct Topics {
    /// Those that it appends to, without the hub's own.
    written: Vec<TopicName>,
    /// Those that it makes the hub publish to by itself, and what.
    fed: Vec<(TopicName, &'static str)>,
    /// Those that get schemas by it, or other upcasters.
    registered: Vec<TopicName>,
    /// Those whose events are copied from then on.
    copied: Vec<TopicName>,
    /// Those that must not change until it has its place.
    looked_at: Vec<TopicName>,
    /// Those that it changes, or makes the hub publish to: that must be seen before anybody else looks at them.
    changed: Vec<TopicName>,
}

impl Topics {
    fn of(commit: &Commit) -> Self {
        let mut topics = Self::default();
        let mut known: BTreeSet<&TopicName> = BTreeSet::new();
        let mut last = None;
        for Append { topic, .. } in &commit.events {
            // Most commits are about one topic.
            if last == Some(topic) {
                continue;
            }
            last = Some(topic);
            if !topic.is_internal() && known.insert(topic) {
                topics.written.push(topic.clone());
            }
        }
        if commit.config.is_empty() {
            return Self { looked_at: topics.written.clone(), ..topics };
        }
        let mut changed: BTreeSet<&TopicName> = BTreeSet::new();
        for change in &commit.config {
            match change {
                ConfigChange::AlterTopic { name, config, .. } => {
                    changed.insert(name);
                    topics.feeds(config.snapshot.as_ref());
                    topics.copied.extend(config.dual_write.then(|| name.clone()));
                    if commit.documents.iter().any(|write| stored::is_head_of(write, name)) {
                        topics.registered.push(name.clone());
                    }
                }
                ConfigChange::CreateTopic { name, config } => {
                    topics.feeds(config.snapshot.as_ref());
                    if config.dual_write {
                        changed.insert(name);
                        topics.copied.push(name.clone());
                    }
                }
                ConfigChange::DeleteTopic { name } => {
                    changed.insert(name);
                }
                ConfigChange::PutCollection { config, .. } => {
                    let feed = config.changefeed.iter().filter(|topic| !topic.is_internal());
                    topics.fed.extend(feed.map(|topic| (topic.clone(), "a changefeed")));
                }
                _ => {}
            }
        }
        changed.extend(topics.fed.iter().map(|(topic, _)| topic));
        // Whether their events are copied.
        let first: Vec<TopicName> = topics.registered.iter().filter_map(apart::copied_from).collect();
        let looked_at: BTreeSet<&TopicName> = topics.written.iter().chain(&first).collect();
        let looked_at = looked_at.into_iter().filter(|name| !changed.contains(name)).cloned().collect();
        let changed = changed.into_iter().cloned().collect();
        Self { looked_at, changed, ..topics }
    }

    fn feeds(&mut self, snapshot: Option<&SnapshotConfig>) {
        self.fed.extend(snapshot.map(|snapshot| (snapshot.topic.clone(), "snapshots")));
    }

    fn is_empty(&self) -> bool {
        self.looked_at.is_empty() && self.changed.is_empty()
    }
}
