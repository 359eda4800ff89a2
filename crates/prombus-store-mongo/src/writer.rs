//! The writer: takes what is enqueued in its order, puts it together, and makes one transaction of it at a time.
//!
//! Others may write the same database. Where a transaction meets one of theirs, it is made again from what is there then, so
//! many times at most; then whoever has asked is told that nothing happened. Where it is not known whether a transaction was
//! committed, that is asked again for as long as a commit may wait, and else that is the answer.

use crate::batch::{self, Job, Outcome, Staged};
use crate::document_doc;
use crate::facts::Facts;
use crate::failure::{Failure, NO_PRIMARY, is_too_large, text};
use crate::load::Loader;
use crate::pause;
use crate::primary::PrimaryLost;
use crate::shared::{Counts, Shared};
use crate::write::Writing;
use mongodb::ClientSession;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::{TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use mongodb::options::{Acknowledgment, ReadConcern, ReadPreference, SelectionCriteria, WriteConcern};
use prombus_core::collection::IndexState;
use prombus_core::{CollectionState, CommitError, Placer, Sequence};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;

/// How many jobs wait at most.
pub const QUEUE: usize = 4_096;
/// How many jobs one transaction takes at most.
const JOBS_AT_ONCE: usize = 1_000;
/// How many bytes of commits, about.
const BYTES_AT_ONCE: usize = 8 << 20;
/// How often a transaction may find that it needs to know more.
const ROUNDS: usize = 1_000;

/// Makes transactions of what is enqueued.
pub struct Writer {
    shared: Arc<Shared>,
    jobs: mpsc::Receiver<Job>,
    waiting: VecDeque<Job>,
    /// All transactions are in this one, which is known before it is used, so that whoever takes over can end it. The next
    /// transaction ends what is left of one that has failed.
    session: ClientSession,
    placer: Placer,
    /// The collections, with the names of their indexes, that MongoDB has for sure.
    made: HashSet<(u32, String)>,
}

/// A transaction that is ready to be committed, or has to be begun anew.
enum Ready {
    Staged(Box<(Facts, Staged)>),
    /// MongoDB has to have these first.
    Missing(Vec<Missing>),
}

/// A collection that MongoDB is to have, with indexes.
struct Missing {
    number: u32,
    indexes: Vec<Document>,
}

/// How a transaction ended.
enum Ended {
    Committed(Box<(Facts, Staged)>),
    Again,
}

/// Why it is not known what became of a transaction, or why it did not happen.
enum TransactError {
    Failure(Failure),
    Unknown(String),
}

impl From<Failure> for TransactError {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<mongodb::error::Error> for TransactError {
    fn from(error: mongodb::error::Error) -> Self {
        Self::Failure(error.into())
    }
}

impl Writer {
    /// A writer for what is enqueued in `jobs`.
    pub async fn new(shared: Arc<Shared>, jobs: mpsc::Receiver<Job>) -> mongodb::error::Result<Self> {
        let session = shared.names.db().client().start_session().await?;
        shared.is_own(session.id());
        let (waiting, made) = (VecDeque::new(), HashSet::new());
        Ok(Self { shared, jobs, waiting, session, placer: Placer::default(), made })
    }

    /// Works until it is closed, or nobody can ask for anything any more.
    pub async fn run(mut self) {
        while let Some(jobs) = self.next().await {
            if let [Job::Close(_)] = &jobs[..] {
                self.jobs.close();
                let closed = CommitError::Unavailable("the store is closed".into());
                while let Some(job) = self.waiting.pop_front() {
                    job.refuse(&closed);
                }
                while let Some(job) = self.jobs.recv().await {
                    job.refuse(&closed);
                }
                jobs.into_iter().for_each(|job| job.refuse(&closed));
                return;
            }
            self.work(jobs).await;
        }
    }

    /// What comes next, as much as fits together.
    async fn next(&mut self) -> Option<Vec<Job>> {
        if self.waiting.is_empty() {
            self.waiting.push_back(self.jobs.recv().await?);
        }
        while self.waiting.len() < JOBS_AT_ONCE
            && let Ok(job) = self.jobs.try_recv()
        {
            self.waiting.push_back(job);
        }
        let mut jobs: Vec<Job> = Vec::new();
        let mut bytes = 0;
        while let Some(job) = self.waiting.front() {
            let fits = bytes + job.size() <= BYTES_AT_ONCE && !job.is_alone();
            if !jobs.is_empty() && !fits {
                break;
            }
            let is_alone = job.is_alone();
            bytes += job.size();
            jobs.extend(self.waiting.pop_front());
            if is_alone {
                break;
            }
        }
        Some(jobs)
    }

    /// Does jobs in one transaction; one by one, where they are too large together.
    async fn work(&mut self, jobs: Vec<Job>) {
        let error = match self.transact(&jobs).await {
            Ok((mut outcomes, first)) => {
                let mut sequence = first;
                for outcome in &mut outcomes {
                    match outcome {
                        Outcome::Commit(Ok(receipt)) => {
                            sequence += 1;
                            receipt.sequence = Sequence(sequence);
                        }
                        Outcome::IndexStep(_) => sequence += 1,
                        Outcome::Commit(Err(_)) | Outcome::Horizon(_) => {}
                    }
                }
                jobs.into_iter().zip(outcomes).for_each(|(job, outcome)| job.answer(outcome));
                return;
            }
            Err(error) => error,
        };
        if matches!(error, CommitError::TooLarge { .. }) && jobs.len() > 1 {
            for job in jobs {
                Box::pin(self.work(vec![job])).await;
            }
            return;
        }
        jobs.into_iter().for_each(|job| job.refuse(&error));
    }

    /// Makes a transaction of jobs until it is committed, and tells everybody. Gives the sequence before the first commit.
    async fn transact(&mut self, jobs: &[Job]) -> Result<(Vec<Outcome>, u64), CommitError> {
        let begun = Instant::now();
        let mut tries = 0;
        loop {
            let error = match self.attempt(jobs, begun + self.shared.wait).await {
                Ok(Ended::Committed(done)) => {
                    self.shared.flushes.observe(begun.elapsed());
                    Counts::add(&self.shared.counts.transactions);
                    let (facts, staged) = *done;
                    return Ok(self.finish(&facts, staged));
                }
                Ok(Ended::Again) => continue,
                Err(error) => error,
            };
            self.abort().await;
            tries += 1;
            Counts::add(&self.shared.counts.retries);
            match error {
                TransactError::Unknown(why) => {
                    Counts::add(&self.shared.counts.unknown);
                    *self.shared.cache.write() = Default::default();
                    return Err(CommitError::Unknown(why));
                }
                TransactError::Failure(Failure::Conflict) => {
                    Counts::add(&self.shared.counts.conflicts);
                    self.forget(jobs);
                    if tries >= pause::TRIES {
                        return Err(CommitError::Busy);
                    }
                }
                TransactError::Failure(Failure::TooLarge) => {
                    let bytes = jobs.iter().map(Job::size).sum();
                    return Err(CommitError::TooLarge { bytes, limit: BYTES_AT_ONCE });
                }
                TransactError::Failure(Failure::Read(error)) => {
                    return Err(CommitError::Unavailable(error.to_string()));
                }
                TransactError::Failure(Failure::Down(why)) => {
                    tracing::debug!(%why, "a transaction has failed");
                    if begun.elapsed() >= self.shared.wait {
                        return Err(CommitError::Unavailable(why));
                    }
                }
            }
            pause::after_conflict(tries).await;
        }
    }

    async fn attempt(&mut self, jobs: &[Job], until: Instant) -> Result<Ended, TransactError> {
        let shared = self.shared.clone();
        let prepared = shared.primary.unless_lost(Some(until), self.prepare(jobs)).await;
        // What was not to be committed yet has not happened.
        let Some(done) = prepared.map_err(Failure::from)?? else { return Ok(Ended::Again) };
        commit(&mut self.session, &shared).await?;
        Ok(Ended::Committed(done))
    }

    /// Makes a transaction of jobs, all but its commit; `None` where it has to be begun anew.
    async fn prepare(&mut self, jobs: &[Job]) -> Result<Option<Box<(Facts, Staged)>>, Failure> {
        let shared = self.shared.clone();
        self.begin().await?;
        let ready = self.stage(jobs).await?;
        let done = match ready {
            Ready::Staged(done) => done,
            Ready::Missing(missing) => {
                self.abort().await;
                for one in missing {
                    self.make(one).await?;
                }
                return Ok(None);
            }
        };
        let (facts, staged) = &*done;
        let session = &mut self.session;
        let mut writing = Writing { names: &shared.names, session, facts, changes: &staged.changes };
        writing.write().await?;
        Ok(Some(done))
    }

    async fn begin(&mut self) -> Result<(), Failure> {
        let majority = WriteConcern::builder().w(Acknowledgment::Majority).build();
        self.session
            .start_transaction()
            .read_concern(ReadConcern::snapshot())
            .write_concern(majority)
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .await?;
        Ok(())
    }

    async fn abort(&mut self) {
        // What was not begun cannot be aborted, and what is not aborted ends with the next one.
        let primary = self.shared.primary.clone();
        let aborted = async { self.session.abort_transaction().await };
        let _ = primary.unless_lost(Some(Instant::now()), aborted).await;
    }

    /// Stages jobs, and reads what that asks for, until everything is known.
    async fn stage(&mut self, jobs: &[Job]) -> Result<Ready, Failure> {
        let shared = self.shared.clone();
        let mut facts = batch::known_before(jobs, &shared.cache);
        let session = &mut self.session;
        let mut loader = Loader { names: &shared.names, session, salt: shared.salt };
        for _ in 0..ROUNDS {
            let staged = batch::stage(&shared, &facts, jobs, &self.placer);
            let needs = facts.take_needs();
            if !needs.is_empty() {
                loader.load(&mut facts, needs).await?;
                continue;
            }
            if staged.rests_on_facts && facts.forget_cached() {
                continue;
            }
            let missing = self.missing(&staged);
            return Ok(match missing.is_empty() {
                true => Ready::Staged(Box::new((facts, staged))),
                false => Ready::Missing(missing),
            });
        }
        Err(Failure::TooLarge)
    }

    /// What MongoDB is to have before the transaction: it makes no collections and no indexes in one, as far as that
    /// can be helped.
    fn missing(&self, staged: &Staged) -> Vec<Missing> {
        let states = staged.changes.collections.values().flatten();
        let missing = |state: &CollectionState| {
            let is_ready = |n: usize| state.indexes.get(n).is_some_and(IndexState::is_ready);
            let all = document_doc::mongo_indexes(state, is_ready);
            let is_missing =
                |index: &Document| !self.made.contains(&(state.number, index_name(index).to_owned()));
            let indexes: Vec<Document> = all.into_iter().filter(is_missing).collect();
            (!indexes.is_empty()).then_some(Missing { number: state.number, indexes })
        };
        states.filter_map(missing).collect()
    }

    async fn make(&mut self, Missing { number, indexes }: Missing) -> Result<(), Failure> {
        make_indexes(&self.shared, number, &indexes).await?;
        self.made.extend(indexes.iter().map(|index| (number, index_name(index).to_owned())));
        Ok(())
    }

    /// What was known of what jobs name is no longer true.
    fn forget(&self, jobs: &[Job]) {
        let known = batch::known_before(jobs, &self.shared.cache);
        let mut cache = self.shared.cache.write();
        known.heads.keys().for_each(|name| drop(cache.heads.remove(name)));
        known.collections.keys().for_each(|name| drop(cache.collections.remove(name)));
        cache.catalog = None;
    }

    /// Keeps what is known now, and tells those who wait.
    fn finish(&mut self, facts: &Facts, staged: Staged) -> (Vec<Outcome>, u64) {
        let Staged { changes, outcomes, taken, placer, .. } = staged;
        self.placer = placer;
        let mut cache = self.shared.cache.write();
        for (name, head) in &facts.heads {
            if let Some(head) = head {
                cache.heads.entry(name.clone()).or_insert_with(|| head.clone());
            }
        }
        for name in changes.topic_names() {
            match changes.head(facts, name) {
                Some(head) => cache.heads.insert(name.clone(), Arc::new(head)),
                None => cache.heads.remove(name),
            };
        }
        for (name, head) in &facts.collections {
            if let Some(head) = head {
                cache.collections.entry(name.clone()).or_insert_with(|| head.clone());
            }
        }
        for name in changes.collections.keys() {
            match changes.collection(facts, name) {
                Some(head) => cache.collections.insert(name.clone(), Arc::new(head)),
                None => cache.collections.remove(name),
            };
        }
        drop(cache);
        if !changes.given_up.is_empty()
            || !changes.dropped_topics.is_empty()
            || !changes.dropped_collections.is_empty()
        {
            self.shared.has_trash.notify_one();
        }
        // What was only written to needs nothing.
        let is_known = |state: &CollectionState| {
            let before = facts.collections.get(&state.name).and_then(Option::as_ref);
            before.is_some_and(|before| before.state.number == state.number) && state.building().is_none()
        };
        if !changes.collections.values().all(|state| state.as_ref().is_some_and(is_known)) {
            self.shared.has_index.notify_one();
        }
        let first = self.shared.tell(taken, &changes.changed_set);
        (outcomes, first)
    }
}

fn index_name(index: &Document) -> &str {
    index.get_str("name").unwrap_or_default()
}

/// Has MongoDB make indexes, and the collection that they are of, if it has not.
pub async fn make_indexes(shared: &Shared, number: u32, indexes: &[Document]) -> Result<(), Failure> {
    let all: Vec<Bson> = indexes.iter().cloned().map(Bson::Document).collect();
    let command = doc! {
        "createIndexes": shared.names.documents_name(number),
        "indexes": all,
        "writeConcern": { "w": "majority" },
    };
    shared.names.db().run_command(command).await?;
    Ok(())
}

/// Commits, and asks again for as long as it is not known what became of that.
async fn commit(session: &mut ClientSession, shared: &Shared) -> Result<(), TransactError> {
    let begun = Instant::now();
    let mut tries = 0;
    loop {
        let until = begun + shared.wait;
        let answer = shared.primary.unless_lost(Some(until), async { session.commit_transaction().await });
        let error = match answer.await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            // The next one knows what became of it.
            Err(PrimaryLost) if Instant::now() < until => continue,
            Err(PrimaryLost) => return Err(TransactError::Unknown(NO_PRIMARY.into())),
        };
        if error.contains_label(TRANSIENT_TRANSACTION_ERROR) {
            return Err(TransactError::Failure(match Failure::from(error) {
                Failure::Down(why) => Failure::Down(why),
                _ => Failure::Conflict,
            }));
        }
        // Whatever else is in the way, such as another hub that ends this session, may have come after the commit. Asked again,
        // the database says what became of it.
        let is_unknown = error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT);
        if !is_unknown && is_too_large(&error) {
            return Err(error.into());
        }
        if Instant::now() >= until {
            return Err(TransactError::Unknown(text(&error)));
        }
        tries += 1;
        pause::after_conflict(tries).await;
    }
}
