//! The deterministic automaton of a pattern, made as far as it is walked.

use super::nfa::{Nfa, Ranges, State};
use crate::fuel::Fuel;
use std::collections::{BTreeSet, HashMap};

/// A state of the deterministic automaton.
pub type At = u32;

/// The pattern is found, whatever comes.
pub const FOUND: At = 0;

/// The pattern is not found, whatever comes: only for those that are anchored.
pub const LOST: At = 1;

pub struct Automaton {
    nfa: Nfa,
    states: Vec<Subset>,
    index: HashMap<(bool, Box<[u32]>), At>,
    steps: HashMap<(At, char), At>,
}

struct Subset {
    /// The states that read, and those that wait for the end.
    nfa: Box<[u32]>,
    /// Whether the pattern is found if the text ends here.
    at_end: bool,
}

impl Automaton {
    pub fn new(nfa: Nfa) -> Self {
        let nothing = || Subset { nfa: Box::default(), at_end: false };
        let found = Subset { nfa: Box::default(), at_end: true };
        Self { nfa, states: vec![found, nothing()], index: HashMap::new(), steps: HashMap::new() }
    }

    /// The state at the beginning of a text.
    pub fn start(&mut self, fuel: &mut Fuel) -> At {
        self.state(&[0], true, fuel)
    }

    /// What making it has cost.
    pub fn cost(&self) -> u64 {
        self.nfa.states.len() as u64 + self.sets().map(|set| set.len() as u64).sum::<u64>()
    }

    /// The sets of code points that states read.
    pub fn sets(&self) -> impl Iterator<Item = &Ranges> {
        self.nfa
            .states
            .iter()
            .filter_map(|state| if let State::Read(ranges, _) = state { Some(ranges) } else { None })
    }

    pub fn found_at_end(&self, at: At) -> bool {
        self.states[at as usize].at_end
    }

    /// The state after one more code point. Without fuel no new states are made, and the answer means nothing.
    pub fn step(&mut self, at: At, c: char, fuel: &mut Fuel) -> At {
        if at == FOUND || at == LOST {
            return at;
        }
        if let Some(known) = self.steps.get(&(at, c)) {
            return *known;
        }
        if !fuel.spend(1 + self.states[at as usize].nfa.len() as u64) {
            return LOST;
        }
        let next: Vec<u32> = self.states[at as usize]
            .nfa
            .iter()
            .filter_map(|state| match &self.nfa.states[*state as usize] {
                State::Read(ranges, next) if contains(ranges, c) => Some(*next),
                _ => None,
            })
            .collect();
        let next = self.state(&next, false, fuel);
        self.steps.insert((at, c), next);
        next
    }

    /// Whether the pattern is found in a text.
    pub fn matches(&mut self, text: &str, fuel: &mut Fuel) -> bool {
        let start = self.start(fuel);
        let end = text.chars().fold(start, |at, c| self.step(at, c, fuel));
        self.found_at_end(end)
    }

    fn state(&mut self, from: &[u32], first: bool, fuel: &mut Fuel) -> At {
        let (here, found) = self.closure(from, first, false, fuel);
        if found {
            return FOUND;
        }
        // Where only passing over is left after the beginning, the expression can never begin.
        if here.is_empty() || (!first && here.iter().eq([&self.nfa.pass])) {
            return LOST;
        }
        let key = (first, here.iter().copied().collect::<Box<[u32]>>());
        if let Some(known) = self.index.get(&key) {
            return *known;
        }
        let at_end = self.closure(from, first, true, fuel).1;
        let at = self.states.len() as At;
        self.states.push(Subset { nfa: key.1.clone(), at_end });
        self.index.insert(key, at);
        at
    }

    /// What can be reached without reading, and whether that is a match.
    fn closure(&self, from: &[u32], first: bool, last: bool, fuel: &mut Fuel) -> (BTreeSet<u32>, bool) {
        let (mut seen, mut here, mut open) = (BTreeSet::new(), BTreeSet::new(), from.to_vec());
        let mut found = false;
        while let Some(state) = open.pop() {
            if !seen.insert(state) {
                continue;
            }
            match &self.nfa.states[state as usize] {
                State::Read(..) => {
                    here.insert(state);
                }
                State::Split(next) => open.extend(next),
                State::Start(next) if first => open.push(*next),
                State::Start(_) => {}
                State::End(next) if last => open.push(*next),
                State::End(_) => {
                    here.insert(state);
                }
                State::Match => found = true,
            }
        }
        fuel.spend(seen.len() as u64);
        (here, found)
    }
}

fn contains(ranges: &[(char, char)], c: char) -> bool {
    let at = ranges.partition_point(|(_, end)| *end < c);
    ranges.get(at).is_some_and(|(start, _)| *start <= c)
}
