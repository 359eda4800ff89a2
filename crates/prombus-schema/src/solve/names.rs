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

/// For how many sets of properties that there have to be names are looked for that serve all of a set.
const SHARED_LIMIT: usize = 64;

/// Names that serve several properties that there have to be.
struct Shared {
    names: Vec<Arc<str>>,
    /// How many sets were looked at.
    sets: usize,
}

impl Solver {
    /// Names that are not mentioned, for the property that there has to be at `at`. Where there is not `room` for one for each
    /// that is left, one name may have to serve several: then also names for the sets that it can serve, and those that
    /// serve most come first.
    pub(super) fn fresh_for_some(
        &mut self,
        shape: &Shape,
        at: usize,
        room: u64,
        tally: &mut Tally,
    ) -> Vec<Arc<str>> {
        let left = &shape.some[at..];
        let others = if room < left.len() as u64 { &left[1..] } else { &[] };
        let mut shared = Shared { names: Vec::new(), sets: 0 };
        self.share(shape, &mut vec![&left[0]], others, &mut shared, tally);
        shared.names
    }

    /// Adds names for a set, and for each larger one that has some of the others, too.
    fn share<'s>(
        &mut self,
        shape: &Shape,
        set: &mut Vec<&'s WantedProperty>,
        others: &'s [WantedProperty],
        shared: &mut Shared,
        tally: &mut Tally,
    ) {
        if shared.sets == SHARED_LIMIT {
            return tally.doubt(Why::Properties);
        }
        shared.sets += 1;
        let names = self.fresh(shape, set, shape.some.len(), tally);
        // What no name serves, none serves together with more.
        if names.is_empty() {
            return;
        }
        for (next, some) in others.iter().enumerate() {
            set.push(some);
            self.share(shape, set, &others[next + 1..], shared, tally);
            set.pop();
        }
        shared.names.extend(names);
    }

    /// Names that are not mentioned and serve all of `somes`, up to `count` for each way in which patterns can be found in
    /// them.
    pub(super) fn fresh(
        &mut self,
        shape: &Shape,
        somes: &[&WantedProperty],
        count: usize,
        tally: &mut Tally,
    ) -> Vec<Arc<str>> {
        // What serves a property is of its names, and is not told apart by them.
        let mut ask = Ask { count: count.clamp(1, 320), ..Ask::default() };
        for names in somes.iter().filter_map(|some| some.names.as_ref()) {
            match names {
                Names::Exactly(_) => return Vec::new(),
                Names::Matching(pattern) => ask.found.push(*pattern),
                Names::Except(except) => ask.not_found.extend(&except.patterns),
            }
        }
        ask.found.sort_unstable();
        ask.found.dedup();
        let mut patterns = BTreeSet::new();
        for (names, _) in &shape.general {
            match names {
                Names::Exactly(_) => {}
                Names::Matching(pattern) => {
                    patterns.insert(*pattern);
                }
                Names::Except(except) => patterns.extend(&except.patterns),
            }
        }
        let decided: BTreeSet<u32> = ask.found.iter().chain(&ask.not_found).copied().collect();
        let open: Vec<u32> = patterns.difference(&decided).copied().collect();
        let said: Vec<Claim> =
            shape.names.iter().copied().chain(somes.iter().filter_map(|some| some.name)).collect();
        patterns.extend(decided);
        let irregular = patterns.iter().any(|pattern| !self.graph.is_regular(*pattern));
        if irregular || open.len() > PATTERNS_LIMIT {
            tally.doubt(Why::Pattern);
            return self.tried(shape, &patterns, &said);
        }
        let mut fresh = Vec::new();
        self.signatures(shape, &open, &said, &mut ask, &mut fresh, tally);
        fresh
    }

    /// Goes through the ways in which the patterns can be found, leaving those that are impossible.
    fn signatures(
        &mut self,
        shape: &Shape,
        patterns: &[u32],
        said: &[Claim],
        ask: &mut Ask,
        fresh: &mut Vec<Arc<str>>,
        tally: &mut Tally,
    ) {
        let Some((first, others)) = patterns.split_first() else {
            return fresh.extend(self.names_for(shape, said, ask, tally));
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
    fn tried(&mut self, shape: &Shape, patterns: &BTreeSet<u32>, said: &[Claim]) -> Vec<Arc<str>> {
        let guesses: Vec<String> =
            patterns.iter().filter_map(|pattern| self.graph.patterns.guess(*pattern)).collect();
        let names = TRIED.iter().map(|name| (*name).to_owned()).chain(guesses);
        let mut fresh = Vec::new();
        for name in names.map(Arc::<str>::from) {
            let text = Json::String(name.clone());
            let allowed = said.iter().all(|claim| self.graph.holds(claim.lit, &text) == Some(true));
            if allowed && !shape.mentioned.contains(&name) {
                fresh.push(name);
            }
        }
        fresh
    }
}
