//! Texts in which some patterns are found and others are not: a walk through the product of their automata.

use super::{
    Patterns,
    automaton::{At, FOUND, LOST},
    nfa::Ranges,
};
use crate::fuel::Fuel;
use std::collections::{BTreeMap, HashMap, HashSet};

/// What texts are asked for.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    pub found: Vec<u32>,
    pub not_found: Vec<u32>,
    pub least: u64,
    pub most: Option<u64>,
    /// How many texts are enough.
    pub count: usize,
}

/// The texts, the shortest first.
#[derive(Debug, Default)]
pub struct Strings {
    pub texts: Vec<String>,
    /// There are no others.
    pub all: bool,
    /// The walk was ended by the budget, so that nothing is known of others.
    pub cut: bool,
}

/// Code points that no automaton tells apart: some of them, and whether there are more.
struct Letter {
    some: Vec<char>,
    more: bool,
}

/// A step on the way to a text: the step before, and the code point.
type Step = Option<(usize, char)>;

/// How long a text without patterns is written out.
const LENGTH_LIMIT: u64 = 20_000;

impl Patterns {
    /// Texts that are asked for. Every pattern must be regular.
    pub fn strings(&mut self, ask: &Ask, fuel: &mut Fuel) -> Strings {
        if ask.most.is_some_and(|most| most < ask.least) {
            return Strings { all: true, ..Strings::default() };
        }
        if ask.found.is_empty() && ask.not_found.is_empty() {
            return plain(ask, fuel);
        }
        let letters = self.letters(ask, fuel);
        let mut walk =
            Walk { ask, letters, steps: vec![None], made: HashSet::new(), strings: Strings::default() };
        walk.go(self, fuel);
        walk.strings
    }

    /// The alphabet of the automata, in as few letters as they need.
    fn letters(&mut self, ask: &Ask, fuel: &mut Fuel) -> Vec<Letter> {
        let mut sets: HashSet<Ranges> = HashSet::new();
        for pattern in ask.found.iter().chain(&ask.not_found) {
            sets.extend(
                self.automaton(*pattern, fuel)
                    .into_iter()
                    .flat_map(|automaton| automaton.sets().cloned().collect::<Vec<_>>()),
            );
        }
        let sets: Vec<Ranges> = sets.into_iter().collect();
        // Where a set begins or ends, from here on.
        let mut edges: BTreeMap<u32, Vec<usize>> =
            BTreeMap::from([(0, Vec::new()), (0xd800, Vec::new()), (0xe000, Vec::new())]);
        for (at, set) in sets.iter().enumerate() {
            for (start, end) in set.iter() {
                edges.entry(*start as u32).or_default().push(at);
                edges.entry(*end as u32 + 1).or_default().push(at);
            }
        }
        if !fuel.spend(edges.len() as u64 * (1 + sets.len() as u64 / 16)) {
            return Vec::new();
        }
        let starts: Vec<u32> = edges.keys().copied().chain([0x11_0000]).collect();
        let mut inside = vec![false; sets.len()];
        let mut letters: HashMap<Vec<bool>, Vec<(u32, u32)>> = HashMap::new();
        for (at, flips) in edges.values().enumerate() {
            for set in flips {
                inside[*set] = !inside[*set];
            }
            let (start, end) = (starts[at], starts[at + 1]);
            if start < end && start < 0x11_0000 && start != 0xd800 {
                letters.entry(inside.clone()).or_default().push((start, end));
            }
        }
        let mut letters: Vec<Letter> = letters.values().map(|ranges| letter(ranges, ask.count)).collect();
        letters.sort_by_key(|letter| letter.some.first().map(|c| rank(*c)));
        letters
    }
}

/// How pleasant a code point is to look at, the better the smaller.
fn rank(c: char) -> (u8, char) {
    let group = match c {
        'a'..='z' => 0,
        '0'..='9' => 1,
        'A'..='Z' => 2,
        '!'..='~' => 3,
        ' ' => 4,
        c if c.is_alphanumeric() => 5,
        _ => 6,
    };
    (group, c)
}

fn letter(ranges: &[(u32, u32)], count: usize) -> Letter {
    let total: u64 = ranges.iter().map(|(start, end)| u64::from(end - start)).sum();
    let want = count.clamp(1, 64);
    let mut some: Vec<char> = Vec::new();
    for preferred in ['a'..='z', '0'..='9', 'A'..='Z', '!'..='/', ':'..='@', '['..='`', '{'..='~'] {
        let within = |c: &char| ranges.iter().any(|(start, end)| (*start..*end).contains(&(*c as u32)));
        some.extend(preferred.filter(within).take(want.saturating_sub(some.len())));
    }
    for (start, end) in ranges {
        let rest = (*start..*end).filter_map(char::from_u32).filter(|c| !('!'..='~').contains(c));
        some.extend(rest.take(want.saturating_sub(some.len())));
    }
    Letter { more: (some.len() as u64) < total, some }
}

/// Texts of which only the length matters.
fn plain(ask: &Ask, fuel: &mut Fuel) -> Strings {
    let mut strings = Strings::default();
    let longest = ask.most.unwrap_or(u64::MAX);
    if ask.least > LENGTH_LIMIT || !fuel.spend(ask.count as u64 * (1 + ask.least / 16)) {
        strings.cut = true;
        return strings;
    }
    if longest == 0 {
        return Strings { texts: vec![String::new()], all: true, cut: false };
    }
    let least = ask.least.max(1);
    for number in 0..ask.count as u64 {
        let mut text = String::new();
        let (mut rest, mut length) = (number, 0);
        while length < least || rest > 0 {
            text.push(char::from(b'a' + (rest % 26) as u8));
            rest /= 26;
            length += 1;
        }
        if length <= longest {
            strings.texts.push(text);
        }
    }
    strings
}

struct Walk<'a> {
    ask: &'a Ask,
    letters: Vec<Letter>,
    steps: Vec<Step>,
    made: HashSet<String>,
    strings: Strings,
}

/// Where every automaton is: first those whose pattern must be found.
type Front = BTreeMap<Box<[At]>, Vec<usize>>;

impl Walk<'_> {
    /// Level by level, so that every state is reached by a shortest text first. Below the least length a state counts
    /// anew on every level; from there on it is left after as many visits as texts are wanted.
    fn go(&mut self, patterns: &mut Patterns, fuel: &mut Fuel) {
        let start: Box<[At]> =
            self.each(|pattern| patterns.automaton(pattern, fuel).map_or(LOST, |made| made.start(fuel)));
        let mut front: Front = BTreeMap::from([(start, vec![0])]);
        front.retain(|state, _| !self.is_hopeless(state));
        let mut visits: HashMap<Box<[At]>, usize> = HashMap::new();
        let (mut length, mut dropped) = (0, false);
        loop {
            if length >= self.ask.least {
                for (state, ends) in &mut front {
                    let visits = visits.entry(state.clone()).or_default();
                    let left = self.ask.count.saturating_sub(*visits);
                    dropped |= ends.len() > left;
                    ends.truncate(left);
                    *visits += ends.len();
                }
                front.retain(|_, ends| !ends.is_empty());
                self.collect(patterns, &front, (length, fuel));
                if self.strings.texts.len() >= self.ask.count {
                    return;
                }
            }
            if front.is_empty() || self.ask.most == Some(length) {
                self.strings.all = !dropped || self.strings.texts.is_empty();
                return;
            }
            let Some(next) = self.step(patterns, &front, fuel, &mut dropped) else {
                self.strings.cut = true;
                return;
            };
            (front, length) = (next, length + 1);
        }
    }

    fn each(&self, state: impl FnMut(u32) -> At) -> Box<[At]> {
        self.ask.found.iter().chain(&self.ask.not_found).copied().map(state).collect()
    }

    /// Whether no text can come of a state.
    fn is_hopeless(&self, state: &[At]) -> bool {
        let (found, not_found) = state.split_at(self.ask.found.len());
        found.contains(&LOST) || not_found.contains(&FOUND)
    }

    fn collect(&mut self, patterns: &mut Patterns, front: &Front, (length, fuel): (u64, &mut Fuel)) {
        for (state, ends) in front {
            let ids = self.ask.found.iter().chain(&self.ask.not_found);
            let accepted = ids.zip(state.iter()).enumerate().all(|(at, (pattern, state))| {
                let found = patterns.automaton(*pattern, fuel).is_some_and(|made| made.found_at_end(*state));
                found == (at < self.ask.found.len())
            });
            for end in ends.iter().filter(|_| accepted) {
                if !fuel.spend(1 + length / 8) {
                    return;
                }
                let text = self.text(*end);
                if self.strings.texts.len() < self.ask.count && self.made.insert(text.clone()) {
                    self.strings.texts.push(text);
                }
            }
        }
    }

    fn step(
        &mut self,
        patterns: &mut Patterns,
        front: &Front,
        fuel: &mut Fuel,
        dropped: &mut bool,
    ) -> Option<Front> {
        let mut next: Front = BTreeMap::new();
        for (state, ends) in front {
            for letter in &self.letters {
                let Some(first) = letter.some.first() else { continue };
                fuel.spend(1 + state.len() as u64).then_some(())?;
                let mut at = state.iter();
                let ids = self.ask.found.iter().chain(&self.ask.not_found);
                let stepped: Box<[At]> = ids
                    .map(|id| {
                        let at = *at.next().unwrap_or(&LOST);
                        patterns.automaton(*id, fuel).map_or(LOST, |made| made.step(at, *first, fuel))
                    })
                    .collect();
                if self.is_hopeless(&stepped) {
                    continue;
                }
                let reached = next.entry(stepped).or_default();
                *dropped |= letter.more;
                for (end, c) in ends.iter().flat_map(|end| letter.some.iter().map(move |c| (*end, *c))) {
                    if reached.len() >= self.ask.count {
                        *dropped = true;
                        break;
                    }
                    fuel.spend(1);
                    self.steps.push(Some((end, c)));
                    reached.push(self.steps.len() - 1);
                }
            }
        }
        Some(next)
    }

    fn text(&self, mut end: usize) -> String {
        let mut reversed = Vec::new();
        while let Some((before, c)) = self.steps[end] {
            reversed.push(c);
            end = before;
        }
        reversed.into_iter().rev().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(found: &[&str], not_found: &[&str], least: u64, most: Option<u64>, count: usize) -> Strings {
        let mut patterns = Patterns::default();
        let found = found.iter().map(|source| patterns.add(source)).collect();
        let not_found = not_found.iter().map(|source| patterns.add(source)).collect();
        patterns.strings(&Ask { found, not_found, least, most, count }, &mut Fuel::new(1_000_000))
    }

    #[test]
    fn inclusion_is_decided() {
        for (small, large) in [
            ("^[a-f]+$", "^[a-z]+$"),
            ("^a{3}$", "^a*$"),
            ("abc", "b"),
            ("^x-", "^x"),
            ("^(ab)+$", "^(ab|c)*$"),
        ] {
            let none = strings(&[small], &[large], 0, None, 1);
            assert!(none.texts.is_empty() && none.all, "{small} {large}");
            let some = strings(&[large], &[small], 0, None, 1);
            assert_eq!(some.texts.len(), 1, "{large} {small}");
        }
    }

    #[test]
    fn finite_languages_are_known_to_be_finite() {
        let three = strings(&["^(a|b|cd)$"], &[], 0, None, 9);
        assert_eq!((three.texts.len(), three.all), (3, true));
        let digits = strings(&["^[0-9]$"], &[], 0, None, 64);
        assert_eq!((digits.texts.len(), digits.all), (10, true));
        assert!(!strings(&["^[0-9]$"], &[], 0, None, 5).all);
        let endless = strings(&["^a*$"], &[], 0, None, 4);
        assert_eq!((endless.texts.len(), endless.all), (4, false), "{endless:?}");
    }

    #[test]
    fn lengths_count_code_points() {
        assert_eq!(strings(&["^\u{1F980}+$"], &[], 2, Some(2), 1).texts, ["\u{1F980}\u{1F980}"]);
        assert!(strings(&["^aaa"], &[], 0, Some(2), 1).all);
        assert_eq!(strings(&["^a*b$"], &[], 5, None, 1).texts, ["aaaab"]);
    }

    #[test]
    fn what_matches_is_what_the_validator_matches() {
        let (mut patterns, mut fuel) = (Patterns::default(), Fuel::new(1_000_000));
        for source in [
            "^a|b$",
            "\\d+",
            "^\\s*$",
            "[^x]",
            "^.$",
            "\\w-\\w",
            "^$",
            "a?b*c{2,3}",
            "(x|y)(z)?$",
            "\\u00e9",
            "\\.",
            "^[^/]+/[^/]+$",
        ] {
            let id = patterns.add(source);
            assert!(patterns.is_regular(id, &mut fuel), "{source}");
            for text in [
                "", "a", "ab", "b", "ba", "7", "x", " \n", "\n", "a-b", "abcc", "xz", "yzz", "\u{e9}", ".",
                "u/v", "\u{2028}",
            ] {
                assert_eq!(
                    patterns.matches(id, text, &mut fuel),
                    patterns.matches_by_validator(id, text),
                    "{source} {text:?}"
                );
            }
        }
    }

    #[test]
    fn what_is_not_regular_is_told() {
        let (mut patterns, mut fuel) = (Patterns::default(), Fuel::new(1_000_000));
        for source in ["^(?=a)", "(a)\\1", "\\bx", "(?!x)", "(a{1000}){1000}"] {
            let id = patterns.add(source);
            assert!(!patterns.is_regular(id, &mut fuel), "{source}");
        }
    }
}
