//! A pattern as a nondeterministic automaton over code points.

use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// How many states the automaton of one pattern may have, and how many ranges of code points in all.
const STATES_LIMIT: usize = 8_000;

/// See [`STATES_LIMIT`].
const RANGES_LIMIT: usize = 50_000;

/// Code points, as ranges in order.
pub type Ranges = Box<[(char, char)]>;

#[derive(Debug)]
pub enum State {
    /// One of these code points leads on.
    Read(Ranges, u32),
    Split(Vec<u32>),
    /// Only at the beginning of the text.
    Start(u32),
    /// Only at its end.
    End(u32),
    Match,
}

/// An automaton that begins in state 0, anywhere in the text.
#[derive(Debug)]
pub struct Nfa {
    pub states: Vec<State>,
    /// The state that passes over what comes before the expression.
    pub pass: u32,
    ranges: usize,
}

impl Nfa {
    /// `None` if the pattern is not regular, or too large.
    pub fn of(source: &str) -> Option<Self> {
        let translated = jsonschema_regex::to_rust_regex(source).ok()?;
        let hir = regex_syntax::ParserBuilder::new().nest_limit(200).build().parse(&translated).ok()?;
        let mut nfa = Self { states: vec![State::Split(Vec::new())], pass: 0, ranges: 0 };
        let end = nfa.push(State::Match)?;
        let start = nfa.compile(&hir, end)?;
        nfa.pass = nfa.push(State::Read([('\0', char::MAX)].into(), 0))?;
        nfa.states[0] = State::Split(vec![start, nfa.pass]);
        Some(nfa)
    }

    fn push(&mut self, state: State) -> Option<u32> {
        if let State::Read(ranges, _) = &state {
            self.ranges += ranges.len();
        }
        if self.states.len() >= STATES_LIMIT || self.ranges > RANGES_LIMIT {
            return None;
        }
        self.states.push(state);
        Some(self.states.len() as u32 - 1)
    }

    /// The state from which `hir` leads to `next`.
    fn compile(&mut self, hir: &Hir, next: u32) -> Option<u32> {
        match hir.kind() {
            HirKind::Empty => Some(next),
            HirKind::Literal(literal) => {
                let text = std::str::from_utf8(&literal.0).ok()?;
                text.chars().rev().try_fold(next, |next, c| self.push(State::Read([(c, c)].into(), next)))
            }
            HirKind::Class(Class::Unicode(class)) => {
                let ranges: Ranges =
                    class.ranges().iter().map(|range| (range.start(), range.end())).collect();
                self.push(State::Read(ranges, next))
            }
            HirKind::Class(Class::Bytes(class)) => {
                let ranges =
                    class.ranges().iter().map(|r| (char::from(r.start()), char::from(r.end()))).collect();
                class.is_ascii().then(|| self.push(State::Read(ranges, next)))?
            }
            HirKind::Look(Look::Start) => self.push(State::Start(next)),
            HirKind::Look(Look::End) => self.push(State::End(next)),
            HirKind::Look(_) => None,
            HirKind::Capture(capture) => self.compile(&capture.sub, next),
            HirKind::Concat(parts) => {
                parts.iter().rev().try_fold(next, |next, part| self.compile(part, next))
            }
            HirKind::Alternation(parts) => {
                let starts = parts.iter().map(|part| self.compile(part, next)).collect::<Option<_>>()?;
                self.push(State::Split(starts))
            }
            HirKind::Repetition(repetition) => {
                let tail = match repetition.max {
                    None => {
                        let again = self.push(State::Split(Vec::new()))?;
                        let body = self.compile(&repetition.sub, again)?;
                        self.states[again as usize] = State::Split(vec![body, next]);
                        again
                    }
                    Some(max) => (repetition.min..max).try_fold(next, |tail, _| {
                        let body = self.compile(&repetition.sub, tail)?;
                        self.push(State::Split(vec![body, next]))
                    })?,
                };
                (0..repetition.min).try_fold(tail, |tail, _| self.compile(&repetition.sub, tail))
            }
        }
    }
}
