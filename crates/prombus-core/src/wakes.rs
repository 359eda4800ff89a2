//! Who is woken by which commit: a publish must not cost more because thousands wait for other topics.
//!
//! A topic has one of a fixed number of bells, by its name, so that one can also wait for a topic that does not exist
//! yet, and so has a collection. Those that share a bell wake each other's waiters for nothing, which [`EventLog::changed`] allows.
//!
//! [`EventLog::changed`]: crate::EventLog::changed

use crate::document::DocumentWrite;
use crate::position::Sequence;
use crate::topic::TopicName;
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::watch;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// So many bells do all topics have.
const BELLS: usize = 1024;
/// Whoever would listen to more of them at a time listens to everything: then most commits are for it.
const MOST_AT_ONCE: usize = 32;
const WORD: usize = u64::BITS as usize;

/// What somebody waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watched {
    /// Any commit, and any step in the making of an index.
    Everything,
    /// Topics that are made, changed or deleted.
    Topics,
    /// Events of one topic, and that it is made, changed or deleted.
    Topic(TopicName),
    /// The same of any of these topics, and whatever [`Topics`](Self::Topics) stands for.
    AnyOf(Vec<TopicName>),
    /// Documents of one collection that are written or deleted by themselves, and not with the whole collection.
    Collection(Arc<str>),
}

/// What commits have touched since the last time that waiters were woken.
#[derive(Debug, Clone)]
pub struct Touched {
    topics: bool,
    bells: [u64; BELLS / WORD],
}

impl Default for Touched {
    fn default() -> Self {
        Self { topics: false, bells: [0; BELLS / WORD] }
    }
}

impl Touched {
    /// A topic has new events.
    pub fn appended_to(&mut self, topic: &TopicName) {
        self.ring(bell_of(topic));
    }

    /// A topic was made, changed or deleted.
    pub fn changed(&mut self, topic: &TopicName) {
        self.topics = true;
        self.appended_to(topic);
    }

    /// Whatever anybody may wait for: it is not known what has changed.
    pub fn everything() -> Self {
        Self { topics: true, bells: [u64::MAX; BELLS / WORD] }
    }

    /// With all that others have touched, too.
    pub fn add(&mut self, others: &Self) {
        self.topics |= others.topics;
        self.bells.iter_mut().zip(others.bells).for_each(|(mine, theirs)| *mine |= theirs);
    }

    /// Documents of a collection are written or deleted.
    pub fn wrote_to(&mut self, collection: &str) {
        self.ring(bell_of_collection(collection));
    }

    /// Documents are written or deleted.
    pub fn wrote(&mut self, documents: &[DocumentWrite]) {
        // Neighbours mostly go to the same collection.
        for together in documents.chunk_by(|one, next| one.collection == next.collection) {
            if let Some(write) = together.first() {
                self.wrote_to(&write.collection);
            }
        }
    }

    fn ring(&mut self, bell: usize) {
        self.bells[bell / WORD] |= 1 << (bell % WORD);
    }

    fn rung(&self) -> impl Iterator<Item = usize> {
        self.bells.iter().enumerate().flat_map(|(word, bits)| {
            let mut left = *bits;
            std::iter::from_fn(move || {
                let bell = (left != 0).then(|| word * WORD + left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(bell)
            })
        })
    }
}

fn bell_of(topic: &TopicName) -> usize {
    xxh3_64(topic.as_str().as_bytes()) as usize % BELLS
}

/// Collections share the bells of topics, each by another one than a topic of its name.
fn bell_of_collection(name: &str) -> usize {
    xxh3_64_with_seed(name.as_bytes(), 1) as usize % BELLS
}

/// Those who wait for commits to become visible.
#[derive(Debug)]
pub struct Wakes {
    everything: watch::Sender<u64>,
    topics: watch::Sender<u64>,
    bells: Box<[watch::Sender<u64>]>,
}

impl Wakes {
    /// Nobody waits yet; what is visible goes up to `sequence`.
    pub fn new(sequence: u64) -> Self {
        let bell = || watch::Sender::new(sequence);
        Self { everything: bell(), topics: bell(), bells: (0..BELLS).map(|_| bell()).collect() }
    }

    /// Wakes whoever waits for what was touched. It must be visible already.
    pub fn wake(&self, sequence: u64, touched: &Touched) {
        let is_later = |now: &mut u64| std::mem::replace(now, sequence) != sequence;
        self.everything.send_if_modified(is_later);
        if touched.topics {
            self.topics.send_if_modified(is_later);
        }
        for bell in touched.rung() {
            self.bells[bell].send_if_modified(is_later);
        }
    }

    /// Waits for something after `after`: what [`EventLog::changed`](crate::EventLog::changed) promises.
    pub async fn changed(&self, of: &Watched, after: Sequence) -> Sequence {
        let bell = match of {
            Watched::Everything => &self.everything,
            Watched::Topics => &self.topics,
            Watched::Topic(topic) => &self.bells[bell_of(topic)],
            Watched::Collection(name) => &self.bells[bell_of_collection(name)],
            Watched::AnyOf(topics) => {
                if topics.len() > MOST_AT_ONCE {
                    return rung(&self.everything, after).await;
                }
                let bells: BTreeSet<usize> = topics.iter().map(bell_of).collect();
                let bells = bells.into_iter().map(|bell| &self.bells[bell]).chain([&self.topics]);
                let mut waits: Vec<_> = bells.map(|bell| Box::pin(rung(bell, after))).collect();
                // Whichever it is: all that was rung for before is visible by then, too.
                return poll_fn(|context| {
                    let mut answers = waits.iter_mut().map(|wait| wait.as_mut().poll(context));
                    answers.find(Poll::is_ready).unwrap_or(Poll::Pending)
                })
                .await;
            }
        };
        rung(bell, after).await
    }
}

/// Waits until a bell is rung after `after`.
async fn rung(bell: &watch::Sender<u64>, after: Sequence) -> Sequence {
    let mut bell = bell.subscribe();
    // A bell lives as long as whoever waits for it.
    bell.wait_for(|now| *now > after.0).await.map_or(after, |now| Sequence(*now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn topic(name: &str) -> TopicName {
        TopicName::parse(name).unwrap()
    }

    #[test]
    fn only_those_who_wait_for_it_wake() {
        let (mine, other) = (topic("mine"), topic("other"));
        assert_ne!(bell_of(&mine), bell_of(&other));
        let wakes = Wakes::new(1);
        let mut touched = Touched::default();
        touched.appended_to(&other);
        wakes.wake(2, &touched);
        let now = |of: Watched| wakes.changed(&of, Sequence(1)).now_or_never();
        assert_eq!(now(Watched::Everything), Some(Sequence(2)));
        assert_eq!(now(Watched::Topic(other.clone())), Some(Sequence(2)));
        assert_eq!(now(Watched::Topic(mine.clone())), None);
        assert_eq!(now(Watched::Topics), None);
        let mut touched = Touched::default();
        touched.changed(&mine);
        wakes.wake(3, &touched);
        assert_eq!(now(Watched::Topic(mine)), Some(Sequence(3)));
        assert_eq!(now(Watched::Topic(other)), Some(Sequence(2)));
        assert_eq!(now(Watched::Topics), Some(Sequence(3)));
    }

    #[test]
    fn who_waits_for_some_topics_is_not_woken_for_others() {
        let all: Vec<TopicName> = (0..=MOST_AT_ONCE).map(|n| topic(&format!("t-{n}"))).collect();
        let other = topic("other");
        let few = &all[..MOST_AT_ONCE];
        assert!(few.iter().all(|name| bell_of(name) != bell_of(&other)));
        let wakes = Wakes::new(1);
        let wake = |sequence, name: &TopicName, is_changed: bool| {
            let mut touched = Touched::default();
            if is_changed {
                touched.changed(name)
            } else {
                touched.appended_to(name)
            }
            wakes.wake(sequence, &touched);
        };
        let now = |of: &[TopicName], after| {
            wakes.changed(&Watched::AnyOf(of.to_vec()), Sequence(after)).now_or_never()
        };
        wake(2, &other, false);
        assert_eq!(now(few, 1), None);
        assert_eq!(now(&all, 1), Some(Sequence(2)), "of so many, any commit may be for it");
        wake(3, &few[7], false);
        assert_eq!(now(few, 1), Some(Sequence(3)));
        assert_eq!(now(few, 3), None);
        wake(4, &other, true);
        assert_eq!(now(few, 3), Some(Sequence(4)), "it may be one that is waited for");
        assert_eq!(now(&[], 3), Some(Sequence(4)));
    }

    #[test]
    fn every_bell_can_be_rung() {
        assert!(Touched::everything().rung().eq(0..BELLS));
    }
}
