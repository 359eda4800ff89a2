//! The order in which a commit happens, the same in every store: what it was made for, configuration, events, their copies,
//! cursors, documents, what changefeeds tell of them. A store says what is there and keeps what changes; which step follows
//! which, what is checked in between and what the receipt says is decided here.
//!
//! What is cheap to check comes first: a commit that is refused has changed no document if that can be helped.
//!
//! Nothing here waits. A store whose reads do, because they go over a network, first reads everything that the commit
//! names, and then stages it on what it has read.

use crate::collection::{Base, CollectionConfig, CollectionState, Drafted, Drafts, PriorDocuments, Written};
use crate::commit::{
    Append, Appended, Commit, CommitLimits, ConfigChange, CursorKey, CursorMove, Loss, Receipt, ResultBytes,
};
use crate::document::DocumentWrite;
use crate::error::CommitError;
use crate::offsets::Offsets;
use crate::placing::Placer;
use crate::ports::{Bounds, Cursor};
use crate::position::{Offset, Partition, Sequence, TopicNumber};
use crate::rules::Remembered;
use crate::topic::{Durability, TopicConfig, TopicName, TopicRef, TopicState};
use std::sync::Arc;
use uuid::Uuid;

/// A commit in the making, as a store keeps it: what is there, with all that earlier commits and the earlier parts of
/// this one have changed. After an error the store takes everything back.
pub trait Staging {
    /// Where a document lies.
    type Row;
    /// What the events of one commit share, and where they are. It is extended with where those are that came again.
    type AppendState<'a>: Extend<Appended>;
    /// What was there before the documents that a commit writes.
    type PriorDocuments<'a>: PriorDocuments<Row = Self::Row>
    where
        Self: 'a;

    /// The topic of that name, shared, so that it can be held while its events are appended.
    fn topic(&self, name: &TopicName) -> Option<&Arc<TopicState>>;

    /// How many topics there are.
    fn topic_count(&self) -> usize;

    /// The number of the next topic that is made.
    fn next_topic(&self) -> TopicNumber;

    /// What a partition holds; nothing if the topic has no such partition.
    fn bounds(&self, topic: &TopicState, partition: Partition) -> Bounds;

    /// A cursor in this incarnation of its topic.
    fn cursor(&self, topic: &TopicState, key: &CursorKey) -> Option<&Cursor>;

    /// All cursors.
    fn cursors(&self) -> impl Iterator<Item = &CursorKey>;

    /// How many cursors there are at most, and how many partitions a topic has at most. Cheaper than to look at all.
    fn at_most(&self) -> (usize, u32);

    /// Makes a topic, or replaces its settings.
    fn put_topic(&mut self, topic: TopicState) -> Result<(), CommitError>;

    /// Removes a topic with its events and cursors.
    fn delete_topic(&mut self, name: &TopicName) -> Result<(), CommitError>;

    /// Gives up the events of a partition below `first`, which is within its bounds.
    fn trim(&mut self, at: (&TopicRef, Partition), first: Offset, loss: Loss) -> Result<(), CommitError>;

    /// Gives up single events of a partition. Those outside its bounds, and those that are gone already, are passed over.
    fn discard(
        &mut self,
        at: (&TopicRef, Partition),
        offsets: &Offsets,
        loss: Loss,
    ) -> Result<(), CommitError>;

    /// Notes that a key of a topic is to be erased.
    fn forget(&mut self, topic: &TopicRef, key: &str) -> Result<(), CommitError>;

    /// The collection of that name.
    fn collection(&self, name: &str) -> Option<&CollectionState>;

    /// The number of the next collection that is made.
    fn next_collection(&self) -> u32;

    /// Refuses a new collection where there are as many as may be.
    fn check_new_collection(&self, name: &str, limits: CommitLimits) -> Result<(), CommitError>;

    /// Makes a collection, or replaces its settings: how its indexes follow is the store's own affair.
    fn put_collection(&mut self, collection: CollectionState) -> Result<(), CommitError>;

    /// Removes a collection that is there, with its documents.
    fn delete_collection(&mut self, name: &Arc<str>) -> Result<(), CommitError>;

    /// Puts a collection that was called `from` in place of the one that has its new name, if there is one.
    fn rename_collection(&mut self, from: &Arc<str>, renamed: CollectionState) -> Result<(), CommitError>;

    /// Appends events with [`append_each`]. Says where they are, and how durable their topics want them.
    fn append_all(
        &mut self,
        appends: &[Append],
        commit: &Commit,
    ) -> Result<(Vec<Appended>, Durability), CommitError>;

    /// What chooses partitions.
    fn placer(&mut self) -> &mut Placer;

    /// What the clock says, which may be less than what was recorded before.
    fn now_ms(&self) -> u64;

    /// What is known of the last event with the id of this one, which has an id.
    fn remembered(
        &self,
        one: &AppendOne<'_>,
        to: &mut Self::AppendState<'_>,
    ) -> Result<Option<Remembered>, CommitError>;

    /// The id of the latest kept event of a key.
    fn latest_id(
        &self,
        topic: &TopicState,
        key: &str,
        to: &Self::AppendState<'_>,
    ) -> Result<Option<Uuid>, CommitError>;

    /// Puts an event at the end of a partition.
    fn push(
        &mut self,
        one: &AppendOne<'_>,
        partition: Partition,
        to: &mut Self::AppendState<'_>,
    ) -> Result<(), CommitError>;

    /// What was there before the documents that this commit writes.
    fn prior_documents(&self) -> Self::PriorDocuments<'_>;

    /// Keeps what all writes to one document have made of it; `write` is the last of them.
    fn put_document(&mut self, write: &DocumentWrite, drafted: Drafted<Self::Row>)
    -> Result<(), CommitError>;

    /// Sets a cursor; `None` removes it.
    fn put_cursor(&mut self, key: &CursorKey, cursor: Option<Cursor>) -> Result<(), CommitError>;
}

/// An event on its way into its topic.
pub struct AppendOne<'a> {
    /// Which event of the commit.
    pub index: usize,
    /// The event, and what is asked for it.
    pub append: &'a Append,
    /// Its topic.
    pub topic: &'a TopicState,
}

/// Stages a commit that may make at most `result_bytes`. The receipt's sequence is for the store to set.
pub fn stage<S: Staging>(to: &mut S, commit: &Commit, result_bytes: usize) -> Result<Receipt, CommitError> {
    // As they are before this commit, which may change them itself.
    for fence in &commit.expected_topics {
        fence.check(to.topic(&fence.name).map(Arc::as_ref))?;
    }
    for change in &commit.config {
        configure(to, change, commit.limits)?;
    }
    let mut bytes = ResultBytes::new(result_bytes);
    bytes.count_events(commit)?;
    let first_new = to.next_topic();
    let (events, asked) = to.append_all(&commit.events, commit)?;
    let is_new = |index: &&usize| events.get(**index).is_some_and(|appended| !appended.duplicate);
    if let Some(&index) = commit.only_duplicates.iter().find(is_new) {
        return Err(CommitError::NotDuplicate { index });
    }
    let asked = asked.max(append_copies(to, commit, &events)?);
    let durability = match to.next_topic() == first_new {
        true => commit.least_durability().max(asked),
        // What is made of topics is always flushed.
        false => Durability::Sync,
    };
    let versions = Vec::with_capacity(commit.documents.len());
    let mut receipt = Receipt { events, versions, durability, sequence: Sequence(0) };
    bytes.count_cursors(commit)?;
    // The others may be in a topic that a changefeed makes.
    let (early, late): (Vec<&CursorMove>, Vec<&CursorMove>) =
        commit.cursors.iter().partition(|step| to.topic(&step.key.topic).is_some());
    move_cursors(to, &early, &mut receipt)?;
    write_documents(to, commit, (&mut receipt, &mut bytes))?;
    move_cursors(to, &late, &mut receipt)?;
    let at_most = || {
        let (cursors, partitions) = to.at_most();
        cursors.saturating_mul(partitions as usize)
    };
    let partitions_of = |name: &TopicName| to.topic(name).map_or(0, |topic| topic.config.partitions);
    commit.limits.check_readers(at_most, || to.cursors(), partitions_of)?;
    Ok(receipt)
}

fn existing<'a>(to: &'a impl Staging, name: &TopicName) -> Result<&'a Arc<TopicState>, CommitError> {
    to.topic(name).ok_or_else(|| CommitError::TopicNotFound(name.clone()))
}

fn create(
    to: &mut impl Staging,
    name: &TopicName,
    config: TopicConfig,
    limits: CommitLimits,
) -> Result<(), CommitError> {
    limits.check_new_topic(name, to.topic_count())?;
    let topic = TopicState::new(name.clone(), to.next_topic(), config);
    to.put_topic(topic)
}

/// Appends copies of those events that are new, and says how durable their topics want them.
fn append_copies(
    to: &mut impl Staging,
    commit: &Commit,
    appended: &[Appended],
) -> Result<Durability, CommitError> {
    let mut copies = Vec::with_capacity(commit.event_copies.len());
    for copy in &commit.event_copies {
        let (Some(first), Some(appended)) = (commit.events.get(copy.of), appended.get(copy.of)) else {
            continue;
        };
        if appended.duplicate {
            continue;
        }
        if to.topic(&copy.topic).is_none() {
            create(to, &copy.topic, TopicConfig::clone(&copy.settings), commit.limits)?;
        }
        let partitions = existing(to, &copy.topic)?.config.partitions;
        copies.push(copy.append(first, appended, partitions));
    }
    Ok(to.append_all(&copies, commit)?.1)
}

/// Appends events one by one, to topics that are made if they do not exist. Says how durable their topics want them.
pub fn append_each<S: Staging>(
    stage: &mut S,
    appends: &[Append],
    commit: &Commit,
    to: &mut S::AppendState<'_>,
) -> Result<Durability, CommitError> {
    let mut durability = Durability::Interval;
    // That of the event before, mostly.
    let mut known: Option<Arc<TopicState>> = None;
    for (index, append) in appends.iter().enumerate() {
        let topic = match known.take().filter(|topic| topic.name == append.topic) {
            Some(topic) => topic,
            None => {
                make_missing(stage, &append.topic, commit)?;
                existing(stage, &append.topic)?.clone()
            }
        };
        let first = self::append(stage, &AppendOne { index, append, topic: &topic }, to)?;
        to.extend(first);
        durability = durability.max(topic.config.durability);
        known = Some(topic);
    }
    Ok(durability)
}

/// Appends an event: it has a partition, then it may repeat an id, and only one that does not is held to what it expects.
/// Says where the first one is if it repeats one.
fn append<S: Staging>(
    stage: &mut S,
    one: &AppendOne<'_>,
    to: &mut S::AppendState<'_>,
) -> Result<Option<Appended>, CommitError> {
    let AppendOne { index, append, topic } = *one;
    let partition = stage.placer().place(index, append, topic.config.partitions)?;
    if append.event.id.is_some()
        && let Some(remembered) = stage.remembered(one, to)?
        && let Some(first) = remembered.answer(index, topic, stage.now_ms())?
    {
        return Ok(Some(first));
    }
    if let Some(expect) = append.expect {
        let key = append.event.key.as_deref().unwrap_or_default();
        expect.check(index, stage.latest_id(topic, key, to)?)?;
    }
    stage.push(one, partition, to)?;
    Ok(None)
}

/// Makes the topic of an event if it does not exist and the commit makes it.
fn make_missing(to: &mut impl Staging, name: &TopicName, commit: &Commit) -> Result<(), CommitError> {
    match to.topic(name) {
        Some(_) => Ok(()),
        None => create(to, name, commit.new_topic(name)?, commit.limits),
    }
}

fn configure(to: &mut impl Staging, change: &ConfigChange, limits: CommitLimits) -> Result<(), CommitError> {
    match change {
        ConfigChange::CreateTopic { name, .. } if to.topic(name).is_some() => {
            Err(CommitError::TopicExists(name.clone()))
        }
        ConfigChange::CreateTopic { name, config } => create(to, name, config.clone(), limits),
        ConfigChange::AlterTopic { name, expect_revision, config } => {
            let topic = existing(to, name)?;
            let end = |partition| to.bounds(topic, Partition(partition)).next;
            let ends = || (0..topic.config.partitions).map(end).collect();
            let altered = topic.altered(*expect_revision, config.clone(), ends)?;
            to.put_topic(altered)
        }
        ConfigChange::DeleteTopic { name } => {
            existing(to, name)?;
            to.delete_topic(name)
        }
        ConfigChange::Trim { topic, partition, before, loss } => {
            let there = existing(to, &topic.name)?;
            match to.bounds(there, *partition).trimmed(*before) {
                Some(first) if topic.incarnation.is_none_or(|number| number == there.number) => {
                    to.trim((&there.pinned(), *partition), first, *loss)
                }
                // What was read is gone, by itself or with its topic.
                _ => Ok(()),
            }
        }
        ConfigChange::Discard { topic, partition, offsets, loss } => {
            let there = existing(to, &topic.name)?;
            match topic.incarnation.is_none_or(|number| number == there.number) {
                true => to.discard((&there.pinned(), *partition), offsets, *loss),
                // What was read is gone with its topic.
                false => Ok(()),
            }
        }
        ConfigChange::Forget { topic, key } => {
            let there = existing(to, &topic.name)?;
            match topic.incarnation.is_none_or(|number| number == there.number) {
                true => to.forget(&there.pinned(), key),
                // Its events are gone with their topic.
                false => Ok(()),
            }
        }
        ConfigChange::PutCollection { name, expect_revision, config } => {
            let before = to.collection(name);
            CollectionState::check_revision(before, name, *expect_revision)?;
            let after = match before {
                Some(before) => before.with_settings(config.clone()),
                None => {
                    to.check_new_collection(name, limits)?;
                    CollectionState::new(name.clone(), to.next_collection(), config.clone())
                }
            };
            to.put_collection(after)
        }
        ConfigChange::DropCollection { name } => match to.collection(name) {
            Some(_) => to.delete_collection(name),
            None => Ok(()),
        },
        ConfigChange::SwapCollection { from, to: name } => {
            match CollectionState::renamed(to.collection(from), from, name)? {
                Some(renamed) => to.rename_collection(from, renamed),
                None => Ok(()),
            }
        }
    }
}

/// Makes all writes, and appends what changefeeds tell of them, which is nobody's answer.
fn write_documents<S: Staging>(
    to: &mut S,
    commit: &Commit,
    (receipt, bytes): (&mut Receipt, &mut ResultBytes),
) -> Result<(), CommitError> {
    if commit.documents.is_empty() {
        return Ok(());
    }
    let mut drafts = Drafts::default();
    if looks_first(&commit.documents) {
        for index in 0..commit.documents.len() {
            draft(to, Written { commit, index, receipt }, &mut drafts, bytes)?;
        }
    }
    drafts.begin_writing();
    for index in 0..commit.documents.len() {
        let version = draft(to, Written { commit, index, receipt }, &mut drafts, bytes)?;
        receipt.versions.push(version);
    }
    let (drafted, changes) = drafts.finish();
    for drafted in drafted {
        to.put_document(&commit.documents[drafted.write], drafted)?;
    }
    let changes = commit.changefeed_events(changes, |name| to.topic(name).is_some())?;
    to.append_all(&changes, commit).map(drop)
}

/// Has `drafts` take a write, in a collection that is made if it does not exist. Gives the version of the document.
fn draft<S: Staging>(
    to: &mut S,
    written: Written<'_>,
    drafts: &mut Drafts<S::Row>,
    bytes: &mut ResultBytes,
) -> Result<u64, CommitError> {
    let DocumentWrite { collection: name, owner, .. } = &written.commit.documents[written.index];
    if to.collection(name).is_none() {
        to.check_new_collection(name, written.commit.limits)?;
        let config = CollectionConfig::owned_by(owner);
        to.put_collection(CollectionState::new(name.clone(), to.next_collection(), config))?;
    }
    let missing = || CommitError::CollectionNotFound(name.to_string());
    let state = to.collection(name).ok_or_else(missing)?;
    drafts.take(Base { prior: &to.prior_documents(), state, bytes }, written)
}

/// Whether all writes are looked at before the first is made: where others than the last may have work done in vain.
/// Projections set no conditions, and make many small writes.
fn looks_first(writes: &[DocumentWrite]) -> bool {
    writes.len() > 1 && writes.iter().any(|write| write.owner.as_projection().is_none())
}

fn move_cursors(
    to: &mut impl Staging,
    steps: &[&CursorMove],
    receipt: &mut Receipt,
) -> Result<(), CommitError> {
    for step in steps {
        receipt.durability = receipt.durability.max(move_cursor(to, step)?);
    }
    Ok(())
}

/// Moves a cursor, and says how durable its topic wants that.
fn move_cursor(to: &mut impl Staging, step: &CursorMove) -> Result<Durability, CommitError> {
    let topic = existing(to, &step.key.topic)?;
    let durability = topic.config.durability;
    let moved = step.moved(topic, to.cursor(topic, &step.key))?;
    to.put_cursor(&step.key, moved)?;
    Ok(durability)
}
