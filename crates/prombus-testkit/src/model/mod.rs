//! Random commits for two or more stores, and a comparison of everything that can be read of them.
//!
//! Given the same commits in the same order and the same clock, stores must answer alike and hold the same. Only the
//! ids that a store makes itself, and the numbers that it gives to topics, are its own: they are compared up to
//! renaming. Everything random comes from one seed, which every failure names, so that it can be replayed.
//!
//! ```ignore
//! let clock = Arc::new(ManualClock::at(START));
//! let (memory, mut disk) = (memory(&clock), disk(&clock));          // subjects that share the clock
//! let mut model = Model::new(Options::new(seed, clock));
//! for round in 0..ROUNDS {
//!     for _ in 0..20 {
//!         model.step(&[&memory, &disk]).await;                      // one commit on each; answers compared
//!     }
//!     if round % 3 == 0 {
//!         disk = reopen(disk);                                      // killed or closed; the same folder
//!     }
//!     assert_same(&memory, &disk).await;
//! }
//! ```
//!
//! For a store that may be killed or fail *during* a commit, take the parts of `step`: [`Model::propose`],
//! [`Model::commit_for`] and, once it is open again, [`Model::settle_in_doubt`].

mod answers;
mod dump;
mod events;
mod proposal;
mod state_parts;
mod universe;

pub use dump::{Dump, assert_same};
pub use proposal::Proposal;

use crate::Subject;
use crate::subject::must;
use answers::Answer;
use prombus_core::{
    Append, Commit, CommitError, CursorMove, ManualClock, Partition, Receipt, TopicName, TopicNumber,
    TopicState,
};
use proposal::{Id, PlannedEvent, PlannedMove};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use uuid::Uuid;

/// What can be chosen about a model.
pub struct Options {
    /// Where the randomness starts.
    pub seed: u64,
    /// The clock that all stores go by. The model moves it, only forwards.
    pub clock: Arc<ManualClock>,
    /// Whether topics may ask for interval durability; not where power cuts are played, since those may take
    /// what was answered.
    pub interval: bool,
}

impl Options {
    /// The usual choices.
    pub fn new(seed: u64, clock: Arc<ManualClock>) -> Self {
        Self { seed, clock, interval: true }
    }
}

/// Proposes commits, and remembers what came of them in each store.
pub struct Model {
    options: Options,
    rng: fastrand::Rng,
    steps: u64,
    /// The topics as the first store has them.
    topics: BTreeMap<TopicName, TopicState>,
    /// Every incarnation that a topic of that name has had, as each store calls it.
    incarnations: HashMap<TopicName, Vec<Vec<TopicNumber>>>,
    /// Every id that stores made: which event that was, and its id in each store.
    made: Vec<(TopicName, Vec<Uuid>)>,
    stores: Vec<Remembered>,
}

/// What is remembered of one store.
#[derive(Default)]
struct Remembered {
    /// Which of the made ids this is.
    made: HashMap<Uuid, usize>,
    /// The last id that the store made in a partition.
    last_made: HashMap<(TopicNumber, Partition), Uuid>,
}

/// What a commit that a store has answered came to.
pub type Answered = Result<Receipt, CommitError>;

impl Model {
    /// A model of empty stores.
    pub fn new(options: Options) -> Self {
        let rng = fastrand::Rng::with_seed(options.seed);
        Self {
            options,
            rng,
            steps: 0,
            topics: BTreeMap::new(),
            incarnations: HashMap::new(),
            made: Vec::new(),
            stores: Vec::new(),
        }
    }

    /// Makes one commit in each store, and fails unless they answer alike. Gives the first one's answer.
    pub async fn step(&mut self, stores: &[&Subject]) -> Answered {
        let proposal = self.propose(stores[0]).await;
        let mut answers = Vec::with_capacity(stores.len());
        for (n, store) in stores.iter().enumerate() {
            answers.push(store.commit(self.commit_for(n, &proposal)).await);
        }
        self.settle(&proposal, stores, &answers).await;
        answers.swap_remove(0)
    }

    /// Thinks of a commit, valid or not, and moves the clock to its time. `reference` is the first store: what it
    /// holds makes most conditions true.
    pub async fn propose(&mut self, reference: &Subject) -> Proposal {
        self.steps += 1;
        let step = match self.rng.u32(0..100) {
            0..40 => 0,
            40..98 => self.rng.u64(1..200),
            _ => universe::WINDOW_MS,
        };
        self.options.clock.advance(step);
        proposal::propose(self, reference).await
    }

    /// The commit as the `store`th of the stores must be told it: with the ids and numbers that it knows.
    pub fn commit_for(&self, store: usize, proposal: &Proposal) -> Commit {
        Commit {
            config: proposal.config.clone(),
            events: proposal.events.iter().map(|event| self.append_for(store, event)).collect(),
            documents: proposal.documents.clone(),
            cursors: proposal.cursors.iter().map(|planned| self.move_for(store, planned)).collect(),
            limits: proposal.limits,
            auto_create: proposal.auto_create.clone(),
            ..Commit::default()
        }
    }

    fn append_for(&self, store: usize, planned: &PlannedEvent) -> Append {
        let id = |id: Id| match id {
            Id::Own(id) => id,
            Id::Made(n) => self.made[n].1[store],
            Id::Unborn => Uuid::max(),
        };
        let mut event = planned.event.clone();
        event.id = planned.id.map(id);
        let expect = planned.expect.map(|last| prombus_core::Expect { last_id: last.map(id) });
        Append { topic: planned.topic.clone(), placement: planned.placement, expect, event }
    }

    fn move_for(&self, store: usize, planned: &PlannedMove) -> CursorMove {
        let change = planned.change.clone();
        let incarnation = planned.read.map(|n| self.incarnations[&change.key.topic][n][store]);
        CursorMove { incarnation, ..change }
    }

    /// Takes the stores' answers to a proposal, and fails unless they are alike.
    pub async fn settle(&mut self, proposal: &Proposal, stores: &[&Subject], answers: &[Answered]) {
        self.stores.resize_with(stores.len(), Remembered::default);
        let receipts: Vec<&Receipt> = answers.iter().flatten().collect();
        if receipts.len() == answers.len() {
            self.learn(proposal, &receipts);
        }
        let first = self.named(0, &answers[0]);
        for (n, answer) in answers.iter().enumerate().skip(1) {
            let answer = self.named(n, answer);
            assert_eq!(first, answer, "{}: store {n} answers otherwise to {proposal:?}", self.place());
        }
        self.observe(stores).await;
        if receipts.len() == answers.len() {
            self.assert_growing(proposal, &receipts);
        }
    }

    /// Settles a commit that the second of two stores was killed or failed with, once it is open again: the first
    /// store gets it now, and the second must hold all of it or nothing; if nothing, it gets it again.
    /// Says whether it had survived. The clock must not have moved since [`propose`](Self::propose).
    pub async fn settle_in_doubt(&mut self, proposal: &Proposal, sure: &Subject, doubtful: &Subject) -> bool {
        let before = Dump::of(sure).await;
        let answer = sure.commit(self.commit_for(0, proposal)).await;
        let after = Dump::of(sure).await;
        let found = Dump::of(doubtful).await;
        let survived = found == after && after != before;
        let second = if survived {
            self.found_answer(&answer, doubtful, proposal).await
        } else {
            found.assert_equals(
                &before,
                &format!("{}: a commit happens as a whole or not at all", self.place()),
            );
            doubtful.commit(self.commit_for(1, proposal)).await
        };
        self.settle(proposal, &[sure, doubtful], &[answer, second]).await;
        survived
    }

    /// The answer that a store would have given to a commit that is in it: the other store's, with its own ids.
    async fn found_answer(&self, answer: &Answered, store: &Subject, proposal: &Proposal) -> Answered {
        let mut receipt = answer.clone()?;
        for (appended, planned) in receipt.events.iter_mut().zip(&proposal.events) {
            let known = self.stores.first().and_then(|store| store.made.get(&appended.id));
            appended.id = match known {
                Some(n) => self.made[*n].1[1],
                None if universe::is_own(appended.id) => appended.id,
                None => {
                    let page = store.page(&planned.topic, appended.partition.0, appended.offset);
                    must(store.log.read(page).await, "what survived can be read").events[0].id
                }
            };
        }
        Ok(receipt)
    }

    /// Remembers the ids that stores made for events that came without one.
    fn learn(&mut self, proposal: &Proposal, receipts: &[&Receipt]) {
        for (index, planned) in proposal.events.iter().enumerate().filter(|(_, planned)| planned.id.is_none())
        {
            let mut ids = Vec::with_capacity(receipts.len());
            for (n, receipt) in receipts.iter().enumerate() {
                let id = receipt.events[index].id;
                let known = self.stores[n].made.insert(id, self.made.len());
                assert_eq!(known, None, "{}: store {n} has made {id} twice", self.place());
                ids.push(id);
            }
            self.made.push((planned.topic.clone(), ids));
        }
    }

    /// Fails unless the ids that stores made grow within a partition.
    fn assert_growing(&mut self, proposal: &Proposal, receipts: &[&Receipt]) {
        for (index, planned) in proposal.events.iter().enumerate().filter(|(_, planned)| planned.id.is_none())
        {
            for (n, receipt) in receipts.iter().enumerate() {
                let appended = &receipt.events[index];
                // A commit changes topics before it appends: what is there now has its events.
                let numbers = &self.incarnations[&planned.topic];
                let topic = numbers[numbers.len() - 1][n];
                let last = self.stores[n].last_made.insert((topic, appended.partition), appended.id);
                assert!(last < Some(appended.id), "{}: ids that store {n} makes grow", self.place());
            }
        }
    }

    /// Looks at the topics as they are now.
    async fn observe(&mut self, stores: &[&Subject]) {
        let mut all = Vec::with_capacity(stores.len());
        for store in stores {
            let topics = must(store.log.topics().await, "topics can be listed");
            all.push(topics.into_iter().map(|topic| (topic.name.clone(), topic)).collect::<BTreeMap<_, _>>());
        }
        let names = |topics: &BTreeMap<TopicName, TopicState>| topics.keys().cloned().collect::<Vec<_>>();
        for (n, topics) in all.iter().enumerate() {
            assert_eq!(names(topics), names(&all[0]), "{}: store {n} has other topics", self.place());
        }
        for name in all[0].keys() {
            let numbers: Vec<TopicNumber> = all.iter().map(|topics| topics[name].number).collect();
            let known = self.incarnations.entry(name.clone()).or_default();
            if known.last() != Some(&numbers) {
                known.push(numbers);
            }
        }
        self.topics = all.swap_remove(0);
    }

    fn named(&self, store: usize, answer: &Answered) -> Answer {
        answers::named(answer, |id| match self.stores[store].made.get(&id) {
            Some(n) => Id::Made(*n),
            None if universe::is_own(id) => Id::Own(id),
            None => Id::Unborn,
        })
    }

    /// Where the model is, for messages.
    pub fn place(&self) -> String {
        format!("seed {}, step {}", self.options.seed, self.steps)
    }
}
