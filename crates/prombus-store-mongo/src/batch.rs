//! What is done in one transaction: jobs in the order in which they were enqueued, staged one after another.

use crate::changes::Changes;
use crate::facts::{Cache, Facts};
use crate::load::STEP_DOCUMENTS;
use crate::shared::Shared;
use crate::stage::Stage;
use bytes::Bytes;
use parking_lot::RwLock;
use prombus_core::collection::IndexState;
use prombus_core::staging::{self, Staging};
use prombus_core::{
    CollectionState, Commit, CommitError, Document, Partition, Placer, ReadError, Receipt, TopicName,
};
use prombus_rows::{IndexStep, RowRange, Rows, RowsIter, StepLimits};
use std::sync::Arc;
use tokio::sync::oneshot;

/// How many bytes of documents one step of making an index goes over, about.
const STEP_BYTES: usize = 4 << 20;

/// Something for the writer to do, and who is to be told.
#[derive(Debug)]
pub enum Job {
    Commit(Arc<Commit>, oneshot::Sender<Result<Receipt, CommitError>>),
    /// Moves the horizon of a topic past a time.
    Horizon(TopicName, u64, oneshot::Sender<Result<u64, ReadError>>),
    /// Goes on making an index of a collection. Says whether there is more to do.
    IndexStep(Arc<str>, oneshot::Sender<Result<bool, CommitError>>),
    /// Says that everything before it is done, and that nothing comes after it.
    Close(oneshot::Sender<()>),
}

/// What comes of a job if its transaction is committed.
#[derive(Debug)]
pub enum Outcome {
    Commit(Result<Receipt, CommitError>),
    Horizon(Result<u64, ReadError>),
    IndexStep(bool),
}

impl Job {
    /// What it counts for where jobs are put together.
    pub fn size(&self) -> usize {
        match self {
            Self::Commit(commit, _) => commit.size(),
            Self::Horizon(..) | Self::IndexStep(..) | Self::Close(_) => 0,
        }
    }

    /// Whether it gets a transaction for itself: changes of configuration are rare, and those of a transaction need not be
    /// laid over each other then.
    pub fn is_alone(&self) -> bool {
        match self {
            Self::Commit(commit, _) => !commit.config.is_empty(),
            Self::Horizon(..) => false,
            Self::IndexStep(..) | Self::Close(_) => true,
        }
    }

    /// Answers; whoever has asked may have gone.
    pub fn answer(self, outcome: Outcome) {
        match (self, outcome) {
            (Self::Commit(commit, to), Outcome::Commit(answer)) => {
                // Whoever tries again has it for himself.
                drop(commit);
                let _ = to.send(answer);
            }
            (Self::Horizon(_, _, to), Outcome::Horizon(answer)) => drop(to.send(answer)),
            (Self::IndexStep(_, to), Outcome::IndexStep(more)) => drop(to.send(Ok(more))),
            // Nobody is told what he has not asked for.
            _ => {}
        }
    }

    /// Answers that it could not be done.
    pub fn refuse(self, error: &CommitError) {
        match self {
            Self::Commit(commit, to) => {
                drop(commit);
                let _ = to.send(Err(error.clone()));
            }
            Self::Horizon(_, _, to) => drop(to.send(Err(ReadError::Unavailable(error.to_string())))),
            Self::IndexStep(_, to) => drop(to.send(Err(error.clone()))),
            Self::Close(to) => drop(to.send(())),
        }
    }
}

/// What is known from before of what jobs name.
pub fn known_before(jobs: &[Job], cache: &RwLock<Cache>) -> Facts {
    let mut facts = Facts::default();
    let cache = cache.read();
    let topic = |facts: &mut Facts, name: &TopicName| {
        if let Some(head) = cache.heads.get(name) {
            facts.heads.insert(name.clone(), Some(head.clone()));
        }
    };
    let collection = |facts: &mut Facts, name: &Arc<str>| {
        if let Some(head) = cache.collections.get(name) {
            facts.collections.insert(name.clone(), Some(head.clone()));
        }
    };
    for job in jobs {
        match job {
            // What configures is read anew: it is rare, and tells of more than it writes.
            Job::Commit(commit, _) if commit.config.is_empty() => {
                commit.events.iter().for_each(|append| topic(&mut facts, &append.topic));
                commit.event_copies.iter().for_each(|copy| topic(&mut facts, &copy.topic));
                commit.expected_topics.iter().for_each(|fence| topic(&mut facts, &fence.name));
                commit.cursors.iter().for_each(|step| topic(&mut facts, &step.key.topic));
                commit.documents.iter().for_each(|write| collection(&mut facts, &write.collection));
            }
            Job::Horizon(name, ..) => topic(&mut facts, name),
            Job::Commit(..) | Job::IndexStep(..) | Job::Close(_) => {}
        }
    }
    facts.cached()
}

/// What jobs come to, one after another.
pub struct Staged {
    pub changes: Changes,
    pub outcomes: Vec<Outcome>,
    /// How many commits were taken.
    pub taken: u64,
    /// Whether an answer rests on more than what is written.
    pub rests_on_facts: bool,
    pub placer: Placer,
}

/// Stages all jobs on what is known.
pub fn stage(shared: &Shared, facts: &Facts, jobs: &[Job], placer: &Placer) -> Staged {
    let mut staged = Staged {
        changes: Changes::default(),
        outcomes: Vec::with_capacity(jobs.len()),
        taken: 0,
        rests_on_facts: false,
        placer: placer.clone(),
    };
    let now_ms = shared.clock.now_ms();
    for job in jobs {
        let before = std::mem::take(&mut staged.changes);
        let mut stage = Stage {
            facts,
            before: &before,
            changes: Changes::default(),
            placer: &mut staged.placer,
            now_ms,
            salt: shared.salt,
        };
        let (outcome, taken) = match job {
            Job::Commit(commit, _) => {
                let answer = staging::stage(&mut stage, commit, shared.result_bytes);
                let taken = answer.is_ok();
                if taken {
                    stage.changes.changed_set.wrote(&commit.documents);
                }
                (Outcome::Commit(answer), taken)
            }
            Job::Horizon(topic, past, _) => {
                let answer = horizon(&mut stage, topic, *past);
                let taken = answer.is_ok();
                (Outcome::Horizon(answer), taken)
            }
            Job::IndexStep(name, _) => {
                let more = index_step(&mut stage, name);
                (Outcome::IndexStep(more.unwrap_or(false)), more.is_some())
            }
            Job::Close(_) => continue,
        };
        let changes = stage.changes;
        staged.changes = before;
        match taken {
            true => {
                staged.rests_on_facts |= rests_on_facts(&outcome, &changes);
                staged.taken += u64::from(!matches!(outcome, Outcome::Horizon(_)));
                staged.changes.add(changes);
            }
            false => staged.rests_on_facts = true,
        }
        staged.outcomes.push(outcome);
    }
    staged
}

/// Whether an answer is right only if what is known is still so, though nothing is written that would tell.
fn rests_on_facts(outcome: &Outcome, changes: &Changes) -> bool {
    match outcome {
        Outcome::Commit(Ok(receipt)) => {
            changes.is_empty() || receipt.events.iter().any(|event| event.duplicate)
        }
        // A horizon that was there once is there for good.
        _ => false,
    }
}

/// Where the horizon of a topic is, once it is past a time.
fn horizon(stage: &mut Stage<'_>, name: &TopicName, past: u64) -> Result<u64, ReadError> {
    let topic = stage.topic(name).cloned().ok_or_else(|| ReadError::TopicNotFound(name.clone()))?;
    let mut least = u64::MAX;
    for partition in (0..topic.config.partitions).map(Partition) {
        let mut part = stage.part(&topic, partition);
        if part.recorded_ts <= past {
            part.recorded_ts = past.saturating_add(1);
            stage.put_part(&topic, partition, part);
        }
        least = least.min(part.recorded_ts);
    }
    Ok(least)
}

/// Documents that a step goes over, and who has values of theirs, as rows.
struct StepRows<'a> {
    documents: &'a [Document],
    facts: &'a Facts,
    number: u32,
}

impl Rows for StepRows<'_> {
    fn get(&self, _key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        Ok(None)
    }

    fn range(&self, range: RowRange, _reverse: bool) -> RowsIter<'_> {
        if range.start.first() == Some(&prombus_rows::DOCUMENT) {
            let row = |document: &Document| {
                let key = prombus_rows::document_row(self.number, &document.key);
                Ok((key, prombus_rows::row_of_document(document)))
            };
            return Box::new(self.documents.iter().map(row));
        }
        // Those who have the values that all rows of the range begin with: what lies between is not looked at.
        let holders = self.facts.holders(&range.start).iter();
        let row = move |key: &String| {
            let row = [&range.start[..], &[0; size_of::<u64>()], key.as_bytes()].concat();
            Ok((Bytes::from(row), Bytes::new()))
        };
        Box::new(holders.map(row))
    }
}

/// Goes on making the first index that is being made, and says whether there is more to do. `None` where there is nothing.
fn index_step(stage: &mut Stage<'_>, name: &Arc<str>) -> Option<bool> {
    let state = stage.collection(name)?.clone();
    let index = state.building()?;
    let after = after(&state.indexes[index]);
    let documents = stage.facts.step(state.number, after.as_deref());
    let rows = StepRows { documents, facts: stage.facts, number: state.number };
    let limits = StepLimits { documents: STEP_DOCUMENTS, bytes: STEP_BYTES };
    // What can fail here is reading, and everything is there.
    let IndexStep { rows, progress } = prombus_rows::build_step(&rows, &state, index, limits).ok()?;
    let with_keys = rows.into_iter().zip(documents);
    let added = with_keys.map(|((row, _), document)| (state.number, document.key.clone(), row));
    stage.changes.index_rows.extend(added);
    let state: CollectionState = state.with_progress(index, progress);
    let more = state.building().is_some();
    stage.changes.collections.insert(name.clone(), Some(state));
    Some(more)
}

fn after(index: &IndexState) -> Option<String> {
    match &index.progress {
        prombus_core::collection::Progress::Building { after, .. } => after.clone(),
        _ => None,
    }
}
