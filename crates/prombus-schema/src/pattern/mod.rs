//! Patterns: ECMA-262 expressions that are searched for in a text, as automata.

mod automaton;
mod nfa;
mod product;

pub use product::Ask;

use automaton::Automaton;
use jsonschema::Validator;
use nfa::Nfa;
use serde_json::{Value, json};
use std::{collections::HashMap, sync::Arc};

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

    pub fn source(&self, pattern: u32) -> &Arc<str> {
        &self.patterns[pattern as usize].source
    }

    fn automaton(&mut self, pattern: u32) -> Option<&mut Automaton> {
        let pattern = &mut self.patterns[pattern as usize];
        pattern.automaton.get_or_insert_with(|| Nfa::of(&pattern.source).map(Automaton::new)).as_mut()
    }

    /// Whether inclusion of the pattern can be decided.
    pub fn is_regular(&mut self, pattern: u32) -> bool {
        self.automaton(pattern).is_some()
    }

    /// Whether the pattern is found in a text.
    pub fn matches(&mut self, pattern: u32, text: &str) -> bool {
        if let Some(known) = self.matches.get(&(pattern, text.into())) {
            return *known;
        }
        let found = match self.automaton(pattern) {
            Some(automaton) => automaton.matches(text),
            None => self.matches_by_validator(pattern, text),
        };
        self.matches.insert((pattern, text.into()), found);
        found
    }

    fn matches_by_validator(&mut self, pattern: u32, text: &str) -> bool {
        let pattern = &mut self.patterns[pattern as usize];
        if pattern.validator.is_none() {
            let schema = json!({ "pattern": &*pattern.source });
            pattern.validator = jsonschema::options().offline().build(&schema).ok();
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
