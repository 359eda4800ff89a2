//! Patterns: ECMA-262 expressions that are searched for in a text, as automata.

mod automaton;
mod nfa;
mod product;
mod size;

pub use product::{Ask, Strings};
pub use size::{bytes_of, is_regular};

use crate::fuel::Fuel;
use automaton::Automaton;
use jsonschema::{FancyRegex, PatternOptions, Validator};
use nfa::Nfa;
use serde_json::{Value, json};
use size::SIZE_LIMIT;
use std::{collections::HashMap, sync::Arc};

/// How often a pattern that is not regular may go back in a text before it counts as not found.
const BACKTRACK_LIMIT: usize = 10_000;

/// How much a pattern may remember of the texts that it has seen, in bytes, for each thread that searches for it.
const REMEMBERED_BYTES: usize = 256 * 1024;

/// What asking a validator for a text costs.
const VALIDATOR_STEPS: u64 = 500;

/// How validators search for patterns: within bounds of time and memory.
pub fn bounded() -> PatternOptions<FancyRegex> {
    PatternOptions::fancy_regex()
        .backtrack_limit(BACKTRACK_LIMIT)
        .size_limit(SIZE_LIMIT)
        .dfa_size_limit(REMEMBERED_BYTES)
}

/// The patterns of the documents that are compared, each once.
#[derive(Default)]
pub struct Patterns {
    by_source: HashMap<Arc<str>, u32>,
    patterns: Vec<Pattern>,
    matches: HashMap<(u32, Box<str>), bool>,
}

struct Pattern {
    source: Arc<str>,
    /// `None` until it is asked for; then `None` inside if it is not regular, or too large.
    automaton: Option<Option<Automaton>>,
    /// For the others, the validator answers for single texts.
    validator: Option<Validator>,
}

impl Patterns {
    pub fn add(&mut self, source: &str) -> u32 {
        if let Some(known) = self.by_source.get(source) {
            return *known;
        }
        let id = self.patterns.len() as u32;
        let source: Arc<str> = source.into();
        self.by_source.insert(source.clone(), id);
        self.patterns.push(Pattern { source, automaton: None, validator: None });
        id
    }

    /// Forgets what was made for the texts so far, some of which may have been cut off.
    pub fn forget(&mut self) {
        self.matches = HashMap::new();
        self.patterns.iter_mut().for_each(|pattern| pattern.automaton = None);
    }

    pub fn source(&self, pattern: u32) -> &Arc<str> {
        &self.patterns[pattern as usize].source
    }

    fn automaton(&mut self, pattern: u32, fuel: &mut Fuel) -> Option<&mut Automaton> {
        let pattern = &mut self.patterns[pattern as usize];
        let make = || {
            let automaton = Nfa::of(&pattern.source).map(Automaton::new);
            fuel.spend(pattern.source.len() as u64 + automaton.as_ref().map_or(0, Automaton::cost));
            automaton
        };
        pattern.automaton.get_or_insert_with(make).as_mut()
    }

    /// Whether inclusion of the pattern can be decided.
    pub fn is_regular(&mut self, pattern: u32, fuel: &mut Fuel) -> bool {
        self.automaton(pattern, fuel).is_some()
    }

    /// Whether the pattern is found in a text.
    pub fn matches(&mut self, pattern: u32, text: &str, fuel: &mut Fuel) -> bool {
        fuel.spend(1 + text.len() as u64 / 8);
        if let Some(known) = self.matches.get(&(pattern, text.into())) {
            return *known;
        }
        let found = match self.automaton(pattern, fuel) {
            Some(automaton) => automaton.matches(text, fuel),
            None => fuel.spend(VALIDATOR_STEPS) && self.matches_by_validator(pattern, text),
        };
        self.matches.insert((pattern, text.into()), found);
        found
    }

    fn matches_by_validator(&mut self, pattern: u32, text: &str) -> bool {
        let pattern = &mut self.patterns[pattern as usize];
        if pattern.validator.is_none() {
            let schema = json!({ "pattern": &*pattern.source });
            pattern.validator =
                jsonschema::options().offline().with_pattern_options(bounded()).build(&schema).ok();
        }
        pattern
            .validator
            .as_ref()
            .is_some_and(|validator| validator.is_valid(&Value::String(text.to_owned())))
    }

    /// A text in which the pattern may be found, made from its syntax alone.
    pub fn guess(&self, pattern: u32) -> Option<String> {
        jsonschema_regex::pattern_witness(self.source(pattern))
    }
}
