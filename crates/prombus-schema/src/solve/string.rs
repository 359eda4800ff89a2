//! Texts: lengths, patterns, formats and exceptions.

use super::{Found, Rest, Solver, Why, cube::Cube};
use crate::{formats, graph::Atom, json::Json, pattern::Ask};
use std::{collections::HashSet, sync::Arc};

/// Texts that have few formats, and few patterns are found in.
const ODD: &[&str] =
    &["", "a", " ", "not this", "%", "[", "\\", "{", "-1", "\u{0}", "0", "A", "~", "..", ":"];

/// How many texts are made where only trying helps.
const TRIES: usize = 24;

impl Solver {
    pub(super) fn strings(&mut self, cube: &Cube, count: usize) -> Found {
        let mut ask = Ask::default();
        let mut not: HashSet<Arc<str>> = HashSet::new();
        let mut try_only: Option<Why> = self.opaque(cube);
        let mut candidates: Vec<String> = Vec::new();
        for (atom, claim) in self.statements(cube) {
            let negative = claim.lit.negative();
            match atom {
                Atom::MinLength(least) if negative => {
                    ask.most = Some(ask.most.unwrap_or(u64::MAX).min(least - 1))
                }
                Atom::MinLength(least) => ask.least = ask.least.max(least),
                Atom::MaxLength(most) if negative => ask.least = ask.least.max(most.saturating_add(1)),
                Atom::MaxLength(most) => ask.most = Some(ask.most.unwrap_or(u64::MAX).min(most)),
                Atom::Pattern(pattern) if !self.graph.is_regular(pattern) => {
                    try_only = Some(Why::Pattern);
                    candidates.extend(self.graph.patterns.guess(pattern));
                }
                Atom::Pattern(pattern) if negative => ask.not_found.push(pattern),
                Atom::Pattern(pattern) => ask.found.push(pattern),
                Atom::Format(format) => {
                    try_only = try_only.or(Some(Why::Format));
                    let known = if negative { &[] } else { formats::samples(&format) };
                    candidates.extend(known.iter().map(|text| (*text).to_owned()));
                }
                Atom::Enum(values) if negative => {
                    not.extend(values.values().iter().filter_map(Json::text).cloned());
                }
                _ => {}
            }
        }
        ask.count = count + not.len() + if try_only.is_some() { TRIES } else { 0 };
        let made = self.graph.strings(&ask);
        if made.cut && made.texts.is_empty() && candidates.is_empty() {
            return Found::unknown(if self.is_spent() { Why::Budget } else { Why::Size });
        }
        if made.all && made.texts.is_empty() {
            return Found::nothing();
        }
        let Some(why) = try_only else {
            let fresh = made.texts.iter().filter(|text| !not.contains(text.as_str()));
            let mut values: Vec<Json> = fresh.map(|text| Json::from(text.as_str())).collect();
            let rest = match (made.all, values.len()) {
                (true, found) if found <= count => Rest::None,
                (false, 0) => Rest::Unknown(Why::Budget),
                _ => Rest::Some,
            };
            values.truncate(count);
            return Found { rest, ..Found::some(values) };
        };
        let all = made.all;
        candidates.extend(made.texts);
        if !all {
            candidates.extend(ODD.iter().map(|text| (*text).to_owned()));
        }
        let mut seen = HashSet::new();
        candidates.retain(|text| seen.insert(text.clone()));
        let values = candidates.iter().map(|text| Json::from(text.as_str())).collect();
        let rest = if all { Rest::None } else { Rest::Unknown(why) };
        let mut found = self.among(cube, values, rest);
        if found.values.len() > count {
            found.values.truncate(count);
            found.rest = Rest::Some;
        }
        found
    }
}
