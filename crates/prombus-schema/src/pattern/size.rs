//! How much a pattern takes once it can be searched for, reckoned from its syntax.

use regex_syntax::{
    hir::{Class, ClassUnicode, Hir, HirKind},
    utf8::Utf8Sequences,
};

/// The most that a compiled pattern may take, in bytes; a larger one is refused.
pub const SIZE_LIMIT: usize = 1024 * 1024;

/// About how many bytes a pattern takes at least, with what is remembered of texts.
const PATTERN_BYTES: u64 = 12 * 1024;

/// About how many bytes a state of an automaton takes, and what is remembered of it.
const STATE_BYTES: u64 = 72;

/// How many groups may be open one inside the other.
const NEST_LIMIT: u32 = 200;

/// About how many bytes a pattern takes.
pub fn bytes_of(pattern: &str) -> usize {
    let length = pattern.len() as u64;
    let bytes = match regular(pattern) {
        Some(hir) => states(&hir).saturating_mul(STATE_BYTES),
        // Its parts cannot be told apart, and repetitions make them larger.
        None if pattern.contains('{') => SIZE_LIMIT as u64,
        None => length.saturating_mul(STATE_BYTES),
    };
    usize::try_from(bytes.saturating_add(PATTERN_BYTES)).unwrap_or(usize::MAX)
}

/// Whether a pattern is searched for in one walk through a text.
pub fn is_regular(pattern: &str) -> bool {
    regular(pattern).is_some()
}

fn regular(pattern: &str) -> Option<Hir> {
    let regular = jsonschema_regex::to_rust_regex(pattern).ok()?;
    regex_syntax::ParserBuilder::new().nest_limit(NEST_LIMIT).build().parse(&regular).ok()
}

/// How many states an automaton over bytes has.
fn states(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(Class::Unicode(class)) => states_of_class(class),
        HirKind::Class(Class::Bytes(class)) => class.ranges().len() as u64,
        HirKind::Capture(capture) => states(&capture.sub).saturating_add(2),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().fold(1, |sum, part| sum.saturating_add(states(part)))
        }
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min.saturating_add(1)).max(1);
            states(&repetition.sub).saturating_add(1).saturating_mul(u64::from(times))
        }
    }
}

fn states_of_class(class: &ClassUnicode) -> u64 {
    let sequences = class.ranges().iter().flat_map(|range| Utf8Sequences::new(range.start(), range.end()));
    1 + sequences.map(|sequence| sequence.len() as u64).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_as_large_as_what_it_repeats() {
        let small = PATTERN_BYTES as usize..2 * PATTERN_BYTES as usize;
        for pattern in ["", "^a$", "^[a-z0-9_]{1,30}$", "(?!a)b", "^(a|b)*$"] {
            assert!(small.contains(&bytes_of(pattern)), "{pattern}: {}", bytes_of(pattern));
        }
        assert!(bytes_of("(.{0,60}a){1,8}$") > 500_000);
        assert!(bytes_of(r"[\u0000-\uFFFF]{1,500}") > 400_000);
        assert!(bytes_of("(?!a)b{1,100}") > SIZE_LIMIT);
        assert_eq!(bytes_of("((((((a{1000}){1000}){1000}){1000}){1000}){1000}){1000}"), usize::MAX);
    }
}
