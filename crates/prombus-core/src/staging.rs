//! The order in which a commit happens, the same in every store: configuration, events, cursors, documents, what
//! changefeeds tell of them. A store says what is there and keeps what changes; which step follows which, what is checked
//! in between and what the receipt says is decided here.
//!
//! What is cheap to check comes first: a commit that is refused has changed no document if that can be helped.
//!
//! Nothing here waits. A store whose reads do, because they go over a network, first reads everything that the commit
//! names, and then stages it on what it has read.

use crate::collection::{Drafted, Drafts, Written};
use crate::commit::{
    Append, Appended, Commit, CommitLimits, ConfigChange, CursorKey, CursorMove, Loss, Receipt, ResultBytes,
};
use crate::document::DocumentWrite;
use crate::error::CommitError;
use crate::offsets::Offsets;
use crate::ports::{Bounds, Cursor};
use crate::position::{Offset, Partition, Sequence, TopicNumber};
use crate::topic::{Durability, TopicConfig, TopicName, TopicRef, TopicState};

/// A commit in the making, as a store keeps it: what is there, with all that earlier commits and the earlier parts of
/// this one have changed. After an error the store takes everything back.
pub trait Staging {
    /// Where a document lies.
    type Row;

    /// The topic of that name.
    fn topic(&self, name: &TopicName) -> Option<&TopicState>;

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

    /// Makes, changes, renames or removes a collection: how its rows and indexes follow is the store's own affair.
    fn configure_collection(
        &mut self,
        change: &ConfigChange,
        limits: CommitLimits,
    ) -> Result<(), CommitError>;

    /// Appends events, to topics that [`make_missing`] makes if they do not exist. Says where they are, and how durable
    /// their topics want them.
    fn append_all(
        &mut self,
        appends: &[Append],
        commit: &Commit,
    ) -> Result<(Vec<Appended>, Durability), CommitError>;

    /// Has `drafts` take a write, in a collection that is made if it does not exist. Gives the version of the document.
    fn draft(
        &mut self,
        written: Written<'_>,
        drafts: &mut Drafts<Self::Row>,
        bytes: &mut ResultBytes,
    ) -> Result<u64, CommitError>;

    /// Keeps what all writes to one document have made of it; `write` is the last of them.
    fn put_document(&mut self, write: &DocumentWrite, drafted: Drafted<Self::Row>)
    -> Result<(), CommitError>;

    /// Sets a cursor; `None` removes it.
    fn put_cursor(&mut self, key: &CursorKey, cursor: Option<Cursor>) -> Result<(), CommitError>;
}

/// Stages a commit that may make at most `result_bytes`. The receipt's sequence is for the store to set.
pub fn stage<S: Staging>(to: &mut S, commit: &Commit, result_bytes: usize) -> Result<Receipt, CommitError> {
    for change in &commit.config {
        configure(to, change, commit.limits)?;
    }
    let mut bytes = ResultBytes::new(result_bytes);
    bytes.count_events(commit)?;
    let first_new = to.next_topic();
    let (events, asked) = to.append_all(&commit.events, commit)?;
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

fn existing<'a>(to: &'a impl Staging, name: &TopicName) -> Result<&'a TopicState, CommitError> {
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

/// Makes the topic of an event if it does not exist and the commit makes it.
pub fn make_missing(to: &mut impl Staging, name: &TopicName, commit: &Commit) -> Result<(), CommitError> {
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
            let topic = existing(to, topic)?;
            match to.bounds(topic, *partition).trimmed(*before) {
                Some(first) => to.trim((&topic.pinned(), *partition), first, *loss),
                None => Ok(()),
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
        ConfigChange::PutCollection { .. }
        | ConfigChange::DropCollection { .. }
        | ConfigChange::SwapCollection { .. } => to.configure_collection(change, limits),
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
            to.draft(Written { commit, index, receipt }, &mut drafts, bytes)?;
        }
    }
    drafts.begin_writing();
    for index in 0..commit.documents.len() {
        let version = to.draft(Written { commit, index, receipt }, &mut drafts, bytes)?;
        receipt.versions.push(version);
    }
    let (drafted, told) = drafts.finish();
    for drafted in drafted {
        to.put_document(&commit.documents[drafted.write], drafted)?;
    }
    let told = commit.telling(told, |name| to.topic(name).is_some())?;
    to.append_all(&told, commit).map(drop)
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
