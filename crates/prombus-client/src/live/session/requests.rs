//! Requests that wait for their answers, by number. Answers mostly arrive in the order of the requests, so a queue does
//! what a map would, without hashing.

use std::collections::VecDeque;
use tokio::time::Instant;

struct Slot<R> {
    asked: Instant,
    request: R,
}

/// Requests by number. Numbers grow over all the connections of a session, so that no answer is taken for another's.
pub(crate) struct Requests<R> {
    first: u64,
    slots: VecDeque<Option<Slot<R>>>,
    open: usize,
}

impl<R> Default for Requests<R> {
    fn default() -> Self {
        Self { first: 1, slots: VecDeque::new(), open: 0 }
    }
}

impl<R> Requests<R> {
    /// How many numbers are between the oldest open request and the newest.
    pub fn span(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.open == 0
    }

    /// When the oldest open request was made.
    pub fn oldest(&self) -> Option<Instant> {
        self.slots.iter().flatten().next().map(|slot| slot.asked)
    }

    /// The number of the next request.
    pub fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// Adds a request, and says its number.
    pub fn add(&mut self, request: R, now: Instant) -> u64 {
        let number = self.next();
        self.slots.push_back(Some(Slot { asked: now, request }));
        self.open += 1;
        number
    }

    /// The request with this number.
    pub fn get(&self, number: u64) -> Option<&R> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        Some(&self.slots.get(index)?.as_ref()?.request)
    }

    /// The request with this number, which is answered now.
    pub fn take(&mut self, number: u64) -> Option<R> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let slot = self.slots.get_mut(index)?.take()?;
        self.open -= 1;
        while let Some(None) = self.slots.front() {
            self.slots.pop_front();
            self.first += 1;
        }
        Some(slot.request)
    }

    /// All open requests in their order, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &R)> {
        let numbered = (self.first..).zip(&self.slots);
        numbered.filter_map(|(number, slot)| Some((number, &slot.as_ref()?.request)))
    }

    /// The requests that are made again on a new connection count as made now.
    pub fn renew(&mut self, now: Instant) {
        self.slots.iter_mut().flatten().for_each(|slot| slot.asked = now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_found_by_number_in_any_order() {
        let now = Instant::now();
        let mut requests = Requests::default();
        let numbers: Vec<u64> = ["a", "b", "c"].into_iter().map(|name| requests.add(name, now)).collect();
        assert_eq!(numbers, [1, 2, 3]);
        assert_eq!(requests.take(2), Some("b"));
        assert_eq!(requests.take(2), None);
        assert_eq!(requests.span(), 3);
        assert_eq!(requests.take(1), Some("a"));
        assert_eq!(requests.span(), 1);
        assert_eq!(requests.iter().collect::<Vec<_>>(), [(3, &"c")]);
        assert_eq!((requests.take(0), requests.take(9)), (None, None));
        assert_eq!(requests.take(3), Some("c"));
        assert!(requests.is_empty() && requests.oldest().is_none());
        assert_eq!(requests.add("d", now), 4);
    }
}
