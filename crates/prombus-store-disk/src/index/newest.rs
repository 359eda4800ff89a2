//! The last event that a lookup finds in a part, going backwards from place to place, and what need not be gone over again.
//!
//! Events that were given up stay in their part until it is rewritten. A key may have very many of them, and whoever looks
//! for its latest event passes them all, the writer included, while everybody else waits. What was given up stays so: a stretch of such
//! events is remembered once somebody has been through it, and skipped from then on.

use crate::index::lookup::LookupKey;
use crate::journal::position::Pos;
use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::io;
use std::ops::Range;

/// How many places are read at first: mostly the last event is the one.
const FIRST_PLACES: usize = 16;
/// The most that are read at a time.
const MOST_PLACES: usize = 1 << 16;
/// Fewer dead events than this are gone over each time.
const FEWEST_DEAD: usize = 64;
/// The most stretches that are remembered of a part. To find them again costs less than to keep more.
const MOST_STRETCHES: usize = 1024;

/// What an event is to somebody who looks for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The one.
    Found,
    /// It was given up, for everybody, whatever they look for.
    Dead,
    /// Not the one.
    Other,
}

/// Between which places all events of a hash are dead.
#[derive(Debug, Clone)]
struct Stretch {
    places: Range<u32>,
    /// Up to where the journal was known to whoever found that out. Those who know less of it may still have the events.
    as_of: Pos,
}

/// The stretches of dead events in a part, by the hash of their key.
#[derive(Default)]
pub struct DeadStretches(Mutex<HashMap<u64, Stretch>>);

impl DeadStretches {
    fn of(&self, by: LookupKey, as_of: Pos) -> Range<u32> {
        let LookupKey::Key(hash) = by else { return 0..0 };
        match self.0.lock().get(&hash) {
            Some(stretch) if stretch.as_of <= as_of => stretch.places.clone(),
            _ => 0..0,
        }
    }

    fn remember(&self, by: LookupKey, stretch: Stretch) {
        let LookupKey::Key(hash) = by else { return };
        let mut known = self.0.lock();
        if known.len() >= MOST_STRETCHES && !known.contains_key(&hash) {
            known.clear();
        }
        known.insert(hash, stretch);
    }
}

/// How to go through a part.
pub struct Backwards<'a, P, I> {
    /// What to look for.
    pub by: LookupKey,
    /// What is known of the part.
    pub dead: &'a DeadStretches,
    /// Up to where the journal is known.
    pub as_of: Pos,
    /// Maximum number of places below one, the last one first.
    pub places: P,
    /// What is at a place.
    pub item: I,
}

impl<P, I> Backwards<'_, P, I>
where
    P: Fn(u32, usize) -> io::Result<Vec<u32>>,
    I: Fn(u32) -> io::Result<Bytes>,
{
    /// The last event below a place that `judge` says is the one.
    pub fn find(&self, below: u32, judge: impl Fn(&[u8]) -> Verdict) -> io::Result<Option<Bytes>> {
        let known = self.dead.of(self.by, self.as_of);
        let mut passed = Passed::default();
        let found = self.go(below, &known, judge, &mut passed)?;
        if let Some(places) = passed.worth_remembering() {
            self.dead.remember(self.by, Stretch { places, as_of: self.as_of });
        }
        Ok(found)
    }

    fn go(
        &self,
        mut below: u32,
        known: &Range<u32>,
        judge: impl Fn(&[u8]) -> Verdict,
        passed: &mut Passed,
    ) -> io::Result<Option<Bytes>> {
        let mut limit = FIRST_PLACES;
        'rounds: loop {
            let places = (self.places)(below, limit)?;
            let is_all = places.len() < limit;
            for at in places {
                if known.contains(&at) {
                    passed.stretch(known.clone());
                    below = known.start;
                    continue 'rounds;
                }
                below = at;
                let item = (self.item)(at)?;
                match judge(&item) {
                    Verdict::Found => return Ok(Some(item)),
                    Verdict::Dead => passed.one(at),
                    Verdict::Other => passed.end(),
                }
            }
            if is_all {
                return Ok(None);
            }
            limit = (2 * limit).min(MOST_PLACES);
        }
    }
}

/// The dead events that were passed.
#[derive(Default)]
struct Passed {
    /// Those that nothing but dead events was between since the last that was not.
    now: Range<u32>,
    /// The widest stretch that has ended.
    widest: Range<u32>,
    /// How many had to be read.
    read: usize,
}

impl Passed {
    fn one(&mut self, at: u32) {
        self.read += 1;
        self.stretch(at..at + 1);
    }

    fn stretch(&mut self, places: Range<u32>) {
        let end = if self.now.is_empty() { places.end } else { self.now.end };
        self.now = places.start..end;
    }

    fn end(&mut self) {
        let ended = std::mem::take(&mut self.now);
        if ended.len() > self.widest.len() {
            self.widest = ended;
        }
    }

    fn worth_remembering(mut self) -> Option<Range<u32>> {
        self.end();
        (self.read >= FEWEST_DEAD).then_some(self.widest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Events of one key at 0, 10, 20 ..., looked for as of a time, with what had to be read for it.
    fn find(
        dead: &DeadStretches,
        as_of: u32,
        events: u32,
        judge: impl Fn(u32) -> Verdict,
    ) -> (Option<u32>, usize) {
        let read = RefCell::new(Vec::new());
        let backwards = Backwards {
            by: LookupKey::Key(7),
            dead,
            as_of: Pos { part: 1, at: as_of },
            places: |below: u32, limit| {
                Ok((0..events).map(|n| 10 * n).filter(|at| *at < below).rev().take(limit).collect())
            },
            item: |at: u32| {
                read.borrow_mut().push(at);
                Ok(Bytes::copy_from_slice(&at.to_le_bytes()))
            },
        };
        let number = |item: &[u8]| u32::from_le_bytes(item.try_into().unwrap());
        let found = backwards.find(u32::MAX, |item| judge(number(item))).unwrap();
        (found.map(|item| number(&item)), read.into_inner().len())
    }

    #[test]
    fn what_is_dead_is_passed_once() {
        let dead = DeadStretches::default();
        let judge = |at| if at == 0 { Verdict::Found } else { Verdict::Dead };
        assert_eq!(find(&dead, 5, 1000, judge), (Some(0), 1000));
        assert_eq!(find(&dead, 5, 1000, judge), (Some(0), 1));
        // There are more of them, and those too are passed once.
        assert_eq!(find(&dead, 6, 1100, judge), (Some(0), 101));
        assert_eq!(find(&dead, 6, 1100, judge), (Some(0), 1));
        assert_eq!(find(&dead, 5, 1000, judge), (Some(0), 1000), "for whom they are not dead yet");
    }

    #[test]
    fn what_is_not_dead_is_not_skipped() {
        let dead = DeadStretches::default();
        // An event of another key with the same hash is in the middle, and may be looked for.
        let of_one = |at| if at == 5000 { Verdict::Other } else { Verdict::Dead };
        let of_other = |at| if at == 5000 { Verdict::Found } else { Verdict::Dead };
        assert_eq!(find(&dead, 5, 1000, of_one), (None, 1000));
        assert_eq!(find(&dead, 5, 1000, of_one), (None, 500), "the longer stretch is known");
        assert_eq!(find(&dead, 5, 1000, of_other).0, Some(5000));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let dead = DeadStretches::default();
        for hash in 0..3 * MOST_STRETCHES as u64 {
            dead.remember(LookupKey::Key(hash), Stretch { places: 0..9, as_of: Pos::default() });
        }
        assert!(dead.0.lock().len() <= MOST_STRETCHES);
    }
}
