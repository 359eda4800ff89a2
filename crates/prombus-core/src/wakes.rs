//! Who is woken by which commit: a publish must not cost more because thousands wait for other topics.
//!
//! A topic has one of a fixed number of slots, by its name, so that one can also wait for a topic that does not exist
//! yet, and so has a collection. Those that share a slot wake each other's waiters for nothing, which
//! [`EventLog::changed`] allows.
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

/// How many slots all topics share.
const SLOTS: usize = 1024;
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

/// What commits have changed since the last time that waiters were woken.
#[derive(Debug, Clone)]
pub struct ChangedSet {
    topics: bool,
    slots: [u64; SLOTS / WORD],
}

impl Default for ChangedSet {
    fn default() -> Self {
        Self { topics: false, slots: [0; SLOTS / WORD] }
    }
}

impl ChangedSet {
    /// A topic has new events.
    pub fn appended_to(&mut self, topic: &TopicName) {
        self.mark(slot_of(topic));
    }

    /// A topic was made, changed or deleted.
    pub fn changed(&mut self, topic: &TopicName) {
        self.topics = true;
        self.appended_to(topic);
    }

    /// Whatever anybody may wait for: it is not known what has changed.
    pub fn everything() -> Self {
        Self { topics: true, slots: [u64::MAX; SLOTS / WORD] }
    }

    /// With all that others have changed, too.
    pub fn add(&mut self, others: &Self) {
        self.topics |= others.topics;
        self.slots.iter_mut().zip(others.slots).for_each(|(mine, theirs)| *mine |= theirs);
    }

    /// Documents of a collection are written or deleted.
    pub fn wrote_to(&mut self, collection: &str) {
        self.mark(slot_of_collection(collection));
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

    fn mark(&mut self, slot: usize) {
        self.slots[slot / WORD] |= 1 << (slot % WORD);
    }

    fn marked(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().enumerate().flat_map(|(word, bits)| {
            let mut left = *bits;
            std::iter::from_fn(move || {
                let slot = (left != 0).then(|| word * WORD + left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(slot)
            })
        })
    }
}

fn slot_of(topic: &TopicName) -> usize {
    xxh3_64(topic.as_str().as_bytes()) as usize % SLOTS
}

/// Collections share the slots of topics, each by another one than a topic of its name.
fn slot_of_collection(name: &str) -> usize {
    xxh3_64_with_seed(name.as_bytes(), 1) as usize % SLOTS
}

/// Those who wait for commits to become visible.
#[derive(Debug)]
pub struct Wakes {
    everything: watch::Sender<u64>,
    topics: watch::Sender<u64>,
    slots: Box<[watch::Sender<u64>]>,
}

impl Wakes {
    /// Nobody waits yet; what is visible goes up to `sequence`.
    pub fn new(sequence: u64) -> Self {
        let slot = || watch::Sender::new(sequence);
        Self { everything: slot(), topics: slot(), slots: (0..SLOTS).map(|_| slot()).collect() }
    }

    /// Wakes whoever waits for what was changed. It must be visible already.
    pub fn wake(&self, sequence: u64, changed_set: &ChangedSet) {
        let is_later = |now: &mut u64| std::mem::replace(now, sequence) != sequence;
        self.everything.send_if_modified(is_later);
        if changed_set.topics {
            self.topics.send_if_modified(is_later);
        }
        for slot in changed_set.marked() {
            self.slots[slot].send_if_modified(is_later);
        }
    }

    /// Waits for something after `after`: what [`EventLog::changed`](crate::EventLog::changed) promises.
    pub async fn changed(&self, of: &Watched, after: Sequence) -> Sequence {
        let slot = match of {
            Watched::Everything => &self.everything,
            Watched::Topics => &self.topics,
            Watched::Topic(topic) => &self.slots[slot_of(topic)],
            Watched::Collection(name) => &self.slots[slot_of_collection(name)],
            Watched::AnyOf(topics) => {
                if topics.len() > MOST_AT_ONCE {
                    return marked_after(&self.everything, after).await;
                }
                let slots: BTreeSet<usize> = topics.iter().map(slot_of).collect();
                let slots = slots.into_iter().map(|slot| &self.slots[slot]).chain([&self.topics]);
                let mut waits: Vec<_> = slots.map(|slot| Box::pin(marked_after(slot, after))).collect();
                // Whichever it is: all that was marked before is visible by then, too.
                return poll_fn(|context| {
                    let mut answers = waits.iter_mut().map(|wait| wait.as_mut().poll(context));
                    answers.find(Poll::is_ready).unwrap_or(Poll::Pending)
                })
                .await;
            }
        };
        marked_after(slot, after).await
    }
}

/// Waits until a slot is marked after `after`.
async fn marked_after(slot: &watch::Sender<u64>, after: Sequence) -> Sequence {
    let mut slot = slot.subscribe();
    // A slot lives as long as whoever waits for it.
    slot.wait_for(|now| *now > after.0).await.map_or(after, |now| Sequence(*now))
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
        assert_ne!(slot_of(&mine), slot_of(&other));
        let wakes = Wakes::new(1);
        let mut changed_set = ChangedSet::default();
        changed_set.appended_to(&other);
        wakes.wake(2, &changed_set);
        let now = |of: Watched| wakes.changed(&of, Sequence(1)).now_or_never();
        assert_eq!(now(Watched::Everything), Some(Sequence(2)));
        assert_eq!(now(Watched::Topic(other.clone())), Some(Sequence(2)));
        assert_eq!(now(Watched::Topic(mine.clone())), None);
        assert_eq!(now(Watched::Topics), None);
        let mut changed_set = ChangedSet::default();
        changed_set.changed(&mine);
        wakes.wake(3, &changed_set);
        assert_eq!(now(Watched::Topic(mine)), Some(Sequence(3)));
        assert_eq!(now(Watched::Topic(other)), Some(Sequence(2)));
        assert_eq!(now(Watched::Topics), Some(Sequence(3)));
    }

    #[test]
    fn who_waits_for_some_topics_is_not_woken_for_others() {
        let all: Vec<TopicName> = (0..=MOST_AT_ONCE).map(|n| topic(&format!("t-{n}"))).collect();
        let other = topic("other");
        let few = &all[..MOST_AT_ONCE];
        assert!(few.iter().all(|name| slot_of(name) != slot_of(&other)));
        let wakes = Wakes::new(1);
        let wake = |sequence, name: &TopicName, is_changed: bool| {
            let mut changed_set = ChangedSet::default();
            if is_changed {
                changed_set.changed(name)
            } else {
                changed_set.appended_to(name)
            }
            wakes.wake(sequence, &changed_set);
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
    fn every_slot_can_be_marked() {
        assert!(ChangedSet::everything().marked().eq(0..SLOTS));
    }
}
