//! Which of the hubs that take part each topic belongs to: a pure function of who is there and who has what.
//!
//! A topic that a live hub has belongs there. One that nobody has belongs to the first hub by rendezvous hashing that is not full:
//! a hub is full when it has a twentieth more than its part. So topics are spread evenly, and hubs that know the same agree
//! without asking each other. When hubs come and the parts become uneven, those that have too much give it to those that have too
//! little, and nothing else moves.

use super::HubId;
use crate::hashing::weight;
use crate::topic::TopicName;
use std::collections::{BTreeMap, HashMap};

/// How topics of dead letters begin. They belong where the topic does whose letters they are.
const LETTERS: &str = "dlq.";

/// The topics and hubs that one hub knows of.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// Those that take part and are alive, in order.
    hubs: Vec<HubId>,
    homes: HashMap<TopicName, HubId>,
    /// How many topics each hub has, dead or alive. Topics of dead letters do not count.
    loads: BTreeMap<HubId, usize>,
}

/// Topics that a hub gives to another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handover {
    /// Who gets them.
    pub to: HubId,
    /// The topics.
    pub topics: Vec<TopicName>,
}

/// The name of the topic that decides where this one belongs.
fn root(topic: &TopicName) -> &str {
    topic.as_str().trim_start_matches(LETTERS)
}

fn is_root(topic: &TopicName) -> bool {
    root(topic).len() == topic.as_str().len()
}

impl Places {
    /// These hubs take part, and no others.
    pub fn set_hubs(&mut self, hubs: impl IntoIterator<Item = HubId>) {
        self.hubs = hubs.into_iter().collect();
        self.hubs.sort();
    }

    /// A topic was claimed by a hub, or given up.
    pub fn moved(&mut self, topic: TopicName, to: Option<HubId>) {
        let counts = is_root(&topic);
        let before = match to.clone() {
            Some(to) => self.homes.insert(topic, to),
            None => self.homes.remove(&topic),
        };
        if !counts {
            return;
        }
        if let Some(load) = before.and_then(|before| self.loads.get_mut(&before)) {
            *load -= 1;
        }
        if let Some(to) = to {
            *self.loads.entry(to).or_default() += 1;
        }
        self.loads.retain(|_, load| *load > 0);
    }

    /// The live hub that has the topic, or the one from whose name its own is made.
    pub fn resident(&self, topic: &TopicName) -> Option<&HubId> {
        let has = |name: &TopicName| self.homes.get(name).filter(|hub| self.hubs.binary_search(hub).is_ok());
        let of_root = || (!is_root(topic)).then(|| TopicName::parse(root(topic)).ok()).flatten();
        of_root().as_ref().and_then(has).or_else(|| has(topic))
    }

    /// The hub that a topic belongs to; none where no hub takes part.
    pub fn of(&self, topic: &TopicName) -> Option<&HubId> {
        if let Some(hub) = self.resident(topic) {
            return Some(hub);
        }
        let topics = self.hubs.iter().map(|hub| self.load(hub)).sum::<usize>() + 1;
        let is_full = |hub: &HubId| 20 * self.hubs.len() * self.load(hub) >= 21 * topics;
        let free = self.hubs.iter().filter(|hub| !is_full(hub));
        let name = root(topic);
        free.max_by_key(|hub| (weight(name.as_bytes(), &hub.0), *hub))
    }

    /// How many topics a hub has.
    pub fn load(&self, hub: &HubId) -> usize {
        self.loads.get(hub).copied().unwrap_or_default()
    }

    /// What `hub` has to give to others for all of them to have their parts. Nothing, where they nearly have.
    pub fn surplus(&self, hub: &HubId) -> Vec<Handover> {
        let count = self.hubs.len();
        let loads: Vec<usize> = self.hubs.iter().map(|hub| self.load(hub)).collect();
        let topics: usize = loads.iter().sum();
        let (Some(most), Some(least)) = (loads.iter().max(), loads.iter().min()) else { return Vec::new() };
        let is_even = 10 * count * most <= 11 * topics + 10 * count && 10 * count * (least + 1) >= 9 * topics;
        if is_even || *most <= least + 1 {
            return Vec::new();
        }
        // What is left over stays with those that have the most.
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|n| (std::cmp::Reverse(loads[*n]), *n));
        let mut parts = vec![topics / count; count];
        order.iter().take(topics % count).for_each(|n| parts[*n] += 1);
        // Each that gives, in order, fills up those that take, in order: so all of them come to the same.
        let before = self.hubs.iter().zip(loads.iter().zip(&parts)).take_while(|(other, _)| *other < hub);
        let mut given: usize = before.map(|(_, (load, part))| load.saturating_sub(*part)).sum();
        let own = self.hubs.binary_search(hub).map_or(0, |n| loads[n].saturating_sub(parts[n]));
        let (mut left, mut handovers) = (own, Vec::new());
        let mut mine: Vec<&TopicName> = self
            .homes
            .iter()
            .filter(|(topic, home)| *home == hub && is_root(topic))
            .map(|(topic, _)| topic)
            .collect();
        for (to, (load, part)) in self.hubs.iter().zip(loads.iter().zip(&parts)) {
            let mut takes = part.saturating_sub(*load);
            let taken = takes.min(given);
            (takes, given) = (takes - taken, given - taken);
            let takes = takes.min(left);
            if takes > 0 {
                mine.sort_unstable_by_key(|topic| (weight(topic.as_str().as_bytes(), &to.0), *topic));
                let topics = mine.split_off(mine.len() - takes).into_iter().cloned().collect();
                handovers.push(Handover { to: to.clone(), topics });
                left -= takes;
            }
        }
        handovers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hub(n: usize) -> HubId {
        HubId(format!("hub-{n}").into())
    }

    fn topic(n: usize) -> TopicName {
        TopicName::parse(&format!("orders.shop{n}")).unwrap()
    }

    /// Claims topics one after another, each where it belongs.
    fn claimed(hubs: usize, topics: usize) -> Places {
        let mut places = Places::default();
        places.set_hubs((0..hubs).map(hub));
        for topic in (0..topics).map(topic) {
            let to = places.of(&topic).cloned();
            places.moved(topic, to);
        }
        places
    }

    fn loads(places: &Places) -> Vec<usize> {
        places.hubs.iter().map(|hub| places.load(hub)).collect()
    }

    /// All hubs give at once what they have too much. How many topics have moved.
    fn evened(places: &mut Places) -> usize {
        let all: Vec<Handover> = places.hubs.iter().flat_map(|hub| places.surplus(hub)).collect();
        let mut count = 0;
        for Handover { to, topics } in all {
            count += topics.len();
            topics.into_iter().for_each(|topic| places.moved(topic, Some(to.clone())));
        }
        count
    }

    #[test]
    fn a_hundred_topics_are_within_a_fifth_of_their_part() {
        for hubs in [2, 3, 5, 10] {
            let part = 100.0 / hubs as f64;
            let loads = loads(&claimed(hubs, 100));
            let is_near = |load: &usize| (*load as f64 - part).abs() <= part / 5.0;
            assert!(loads.iter().all(is_near), "{loads:?}");
        }
    }

    #[test]
    fn a_hub_that_joins_moves_its_part_and_nothing_else() {
        let mut places = claimed(3, 100);
        let before = places.homes.clone();
        places.set_hubs((0..4).map(hub));
        assert_eq!(evened(&mut places), 25);
        assert_eq!(loads(&places), [25; 4]);
        let moved = before.iter().filter(|(topic, home)| places.homes[*topic] != **home);
        assert!(moved.map(|(topic, _)| &places.homes[topic]).all(|home| *home == hub(3)));
        assert_eq!(evened(&mut places), 0);
    }

    #[test]
    fn what_a_hub_leaves_is_spread_and_nothing_else_moves() {
        let mut places = claimed(3, 100);
        let before = places.homes.clone();
        places.set_hubs([hub(0), hub(2)]);
        for topic in (0..100).map(topic) {
            let home = places.of(&topic).cloned();
            assert!(before[&topic] == hub(1) || home.as_ref() == Some(&before[&topic]));
            places.moved(topic, home);
        }
        assert!(loads(&places).iter().all(|load| (45..=55).contains(load)), "{:?}", loads(&places));
    }

    #[test]
    fn dead_letters_belong_where_their_topic_does() {
        let mut places = claimed(3, 10);
        let letters = TopicName::parse("dlq.orders.shop1").unwrap();
        assert_eq!(places.of(&letters), places.of(&topic(1)));
        places.moved(letters.clone(), Some(hub(0)));
        places.moved(topic(1), Some(hub(2)));
        assert_eq!(places.resident(&letters), Some(&hub(2)));
        places.moved(topic(1), None);
        assert_eq!(places.resident(&letters), Some(&hub(0)));
        assert_eq!(Places::default().of(&letters), None);
    }

    proptest! {
        #[test]
        fn giving_evens_out_whatever_there_is(had in proptest::collection::vec(0_usize..40, 1..8), joined in 0_usize..3) {
            let mut places = Places::default();
            places.set_hubs((0..had.len() + joined).map(hub));
            let mut topics = (0..).map(topic);
            for (n, load) in had.iter().enumerate() {
                topics.by_ref().take(*load).for_each(|topic| places.moved(topic, Some(hub(n))));
            }
            let before = loads(&places);
            evened(&mut places);
            let after = loads(&places);
            let part = after.iter().sum::<usize>() as f64 / after.len() as f64;
            prop_assert!(after.iter().all(|load| (*load as f64 - part).abs() <= part / 10.0 + 1.0), "{:?}", after);
            // None gives below its part, and none takes above it.
            for (before, after) in before.iter().zip(&after) {
                prop_assert!(after >= before || *after as f64 >= part.floor());
                prop_assert!(after <= before || *after as f64 <= part.ceil());
            }
            prop_assert_eq!(evened(&mut places), 0);
        }
    }
}
