//! Names of properties that are written nowhere: one for every way in which patterns can be found in them.

use super::{
    Claim, Rest, Solver, Tally, Why,
    object::{Shape, WantedProperty},
};
use crate::{
    graph::{Atom, Kind, Listed, Names},
    json::Json,
    pattern::Ask,
};
use std::{collections::BTreeSet, sync::Arc};

/// Names that are tried where patterns are not regular.
const TRIED: &[&str] = &["extra", "a", "A", "x-extra", "0", "_", "$", "-", "a b", "a.b", "a/b", "other"];

/// How many patterns are told apart.
const PATTERNS_LIMIT: usize = 12;

/// Names in which the same patterns are found.
pub(super) struct Fresh {
    pub names: Vec<Arc<str>>,
}

impl Solver {
    /// Names that are not mentioned, up to `count` for each way in which patterns can be found in them.
    pub(super) fn fresh(
        &mut self,
        shape: &Shape,
        some: &WantedProperty,
        count: usize,
        tally: &mut Tally,
    ) -> Vec<Fresh> {
        let mut patterns = BTreeSet::new();
        for names in shape.general.iter().map(|(names, _)| names).chain(&some.names) {
            match names {
                Names::Exactly(_) => {}
                Names::Matching(pattern) => {
                    patterns.insert(*pattern);
                }
                Names::Except(except) => patterns.extend(except.patterns.iter().copied()),
            }
        }
        if let Some(Names::Exactly(_)) = &some.names {
            return Vec::new();
        }
        let said: Vec<Claim> = shape.names.iter().copied().chain(some.name).collect();
        let irregular = patterns.iter().any(|pattern| !self.graph.is_regular(*pattern));
        if irregular || patterns.len() > PATTERNS_LIMIT {
            tally.doubt(Why::Pattern);
            return self.tried(shape, &patterns, &said);
        }
        let mut fresh = Vec::new();
        let patterns: Vec<u32> = patterns.into_iter().collect();
        let mut ask = Ask { count: count.clamp(1, 320), ..Ask::default() };
        self.signatures(shape, &patterns, &said, &mut ask, &mut fresh, tally);
        fresh
    }

    /// Goes through the ways in which the patterns can be found, leaving those that are impossible.
    fn signatures(
        &mut self,
        shape: &Shape,
        patterns: &[u32],
        said: &[Claim],
        ask: &mut Ask,
        fresh: &mut Vec<Fresh>,
        tally: &mut Tally,
    ) {
        let Some((first, others)) = patterns.split_first() else {
            let names = self.names_for(shape, said, ask, tally);
            if !names.is_empty() {
                fresh.push(Fresh { names });
            }
            return;
        };
        for found in [false, true] {
            let list = if found { &mut ask.found } else { &mut ask.not_found };
            list.push(*first);
            let one = Ask { count: 1, ..ask.clone() };
            let possible = self.graph.strings(&one);
            if !possible.texts.is_empty() {
                self.signatures(shape, others, said, ask, fresh, tally);
            } else if !possible.all {
                tally.doubt(Why::Budget);
            }
            let list = if found { &mut ask.found } else { &mut ask.not_found };
            list.pop();
        }
    }

    /// Names for one way in which patterns are found.
    fn names_for(&mut self, shape: &Shape, said: &[Claim], ask: &Ask, tally: &mut Tally) -> Vec<Arc<str>> {
        if said.is_empty() && ask.found.is_empty() && ask.not_found.is_empty() {
            let name =
                |number: usize| if number == 0 { "extra".into() } else { format!("extra{number}").into() };
            return (0..).map(name).filter(|name| !shape.mentioned.contains(name)).take(ask.count).collect();
        }
        if said.is_empty() {
            let more = Ask { count: ask.count + shape.mentioned.len(), ..ask.clone() };
            let strings = self.graph.strings(&more);
            let names = strings.texts.iter().map(|text| text.as_str().into());
            let names: Vec<Arc<str>> =
                names.filter(|name| !shape.mentioned.contains(name)).take(ask.count).collect();
            if !strings.all && names.len() < ask.count {
                tally.doubt(Why::Budget);
            }
            return names;
        }
        let mut claims = said.to_vec();
        let text = Atom::Kinds(Kind::String.bit());
        claims.push(Claim::plain(self.graph.atom(text)));
        for pattern in &ask.found {
            claims.push(Claim::plain(self.graph.atom(Atom::Pattern(*pattern))));
        }
        for pattern in &ask.not_found {
            claims.push(Claim::plain(self.graph.atom(Atom::Pattern(*pattern)).not()));
        }
        if !shape.mentioned.is_empty() {
            self.spend(shape.mentioned.len() as u64);
            let mentioned = Listed::new(shape.mentioned.iter().map(|name| Json::String(name.clone())));
            claims.push(Claim::plain(self.graph.atom(Atom::Enum(Arc::new(mentioned))).not()));
        }
        let found = self.place(claims, ask.count);
        tally.low = tally.low.min(found.low);
        if found.rest != Rest::None && found.values.len() < ask.count {
            tally.doubt(found.doubt().unwrap_or(Why::Properties));
        }
        found.values.iter().filter_map(Json::text).cloned().collect()
    }

    /// Names that are tried one by one.
    fn tried(&mut self, shape: &Shape, patterns: &BTreeSet<u32>, said: &[Claim]) -> Vec<Fresh> {
        let guesses: Vec<String> =
            patterns.iter().filter_map(|pattern| self.graph.patterns.guess(*pattern)).collect();
        let names = TRIED.iter().map(|name| (*name).to_owned()).chain(guesses);
        let mut fresh = Vec::new();
        for name in names.map(Arc::<str>::from) {
            let text = Json::String(name.clone());
            let allowed = said.iter().all(|claim| self.graph.holds(claim.lit, &text) == Some(true));
            if allowed && !shape.mentioned.contains(&name) {
                fresh.push(Fresh { names: vec![name] });
            }
        }
        fresh
    }
}
