//! Where the groups of this hub are: by topic and name for those who call, and by topic and seat for leases.

use super::group::Group;
use super::lease::Session;
use super::metrics::{GroupMetrics, GroupTimes};
use super::options::GroupName;
use parking_lot::Mutex;
use prombus_core::{ReadError, TopicName, TopicNumber, TopicState};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

/// The place of a group, loaded or not.
pub(super) struct Slot {
    /// What its leases name. No other group of the topic gets it, for as long as the hub lives.
    pub seat: u32,
    /// Held while the group is loaded or deleted, so that no group is there twice.
    pub busy: tokio::sync::Mutex<()>,
    pub group: Mutex<Option<Arc<Group>>>,
    /// Whether the epoch of its cursors is one that this hub has given them.
    pub is_ours: AtomicBool,
    pub metrics: GroupMetrics,
}

impl Slot {
    /// The group, if it is loaded and works.
    pub fn loaded(&self) -> Option<Arc<Group>> {
        self.group.lock().clone().filter(|group| group.is_usable())
    }

    /// The group, if it is loaded and has not been told that it has ended.
    fn present(&self) -> Option<Arc<Group>> {
        self.group.lock().clone().filter(|group| !group.has_failed())
    }
}

/// The first seat is below this.
const FIRST_SEATS: u32 = 1 << 16;

/// The groups of one topic.
struct TopicSeats {
    slots: BTreeMap<GroupName, Arc<Slot>>,
    by_seat: HashMap<u32, Weak<Slot>>,
    next_seat: u32,
}

impl Default for TopicSeats {
    /// Seats start anywhere: on a clock that stands still, a hub that is started again would otherwise give a group that was
    /// deleted and made again the leases that it had before.
    fn default() -> Self {
        let (slots, by_seat) = Default::default();
        Self { slots, by_seat, next_seat: fastrand::u32(..FIRST_SEATS) }
    }
}

#[derive(Default)]
struct Topics {
    seats: HashMap<TopicNumber, TopicSeats>,
    numbers: HashMap<TopicName, TopicNumber>,
}

impl Topics {
    /// Forgets all groups of a topic, and gives those that are loaded.
    fn forget(&mut self, topic: &TopicName) -> Vec<Arc<Group>> {
        let seats = self.numbers.remove(topic).and_then(|number| self.seats.remove(&number));
        let slots = seats.into_iter().flat_map(|seats| seats.slots.into_values());
        slots.filter_map(|slot| slot.present()).collect()
    }
}

/// The groups of a hub.
#[derive(Default)]
pub(super) struct Seats {
    topics: Mutex<Topics>,
    times: Arc<GroupTimes>,
}

impl Seats {
    /// What is measured of all groups together.
    pub fn times(&self) -> &Arc<GroupTimes> {
        &self.times
    }

    /// The place of a group in a topic as it was looked up. Where the topic was made anew, its earlier groups end; where
    /// that is known already, this is an error.
    pub fn slot(&self, topic: &TopicState, name: &GroupName) -> Result<Arc<Slot>, ReadError> {
        let gone = || ReadError::TopicNotFound(topic.name.clone());
        let mut topics = self.topics.lock();
        let known = topics.numbers.get(&topic.name).copied();
        if known.is_some_and(|known| known > topic.number) {
            return Err(gone());
        }
        let ended = if known.is_some_and(|known| known < topic.number) {
            topics.forget(&topic.name)
        } else {
            Vec::new()
        };
        topics.numbers.insert(topic.name.clone(), topic.number);
        let seats = topics.seats.entry(topic.number).or_default();
        let slot = seats.slots.get(name).cloned().unwrap_or_else(|| seats.add(name, &self.times));
        drop(topics);
        ended.iter().for_each(|group| group.fail(gone().into()));
        Ok(slot)
    }

    /// The group whose leases name this session: one look at its topic, and at no other group.
    pub fn with_session(&self, session: Session) -> Option<Arc<Group>> {
        let slot = self.topics.lock().seats.get(&session.topic)?.by_seat.get(&session.seat)?.upgrade()?;
        slot.loaded().filter(|group| group.epoch == session.epoch)
    }

    /// Forgets the place of a group that does not exist, unless someone uses it.
    pub fn forget(&self, topic: &TopicName, name: &GroupName) {
        let mut topics = self.topics.lock();
        let Some(number) = topics.numbers.get(topic).copied() else { return };
        let Some(seats) = topics.seats.get_mut(&number) else { return };
        // Whoever else has the slot is about to load the group into it.
        let unused = |slot: &Arc<Slot>| Arc::strong_count(slot) == 1 && slot.loaded().is_none();
        if seats.slots.get(name).is_some_and(unused)
            && let Some(slot) = seats.slots.remove(name)
        {
            seats.by_seat.remove(&slot.seat);
        }
    }

    /// Forgets all groups of a topic, and gives those that are loaded.
    pub fn forget_topic(&self, topic: &TopicName) -> Vec<Arc<Group>> {
        self.topics.lock().forget(topic)
    }

    /// The groups of a topic that are loaded, whether it is still at home here or not.
    pub fn loaded_of(&self, topic: &TopicName) -> Vec<Arc<Group>> {
        let topics = self.topics.lock();
        let seats = topics.numbers.get(topic).and_then(|number| topics.seats.get(number));
        seats.into_iter().flat_map(|seats| seats.slots.values()).filter_map(|slot| slot.present()).collect()
    }

    /// All groups that are loaded.
    pub fn loaded(&self) -> Vec<Arc<Group>> {
        let topics = self.topics.lock();
        let slots = topics.seats.values().flat_map(|seats| seats.slots.values());
        slots.filter_map(|slot| slot.present()).collect()
    }
}

impl TopicSeats {
    fn add(&mut self, name: &GroupName, times: &Arc<GroupTimes>) -> Arc<Slot> {
        let seat = self.next_seat;
        self.next_seat = self.next_seat.wrapping_add(1);
        let slot = Arc::new(Slot {
            seat,
            busy: tokio::sync::Mutex::default(),
            group: Mutex::default(),
            is_ours: AtomicBool::new(false),
            metrics: GroupMetrics { counters: Arc::default(), times: times.clone() },
        });
        self.slots.insert(name.clone(), slot.clone());
        self.by_seat.insert(seat, Arc::downgrade(&slot));
        slot
    }
}
